"""Best-effort rollback, what is listed as left behind, and which undo units a machine that comes back pushes."""

from __future__ import annotations

from actorproc.core.coordinator import Coordinator
from actorproc.core.state.skipped_undo import MAX_LEFTOVERS
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.events import Tick, WorkerReady
from actorproc.model.messages.outcomes import Advanced, Finished, Suspended, Waited
from actorproc.model.policies import Backoff, LockKey
from actorproc.model.rows.records import ErrorInfo, StepKind, StepRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import PutPoison, PutStep
from actorproc.model.states import ProcedureState
from actorproc.testing.histories.image import Image
from tests.core.stage import Stage, boom

ONE_TRY = Backoff(max_attempts=1)


def _best(**traits: object) -> Stage:
    return Stage(workers=2, rollback_supported=True, best_effort=True, rollback_retry=ONE_TRY, **traits)


def _log(stage: Stage, id: str) -> list[StepRecord]:
    return [write.record for write in stage.writes if isinstance(write, PutStep) and write.record.procedure == id]


def _three_steps(stage: Stage) -> None:
    """Steps a, b and c of p; c fails."""
    stage.submit(stage.new("p", unit="a", locks=(LockKey.write("t"),)))
    stage.answer("p", Advanced(state=b"1", unit="b"))
    stage.answer("p", Advanced(state=b"2", unit="c"))
    stage.answer("p", boom("the reason"))


def test_an_undo_that_gives_up_is_skipped_and_the_others_run() -> None:
    stage = _best()
    _three_steps(stage)

    order = []
    while "p" in stage.inbox:
        unit = stage.inbox["p"].unit
        order.append(unit)
        stage.answer("p", boom("no") if unit == "b" else Finished(state=b"u"))

    assert order == ["c", "b", "a"]
    assert stage.resolved() == {"p": ProcedureState.ROLLEDBACK}
    assert [str(left) for left in stage.core.view("p").leftovers] == ["p b (ValueError: no)"]
    assert stage.core.view("p").error.message == "the reason"


def test_a_skipped_undo_is_in_the_step_log_with_its_error_and_poisons_nothing() -> None:
    stage = _best()
    _three_steps(stage)

    stage.answer("p", boom("no"))

    skipped = _log(stage, "p")[-1]
    assert (skipped.kind, skipped.outcome, skipped.label) == (StepKind.ROLLBACK, "skipped", "c")
    assert skipped.error == ErrorInfo("error", "ValueError", "no")
    assert not any(isinstance(write, PutPoison) for write in stage.writes)


def test_the_undo_after_a_skipped_one_starts_from_the_last_state_there_is() -> None:
    stage = _best()
    _three_steps(stage)

    stage.answer("p", Finished(state=b"c undone"))
    holds_state = stage.inbox["p"].record
    stage.answer("p", boom("no"))

    assert stage.inbox["p"].unit == "a"
    assert stage.inbox["p"].record == holds_state
    assert {row.number: row.state for row in _log(stage, "p")}[holds_state] == b"c undone"


def test_retries_of_an_undo_come_before_it_is_skipped() -> None:
    stage = Stage(rollback_supported=True, best_effort=True, rollback_retry=Backoff(max_attempts=2, jitter=0.0))
    _three_steps(stage)

    stage.answer("p", boom("no", retryable=True))
    assert stage.core.view("p").leftovers == ()
    stage.now = 10.0
    stage.handle(Tick())
    stage.answer("p", boom("no", retryable=True))

    assert len(stage.core.view("p").leftovers) == 1
    assert stage.inbox["p"].unit == "b"


def test_a_restart_in_the_middle_goes_on_with_the_next_undo_and_keeps_the_list() -> None:
    stage = _best()
    _three_steps(stage)
    stage.answer("p", boom("no"))
    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(stage.writes)
    snapshot = image.snapshot()
    snapshot.epoch = 2

    later = Stage(workers=0)
    later.core, _ = Coordinator.restore(snapshot, 1.0)
    later.register("T", rollback_supported=True, best_effort=True, rollback_retry=ONE_TRY)
    later.handle(WorkerReady(WorkerId(0, 1)))

    assert later.undo_all() == ["p:b", "p:a"]
    assert later.resolved() == {"p": ProcedureState.ROLLEDBACK}
    assert [left.unit for left in later.core.view("p").leftovers] == ["c"]


def test_a_child_that_left_something_behind_is_listed_by_the_root_too() -> None:
    stage = _best()
    stage.submit(stage.new("p", unit=""))
    stage.answer("p", Suspended(state=b"", unit="", children=(stage.new("c", unit=""), stage.new("d", unit=""))))
    stage.answer("c", Finished(state=b"c"))
    stage.answer("d", boom())

    while runs := [run for run in stage.inbox.values() if run.token.mode is Mode.ROLLBACK]:
        name = runs[0].token.procedure
        stage.answer(name, boom("stays") if name == "c" else Finished(state=b"u"))

    assert stage.state("p") is stage.state("c") is ProcedureState.ROLLEDBACK
    assert [str(left) for left in stage.core.view("p").leftovers] == ["c (ValueError: stays)"]
    assert stage.core.view("c").leftovers == stage.core.view("p").leftovers


def test_a_member_without_rollback_is_listed_by_the_root() -> None:
    stage = Stage(workers=2, rollback_supported=True)
    stage.register("Bare")
    stage.submit(stage.new("p", unit=""))
    stage.answer("p", Suspended(state=b"", unit="", children=(stage.new("bare", "Bare"),)))
    stage.answer("bare", boom())

    stage.undo_all()

    assert stage.resolved() == {"bare": ProcedureState.FAILED, "p": ProcedureState.ROLLEDBACK}
    assert [str(left) for left in stage.core.view("p").leftovers] == ["bare (Bare has no rollback)"]
    assert stage.core.view("bare").leftovers == ()


def test_the_head_lists_so_many_leftovers_and_the_log_has_them_all() -> None:
    stage = _best()
    count = MAX_LEFTOVERS + 5
    stage.submit(stage.new("p", unit="0"))
    for number in range(1, count):
        stage.answer("p", Advanced(state=b"", unit=str(number)))
    stage.answer("p", boom())

    while "p" in stage.inbox:
        stage.answer("p", boom("no"))

    assert len(stage.core.view("p").leftovers) == MAX_LEFTOVERS
    assert sum(row.outcome == "skipped" for row in _log(stage, "p")) == count


def test_a_declared_poison_key_stays_when_its_own_undo_was_skipped() -> None:
    stage = _best()
    stage.submit(stage.new("p", unit="", poisons=("cat/t",)))
    stage.answer("p", boom())

    stage.answer("p", boom("no"))

    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(stage.writes)
    assert stage.state("p") is ProcedureState.ROLLEDBACK
    assert image.poisons["cat/t"].by == "p"


# ---------------------------------------------------------------- units of a machine that comes back
def test_a_state_that_is_left_and_entered_again_is_undone_once_for_each_visit() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="A"))
    for unit in ("A", None, "A", "B", "A"):
        stage.answer("p", Advanced(state=b"", unit=unit))
    stage.answer("p", boom())

    assert stage.undo_all() == ["p:A", "p:B", "p:A", "p:A"]


def test_a_step_that_only_its_timeout_came_before_was_never_begun_and_is_not_undone() -> None:
    stage = Stage(rollback_supported=True, has_on_timeout=True)
    stage.submit(stage.new("p", unit="ask"))
    stage.answer("p", Waited(state=b"", unit="use the answer", event="go", timeout=5.0))
    stage.now = 6.0
    stage.handle(Tick())
    assert stage.inbox["p"].token.mode is Mode.ON_TIMEOUT

    stage.answer("p", boom())

    assert stage.undo_all() == ["p:ask"]
