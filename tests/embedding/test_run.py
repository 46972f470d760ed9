"""``actorproc run``: a manager as a service, under a service manager that is a socket of the test's."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

import actorproc
from actorproc.api.launch.targets import CannotRun
from actorproc.cli.main import main
from actorproc.cli.service.notify import Notifier
from actorproc.cli.service.run import find_manager

ROOT = Path(__file__).parents[2]
SERVICE = '''
import os, time
from dataclasses import dataclass
from pathlib import Path
from actorproc import Config, Procedure, ProcedureManager, Status, procedure

@dataclass
class Nap(Procedure):
    seconds: float
    def execute(self, ctx):
        with Path("naps").open("a") as file:
            file.write(f"begun {os.environ.get('NOTIFY_SOCKET')}\\n")
        time.sleep(self.seconds)
        with Path("naps").open("a") as file:
            file.write("ended\\n")
        return Status.done("rested")

@procedure
def hello(): return "hello"

def make(): return ProcedureManager("made", procedures=[Nap], workers=1, config=Config(spares=0, restart_limit=1))

class Started(ProcedureManager):
    """A service with work in it from the beginning."""
    def start(self):
        super().start()
        self.submit(Nap(float(os.environ.get("NAP", "0"))), id="nap")
        return self

ready = Started("state", procedures=[Nap], workers=1)
nothing = 3
'''


class FakeSystemd:
    """The socket that NOTIFY_SOCKET names, and what was said to it."""

    def __init__(self, address):
        self.address = address
        self.said = []
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(30)

    def hear(self, line):
        """Wait until this line, or one that begins so, was said; the whole datagram."""
        while True:
            lines = self.socket.recv(65536).decode().split("\n")
            self.said += lines
            if any(each.startswith(line) for each in lines):
                return lines


@pytest.fixture
def systemd(tmp_path):
    # Socket paths are short by nature; pytest's may be too long.
    fake = FakeSystemd(f"@actorproc-test-{os.getpid()}-{time.monotonic_ns()}")
    yield fake
    fake.socket.close()


@pytest.fixture
def serve(tmp_path, systemd):
    """Start ``actorproc run`` in the test's directory."""
    (tmp_path / "service_under_test.py").write_text(SERVICE)
    running = []

    def start(target, *options, **environment):
        running.append(
            subprocess.Popen(
                [sys.executable, "-m", "actorproc", "run", target, *options],
                cwd=tmp_path,
                text=True,
                env=os.environ | {"PYTHONPATH": str(ROOT), "NOTIFY_SOCKET": systemd.address} | environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        )
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_signal_drains_and_systemd_hears_each_step(serve, systemd, tmp_path, until, number):
    service = serve("service_under_test:ready", NAP="0.5")
    ready = systemd.hear("READY=1")
    until((tmp_path / "naps").exists)

    service.send_signal(number)

    assert any(line.startswith("STATUS=running: 1 workers") for line in ready)
    assert any("running steps" in line for line in systemd.hear("STOPPING=1"))
    assert service.wait(30) == 0, service.communicate()
    # The worker does not inherit the socket, and the running step was waited for.
    assert (tmp_path / "naps").read_text() == "begun None\nended\n"


@pytest.mark.processes
def test_a_second_signal_ends_it_at_once_and_the_step_runs_again_later(serve, systemd, tmp_path, until):
    service = serve("service_under_test:ready", NAP="60")
    systemd.hear("READY=1")
    # Not until the file exists: a worker that is killed between open and write leaves it empty.
    until(lambda: (tmp_path / "naps").exists() and (tmp_path / "naps").read_text() == "begun None\n")

    service.send_signal(signal.SIGTERM)
    systemd.hear("STOPPING=1")
    service.send_signal(signal.SIGTERM)

    assert service.wait(30) == 128 + signal.SIGTERM
    assert "second signal" in service.communicate()[1]
    again = serve("service_under_test:ready", NAP="60")
    until(lambda: (tmp_path / "naps").read_text() == "begun None\n" * 2 or again.poll() is not None)
    assert again.poll() is None, again.communicate()[1]
    again.kill()


@pytest.mark.processes
def test_a_stop_does_not_wait_longer_than_it_was_told(serve, systemd, tmp_path, until):
    service = serve("service_under_test:ready", "--stop-timeout", "0.5", NAP="60")
    until((tmp_path / "naps").exists)
    systemd.hear("READY=1")

    service.send_signal(signal.SIGTERM)

    assert service.wait(30) == 0


@pytest.mark.processes
def test_the_watchdog_is_fed_while_the_manager_answers(serve, systemd):
    service = serve("service_under_test:make", WATCHDOG_USEC="400000")

    for _ in range(3):
        assert any(line.startswith("STATUS=running") for line in systemd.hear("WATCHDOG=1"))

    service.send_signal(signal.SIGTERM)
    systemd.hear("STOPPING=1")
    assert service.wait(30) == 0


@pytest.mark.processes
def test_without_a_watchdog_nobody_feeds_one(serve, systemd):
    service = serve("service_under_test:make", WATCHDOG_USEC="400000", WATCHDOG_PID="1")
    systemd.hear("STATUS=running")
    service.send_signal(signal.SIGTERM)
    systemd.hear("STOPPING=1")
    service.wait(30)

    assert "WATCHDOG=1" not in systemd.said


@pytest.mark.processes
def test_a_manager_that_does_not_answer_starves_the_watchdog(tmp_path, monkeypatch, systemd):
    """The manager's thread is held up; in this process, so that it can be."""
    import threading

    from actorproc.cli.service.service import _watch
    from actorproc.engine.manager_actor import ManagerActor
    from actorproc.engine.messages import ReportStatus

    manager = actorproc.ProcedureManager(tmp_path / "state", workers=1).start()
    monkeypatch.setattr("actorproc.engine.gateway._ANSWER", 0.1)
    let_go, held = threading.Event(), threading.Event()
    plain = ManagerActor.on_receive

    def stuck(actor, message):
        if isinstance(message, ReportStatus) and not let_go.is_set():
            held.set()
            let_go.wait(30)
        plain(actor, message)

    monkeypatch.setattr(ManagerActor, "on_receive", stuck)
    import queue

    asked = queue.SimpleQueue()
    notifier = Notifier(systemd.address, watchdog_seconds=0.1)
    watching = threading.Thread(target=_watch, args=(manager, notifier, asked))
    watching.start()
    try:
        assert held.wait(30)
        systemd.hear("READY=1")
        systemd.socket.settimeout(0.6)
        with pytest.raises(TimeoutError):
            systemd.hear("WATCHDOG=1")
        let_go.set()
        systemd.socket.settimeout(30)
        systemd.hear("WATCHDOG=1")
    finally:
        let_go.set()
        asked.put(signal.SIGTERM)
        watching.join(30)
        manager.stop(timeout=10)


@pytest.mark.processes
def test_an_engine_that_fails_for_good_is_exit_code_1(serve, systemd, until):
    import psutil

    service = serve("service_under_test:make")
    systemd.hear("READY=1")
    worker = until(lambda: psutil.Process(service.pid).children())[0]

    worker.send_signal(signal.SIGABRT)  # its slot may fail once, and is parked then

    assert any("STATUS=" in line for line in systemd.hear("STOPPING=1"))
    assert service.wait(30) == 1
    assert "the engine failed" in service.communicate()[1]


@pytest.mark.processes
def test_a_directory_in_use_is_exit_code_1_and_names_the_holder(serve, systemd, tmp_path):
    with actorproc.ProcedureManager(tmp_path / "held", workers=1):
        service = serve("service_under_test", "--path", "held", "--workers", "1")
        _, said = service.communicate(timeout=60)

    assert service.returncode == 1
    assert str(os.getpid()) in said
    assert any("cannot start" in line for line in systemd.hear("STOPPING=1"))


@pytest.mark.processes
def test_the_procedures_of_a_module_are_served_in_a_directory(serve, systemd, tmp_path):
    service = serve("service_under_test:Nap", "--path", "place", "--workers", "1")
    systemd.hear("READY=1")
    service.send_signal(signal.SIGTERM)

    assert service.wait(30) == 0
    assert (tmp_path / "place").is_dir()


@pytest.fixture
def module(tmp_path, monkeypatch):
    name = f"service_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(SERVICE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    sys.modules.pop(name, None)


def test_what_is_run_is_a_manager_a_maker_of_one_or_procedures(module, tmp_path):
    assert str(find_manager(f"{module}:ready")._path) == str(tmp_path / "state")
    assert str(find_manager(f"{module}:make")._path) == str(tmp_path / "made")
    found = find_manager(module, path="elsewhere", workers=3)  # all procedures it defines
    assert sorted(found._types._registry.names()) == [f"{module}.Nap", f"{module}.hello"]
    assert (found._path, found._slots) == (str(tmp_path / "elsewhere"), 3)
    assert find_manager(f"{module}:hello")._types._registry.names() == (f"{module}.hello",)


@pytest.mark.parametrize(
    ("attribute", "said"),
    [(":nothing", "neither a ProcedureManager"), (":absent", "has no 'absent'"), (":time", "neither")],
)
def test_what_cannot_be_run_is_said_in_one_line(module, attribute, said, capsys):
    assert main(["run", module + attribute]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Machine(StateMachineProcedure): pass", "Machine needs initial_state"),
        ("class Empty(Saga): pass", "Empty"),
        ("class Idle(Procedure): pass", "Idle"),
        ("class A(Nap): type_name = 'x'\nclass B(Nap): type_name = 'x'", "'x'"),
    ],
    ids=["machine", "saga", "procedure", "one-name"],
)
def test_a_class_that_cannot_be_served_is_told_of_in_one_line(module, text, said, tmp_path, capsys):
    path = tmp_path / f"{module}.py"
    path.write_text(f"{path.read_text()}\nfrom actorproc import Saga, StateMachineProcedure\n{text}\n")

    assert main(["run", module]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_a_module_that_does_not_exist_is_told_from_one_whose_import_fails(module, tmp_path):
    with pytest.raises(CannotRun, match="no module"):
        find_manager("no_such_service_anywhere")
    (tmp_path / f"broken_{module}.py").write_text("import no_such_dependency_anywhere\n")
    with pytest.raises(ModuleNotFoundError, match="no_such_dependency"):
        find_manager(f"broken_{module}")


def test_a_ready_manager_takes_no_directory(module):
    with pytest.raises(CannotRun, match="leave --path"):
        find_manager(f"{module}:ready", path="other")


def test_datagrams_reach_a_socket_in_the_file_system_and_are_one_line_each(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    place = Path("/tmp", f"actorproc-{os.getpid()}-{time.monotonic_ns()}")  # socket paths must be short
    fake = FakeSystemd(str(place))
    try:
        environment = {"NOTIFY_SOCKET": str(place), "WATCHDOG_USEC": "2000000", "WATCHDOG_PID": str(os.getpid())}
        notifier = Notifier.from_environment(environment)
        notifier.alive("two\nlines")
        assert fake.hear("WATCHDOG=1") == ["WATCHDOG=1", "STATUS=two lines"]
        assert notifier.watchdog_seconds == 2.0
        assert environment == {}
    finally:
        fake.socket.close()
        place.unlink()


@pytest.mark.parametrize("address", [None, "vsock:2:1", "/no/such/socket"])
def test_no_service_manager_or_a_dead_one_changes_nothing(address):
    environment = {"WATCHDOG_USEC": "nonsense"} | ({"NOTIFY_SOCKET": address} if address else {})

    notifier = Notifier.from_environment(environment)

    notifier.ready("up")
    assert notifier.watchdog_seconds is None
    assert environment == {}
