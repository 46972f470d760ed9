"""The demo with several machines: ends consistent, leaves nothing, also after Ctrl-C; says what it needs."""

from __future__ import annotations

import signal

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc.cli.main import main
from actorproc.cli.output import requirements
from actorproc.errors import EngineError
from actorproc.testing.database_server import find_server
from tests.kit.demos import demo_run
from tests.kit.waiting import wait_until


@pytest.fixture
def demo(tmp_path):
    with demo_run(tmp_path) as run:
        yield run


@pytest.mark.processes
@pytest.mark.timeout(300)
def test_hosts_that_are_plain_processes_end_consistent_and_leave_nothing(demo):
    process = demo.start("--hosts", "2")
    told, _ = process.communicate(timeout=280)

    assert process.returncode == 0, told
    demo.check_consistent(told)
    demo.check_gone(told)


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_demo_that_is_interrupted_leaves_nothing(demo, number):
    process = demo.start("--hosts", "1", "--no-chaos")
    told = ""
    while "1. Create table" not in told:
        line = process.stdout.readline()
        assert line, told
        told += line
    wait_until(lambda: len(demo.processes()) > 8)
    process.send_signal(number)
    process.send_signal(number)
    rest, _ = process.communicate(timeout=120)

    assert process.returncode not in (0, 1), rest
    assert "Traceback" not in rest
    demo.check_gone(told)


def test_what_is_missing_is_told_with_the_commands_to_type(monkeypatch, capsys):
    def no_server():
        raise EngineError("no PostgreSQL server was found")

    monkeypatch.setattr(requirements.importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(requirements, "find_server", no_server)
    monkeypatch.setattr(requirements.shutil, "which", lambda name: name if name == "apt-get" else None)

    assert main(["demo", "--cluster"]) == 2
    told = capsys.readouterr().out
    assert "  pip install 'actorproc[postgres,ray]'\n" in told
    assert "  apt-get install -y postgresql\n" in told
    assert "actorproc demo --hosts 2" in told

    assert main(["demo", "--hosts", "2"]) == 2
    told = capsys.readouterr().out
    assert "  pip install 'actorproc[postgres]'\n" in told
    assert "Ray" not in told


def test_nothing_is_missing_where_all_is_there():
    pytest.importorskip("psycopg", reason="extra postgres")
    try:
        find_server()
    except EngineError as error:
        pytest.skip(f"no PostgreSQL: {error}")
    assert requirements.missing_parts("this demo") == []
