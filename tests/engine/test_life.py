"""Starting, stopping, and living beside others in one process."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pykka
import pytest

import actorproc
from actorproc import Limits, Phase, Procedure, ProcedureManager, Status
from actorproc.api.home import assembly
from actorproc.config import Config
from actorproc.control.server import ControlServer
from actorproc.control.wire import SOCKET_FILE
from actorproc.engine.manager_actor import ManagerActor
from actorproc.errors import ManagerStopped, StoreInUse, WorkerBootFailed
from actorproc.store.committer import Committer
from actorproc.store.memory import MemoryStore
from actorproc.workers.pool.local_pool import LocalPool
from tests.kit.procedures import Nap
from tests.kit.stores import HeldCommits

pytestmark = pytest.mark.processes

ROOT = Path(actorproc.__file__).parents[1]


@dataclass
class Dozes(Procedure):
    seconds: float
    slept: bool = False

    def execute(self, ctx):
        if self.slept:
            return Status.done("rested")
        self.slept = True
        return Status.sleep(self.seconds)


@dataclass
class Alone(Procedure):
    limits = Limits(dedicated=True)

    def execute(self, ctx):
        return Status.done("alone")


@dataclass
class UsesEnvironment(Procedure):
    def execute(self, ctx):
        return Status.done(ctx.env["answer"])


def began(marker: Path) -> bool:
    return marker.exists() and bool(marker.read_text())


def test_the_constructor_touches_nothing(tmp_path):
    threads = set(threading.enumerate())  # those of the test before may be about to end

    actorproc.ProcedureManager(tmp_path / "state", procedures=[Nap])

    assert not (tmp_path / "state").exists()
    assert set(threading.enumerate()) - threads == set()


def test_a_stop_that_drains_waits_for_the_running_step(open_manager, tmp_path, until):
    manager = open_manager()
    handle = manager.submit(Nap(0.4, str(tmp_path / "began")))
    until(lambda: began(tmp_path / "began"))
    assert handle.wait(0) is False

    manager.stop()

    assert handle.result() == "rested"
    assert manager.health().status == "stopped"


def test_a_stop_that_does_not_drain_leaves_the_step_for_the_next_start(open_manager, tmp_path, until):
    manager = open_manager()
    marker = tmp_path / "began"
    handle = manager.submit(Nap(60, str(marker)), "nap")
    until(lambda: began(marker))
    before = time.monotonic()

    manager.stop(drain=False)

    assert time.monotonic() - before < 10
    with pytest.raises(ManagerStopped):
        handle.result()
    again = open_manager(procedures=[Nap])
    until(lambda: len(marker.read_text().split()) == 2)
    info = again.info("nap")
    assert (info.attempt, info.crashes, info.errors) == (2, 0, 0)


def test_a_stop_that_drains_does_not_wait_for_steps_that_were_being_stored_to_be_sent(open_manager, tmp_path, until):
    manager = open_manager(workers=1)
    store = HeldCommits(manager._running().store)
    naps = [(str(number), Nap(0.0, str(tmp_path / "began"))) for number in range(5)]
    store.free.clear()
    submits = threading.Thread(target=manager.submit_many, args=(naps,))
    submits.start()
    assert store.waiting.wait(30)
    stops = threading.Thread(target=manager.stop)
    stops.start()
    until(lambda: manager._tree._drained is not None)
    manager._tree.is_settled()  # by now the manager knows
    store.free.set()
    submits.join(30)
    stops.join(30)

    assert not began(tmp_path / "began")
    again = open_manager(procedures=[Nap], workers=1)
    assert [again.get(name).result(30) for name, _ in naps] == ["rested"] * 5
    assert len((tmp_path / "began").read_text().split()) == 5


def test_a_stop_with_a_time_limit_keeps_it(open_manager, tmp_path, until):
    manager = open_manager()
    manager.submit(Nap(60, str(tmp_path / "began")))
    until(lambda: began(tmp_path / "began"))
    before = time.monotonic()

    manager.stop(timeout=1.0)

    assert time.monotonic() - before < 10


def test_a_second_stop_that_does_not_drain_cuts_short_the_waiting_of_the_first(open_manager, tmp_path, until):
    manager = open_manager()
    handle = manager.submit(Nap(600, str(tmp_path / "began")))
    until(lambda: began(tmp_path / "began"))
    patient = threading.Thread(target=manager.stop)
    patient.start()
    until(lambda: manager._tree._drained is not None)
    until(lambda: manager.health().status == "stopping")  # and not paused: it needs no resume
    late = manager.submit(Nap())
    assert [cause.says for cause in manager.why(late.id).roots()] == [
        "the manager is being stopped and hands out no more steps"
    ]

    hasty = threading.Thread(target=lambda: manager.stop(drain=False, timeout=10), daemon=True)
    hasty.start()
    hasty.join(60)
    patient.join(60)

    assert not hasty.is_alive()
    assert not patient.is_alive()
    with pytest.raises(ManagerStopped):
        handle.result(30)


def waits_for(handle):
    """A thread that waits for the end, and the errors of a stop that it is told."""
    told = []

    def wait():
        try:
            handle.result()
        except ManagerStopped as error:
            told.append(error)

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread, told


def test_ctrl_c_in_a_stop_that_waits_for_the_workers_closes_the_rest_all_the_same(open_manager, monkeypatch):
    manager = open_manager()
    handle = manager.submit(Dozes(600))
    waiting, told = waits_for(handle)
    close = LocalPool.close

    def close_and_be_interrupted(pool, timeout):
        close(pool, timeout)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(LocalPool, "close", close_and_be_interrupted)
        with pytest.raises(KeyboardInterrupt):
            manager.stop()
    manager.stop()
    waiting.join(30)

    assert told
    with manager:
        assert manager.health().ok


def test_a_callback_for_an_end_that_is_known_needs_no_thread_for_ever_after_a_stop(open_manager, until):
    manager = open_manager()
    handle = manager.submit(Dozes(0))
    handle.result(30)
    manager.stop()
    called = []

    handle.add_done_callback(lambda ended: called.append(ended.id))

    until(lambda: called == [handle.id])
    until(lambda: "actorproc-courier" not in [thread.name for thread in threading.enumerate()])


IN_THE_WAIT = """
def terminate():
    while manager._tree._drained is None:
        threading.Event().wait(0.01)
    os.kill(os.getpid(), signal.SIGTERM)

threading.Thread(target=terminate).start()
"""
BEFORE_THE_WAIT = """
wait = threading.Condition.wait

def late(condition, timeout=None):
    future = manager._tree._drained
    if future is not None and future._condition is condition:
        threading.Condition.wait = wait
        os.kill(os.getpid(), signal.SIGTERM)
    return wait(condition, timeout)

threading.Condition.wait = late
"""


@pytest.mark.parametrize("moment", [IN_THE_WAIT, BEFORE_THE_WAIT], ids=["in-the-wait", "before-the-wait"])
def test_a_signal_handler_may_stop_what_its_thread_is_stopping(tmp_path, moment):
    script = f"""
import os, signal, threading
import actorproc
from tests.kit.procedures import Nap

manager = actorproc.ProcedureManager({str(tmp_path / "state")!r}, workers=1).start()
manager.submit(Nap(600, {str(tmp_path / "began")!r}))
signal.signal(signal.SIGTERM, lambda *_: manager.stop(drain=False))

{moment}
manager.stop()
print("stopped", [thread.name for thread in threading.enumerate()])
"""
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, timeout=120, check=True
    )

    assert ended.stdout.split()[0] == "stopped"
    assert "actorproc-store" not in ended.stdout


@pytest.mark.parametrize("timeout", [math.inf, 1e12, threading.TIMEOUT_MAX])
def test_a_time_limit_that_is_longer_than_the_clock_is_none(open_manager, timeout):
    manager = open_manager()
    changes = manager.watch()
    manager.submit(Nap()).result(timeout)
    assert changes.next(timeout) is not None

    manager.stop(timeout=timeout)

    assert manager.health().status == "stopped"


@pytest.mark.parametrize("timeout", ["1", math.nan, True])
def test_a_time_limit_that_is_no_number_is_refused_before_anything_is_stopped(open_manager, timeout):
    manager = open_manager()

    with pytest.raises(TypeError, match="a number of seconds"):
        manager.stop(timeout=timeout)
    with pytest.raises(TypeError, match="a number of seconds"):
        manager.watch().next(timeout)

    assert manager.submit(Nap()).result(60) == "rested"


def test_stopping_twice_and_starting_again_is_allowed(open_manager):
    manager = open_manager()
    handle = manager.submit(Nap())
    manager.stop()
    manager.stop()

    with pytest.raises(ManagerStopped, match="stopped"):
        manager.submit(Nap())
    manager.start()

    assert manager.submit(Nap()).result(30) == "rested"
    assert handle.result(30) == "rested"


def test_a_waiting_caller_is_told_when_the_manager_stops(open_manager, until):
    manager = open_manager()
    manager.pause()
    handle = manager.submit(Nap())
    waiter, told = waits_for(handle)
    manager.stop()
    waiter.join(30)

    assert len(told) == 1


def test_a_handler_that_stops_a_manager_while_its_engine_is_loaded_stops_it(tmp_path, monkeypatch):
    manager = actorproc.ProcedureManager(tmp_path / "state", workers=1)
    make = assembly.EngineTree

    def make_and_be_interrupted(**parts):
        manager.stop()  # as a signal handler would, on this thread
        return make(**parts)

    monkeypatch.setattr(assembly, "EngineTree", make_and_be_interrupted)
    with pytest.raises(ManagerStopped):
        manager.start()
    assert manager.health().status == "stopped"

    monkeypatch.undo()
    with manager:
        assert manager.health().status == "running"


def test_a_second_manager_on_the_directory_is_refused_and_told_the_pid(open_manager, tmp_path):
    open_manager()
    script = (
        "import sys\nfrom actorproc.api.manager import ProcedureManager\n"
        f"ProcedureManager({str(tmp_path / 'state')!r}, workers=1).start()\n"
    )

    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert other.returncode == 1
    assert "StoreInUse" in other.stderr
    assert str(os.getpid()) in other.stderr
    with pytest.raises(StoreInUse) as caught:
        actorproc.ProcedureManager(tmp_path / "state", workers=1).start()
    assert caught.value.pid == os.getpid()


def test_several_managers_live_in_one_process(open_manager, tmp_path):
    managers = [open_manager(tmp_path / name, workers=1) for name in ("a", "b", "c")]

    handles = [manager.submit(Nap(), "same-id") for manager in managers]

    assert [handle.result(30) for handle in handles] == ["rested"] * 3
    managers[0].stop()
    assert managers[1].submit(Nap()).result(30) == "rested"


def test_a_host_that_stops_all_actors_stops_the_manager_cleanly(open_manager, tmp_path):
    manager = open_manager()
    done = manager.submit(Nap())
    done.result(30)
    running = manager.submit(Nap(60, str(tmp_path / "began")), "running")

    pykka.ActorRegistry.stop_all(timeout=30)

    with pytest.raises(ManagerStopped):
        manager.submit(Nap())
    with pytest.raises(ManagerStopped):
        running.result()
    manager.stop()
    again = open_manager()
    assert again.get(done.id).result(30) == "rested"
    assert again.info("running").id == "running"


def test_actors_of_the_host_survive_our_stop(open_manager):
    class Theirs(pykka.ThreadingActor):
        use_daemon_thread = True

        def on_receive(self, message):
            return message

    theirs = Theirs.start()
    manager = open_manager()
    manager.stop()

    assert theirs.ask("still here", timeout=5) == "still here"
    theirs.stop()


def test_an_awaited_handle_leaves_the_loop_free(tmp_path):
    async def main():
        async with actorproc.ProcedureManager(tmp_path / "state", workers=2) as manager:
            handle = manager.submit(Nap(0.3))
            beats = 0

            async def beat():
                nonlocal beats
                while True:
                    await asyncio.sleep(0.01)
                    beats += 1

            beating = asyncio.create_task(beat())
            output = await handle
            beating.cancel()
            many = await asyncio.gather(*manager.submit_many([Nap(), Nap(), Nap()]))
            return output, beats, many

    output, beats, many = asyncio.run(main())

    assert output == "rested"
    assert beats >= 5
    assert many == ["rested"] * 3


def test_a_cancelled_await_does_not_abort(open_manager):
    manager = open_manager()
    handle = manager.submit(Nap(0.3))

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(_await(handle), 0.02)

    async def _await(awaited):
        return await awaited

    asyncio.run(main())

    assert handle.result(30) == "rested"


@pytest.mark.parametrize("collect", [list, iter], ids=["list", "iterator"])
def test_workers_that_cannot_boot_fail_the_start_with_their_traceback(tmp_path, collect):
    modules = collect(["json", "no_such_module_anywhere"])
    manager = actorproc.ProcedureManager(tmp_path / "state", workers=2, preload=modules)

    with pytest.raises(WorkerBootFailed, match="no_such_module_anywhere"):
        manager.start()

    with pytest.raises(ManagerStopped):
        manager.submit(Nap())
    with actorproc.ProcedureManager(tmp_path / "state", workers=1) as other:  # the directory is free again
        assert other.run(Nap()) == "rested"


def test_slots_that_keep_failing_are_parked_and_the_host_is_told(open_manager, until):
    fatal = []
    manager = open_manager(
        workers=1,
        config=Config(restart_limit=3, spares=0),
        on_fatal=fatal.append,
    )

    for _ in range(3):
        workers = until(lambda: [worker for worker in manager.workers() if worker.state == "idle"])
        os.kill(workers[0].pid, signal.SIGABRT)
        until(lambda pid=workers[0].pid: pid not in [worker.pid for worker in manager.workers()])

    until(lambda: fatal)
    health = manager.health()
    assert health.status == "failed"
    assert health.slots[0].state == "parked"
    assert not health.ok


def test_the_environment_factory_runs_in_each_worker(open_manager):
    manager = open_manager(environment=lambda: {"answer": 42})

    assert manager.run(UsesEnvironment()) == 42


def test_nothing_needs_a_main_guard_and_classes_of_a_script_work(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from actorproc import ProcedureManager, Saga, step\n"
        "class Order(Saga):\n"
        "    item: str\n"
        "    @step\n"
        "    def ship(self, ctx): return f'{self.item} shipped'\n"
        f"with ProcedureManager({str(tmp_path / 'state')!r}, workers=2) as manager:\n"
        "    print(manager.run(Order('book')))\n"
    )

    ran = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=60, check=False)

    assert ran.stdout == "book shipped\n"
    assert ran.stderr == ""


def test_a_host_that_forgets_to_stop_still_exits(tmp_path):
    script = (
        "from actorproc.api.manager import ProcedureManager\n"
        f"manager = ProcedureManager({str(tmp_path / 'state')!r}, workers=2).start()\n"
        "print(*[worker.pid for worker in manager.workers()])\n"
    )

    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False)

    assert ran.returncode == 0
    pids = [int(pid) for pid in ran.stdout.split()]
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]


def test_a_first_commit_that_is_done_before_start_has_returned_is_heard(open_manager, until, monkeypatch):
    """A recovery commits at once, on another thread; no part may miss that while the parts are still being joined."""
    store = MemoryStore()
    manager = open_manager(store=store)
    sleeper = manager.submit(Dozes(0.3), "left")
    until(lambda: sleeper.info().phase is Phase.SLEEPING)
    manager.stop()
    until(lambda: store.procedure("left").due_at < time.time())  # so its timer rings at once
    leave_time_for_an_early_commit(store, monkeypatch)
    assert open_manager(store=store, procedures=[Dozes]).get("left").result(20) == "rested"


def test_a_sweep_that_is_due_before_start_has_returned_does_not_take_the_first_commit(open_manager, until, monkeypatch):
    store = MemoryStore()
    manager = open_manager(store=store)
    manager.submit(Nap(0), "old").result(20)
    manager.stop()
    leave_time_for_an_early_commit(store, monkeypatch)
    open_manager(store=store, procedures=[Nap], config=Config(spares=0, retain_for=0.0, sweep_interval=0.001))
    until(lambda: store.procedure("old") is None)


def test_a_dedicated_procedure_that_is_left_over_finds_the_pool_open(open_manager, monkeypatch):
    """The first commit of a start asks for its worker at once, on another thread."""
    store = MemoryStore()
    manager = ProcedureManager("unused", procedures=[Alone], workers=1, store=store, config=Config(spares=0))
    manager.start(gated=True).submit(Alone(), "left")
    manager.stop()
    plain, committed = LocalPool.open, leave_time_for_an_early_commit(store, monkeypatch)

    def slow_open(pool, sink):
        committed.wait(0.2)
        plain(pool, sink)

    monkeypatch.setattr(LocalPool, "open", slow_open)
    assert open_manager(workers=1, store=store, procedures=[Alone]).get("left").result(30) == "alone"


@pytest.mark.parametrize("by", ["stop", "host"])
def test_a_start_waits_for_a_stop_that_has_told_who_waits_and_still_closes_the_store(open_manager, monkeypatch, by):
    manager = open_manager(workers=1, store=MemoryStore())
    waiting = manager.submit(Dozes(3600))
    plain, may_go = Committer.stop, threading.Event()

    def slow_stop(committer, timeout=None):
        assert may_go.wait(30)
        return plain(committer, timeout)

    monkeypatch.setattr(Committer, "stop", slow_stop)
    stop = (lambda: manager.stop(drain=False)) if by == "stop" else pykka.ActorRegistry.stop_all
    closing = threading.Thread(target=stop)
    closing.start()
    with pytest.raises(ManagerStopped):
        waiting.result(30)
    starting = threading.Thread(target=manager.start)
    starting.start()
    starting.join(0.2)  # time to start too early; in order, it waits
    assert starting.is_alive()
    may_go.set()
    for thread in (closing, starting):
        thread.join(30)

    assert manager.submit(Nap()).result(30) == "rested"


def test_a_stop_waits_for_the_closing_that_a_host_has_begun(open_manager, monkeypatch):
    manager = open_manager(workers=1)
    plain, may_go, ended = Committer.stop, threading.Event(), []

    def slow_stop(committer, timeout=None):
        assert may_go.wait(30)
        ended.append(plain(committer, timeout))
        return ended[0]

    monkeypatch.setattr(Committer, "stop", slow_stop)
    waiting = manager.submit(Dozes(3600))
    pykka.ActorRegistry.stop_all(block=False)
    with pytest.raises(ManagerStopped):
        waiting.result(30)
    manager.stop(timeout=0.01)  # no longer than it may
    assert not ended
    threading.Timer(0.1, may_go.set).start()
    manager.stop()
    assert ended == [True]


def test_a_callback_of_the_thread_that_closes_may_stop_and_may_not_start(open_manager):
    manager, heard = open_manager(workers=1), []
    waiting = manager.submit(Dozes(3600))

    def restart(_):
        manager.stop()
        with pytest.raises(ManagerStopped, match="when `stop` has returned"):
            manager.start()
        heard.append(threading.get_ident())

    manager._tree.watch(waiting.id).add_done_callback(restart)
    manager.stop(drain=False)
    assert heard == [threading.get_ident()]
    assert manager.start().submit(Nap()).result(30) == "rested"


def test_a_host_that_stops_all_actors_while_the_control_socket_is_opened_leaves_none(
    open_manager, monkeypatch, tmp_path
):
    plain = ControlServer.start

    def stopped(server):
        plain(server)
        pykka.ActorRegistry.stop_all()

    monkeypatch.setattr(ControlServer, "start", stopped)
    open_manager(workers=1, config=Config(spares=0, control=True))

    assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("actorproc-control")]
    assert not (tmp_path / "state" / SOCKET_FILE).exists()


def leave_time_for_an_early_commit(store, monkeypatch):
    """The thread that starts the manager is slow to learn its reference; in order, nothing is committed until then."""
    committed = threading.Event()
    plain_commit, plain_start = store.commit, ManagerActor.start

    def commit(*arguments):
        plain_commit(*arguments)
        committed.set()

    def slow_start(*arguments):
        actor = plain_start(*arguments)
        committed.wait(0.2)
        return actor

    monkeypatch.setattr(store, "commit", commit)
    monkeypatch.setattr(ManagerActor, "start", slow_start)
    return committed
