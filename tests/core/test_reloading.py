"""Workers with old and with new code, side by side while a manager is reloaded."""

from __future__ import annotations

from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import ReloadBegan, Tick, WorkerReady
from actorproc.model.messages.outcomes import Finished, Slept
from actorproc.model.policies import TypeMeta
from tests.core.harness import CoreHarness, restarted

LONG = 1.0


def half_reloaded() -> CoreHarness:
    """Two workers: that of slot 0 has new code, that of slot 1 still has the old."""
    harness = CoreHarness(workers=2)
    harness.handle(ReloadBegan(99))
    harness.kill(0)
    harness.handle(WorkerReady(WorkerId(0, 2)))
    return harness


def slot_of(harness: CoreHarness, procedure: str) -> int | None:
    return harness.inbox[procedure].token.worker.slot if procedure in harness.inbox else None


def test_a_procedure_that_new_code_has_run_goes_to_no_worker_with_the_old() -> None:
    harness = half_reloaded()
    harness.submit(harness.new("new"), harness.new("old"))
    assert (slot_of(harness, "new"), slot_of(harness, "old")) == (0, 1)
    harness.answer("new", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    harness.answer("old", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    harness.submit(harness.new("busy"))
    assert slot_of(harness, "busy") == 0

    harness.now += 6.0
    harness.handle(Tick())

    assert slot_of(harness, "new") is None
    harness.answer("busy", Finished(state=b"", elapsed=LONG))
    assert slot_of(harness, "new") == 0
    assert slot_of(harness, "old") == 1


def test_with_the_last_worker_of_old_code_everything_is_as_before() -> None:
    harness = half_reloaded()
    harness.submit(harness.new("new"), harness.new("old"))
    harness.answer("new", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    harness.answer("old", Finished(state=b"", elapsed=LONG))
    harness.kill(1)
    harness.handle(WorkerReady(WorkerId(1, 2)))
    harness.submit(harness.new("busy"))
    assert slot_of(harness, "busy") == 0

    harness.now += 6.0
    harness.handle(Tick())

    assert slot_of(harness, "new") == 1


def test_nobody_waits_for_new_code_when_the_reload_was_given_up() -> None:
    harness = half_reloaded()
    harness.submit(harness.new("new"))
    harness.answer("new", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    harness.kill(0, 2)
    harness.now += 6.0
    harness.handle(Tick())
    assert slot_of(harness, "new") is None

    harness.handle(ReloadBegan(100, is_over=True))

    assert slot_of(harness, "new") == 1


def test_the_older_code_is_the_new_one_when_it_comes_back() -> None:
    harness = half_reloaded()
    harness.submit(harness.new("new"))
    harness.answer("new", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    harness.handle(ReloadBegan(100))
    harness.submit(harness.new("busy"))
    assert slot_of(harness, "busy") == 0

    harness.now += 6.0
    harness.handle(Tick())

    assert slot_of(harness, "new") == 1


def test_a_commit_that_fails_in_the_middle_does_not_forget_who_has_old_code() -> None:
    harness = half_reloaded()
    harness.submit(harness.new("new"))
    harness.answer("new", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    living = tuple((WorkerReady(worker.id), ()) for worker in harness.core._state.workers.table.workers.values())

    again = restarted(harness, TypeMeta(type_name="T"), workers=living, before=harness.core)
    again.submit(again.new("busy"))
    assert slot_of(again, "busy") == 0
    again.now += 6.0
    again.handle(Tick())

    assert slot_of(again, "new") is None
    again.answer("busy", Finished(state=b"", elapsed=LONG))
    assert slot_of(again, "new") == 0
