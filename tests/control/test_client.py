"""A manager in another process, used through its control socket."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

import actorproc
from actorproc import Procedure, Saga, Status, step
from actorproc.config import Config
from actorproc.control.wire import (
    HEADER,
    SOCKET_FILE,
    CallAnswer,
    RemoteCall,
    decode_as,
    error_from,
    framed,
    read_frame,
)
from actorproc.errors import (
    DuplicateProcedure,
    EngineError,
    ManagerStopped,
    NotAllowed,
    OutcomeUnknown,
    ProcedureAborted,
    ProcedureFailed,
    StateTooLarge,
    UnknownProcedure,
    UsageError,
)
from actorproc.report.changes import Change
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes


class Order(Saga):
    item: str

    @step
    def pick(self, ctx):
        print("picking", self.item)  # noqa: T201 - it is kept as a line of the log

    @step
    def wait(self, ctx):
        return Status.wait("paid")

    @step
    def ship(self, ctx):
        return self.item, ctx.event


@dataclass
class Add(Procedure):
    a: int
    b: int

    def execute(self, ctx):
        return Status.done(self.a + self.b)


@dataclass
class Breaks(Procedure):
    def execute(self, ctx):
        raise ValueError("as planned")


# ---------------------------------------------------------------- as in one process
def test_a_client_submits_waits_and_gets_outputs_and_failures_as_the_manager_itself_would_give(serve):
    service = serve()
    with actorproc.ProcedureClient(service.path) as client:
        assert client.run(Add(20, 22)) == 42
        handles = client.submit_many([Add(n, 1) for n in range(20)], tags=["many"])
        assert [handle.result(BOUND) for handle in handles] == list(range(1, 21))
        assert len(client.list(tag="many", state="SUCCESS")) == 20
        with pytest.raises(ProcedureFailed, match="as planned") as caught:
            client.run(Breaks(), id="broken")
        assert caught.value.state == "FAILED"
        assert "ValueError" in caught.value.traceback_text
        assert client.get("broken").exception(BOUND).id == "broken"
        called = threading.Event()
        handles[0].add_done_callback(lambda handle: called.set())
        assert called.wait(BOUND)

        async def awaited():
            return await client.submit(Add(1, 2))

        assert asyncio.run(awaited()) == 3


def test_every_question_has_the_same_answer_through_the_socket(tmp_path):
    """The manager here, a client in another process: what both are told is equal."""
    script = """
import sys, msgspec
from actorproc.api.client import ProcedureClient
with ProcedureClient(sys.argv[1]) as client:
    shown = {
        "info": client.info("o"), "list": client.list(), "tree": client.tree("o"), "steps": client.steps("o"),
        "locks": client.locks(), "poisons": client.poisons(), "logs": client.logs("o"),
        "dangling": client.dangling_locks(), "status": client.health().status,
    }
    sys.stdout.buffer.write(msgspec.json.encode(shown))
"""
    with actorproc.ProcedureManager(tmp_path / "state", workers=1, **LIGHT) as manager:
        manager.submit(Order("book"), "o")
        wait_until(lambda: manager.info("o").phase == "waiting" and manager.logs("o"))
        said = subprocess.run(
            [sys.executable, "-c", script, tmp_path / "state"], stdout=subprocess.PIPE, timeout=60, check=True
        ).stdout
        here = {
            "info": manager.info("o"),
            "list": manager.list(),
            "tree": manager.tree("o"),
            "steps": manager.steps("o"),
            "locks": manager.locks(),
            "poisons": manager.poisons(),
            "logs": manager.logs("o"),
            "dangling": manager.dangling_locks(),
            "status": manager.health().status,
        }

    assert msgspec.json.decode(said) == msgspec.json.decode(msgspec.json.encode(here))


def test_what_has_ended_is_shown_also_while_no_manager_runs(tmp_path):
    path = tmp_path / "state"
    with actorproc.ProcedureManager(path, procedures=[Order], workers=1, **LIGHT) as manager:
        manager.run(Add(1, 2), id="ended")
        manager.submit(Order("book"), "waits")
        wait_until(lambda: manager.info("waits").phase == "waiting")
        shown = manager.info("ended")

    with actorproc.ProcedureClient(path, patience=0.2) as client:
        assert client.info("ended") == shown
        assert client.list(state="SUCCESS") == [shown]
        assert client.tree("ended").info == shown
        assert client.get("ended").info() == shown
        for ask in (lambda: client.info("waits"), client.list, lambda: client.why("waits")):
            with pytest.raises(ManagerStopped):
                ask()


def test_ended_and_living_ones_are_listed_in_their_order(serve):
    with actorproc.ProcedureClient(serve().path) as client:
        for number in range(6):
            if number % 2:
                client.run(Add(number, 0), id=f"p{number}")
            else:
                client.submit(Order("a"), f"p{number}")
        wait_until(lambda: all(client.info(f"p{number}").phase == "waiting" for number in (0, 2, 4)))

        assert [(one.id, one.phase) for one in client.list()] == [
            (f"p{number}", "done" if number % 2 else "waiting") for number in range(6)
        ]


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 12), reason="Python 3.12 starts no thread when the main thread has ended"
)
def test_a_manager_that_outlives_the_main_thread_answers_its_clients(tmp_path):
    """The last line of many a program starts the thread that serves."""
    program = """
import subprocess, sys, threading
from actorproc import ProcedureManager, procedure

@procedure
def one():
    return 1

def serve():
    threading.main_thread().join()
    with ProcedureManager(sys.argv[1], workers=1) as manager:
        manager.run(one(), id="a")
        subprocess.run([sys.executable, "-c", sys.argv[2], sys.argv[1]], check=True)

if __name__ == "__main__":
    threading.Thread(target=serve).start()
"""
    ask = """
import sys
from actorproc import ProcedureClient
with ProcedureClient(sys.argv[1]) as client:
    print(client.health().status, client.info("a").state, len(client.workers()))
"""
    script = tmp_path / "program.py"
    script.write_text(program)

    done = subprocess.run(
        [sys.executable, script, tmp_path / "state", ask], capture_output=True, text=True, timeout=BOUND, check=False
    )

    assert done.stdout == "running SUCCESS 1\n", done.stderr


def test_errors_arrive_as_what_they_are(serve):
    with actorproc.ProcedureClient(serve(config="Config(max_state=10_000)").path) as client:
        client.submit(Order("a"), "o")
        with pytest.raises(DuplicateProcedure):
            client.submit(Order("b"), "o")
        with pytest.raises(UnknownProcedure):
            client.info("nobody")
        with pytest.raises(UnknownProcedure):
            client.abort("nobody")
        with pytest.raises(NotAllowed):
            client.delete("o")
        with pytest.raises(StateTooLarge, match="10000"):
            client.submit(Order("x" * 20_000))


def test_verbs_workers_metrics_backup_and_compaction(serve, tmp_path):
    with actorproc.ProcedureClient(serve().path) as client:
        handle = client.submit(Order("a"), "o")
        wait_until(lambda: handle.info().phase == "waiting")
        assert [worker.state for worker in client.workers()] == ["idle", "idle"]
        assert client.metrics().steps
        assert client.compact().before > 0
        assert Path(client.backup(tmp_path / "copy").path) == tmp_path / "copy"
        assert client.signal("o", "cash") is True
        assert handle.result(BOUND) == ("a", "cash")
        other = client.submit(Order("b"))
        assert client.abort(other.id) is True
        assert isinstance(other.exception(BOUND), ProcedureAborted)


def test_a_watch_tells_every_state_once_and_ends_with_the_procedure(serve):
    with actorproc.ProcedureClient(serve().path) as client:
        handle = client.submit(Order("a"), "o")
        wait_until(lambda: handle.info().phase == "waiting")
        with client.watch("o") as watch:
            client.signal("o")
            changes = list(watch)
    assert changes[0].kind == "present"
    assert changes[-1].state == "SUCCESS"
    assert [change.seq for change in changes] == sorted({change.seq for change in changes})


def test_two_clients_that_submit_one_id_get_one_procedure(serve):
    service = serve()
    with (
        actorproc.ProcedureClient(service.path) as one,
        actorproc.ProcedureClient(service.path) as two,
        ThreadPoolExecutor(8) as pool,
    ):
        handles = list(pool.map(lambda n: (one, two)[n % 2].submit(Add(1, 1), "same"), range(40)))
        assert {handle.result(BOUND) for handle in handles} == {2}
        assert len(one.list()) == 1


# ---------------------------------------------------------------- a manager that dies
def test_after_a_kill_of_the_manager_a_client_goes_on_and_loses_nothing(serve):
    service = serve()
    with actorproc.ProcedureClient(service.path) as client:
        orders = [client.submit(Order(str(n)), f"o{n}") for n in range(10)]
        ended = []
        for order in orders:
            order.add_done_callback(lambda handle: ended.append(handle.id))
        wait_until(lambda: all(order.info().phase == "waiting" for order in orders))
        watch = client.watch("o0")
        service.kill()
        threading.Timer(0.2, service.start).start()
        for order in orders:
            assert client.signal(order.id, "late") is True
        assert [order.result(BOUND) for order in orders] == [(str(n), "late") for n in range(10)]
        assert client.run(Add(1, 2)) == 3
        wait_until(lambda: len(ended) == 10)
        assert sorted(ended) == sorted(order.id for order in orders)
        states = [change.state for change in watch if isinstance(change, Change)]
        assert states[-1] == "SUCCESS"
        assert states.count("SUCCESS") == 1


def test_clients_under_load_while_the_manager_is_killed_again_and_again(serve):
    """Every acknowledged submit ends, and each result is delivered once."""
    service = serve()
    acknowledged, delivered, stop = [], [], threading.Event()

    def client_loop(name):
        with actorproc.ProcedureClient(service.path) as client:
            number = 0
            while not stop.is_set():
                handle = client.submit(Add(number, 1), f"{name}-{number}")
                acknowledged.append(handle.id)
                delivered.append((handle.id, handle.result(BOUND)))
                number += 1

    with ThreadPoolExecutor(2) as pool:
        loops = [pool.submit(client_loop, name) for name in ("a", "b")]
        for _ in range(3):
            before = len(delivered)
            wait_until(lambda before=before: len(delivered) > before + 20 or any(loop.done() for loop in loops))
            service.kill()
            service.start()
        before = len(delivered)
        wait_until(lambda: len(delivered) > before + 20 or any(loop.done() for loop in loops))
        stop.set()
        for loop in loops:
            loop.result(BOUND)
    assert sorted(acknowledged) == sorted(name for name, _ in delivered)
    assert len(set(acknowledged)) == len(acknowledged)
    assert all(output == int(name.partition("-")[2]) + 1 for name, output in delivered)


def test_a_verb_that_must_not_be_repeated_is_unknown_when_its_manager_dies_with_it(serve):
    service = serve()
    with actorproc.ProcedureClient(service.path) as client:
        client.submit(Breaks(), "broken").wait(BOUND)
        os.kill(service.process.pid, signal.SIGSTOP)
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(client.retry, "broken")
            wait_until(lambda: any(pending.sent for pending in client._engine._channel._pending.values()))
            service.kill()
            with pytest.raises(OutcomeUnknown, match="ask again"):
                asked.result(BOUND)


def test_without_a_manager_stored_things_are_shown_and_the_rest_says_so(serve):
    service = serve()
    with actorproc.ProcedureClient(service.path) as client:
        client.run(Add(1, 1), id="done")
    service.stop()
    assert not (service.path / SOCKET_FILE).exists()
    with actorproc.ProcedureClient(service.path, patience=0.05) as client:
        with pytest.raises(ManagerStopped, match="no manager answers"):
            client.submit(Add(1, 1))
        assert client.get("done").result(BOUND) == 2
        assert len(client.steps("done")) == 2
        assert client.health().status == "stopped"
    with actorproc.ProcedureClient(service.path.parent / "nothing", patience=0) as client, pytest.raises(EngineError):
        client.submit(Add(1, 1))


def test_a_client_may_be_there_before_the_first_manager(serve, tmp_path):
    with actorproc.ProcedureClient(tmp_path / "state") as client, ThreadPoolExecutor(1) as pool:
        asked = pool.submit(client.run, Add(1, 2))
        serve(tmp_path / "state")
        assert asked.result(BOUND) == 3


def test_a_client_that_got_no_thread_for_its_connection_gets_one_later(serve, monkeypatch):
    service = serve()
    begin = threading.Thread.start

    def refuse(thread):
        if thread.name == "actorproc-client":
            raise RuntimeError("can't start new thread")
        begin(thread)

    with actorproc.ProcedureClient(service.path) as client:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            with pytest.raises(EngineError, match="limit of threads"):
                client.metrics()
        answers = []
        asks = threading.Thread(target=lambda: answers.append(client.metrics()), daemon=True)
        asks.start()
        asks.join(BOUND)

    assert answers


def test_a_closed_client_says_so(serve):
    client = actorproc.ProcedureClient(serve().path)
    handle = client.submit(Order("a"))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(handle.result)
        client.close()
        with pytest.raises(ManagerStopped, match="closed"):
            waiting.result(BOUND)
    client.close()
    with pytest.raises(ManagerStopped, match="closed"):
        client.submit(Order("b"))


# ---------------------------------------------------------------- who may come in, and what they say
@pytest.fixture
def manager(tmp_path):
    with actorproc.ProcedureManager(tmp_path / "state", workers=1, **LIGHT) as manager:
        yield manager


@pytest.fixture
def connect(tmp_path):
    """A connection to the manager in `tmp_path / "state"`, greeted."""
    with contextlib.ExitStack() as stack:

        def connect():
            sock = stack.enter_context(socket.socket(socket.AF_UNIX))
            sock.settimeout(BOUND)
            sock.connect(os.fspath(tmp_path / "state" / SOCKET_FILE))
            read_frame(sock, 10_000)
            return sock

        yield connect


def test_the_socket_is_its_owners_alone_under_every_umask(tmp_path):
    for umask in (0o000, 0o022, 0o077):
        old = os.umask(umask)
        try:
            with actorproc.ProcedureManager(tmp_path / str(umask), workers=1):
                found = (tmp_path / str(umask) / SOCKET_FILE).stat()
        finally:
            os.umask(old)
        assert stat.S_ISSOCK(found.st_mode)
        assert stat.S_IMODE(found.st_mode) & 0o177 == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_another_user_is_refused_even_when_the_files_would_let_him_in(manager, tmp_path):
    script = """
import os, socket, sys
os.setgid(65534); os.setuid(65534)
sock = socket.socket(socket.AF_UNIX)
try: sock.connect(sys.argv[1])
except PermissionError: print("no permission"); sys.exit()
sock.settimeout(20)
sys.stdout.buffer.write(sock.recv(10_000))
"""
    path = tmp_path / "state" / SOCKET_FILE
    ask = [sys.executable, "-c", script, path]
    assert subprocess.run(ask, capture_output=True, check=True, timeout=60).stdout == b"no permission\n"
    for folder in (tmp_path / "state", *list(tmp_path.parents)[:-1], tmp_path):
        if folder != Path("/") and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    path.chmod(0o666)
    said = subprocess.run(ask, capture_output=True, check=True, timeout=60).stdout
    answer = decode_as(said[HEADER.size :], CallAnswer)
    assert answer.kind == "error"
    assert isinstance(error_from(answer.body), NotAllowed)


@pytest.mark.parametrize(
    "garbage",
    [b"\xff" * 100, HEADER.pack(2**32 - 1), HEADER.pack(3) + b"abc", HEADER.pack(0), b"GET / HTTP/1.1\r\n\r\n", b"\0"],
    ids=["ones", "a length", "no array", "nothing", "http", "half a length"],
)
def test_garbage_costs_its_sender_the_connection_and_nobody_else_anything(manager, connect, garbage):
    sock = connect()
    with contextlib.suppress(ConnectionResetError):  # closed with some of it unread
        sock.sendall(garbage)
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(10_000) == b""
    assert manager.run(Add(1, 1)) == 2


def test_calls_that_do_not_exist_or_do_not_fit_are_refused_by_name(manager, connect):
    sock = connect()

    def ask(kind, name, value):
        sock.sendall(framed(RemoteCall(7, kind, name, msgspec.Raw(msgspec.msgpack.encode(value)))))
        answer = decode_as(read_frame(sock, 1_000_000), CallAnswer)
        assert (answer.number, answer.kind) == (7, "error")
        return error_from(answer.body)

    for kind, name, value in (
        ("call", "stop", []),
        ("call", "__init__", []),
        ("call", "stack", [1, 2]),
        ("request", "WorkerLost", {}),
        ("request", "StepEnded", {}),
        ("request", "AbortRequested", {"id": 3}),
        ("exec", "x", None),
        ("end_of", "", 3),
        ("watch", "", [1]),
    ):
        assert isinstance(ask(kind, name, value), UsageError)
    assert isinstance(ask("end_of", "", ("nobody", 0)), UnknownProcedure)
    assert manager.run(Add(1, 1)) == 2


def test_a_client_that_does_not_read_loses_its_connection_and_holds_up_nobody(manager, connect, monkeypatch):
    monkeypatch.setattr("actorproc.control.connection._UNSENT_BYTES", 100_000)
    sock = connect()
    big = ["x" * 10_000]
    for number in range(2_000):
        try:
            sock.sendall(framed(RemoteCall(number, "call", "stop" * 10, msgspec.Raw(msgspec.msgpack.encode(big)))))
        except OSError:
            break
    else:
        wait_until(lambda: all(thread.name != "actorproc-control-write" for thread in threading.enumerate()))
    assert manager.run(Add(1, 1)) == 2


def test_a_store_with_a_long_path_has_a_socket_too(tmp_path, serve):
    service = serve(tmp_path / ("long" * 30) / "state")
    with actorproc.ProcedureClient(service.path) as client:
        assert client.run(Add(2, 3)) == 5


def test_without_control_there_is_no_socket(tmp_path):
    with actorproc.ProcedureManager(tmp_path / "state", workers=1, config=Config(control=False)):
        assert not (tmp_path / "state" / SOCKET_FILE).exists()


def test_what_is_in_the_way_of_the_socket_is_told(tmp_path):
    with actorproc.ProcedureManager(tmp_path / "state", workers=1, **LIGHT):
        pass
    (tmp_path / "state" / SOCKET_FILE).write_text("precious")
    with pytest.raises(EngineError, match="in the way"):
        actorproc.ProcedureManager(tmp_path / "state", workers=1, **LIGHT).start()
    assert (tmp_path / "state" / SOCKET_FILE).read_text() == "precious"


def test_a_stopped_manager_leaves_no_thread_and_no_socket(tmp_path, connect):
    with actorproc.ProcedureManager(tmp_path / "state", workers=1, **LIGHT):
        sock = connect()
    assert sock.recv(10) == b""
    wait_until(lambda: not any(thread.name.startswith("actorproc-control") for thread in threading.enumerate()))
    assert not (tmp_path / "state" / SOCKET_FILE).exists()


SUSPENDED = """
import os, signal, socket, sys
from actorproc.store.lmdb.store import LmdbStore
LmdbStore(sys.argv[1]).own()
door = socket.socket(socket.AF_UNIX)
door.bind(sys.argv[1] + "/control.sock")
door.listen(1)
print("there", flush=True)
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.fixture
def suspended(tmp_path):
    """A store whose owner was stopped by a signal, with nobody before its door yet."""
    path = tmp_path / "state"
    owner = subprocess.Popen([sys.executable, "-c", SUSPENDED, path], stdout=subprocess.PIPE)
    try:
        assert owner.stdout.readline() == b"there\n"
        os.waitid(os.P_PID, owner.pid, os.WSTOPPED | os.WNOWAIT)
        yield path, owner.pid
    finally:
        owner.kill()
        owner.communicate()


def test_a_suspended_manager_costs_a_client_its_patience_also_with_a_full_line_before_the_door(suspended):
    path, pid = suspended
    with contextlib.ExitStack() as crowd:
        with contextlib.suppress(BlockingIOError):
            while True:
                one = crowd.enter_context(socket.socket(socket.AF_UNIX))
                one.setblocking(False)
                one.connect(os.fspath(path / "control.sock"))
        client = crowd.enter_context(actorproc.ProcedureClient(path, patience=0.2))
        told = []

        def ask():
            try:
                client.signal("somebody")
            except ManagerStopped as error:
                told.append(str(error))

        asking = threading.Thread(target=ask, daemon=True)
        asking.start()
        asking.join(BOUND)

    assert len(told) == 1
    assert f"process {pid} has the store" in told[0]
    assert f"kill -CONT {pid}" in told[0]


def test_doctor_tells_that_the_manager_is_suspended(suspended):
    path, pid = suspended
    done = subprocess.run(
        [sys.executable, "-m", "actorproc", "--path", path, "doctor", "-o", "json"],
        check=False,
        capture_output=True,
        text=True,
    )
    findings = msgspec.json.decode(done.stdout)["findings"]
    assert [found["command"] for found in findings if "is suspended" in found["says"]] == [f"kill -CONT {pid}"]
