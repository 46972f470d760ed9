"""Workers with old and with new code, side by side while a manager is reloaded."""

from __future__ import annotations

from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import ReloadBegan, Tick, WorkerReady
from actorproc.model.messages.outcomes import Finished, Slept
from actorproc.model.policies import TypeMeta
from tests.core.stage import Stage, restarted

LONG = 1.0


def half_reloaded() -> Stage:
    """Two workers: that of slot 0 has new code, that of slot 1 still has the old."""
    stage = Stage(workers=2)
    stage.handle(ReloadBegan(99))
    stage.kill(0)
    stage.handle(WorkerReady(WorkerId(0, 2)))
    return stage


def slot_of(stage: Stage, procedure: str) -> int | None:
    return stage.inbox[procedure].token.worker.slot if procedure in stage.inbox else None


def test_a_procedure_that_new_code_has_run_goes_to_no_worker_with_the_old() -> None:
    stage = half_reloaded()
    stage.submit(stage.new("new"), stage.new("old"))
    assert (slot_of(stage, "new"), slot_of(stage, "old")) == (0, 1)
    stage.answer("new", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    stage.answer("old", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    stage.submit(stage.new("busy"))
    assert slot_of(stage, "busy") == 0

    stage.now += 6.0
    stage.handle(Tick())

    assert slot_of(stage, "new") is None
    stage.answer("busy", Finished(state=b"", elapsed=LONG))
    assert slot_of(stage, "new") == 0
    assert slot_of(stage, "old") == 1


def test_with_the_last_worker_of_old_code_everything_is_as_before() -> None:
    stage = half_reloaded()
    stage.submit(stage.new("new"), stage.new("old"))
    stage.answer("new", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    stage.answer("old", Finished(state=b"", elapsed=LONG))
    stage.kill(1)
    stage.handle(WorkerReady(WorkerId(1, 2)))
    stage.submit(stage.new("busy"))
    assert slot_of(stage, "busy") == 0

    stage.now += 6.0
    stage.handle(Tick())

    assert slot_of(stage, "new") == 1


def test_nobody_waits_for_new_code_when_the_reload_was_given_up() -> None:
    stage = half_reloaded()
    stage.submit(stage.new("new"))
    stage.answer("new", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    stage.kill(0, 2)
    stage.now += 6.0
    stage.handle(Tick())
    assert slot_of(stage, "new") is None

    stage.handle(ReloadBegan(100, is_over=True))

    assert slot_of(stage, "new") == 1


def test_the_older_code_is_the_new_one_when_it_comes_back() -> None:
    stage = half_reloaded()
    stage.submit(stage.new("new"))
    stage.answer("new", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    stage.handle(ReloadBegan(100))
    stage.submit(stage.new("busy"))
    assert slot_of(stage, "busy") == 0

    stage.now += 6.0
    stage.handle(Tick())

    assert slot_of(stage, "new") == 1


def test_a_commit_that_fails_in_the_middle_does_not_forget_who_has_old_code() -> None:
    stage = half_reloaded()
    stage.submit(stage.new("new"))
    stage.answer("new", Slept(state=b"1", seconds=5.0, elapsed=LONG))
    living = tuple((WorkerReady(worker.id), ()) for worker in stage.core._state.worker_table.workers.values())

    again = restarted(stage, TypeMeta(type_name="T"), workers=living, before=stage.core)
    again.submit(again.new("busy"))
    assert slot_of(again, "busy") == 0
    again.now += 6.0
    again.handle(Tick())

    assert slot_of(again, "new") is None
    again.answer("busy", Finished(state=b"", elapsed=LONG))
    assert slot_of(again, "new") == 0
