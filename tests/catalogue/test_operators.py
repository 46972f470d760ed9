"""What operators do: bypass (HBase), abort where it must fail, list, cancel, fail and delete (Accumulo)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from actorproc import (
    LockKey,
    NotAllowed,
    Phase,
    Procedure,
    ProcedureAborted,
    ProcedureState,
    RetryPolicy,
    Saga,
    Status,
    UnknownProcedure,
    step,
)
from actorproc.store.memory import MemoryStore
from tests.catalogue.kit import (
    RecordingStore,
    crash_at_every_commit,
    ending_of,
    forget,
    note,
    noted,
    on_threads,
    refused,
)
from tests.kit.waiting import BOUND, wait_until

ONCE = RetryPolicy(max_attempts=1)


@dataclass
class Waits(Procedure):
    """Waits for an event nobody sends, with or without a limit."""

    folder: str
    limit: float | None = None

    def lock_keys(self):
        return [LockKey.write("place")]

    def execute(self, ctx):
        note(self.folder, ctx.id, ctx.step)
        return Status.wait("never", timeout=self.limit)

    def rollback(self, ctx):
        note(self.folder, "undo", ctx.id)


@dataclass
class Nest(Procedure):
    """A chain of parents; the last one waits for ever."""

    folder: str
    depth: int
    step: int = 0

    def execute(self, ctx):
        self.step += 1
        if self.step > 1:
            note(self.folder, "went on", ctx.id)
            return Status.done(self.depth)
        inner = Nest(self.folder, self.depth - 1) if self.depth > 1 else Waits(self.folder)
        return Status.suspended([(f"level-{self.depth - 1}", inner)])


@dataclass
class Refund(Saga):
    """Gives its payment back only once it is repaired."""

    folder: str
    rollback_retry: ClassVar[RetryPolicy] = ONCE

    def lock_keys(self):
        return [LockKey.write("bank")]

    @step
    def first(self, ctx):
        note(self.folder, "first")

    @first.undo
    def undo_first(self, ctx):
        note(self.folder, "undo first")

    @step
    def second(self, ctx):
        note(self.folder, "second")

    @second.undo
    def undo_second(self, ctx):
        note(self.folder, "undo second")
        if not Path(self.folder, "repaired").exists():
            raise RuntimeError("not now")

    @step
    def third(self, ctx):
        raise RuntimeError("no")


@dataclass
class Parts(Procedure):
    """Two children without rollback, one of which fails until it is repaired."""

    folder: str
    step: int = 0

    def execute(self, ctx):
        self.step += 1
        if self.step == 1:
            return Status.suspended(
                [("good", Part(self.folder)), ("bad", Part(self.folder, fails=True))], max_parallel=1
            )
        note(self.folder, "parent")
        return Status.done([str(child.state) for child in ctx.children.values()])


@dataclass
class Part(Procedure):
    folder: str
    fails: bool = False

    def lock_keys(self):
        return [LockKey.write("part")]

    def execute(self, ctx):
        note(self.folder, ctx.id)
        if self.fails and not Path(self.folder, "repaired").exists():
            raise RuntimeError("not now")
        return Status.done()


Refund.uses = ()
Parts.uses = (Part,)
Nest.uses = (Waits,)


# ---------------------------------------------------------------- HBase: bypass
@pytest.mark.parametrize("limit", [None, 3600.0], ids=["suspended", "waiting with a limit"])
def test_hbase_32_a_procedure_that_waits_is_freed_by_a_bypass(folder, limit):
    """It ends as if it had succeeded; neither its next step nor its rollback runs, and its locks are free."""
    with on_threads(MemoryStore(), [Waits]) as manager:
        handle = manager.submit(Waits(folder, limit), "w")
        wait_until(lambda: handle.info().phase is Phase.WAITING)

        assert manager.bypass("w", reason="it was done by hand")

        assert handle.result(BOUND) is None
        assert handle.info().bypassed
        assert manager.locks() == []
        assert manager.bypass("w") is False
    assert noted(folder) == ["w 1"]


def test_hbase_34_descendants_end_with_it_when_that_is_asked_for(folder):
    with on_threads(MemoryStore(), [Nest, Waits]) as manager:
        handle = manager.submit(Nest(folder, 3), "root")
        wait_until(lambda: _is_waiting(manager, "level-0"))
        assert isinstance(refused(lambda: manager.bypass("root")), NotAllowed)

        assert manager.bypass("root", children=True)

        assert handle.result(BOUND) is None
        assert all(info.bypassed for info in manager.list())
    assert noted(folder) == ["level-0 1"]


def test_hbase_34_ancestors_end_with_it_when_that_is_asked_for_and_go_on_otherwise(folder):
    with on_threads(MemoryStore(), [Nest, Waits]) as manager:
        one, two = manager.submit(Nest(folder, 2), "one"), None
        wait_until(lambda: _is_waiting(manager, "level-0"))
        assert manager.bypass("level-0", ancestors=True)
        assert one.result(BOUND) is None
        assert noted(folder) == ["level-0 1"]
    with on_threads(MemoryStore(), [Nest, Waits]) as manager:
        two = manager.submit(Nest(folder, 2), "two")
        wait_until(lambda: _is_waiting(manager, "level-0"))
        assert manager.bypass("level-0")
        assert two.result(BOUND) == 2
    assert noted(folder)[-2:] == ["went on level-1", "went on two"]


def test_hbase_34_a_bypass_with_ancestors_is_one_truth_at_every_crash(folder):
    """Whatever commit the host dies before, the whole chain ends bypassed."""

    def judge(manager, handle):
        wait_until(lambda: handle.done() or _is_waiting(manager, "level-0"))
        if not handle.done():
            manager.bypass("level-0", ancestors=True)
        return ending_of(handle), sorted((info.id, info.bypassed) for info in manager.list()), manager.locks()

    assert crash_at_every_commit(Nest(folder, 3), folder, judge) >= 4


def _is_waiting(manager, name):
    try:
        return manager.info(name).phase is Phase.WAITING
    except UnknownProcedure:
        return False


# ---------------------------------------------------------------- HBase: abort
def test_hbase_56_an_abort_of_nobody_and_of_what_ended_is_told_so_and_a_reason_is_kept(folder):
    with on_threads(MemoryStore(), [Waits]) as manager:
        assert isinstance(refused(lambda: manager.abort("nobody", reason="why not")), UnknownProcedure)
        handle = manager.submit(Waits(folder), "w")
        wait_until(lambda: handle.info().phase is Phase.WAITING)

        assert manager.abort("w", reason="too long")

        assert isinstance(handle.exception(BOUND), ProcedureAborted)
        assert manager.abort("w", force=True, reason="again") is False
        assert [row.reason for row in manager.audit("w")] == ["too long"]


# ---------------------------------------------------------------- Accumulo: the operator's commands
def test_accumulo_74_what_is_there_is_listed_counted_and_filtered(folder):
    """print, summary: ids, states, types, locks held."""
    with on_threads(MemoryStore(), [Waits, Part]) as manager:
        manager.submit(Waits(folder), "w")
        manager.run(Part(folder), id="p")
        wait_until(lambda: manager.info("w").phase is Phase.WAITING)

        assert [(info.id, info.state) for info in manager.list()] == [
            ("w", ProcedureState.WAITING),
            ("p", ProcedureState.SUCCESS),
        ]
        assert [info.id for info in manager.list(state="SUCCESS")] == ["p"]
        assert [(lock.path, lock.holder) for lock in manager.locks()] == [("place", "w")]


def test_accumulo_74_what_has_not_started_is_cancelled_without_having_run(folder):
    """cancel: only what is new; here whatever was not executed is not undone either."""
    with on_threads(MemoryStore(), [Waits]) as manager:
        manager.pause()
        handle = manager.submit(Waits(folder), "w")

        assert manager.abort("w")

        assert handle.exception(BOUND).state == "ROLLEDBACK"
        manager.resume()
    assert noted(folder) == []


def test_accumulo_74_what_runs_is_failed_and_undone(folder):
    """fail: it stops and is rolled back, without being asked."""
    with on_threads(MemoryStore(), [Waits]) as manager:
        handle = manager.submit(Waits(folder), "w")
        wait_until(lambda: handle.info().phase is Phase.WAITING)

        assert manager.rollback("w")

        assert handle.exception(BOUND).state == "ROLLEDBACK"
    assert noted(folder) == ["w 1", "undo w"]


# ---------------------------------------------------------------- every crash
def test_uncovered_a_retried_rollback_is_one_truth_at_every_crash(folder):
    def judge(manager, handle):
        if handle.exception(BOUND).state == "FAILED":
            Path(folder, "repaired").touch()
            handle = manager.retry("root", reason="repaired")
        return ending_of(handle), manager.poisons(), manager.locks()

    assert crash_at_every_commit(Refund(folder), folder, judge) >= 5


def test_uncovered_a_retried_step_is_one_truth_at_every_crash(folder):
    def judge(manager, handle):
        if handle.exception(BOUND) is not None:
            Path(folder, "repaired").touch()
            handle = manager.retry("root")
        return ending_of(handle), manager.poisons(), manager.locks(), {info.state for info in manager.list()}

    assert crash_at_every_commit(Parts(folder), folder, judge) >= 5


def test_uncovered_a_pause_is_as_durable_as_it_was_said(folder):
    """From the commit that pauses it on, nothing runs in any later life until somebody lifts the pause."""
    store = RecordingStore(folder)
    with on_threads(store, [Parts, Part]) as manager:
        manager.pause(reason="maintenance")
        manager.submit(Parts(folder), "root")
        Path(folder, "repaired").touch()
        manager.pause("root", reason="not yet")
        manager.resume()
        assert manager.health().status == "running"
        images, store.images = store.images, None
    assert noted(folder) == []
    for image in [image for image, _ in images if image.procedure("root") is not None] + [store.clone()]:
        forget(folder)
        with on_threads(image, [Parts, Part]) as manager:
            paused = (manager.health().paused, manager.info("root").paused)
            assert paused != (None, None)
            assert manager.resume() is (paused[0] is not None)
            assert manager.resume("root") is (paused[1] is not None)
            assert manager.get("root").result(BOUND) == ["SUCCESS", "SUCCESS"]
