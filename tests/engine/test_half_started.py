"""A start that fails or is given up near its end leaves nothing behind: the directory is free, nothing runs."""

from __future__ import annotations

import asyncio
import errno
import threading
from types import SimpleNamespace

import pytest

from actorproc import ProcedureManager
from actorproc.control import unix_door
from actorproc.engine import engine as tree_module
from actorproc.engine.engine import EngineTree
from actorproc.errors import EngineError, ManagerStopped
from tests.kit.managers import LIGHT

pytestmark = pytest.mark.processes


def test_a_start_without_a_descriptor_for_the_control_socket_leaves_nothing_behind(tmp_path, monkeypatch):
    manager = ProcedureManager(tmp_path / "state", workers=1)

    class NoSocket:
        AF_UNIX = SOCK_STREAM = 0

        def socket(self, *_):
            raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(unix_door, "socket", NoSocket())
        with pytest.raises(EngineError, match="control socket"):
            manager.start()

    with manager:
        assert manager.health().ok


def test_a_start_without_a_thread_for_the_workers_leaves_nothing_behind(tmp_path, monkeypatch):
    manager = ProcedureManager(tmp_path / "state", workers=1, **LIGHT)
    start = threading.Thread.start

    def refuse(thread):
        if thread.name == "actorproc-pool":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError, match="can't start"):
            manager.start()

    with manager:
        assert manager.health().ok


@pytest.mark.parametrize(
    "name",
    ["actorproc-courier", "actorproc-store", "ManagerActor", "actorproc-pool", "Supervisor", "actorproc-control"],
)
def test_ctrl_c_while_a_thread_of_the_engine_starts_leaves_nothing_behind(tmp_path, monkeypatch, name):
    manager = ProcedureManager(tmp_path / "state", workers=1, **LIGHT)
    start = threading.Thread.start

    def start_and_be_interrupted(thread):
        start(thread)
        if thread.name.startswith(name):
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start_and_be_interrupted)
        with pytest.raises(KeyboardInterrupt):
            manager.start()

    with manager:
        assert manager.health().ok


@pytest.mark.parametrize("times", [1, 2], ids=["once", "twice"])
def test_a_cancelled_async_start_stops_what_it_started(tmp_path, monkeypatch, times):
    manager = ProcedureManager(tmp_path / "state", workers=1, **LIGHT)
    is_starting, go_on = threading.Event(), threading.Event()
    start = manager.start

    def start_late():
        is_starting.set()
        go_on.wait()
        return start()

    monkeypatch.setattr(manager, "start", start_late)

    async def use():
        async with manager:
            pytest.fail("it was cancelled before")

    async def cancel():
        task = asyncio.ensure_future(use())
        await asyncio.to_thread(is_starting.wait)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0)  # the cancellation is delivered before the start goes on
            await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert manager.health().status == "stopped"


def test_a_stop_while_it_starts_stops_it(tmp_path, monkeypatch):
    manager = ProcedureManager(tmp_path / "state", workers=1, **LIGHT)
    is_starting, go_on = threading.Event(), threading.Event()
    start, errors = EngineTree.start, []

    def start_late(tree, definitions):
        start(tree, definitions)
        is_starting.set()
        go_on.wait()

    def try_to_start():
        try:
            manager.start()
        except ManagerStopped as error:
            errors.append(error)

    with monkeypatch.context() as patch:
        patch.setattr(EngineTree, "start", start_late)
        starting = threading.Thread(target=try_to_start)
        starting.start()
        is_starting.wait()
        manager.stop(timeout=0)  # no patience: it is stopped all the same
        go_on.set()
        starting.join(30)

    assert errors
    assert manager.health().status == "stopped"
    with manager:
        assert manager.health().ok


def test_a_signal_handler_may_stop_what_its_thread_is_starting(tmp_path, monkeypatch):
    manager = ProcedureManager(tmp_path / "state", workers=1, **LIGHT)
    start = EngineTree.start

    def start_and_be_interrupted(tree, definitions):
        start(tree, definitions)
        manager.stop()  # as a signal handler would, in the middle of this thread's work

    monkeypatch.setattr(EngineTree, "start", start_and_be_interrupted)
    with pytest.raises(ManagerStopped, match="while it started"):
        manager.start()
    assert manager.health().status == "stopped"


@pytest.mark.parametrize(
    ("waits", "slices"),
    [([1.0] * 5, 3), ([0.5] * 9, 6), ([1.0, 60.0, 1.0, 1.0, 1.0], 5), ([1.9, 1.9], 2)],
    ids=["patience is over", "woken early", "stood still", "a slow machine"],
)
def test_the_time_in_which_the_program_stood_still_does_not_count_as_that_of_the_first_workers(
    monkeypatch, waits, slices
):
    now, asked = [0.0], []

    class NotYet:
        def result(self, timeout):
            asked.append(timeout)
            now[0] += waits[len(asked) - 1]
            raise TimeoutError

    monkeypatch.setattr(tree_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    with pytest.raises(TimeoutError):
        tree_module._wait(NotYet(), 3.0, awake=True)

    assert len(asked) == slices
    assert max(asked) <= 1.0


def test_ctrl_c_in_the_first_moment_of_a_close_closes_all_of_it(tmp_path):
    manager = ProcedureManager(tmp_path / "state", workers=1, **LIGHT).start()

    class Interrupted(threading.Event):
        def set(self):
            if not self.is_set():
                super().set()
                raise KeyboardInterrupt

    manager._tree._closed = Interrupted()
    with pytest.raises(KeyboardInterrupt):
        manager.stop()

    with manager:
        assert manager.health().ok
