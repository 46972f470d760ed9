"""Log handlers and hooks of the host that are slow or raise: the engine keeps little for them, and goes on telling."""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
from collections import deque
from dataclasses import dataclass

import pytest

from actorproc import Procedure, Status
from actorproc.config import Config
from actorproc.engine.callers.event_hooks import EventHooks
from actorproc.engine.callers.log_forwarder import LogForwarder
from actorproc.engine.runtime.callback_thread import CallbackThread
from actorproc.errors import NotAllowed
from actorproc.model.ids import WorkerId
from actorproc.report.changes import WorkerEvent
from actorproc.workers.protocol.frames import LogLine
from tests.kit.stores import FullDisk

WORKER = WorkerId(0, 1)


def line(text):
    return LogLine(None, logging.INFO, "step", text)


def event(slot):
    return WorkerEvent(kind="worker-died", at=0.0, slot=slot, incarnation=1, pid=1, cause="signal")


def test_lines_that_the_hosts_handlers_cannot_take_in_time_are_dropped_and_counted(caplog):
    errands = deque()
    lines = LogForwarder(errands.append, bound=10)
    caplog.set_level(logging.INFO)
    for number in range(1000):
        lines.put(line(str(number)), WORKER, None)
    assert len(errands) == 1
    errands.popleft()()
    lines.put(line("later"), WORKER, None)
    errands.popleft()()

    told = [record.getMessage() for record in caplog.records]
    assert told[:10] == [str(number) for number in range(10)]
    assert told[10].startswith("990 log lines of workers were dropped")
    assert told[11:] == ["later"]


class Raising(logging.Handler):
    def emit(self, record):
        raise ZeroDivisionError("a handler of the host")


def run(errands):
    """What the thread for callbacks does."""
    while errands:
        with contextlib.suppress(ZeroDivisionError, SystemExit):
            errands.popleft()()


@pytest.fixture
def raising_handler():
    handler = Raising()
    logging.getLogger("actorproc").addHandler(handler)
    yield
    logging.getLogger("actorproc").removeHandler(handler)


@pytest.mark.usefixtures("raising_handler")
def test_a_log_handler_that_raises_keeps_no_event_from_the_hook():
    errands, called = deque(), []
    sink = EventHooks(lambda event: called.append(event.slot), errands.append)
    for slot in range(3):
        sink.put(event(slot))
    run(errands)
    sink.put(event(3))
    run(errands)

    assert called == [0, 1, 2, 3]


def test_a_hook_that_wants_to_end_the_program_is_told_of_the_next_events_too():
    errands, called = deque(), []

    def hook(event):
        called.append(event.slot)
        sys.exit(1)

    sink = EventHooks(hook, errands.append)
    for slot in range(3):
        sink.put(event(slot))
    run(errands)

    assert called == [0, 1, 2]


@pytest.mark.usefixtures("raising_handler")
def test_a_callback_that_raises_beside_a_log_handler_that_raises_ends_no_other_callback():
    callback_thread, is_called = CallbackThread(), threading.Event()
    callback_thread.post(lambda: 1 / 0)
    callback_thread.post(is_called.set)

    assert is_called.wait(30)
    callback_thread.close(30)


@dataclass
class Print(Procedure):
    def execute(self, ctx):
        sys.stdout.write("a line for the handlers of the program\n")
        return Status.done("printed")


@pytest.mark.processes
@pytest.mark.usefixtures("raising_handler")
def test_a_log_handler_that_raises_at_what_a_step_prints_costs_the_line_alone(open_manager, until, caplog):
    caplog.set_level(logging.INFO, "actorproc")
    manager = open_manager(workers=1)
    for _ in range(2):
        handle = manager.submit(Print())
        assert handle.result(30) == "printed"
        until(lambda name=handle.id: manager.logs(name))

    assert manager.submit(Print()).result(30) == "printed"
    assert manager.health().ok


@pytest.mark.processes
@pytest.mark.usefixtures("raising_handler")
def test_a_log_handler_that_raises_does_not_end_the_manager(open_manager, until):
    store = FullDisk()
    manager = open_manager(workers=1, store=store, config=Config(spares=0, commit_backoff=0.01))
    store.full = True
    submits = threading.Thread(target=lambda: manager.submit(Print(), "late"), daemon=True)
    submits.start()
    until(lambda: manager.health().status == "storage-trouble")
    store.full = False
    submits.join(30)

    assert manager.get("late").result(30) == "printed"
    until(lambda: manager.health().ok)


@pytest.mark.processes
def test_a_log_handler_that_asks_the_manager_on_its_own_thread_is_refused_and_nobody_waits(open_manager, until):
    store, refused = FullDisk(), []
    manager = open_manager(workers=1, store=store, config=Config(spares=0, commit_backoff=0.01))

    class Submits(logging.Handler):
        """Has a procedure report each error to another one."""

        def emit(self, record):
            if record.levelno >= logging.ERROR:
                try:
                    manager.submit(Print())
                except NotAllowed as error:
                    refused.append(error)

    handler = Submits()
    logging.getLogger("actorproc").addHandler(handler)
    try:
        store.full = True
        submits = threading.Thread(target=lambda: manager.submit(Print(), "late"), daemon=True)
        submits.start()
        until(lambda: refused)
        store.full = False
        submits.join(30)
        assert manager.get("late").result(30) == "printed"
    finally:
        logging.getLogger("actorproc").removeHandler(handler)


_LENT = ("actorproc-pool", "actorproc-link-")
"""Threads that tell what workers say: of the pool, or of the link with its host."""


@pytest.mark.processes
def test_a_log_handler_that_asks_the_manager_on_a_thread_that_is_lent_to_it_is_refused_as_well(open_manager, until):
    refused = []

    class Submits(logging.Handler):
        """Has a procedure report each worker that is replaced."""

        def emit(self, record):
            if "is replaced: " in record.getMessage() and record.name == "actorproc":
                try:
                    manager.submit(Print())
                except NotAllowed:
                    refused.append(threading.current_thread().name)

    handler = Submits()
    log = logging.getLogger("actorproc")
    level = log.level
    manager = open_manager(workers=1, config=Config(spares=0, recycle_steps=1))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    try:
        for number in range(100):  # the manager may be at work just then; it seldom is
            assert manager.run(Print()) == "printed"
            until(lambda so_far=number + 1: len(refused) >= so_far)
            if any(name.startswith(_LENT) for name in refused):
                break
    finally:
        log.setLevel(level)
        log.removeHandler(handler)

    assert any(name.startswith(_LENT) for name in refused)
