"""Catalogue: events, time limits, aborts, and taking turns."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest

from actorproc import Procedure, RetryPolicy, Saga, StateMachineProcedure, Status, step
from actorproc.errors import ProcedureAborted, RetryLater, UnknownProcedure
from actorproc.model.states import Phase, ProcedureState
from actorproc.store.memory import MemoryStore
from tests.catalogue.kit import crash_at_every_commit, ending_of, note, noted, on_threads, refused
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes


class Only(Enum):
    STATE = 1


@dataclass
class Stuck(StateMachineProcedure):
    folder: str
    initial_state = Only.STATE

    def execute_from_state(self, ctx, state):
        if self.cycles == 5:
            note(self.folder, "five cycles")
        return Status.executing(after=0.001)

    def rollback_state(self, ctx, state):
        note(self.folder, "undo", state.name, self.cycles >= 5)


@dataclass
class Waits(Procedure):
    """Waits with a time limit, again and again; done after `times`."""

    folder: str
    times: int
    timeouts: int = 0

    def execute(self, ctx):
        if self.timeouts >= self.times:
            return Status.done(self.timeouts)
        return Status.wait("never", timeout=0.004)

    def on_timeout(self, ctx):
        self.timeouts += 1
        note(self.folder, "timeout", self.timeouts)
        return Status.executing()

    def rollback(self, ctx):
        note(self.folder, "undo")


@dataclass
class Yields(Procedure):
    folder: str
    name: str
    left: int

    def execute(self, ctx):
        note(self.folder, self.name)
        self.left -= 1
        return Status.executing(yield_=True) if self.left else Status.done(self.name)


@dataclass
class Naps(Procedure):
    seconds: float
    before: int = 0
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        if self.at <= self.before:
            return Status.executing(persist=False)
        return Status.sleep(self.seconds) if self.at == self.before + 1 else Status.done(self.at)


class StuckUndo(Saga):
    folder: str
    rollback_retry = RetryPolicy(max_attempts=100, base=0.005, jitter=0.0, factor=1.0, retry_on=(Exception, RetryLater))

    @step
    def only(self, ctx):
        raise ValueError("no")

    @only.undo
    def undo(self, ctx):
        if note(self.folder, "undo") < 6:
            raise OSError("not yet")


@dataclass
class NoWayBack(Procedure):
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        if self.at == 1:
            return Status.executing(no_return=True)
        return Status.wait("go") if self.at == 2 else Status.done("finished")

    def rollback(self, ctx):
        raise AssertionError("past the point of no return")


def test_hbase_17_an_abort_ends_a_machine_that_cycles_on_one_state(open_manager, folder, until):
    """It would cycle for ever; the abort undoes that one state once, however often it ran."""
    manager = open_manager()
    handle = manager.submit(Stuck(folder))
    until(lambda: noted(folder))

    assert manager.abort(handle.id) is True

    failure = handle.exception(BOUND)
    assert isinstance(failure, ProcedureAborted)
    assert failure.state == "ROLLEDBACK"
    assert noted(folder)[1:] == ["undo STATE True"]


def test_hbase_21_a_wait_that_times_out_again_and_again_and_then_an_abort(open_manager, folder, until):
    """Each time limit calls `on_timeout` once; an abort while it waits undoes it."""
    manager = open_manager()
    handle = manager.submit(Waits(folder, times=1000))
    until(lambda: len(noted(folder)) >= 5)

    assert manager.abort(handle.id) is True

    assert handle.exception(BOUND).state == "ROLLEDBACK"
    lines = noted(folder)
    timeouts = len(lines) - 1
    assert lines == [*(f"timeout {number}" for number in range(1, timeouts + 1)), "undo"]


def test_hbase_22_time_limits_across_a_crash_at_every_commit(folder):
    """Restarted while suspended or awake, the same time limits pass and none is counted twice."""
    assert crash_at_every_commit(Waits(folder, times=3), folder, lambda _, handle: ending_of(handle)) >= 6


def test_hbase_25_three_procedures_that_yield_take_turns(folder):
    """One worker: after each step the other two go first."""
    with on_threads(MemoryStore()) as manager:
        manager.pause()
        handles = manager.submit_many([Yields(folder, name, 4) for name in "abc"])
        manager.resume()
        for handle in handles:
            handle.result(BOUND)

    assert noted(folder) == list("abc" * 4)


def test_hbase_27_five_yields_and_then_done(open_manager, folder):
    """Alone in the manager, a procedure that yields is simply called again."""
    assert open_manager().run(Yields(folder, "y", 6)) == "y"
    assert noted(folder) == ["y"] * 6


def test_hbase_40_a_saved_timer_is_back_after_a_restart_and_unsaved_steps_run_again(folder):
    """Two unsaved steps before a sleep: a sleep is always saved, so its due time does not move; one before is no timer."""
    store = MemoryStore()
    with on_threads(store, [Naps]) as manager:
        handle = manager.submit(Naps(3600.0, before=2), "naps")
        # Asked of the store: the manager may know of the sleep a moment before it is durable.
        wait_until(lambda: store.procedure("naps").state is ProcedureState.WAITING_TIMEOUT)
        before = handle.info()
        image = store.clone()
    with on_threads(image, [Naps]) as manager:
        after = manager.info("naps")
        assert (after.phase, after.due_at, after.step) == (Phase.SLEEPING, before.due_at, before.step)
    with on_threads(MemoryStore(), [Naps]) as manager:
        assert manager.run(Naps(0.01, before=2)) == 4


def test_hbase_40_unsaved_steps_across_a_crash_at_every_commit(folder):
    """With and without records in between, the end is the same."""
    assert crash_at_every_commit(Naps(0.005, before=3), folder, lambda _, handle: ending_of(handle)) >= 2


def test_hbase_56_an_abort_is_refused_where_nothing_is_left_to_abort(open_manager, folder, until):
    """False when it has ended, an error when there is none, and no effect during a rollback or past the last way back."""
    manager = open_manager()
    ended = manager.submit(Yields(folder, "y", 1))
    ended.result(BOUND)
    assert manager.abort(ended.id) is False
    assert isinstance(refused(lambda: manager.abort("nobody")), UnknownProcedure)

    undoing = manager.submit(StuckUndo(folder))
    until(lambda: "undo" in noted(folder))
    manager.abort(undoing.id)
    assert undoing.exception(BOUND).state == "ROLLEDBACK"
    assert noted(folder).count("undo") == 6

    forward = manager.submit(NoWayBack())
    until(lambda: forward.info().phase is Phase.WAITING)
    manager.abort(forward.id)
    manager.publish("go")
    assert forward.result(BOUND) == "finished"


def test_accumulo_64_a_thousand_deferred_procedures_all_run():
    """Many sleep at once; no table of deferrals overflows and none is forgotten."""
    with on_threads(MemoryStore(), [Naps], workers=2) as manager:
        handles = manager.submit_many([Naps(0.01) for _ in range(1000)])
        assert {handle.result(BOUND) for handle in handles} == {2}
