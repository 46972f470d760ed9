"""The examples of host programs, each run as its reader would run it."""

import collections
import gzip
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from actorproc.cli.main import build_parser

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.processes


def run(program, directory, *arguments):
    command = [sys.executable, "-W", "error", str(EXAMPLES / program), *arguments]
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}
    return subprocess.run(
        command, cwd=directory, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def application(tmp_path, monkeypatch):
    """The FastAPI application of the example, on a directory of the test's."""
    pytest.importorskip("fastapi")
    pytest.importorskip("httpx")
    monkeypatch.setenv("STATE", str(tmp_path / "state"))
    place = EXAMPLES / "03_fastapi_lifespan" / "app.py"
    spec = importlib.util.spec_from_file_location("app_of_the_example", place)
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, spec.name, module)
    spec.loader.exec_module(module)
    return module.app


@pytest.mark.filterwarnings("default")  # those of FastAPI and Starlette are theirs
def test_the_fastapi_application_accepts_reports_and_remembers_them_over_a_restart(application):
    from fastapi.testclient import TestClient

    with TestClient(application) as client:
        accepted = client.post("/reports", json={"id": "may", "numbers": [3, 1, 2]})
        assert (accepted.status_code, accepted.json()) == (202, {"id": "may"})
        result = client.get("/reports/may/result")
        assert result.json() == {"count": 3, "middle": 2, "largest": 3}
        assert client.get("/reports/may").json()["state"] == "SUCCESS"
        assert client.get("/reports/june").status_code == 404
        client.post("/reports", json={"id": "empty", "numbers": []})
        failed = client.get("/reports/empty/result")
        assert (failed.status_code, "no numbers" in failed.text) == (500, True)
        assert client.get("/health").json() == {"status": "running", "problems": []}

    with TestClient(application) as client:  # the server was started again
        assert client.get("/reports/may/result").json() == result.json()


@pytest.mark.filterwarnings("default")
def test_a_real_server_starts_and_stops_the_engine_with_its_lifespan(tmp_path):
    pytest.importorskip("fastapi")
    pytest.importorskip("uvicorn")
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent), "STATE": str(tmp_path / "state")}
    server = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "app:app", "--port", "0"], cwd=EXAMPLES / "03_fastapi_lifespan",
        env=environment, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        for line in server.stderr:
            if "Uvicorn running" in line:
                break
        server.send_signal(signal.SIGINT)
        assert server.wait(30) is not None
        assert "Application shutdown complete" in server.stderr.read()
    finally:
        server.kill()
        server.communicate()


def test_the_pykka_application_replaces_its_engine_and_loses_no_order(tmp_path):
    ended = run("04_pykka_application.py", tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "book shipped",
        "the engine failed and is replaced",
        "lamp shipped",
        "book shipped",
    ]


def test_the_asyncio_service_answers_pings_while_workers_count(tmp_path):
    ended = run("05_asyncio_service.py", tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "primes: 78498 41538\npings answered meanwhile: True\n"


def test_the_crawler_waits_for_all_pages_beside_each_other_and_gives_one_up(tmp_path):
    ended = run("14_async_steps.py", tmp_path)

    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.splitlines() == [
        "200 pages, 200 links",
        "the broken one: step 1 (fetch) ran longer than its wall time of 1 s",
    ]


def test_the_press_runs_as_a_service_and_goes_on_after_a_kill(tmp_path):
    """The module ``06_systemd/press.py`` by `actorproc run`, killed once and started again."""
    shutil.copy(EXAMPLES / "06_systemd" / "press.py", tmp_path)
    environment = os.environ | {"PYTHONPATH": str(EXAMPLES.parent)}

    def start():
        return subprocess.Popen(
            [sys.executable, "-m", "actorproc", "run", "press"], cwd=tmp_path, env=environment, stderr=subprocess.PIPE
        )

    def press(name, service):
        (tmp_path / "spool" / name).write_text(name * 1000)
        packed, deadline = tmp_path / "spool" / f"{name}.gz", time.monotonic() + 60
        while not packed.exists():
            assert service.poll() is None, service.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert gzip.decompress(packed.read_bytes()) == (name * 1000).encode()

    (tmp_path / "spool").mkdir()
    service = start()
    try:
        press("first", service)
        service.kill()
        service.communicate()
        service = start()
        press("second", service)
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
    finally:
        service.kill()
        service.communicate()


def unit_of(name):
    """The text of a unit file, and its settings."""
    text = (EXAMPLES / "06_systemd" / name).read_text()
    return text, dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))


def test_the_unit_of_the_service_leaves_time_for_its_end():
    _, told = unit_of("press.service")

    assert told["Type"] == "notify"
    assert told["KillMode"] == "mixed"
    assert float(told["TimeoutStopSec"]) > 30  # more than the drain takes


def test_the_unit_of_the_dashboard_reaches_this_machine_alone_and_writes_into_its_directory_alone():
    _, told = unit_of("press-web.service")

    assert (told["IPAddressDeny"], told["IPAddressAllow"]) == ("any", "localhost")
    assert (told["ProtectSystem"], told["ReadWritePaths"]) == ("strict", told["WorkingDirectory"])
    assert (told["NoNewPrivileges"], told["MemoryMax"]) == ("true", "200M")
    assert "--host" not in told["ExecStart"]


UNITS = ("press.service", "press-web.service")


@pytest.mark.parametrize("name", UNITS)
def test_a_unit_starts_a_command_that_exists(name):
    program, *words = unit_of(name)[1]["ExecStart"].split()

    assert program.endswith("/bin/actorproc")
    assert build_parser().parse_args(words).command == words[0]


@pytest.mark.parametrize("name", UNITS)
def test_the_unit_file_is_one_that_systemd_accepts(tmp_path, name):
    text, _ = unit_of(name)
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / name
    unit.write_text(text.replace("/srv/press/.venv/bin/actorproc", sys.executable).replace("/srv/press", str(tmp_path)))

    # Off the machine's own units: theirs may have troubles of their own.
    ended = subprocess.run(
        [verify, "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    complaints = [line for line in ended.stderr.splitlines() if name in line]
    assert complaints == []


def test_the_heavy_batch_loses_a_worker_and_counts_right(tmp_path):
    source = Path(json.__file__).parents[1] / "asyncio"

    ended = run("07_heavy_batch.py", tmp_path, "--source", str(source), "--check")

    assert ended.returncode == 0, ended.stderr
    words = collections.Counter()
    for path in source.rglob("*.py"):
        words.update(re.findall(r"[^\W\d_]{3,}", path.read_text().lower()))
    lines = ended.stdout.splitlines()
    assert lines[1] == f"words: {sum(words.values())}"
    assert lines[3] in {"workers killed: 0", "workers killed: 1"}
    assert lines[4] == "as a plain loop counts them: True"
