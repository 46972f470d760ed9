"""Managers and hosts as processes on one database: killed, frozen and cut off; nothing is lost."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, EngineError, Limits, ProcedureManager, UsageError
from actorproc.cli.main import main
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.schema.grants import grants
from actorproc.testing.database_server import find_server
from actorproc.testing.torture.cluster.proxy import Proxy
from tests.databases import database_or_skip
from tests.hosts.journalled import Noted
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
PATIENCE = 3.0


def config(**options) -> Config:
    return Config(lease=1.0, host_patience=PATIENCE, spares=0, allow_any_filesystem=True, **options)


class Program:
    """A process of the command line, and what it logs."""

    def __init__(self, tmp_path, *arguments: str, group: bool = False) -> None:
        self.log = tmp_path / f"log-{time.monotonic_ns()}.txt"
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        with self.log.open("w") as file:
            command = [sys.executable, "-m", "actorproc", *arguments]
            self.process = subprocess.Popen(
                command, stderr=file, stdout=file, env=environment, cwd=ROOT, process_group=0 if group else None
            )
        self.pid = self.process.pid

    def said(self, text: str) -> bool:
        return text in self.log.read_text()

    def end(self) -> None:
        if self.process.poll() is None:
            os.kill(self.pid, signal.SIGCONT)
            self.process.kill()
        self.process.wait(BOUND)


@pytest.fixture
def programs(tmp_path, url):
    """A function that starts a host."""
    made = []

    def start(*options: str, command: str = "worker", group: bool = False) -> Program:
        made.append(Program(tmp_path, command, "tests.hosts.journalled", "--path", url, *options, group=group))
        return made[-1]

    yield start
    for program in made:
        program.end()


@pytest.fixture
def leader(url):
    """A manager that leads, with one worker of its own."""
    with ProcedureManager(url, procedures=[Noted], workers=1, config=config()) as manager:
        yield manager


def noted(journal) -> list[list[str]]:
    return [line.split() for line in journal.read_text().splitlines()] if journal.exists() else []


def check(journal, handles, steps: int) -> None:
    """Each procedure ended with its number of steps, and the last begin of each step has an end."""
    for handle in handles:
        assert handle.result(BOUND) == steps
    ended = {(id_, step) for word, id_, step, *_ in noted(journal) if word == "end"}
    assert ended == {(handle.id, str(step)) for handle in handles for step in range(1, steps + 1)}


def joined(*hosts: Program) -> None:
    wait_until(lambda: all(host.said("joined the leader") for host in hosts))


def test_steps_run_on_hosts_and_here(leader, programs, tmp_path):
    journal = tmp_path / "journal"
    first, second = programs("-n", "2"), programs("-n", "2")
    joined(first, second)
    handles = [leader.submit(Noted(str(journal), 3)) for _ in range(20)]
    check(journal, handles, 3)
    assert {int(parent) for *_, parent in noted(journal)} == {os.getpid(), first.pid, second.pid}


def test_a_host_has_a_context_manager_of_its_own_around_steps_and_writes_its_log_as_json(
    leader, programs, tmp_path, monkeypatch
):
    monkeypatch.setenv("AROUND_FILE", str(tmp_path / "around"))
    journal = tmp_path / "journal"
    host = programs(
        "-n", "1", "--label", "gpu", "--around-step", "tests.hosts.journalled:around", "--log-format", "json"
    )
    joined(host)

    there = leader.submit(Noted(str(journal), 2), limits=Limits(on=("gpu",)))
    check(journal, [there], 2)

    around = [line.split() for line in (tmp_path / "around").read_text().splitlines()]
    assert [line[:2] for line in around] == [[there.id, "1"], [there.id, "2"]]
    assert {parent for *_, parent in around} == {str(host.pid)}
    lines = [json.loads(line) for line in host.log.read_text().splitlines()]
    assert {line["logger"].partition(".")[0] for line in lines} == {"actorproc"}


def test_steps_that_ask_for_a_label_run_on_the_host_that_offers_it(leader, programs, tmp_path):
    journal = tmp_path / "journal"
    waits = leader.submit(Noted(str(journal), 2), limits=Limits(on=("gpu",)))
    wait_until(lambda: "for a host with gpu" in (waits.info().reason or ""))
    plain, gpus = programs("-n", "1"), programs("-n", "2", "--label", "gpu", "--resource", "gpu=1")
    joined(plain, gpus)
    both = Limits(on=("gpu",), resources={"gpu": 1})
    handles = [leader.submit(Noted(str(journal), 2), limits=both) for _ in range(5)]
    check(journal, [waits, *handles], 2)
    assert {int(parent) for *_, parent in noted(journal)} == {gpus.pid}


def test_hosts_are_listed_and_drained_by_a_command(leader, programs, url, capsys, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    host = programs("-n", "2", "--label", "gpu", "--resource", "gpu=2")
    joined(host)
    wait_until(lambda: leader._tree.hosts() and leader._tree.hosts()[0].workers == 2)
    assert main(["hosts", "--path", url, "-o", "json"]) == 0
    [row] = json.loads(capsys.readouterr().out)["hosts"]
    assert (row["labels"], row["resources"], row["state"], row["pid"]) == (["gpu"], {"gpu": 2.0}, "joined", host.pid)
    assert row["variables"] == {"OMP_NUM_THREADS": "3"}
    assert main(["hosts", "--path", url]) == 0
    told = capsys.readouterr().out
    assert "offers gpu and 2 gpu" in told
    assert ", OMP_NUM_THREADS=3" in told

    assert main(["hosts", "--path", url, "--drain", "h99"]) == 1
    assert main(["hosts", "--path", url, "--drain", row["name"]]) == 0
    assert host.process.wait(BOUND) == 0, "it has left in order"
    wait_until(lambda: not leader._tree.hosts())
    capsys.readouterr()
    assert main(["hosts", "--path", url]) == 0
    assert capsys.readouterr().out == "no host has joined\n"


@pytest.mark.parametrize("whom", ["a worker", "an agent", "an agent that is frozen"])
def test_nothing_is_lost_when_a_part_of_a_host_goes(leader, programs, tmp_path, whom):
    journal = tmp_path / "journal"
    first, second = programs("-n", "2"), programs("-n", "2")
    joined(first, second)
    handles = [leader.submit(Noted(str(journal), 4, 0.2)) for _ in range(10)]
    wait_until(lambda: str(first.pid) in {parent for *_, parent in noted(journal)})
    if whom == "a worker":
        workers = [child for child in psutil.Process(first.pid).children() if child.is_running()]
        workers[0].kill()
    elif whom == "an agent":
        first.process.kill()
    else:
        os.kill(first.pid, signal.SIGSTOP)
        wait_until(lambda: len(noted(journal)) >= 40)
        time.sleep(PATIENCE)
        os.kill(first.pid, signal.SIGCONT)
    check(journal, handles, 4)
    assert all(handle.info().crashes == 0 for handle in handles) or whom == "a worker"


def test_a_link_that_is_cut_again_and_again_loses_and_repeats_nothing(url, programs, tmp_path):
    journal = tmp_path / "journal"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with Proxy("127.0.0.1", port) as proxy:
        places = {"listen": f"127.0.0.1:{port}", "advertise": f"127.0.0.1:{proxy.port}"}
        with ProcedureManager(url, procedures=[Noted], workers=1, config=config(**places)) as manager:
            host = programs("-n", "2")
            joined(host)
            handles = [manager.submit(Noted(str(journal), 5, 0.02)) for _ in range(20)]
            for count in range(20, 180, 20):
                wait_until(lambda count=count: len(noted(journal)) >= count)
                proxy.cut()
            check(journal, handles, 5)
            assert str(host.pid) in {parent for *_, parent in noted(journal)}
            begun = [tuple(entry[1:3]) for entry in noted(journal) if entry[0] == "begin"]
            assert len(begun) == len(set(begun)) == 100, "a step was repeated"
            assert host.said("resumed the link")


def test_a_host_drains_on_sigterm_and_its_steps_end_there(leader, programs, tmp_path):
    journal = tmp_path / "journal"
    host = programs("-n", "2")
    joined(host)
    handles = [leader.submit(Noted(str(journal), 1, 0.5)) for _ in range(3)]
    wait_until(lambda: str(host.pid) in {parent for *_, parent in noted(journal)})
    host.process.send_signal(signal.SIGTERM)
    assert host.process.wait(BOUND) == 0
    check(journal, handles, 1)
    begun = [entry[1:4] for entry in noted(journal) if entry[0] == "begin"]
    assert len(begun) == len({tuple(entry) for entry in begun}) == 3, "no step was run twice"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_to_the_group_of_an_agent_does_not_reach_its_workers(leader, programs, tmp_path, number):
    """As systemd, tini -g and a terminal send it: the agent drains, and the running step ends well."""
    journal = tmp_path / "journal"
    host = programs("-n", "1", group=True)
    joined(host)
    wait_until(lambda: psutil.Process(host.pid).children())
    handles = [leader.submit(Noted(str(journal), 1, 1.0)) for _ in range(3)]
    wait_until(lambda: str(host.pid) in {parent for *_, parent in noted(journal)})
    assert os.getpgid(host.pid) == host.pid
    os.killpg(host.pid, number)
    assert host.process.wait(BOUND) in {0, -number}
    check(journal, handles, 1)
    begun = [tuple(entry[1:3]) for entry in noted(journal) if entry[0] == "begin"]
    assert len(begun) == len(set(begun)) == 3, "no step was run twice"


def test_hosts_go_on_with_the_next_leader(url, programs, tmp_path):
    journal = tmp_path / "journal"
    first = programs("--workers", "1", command="run")
    wait_until(lambda: first.said("serves"))
    host = programs("-n", "2")
    joined(host)
    with ProcedureManager(url, procedures=[Noted], workers=1, config=config()) as manager:
        handles = [manager.submit(Noted(str(journal), 4, 0.3)) for _ in range(4)]
        wait_until(lambda: str(host.pid) in {parent for *_, parent in noted(journal)})
        first.process.kill()
        check(journal, handles, 4)
        assert manager.health().role == "leading"


def test_a_manager_that_only_follows_has_the_methods_and_lends_its_workers(leader, url, tmp_path):
    journal = tmp_path / "journal"
    with ProcedureManager(url, procedures=[Noted], workers=2, lead=False, config=config()) as follower:
        assert not follower._tree.leads
        wait_until(lambda: follower._tree._host.agent.is_joined)
        handles = [follower.submit(Noted(str(journal), 2)) for _ in range(4)]
        check(journal, handles, 2)


def test_a_manager_that_only_follows_needs_a_leader(url):
    manager = ProcedureManager(url, procedures=[Noted], workers=1, lead=False, config=config(boot_timeout=0.5))
    with pytest.raises(EngineError, match="lead=False"):
        manager.start()


def test_a_directory_has_no_followers(tmp_path):
    with pytest.raises(UsageError, match="needs a store in a database"):
        ProcedureManager(tmp_path / "state", lead=False)


def test_a_host_needs_a_role_that_may_read_the_row_of_the_leader_alone(url, tmp_path):
    journal = tmp_path / "journal"
    roles = {"owner": "hosts_owner", "host": "hosts_host", "looker": "hosts_looker", "enqueuer": "hosts_enqueuer"}
    place = place_of(url)

    def as_administrator(*lines: str) -> None:
        command = [str(find_server() / "psql"), "-v", "ON_ERROR_STOP=1", "-qX", database_or_skip().url()]
        subprocess.run(command, input="\n".join(lines), text=True, capture_output=True, check=True)

    as_administrator(*grants(place, **roles))
    owner, host = (url.replace("//actorproc@", f"//hosts_{role}@") for role in ("owner", "host"))
    with ProcedureManager(owner, procedures=[Noted], workers=1, config=config()) as manager:
        as_administrator(*grants(place, **roles))
        program = Program(tmp_path, "worker", "tests.hosts.journalled", "--path", host, "-n", "1")
        try:
            joined(program)
            handles = [manager.submit(Noted(str(journal), 2, 0.3)) for _ in range(6)]
            check(journal, handles, 2)
            assert str(program.pid) in {parent for *_, parent in noted(journal)}
        finally:
            program.end()
    as_administrator(
        f"DROP SCHEMA {place.schema} CASCADE;", *(f"DROP OWNED BY {role}; DROP ROLE {role};" for role in roles.values())
    )


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("tests.hosts.journalled", "--path", "state"), "a host serves a store in a database"),
        (("tests.hosts.nowhere", "--path", "postgresql://db/app"), "there is no module"),
        (("tests.hosts.journalled:nothing", "--path", "postgresql://db/app"), "has no 'nothing'"),
        (("tests.hosts.journalled", "--path", "postgresql://u:secret@db/app"), "password"),
        (("tests.hosts.journalled", "--path", "postgresql://db/app", "--label", "a b"), "label"),
    ],
)
def test_what_cannot_be_a_host_is_told_in_words(arguments, words):
    ended = subprocess.run(
        [sys.executable, "-m", "actorproc", "worker", *arguments],
        capture_output=True, text=True, timeout=BOUND, cwd=ROOT, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert words in ended.stderr
    assert "Traceback" not in ended.stderr


def test_a_password_in_the_environment_is_not_one_on_the_command_line():
    ended = subprocess.run(
        [sys.executable, "-m", "actorproc", "worker", "tests.hosts.journalled:nothing"],
        env={**os.environ, "ACTORPROC_PATH": "postgresql://u:secret@db/app"},
        capture_output=True, text=True, timeout=BOUND, cwd=ROOT, check=False,
    )  # fmt: skip
    assert ended.returncode == 2
    assert "has no 'nothing'" in ended.stderr
    assert "secret" not in ended.stderr
