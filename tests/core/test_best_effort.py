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
from tests.core.harness import CoreHarness, boom

ONE_TRY = Backoff(max_attempts=1)


def _best(**traits: object) -> CoreHarness:
    return CoreHarness(workers=2, rollback_supported=True, best_effort=True, rollback_retry=ONE_TRY, **traits)


def _log(harness: CoreHarness, id: str) -> list[StepRecord]:
    return [write.record for write in harness.writes if isinstance(write, PutStep) and write.record.procedure == id]


def _three_steps(harness: CoreHarness) -> None:
    """Steps a, b and c of p; c fails."""
    harness.submit(harness.new("p", unit="a", locks=(LockKey.write("t"),)))
    harness.answer("p", Advanced(state=b"1", unit="b"))
    harness.answer("p", Advanced(state=b"2", unit="c"))
    harness.answer("p", boom("the reason"))


def test_an_undo_that_gives_up_is_skipped_and_the_others_run() -> None:
    harness = _best()
    _three_steps(harness)

    order = []
    while "p" in harness.inbox:
        unit = harness.inbox["p"].unit
        order.append(unit)
        harness.answer("p", boom("no") if unit == "b" else Finished(state=b"u"))

    assert order == ["c", "b", "a"]
    assert harness.resolved() == {"p": ProcedureState.ROLLEDBACK}
    assert [str(left) for left in harness.core.view("p").leftovers] == ["p b (ValueError: no)"]
    assert harness.core.view("p").error.message == "the reason"


def test_a_skipped_undo_is_in_the_step_log_with_its_error_and_poisons_nothing() -> None:
    harness = _best()
    _three_steps(harness)

    harness.answer("p", boom("no"))

    skipped = _log(harness, "p")[-1]
    assert (skipped.kind, skipped.outcome, skipped.label) == (StepKind.ROLLBACK, "skipped", "c")
    assert skipped.error == ErrorInfo("error", "ValueError", "no", step_name="c")
    assert not any(isinstance(write, PutPoison) for write in harness.writes)


def test_the_undo_after_a_skipped_one_starts_from_the_last_state_there_is() -> None:
    harness = _best()
    _three_steps(harness)

    harness.answer("p", Finished(state=b"c undone"))
    holds_state = harness.inbox["p"].record
    harness.answer("p", boom("no"))

    assert harness.inbox["p"].unit == "a"
    assert harness.inbox["p"].record == holds_state
    assert {row.number: row.state for row in _log(harness, "p")}[holds_state] == b"c undone"


def test_retries_of_an_undo_come_before_it_is_skipped() -> None:
    harness = CoreHarness(rollback_supported=True, best_effort=True, rollback_retry=Backoff(max_attempts=2, jitter=0.0))
    _three_steps(harness)

    harness.answer("p", boom("no", retryable=True))
    assert harness.core.view("p").leftovers == ()
    harness.now = 10.0
    harness.handle(Tick())
    harness.answer("p", boom("no", retryable=True))

    assert len(harness.core.view("p").leftovers) == 1
    assert harness.inbox["p"].unit == "b"


def test_a_restart_in_the_middle_goes_on_with_the_next_undo_and_keeps_the_list() -> None:
    harness = _best()
    _three_steps(harness)
    harness.answer("p", boom("no"))
    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)
    snapshot = image.snapshot()
    snapshot.epoch = 2

    later = CoreHarness(workers=0)
    later.core, _ = Coordinator.restore(snapshot, 1.0)
    later.register("T", rollback_supported=True, best_effort=True, rollback_retry=ONE_TRY)
    later.handle(WorkerReady(WorkerId(0, 1)))

    assert later.undo_all() == ["p:b", "p:a"]
    assert later.resolved() == {"p": ProcedureState.ROLLEDBACK}
    assert [left.unit for left in later.core.view("p").leftovers] == ["c"]


def test_a_child_that_left_something_behind_is_listed_by_the_root_too() -> None:
    harness = _best()
    harness.submit(harness.new("p", unit=""))
    harness.answer("p", Suspended(state=b"", unit="", children=(harness.new("c", unit=""), harness.new("d", unit=""))))
    harness.answer("c", Finished(state=b"c"))
    harness.answer("d", boom())

    while runs := [run for run in harness.inbox.values() if run.token.mode is Mode.ROLLBACK]:
        name = runs[0].token.procedure
        harness.answer(name, boom("stays") if name == "c" else Finished(state=b"u"))

    assert harness.state("p") is harness.state("c") is ProcedureState.ROLLEDBACK
    assert [str(left) for left in harness.core.view("p").leftovers] == ["c (ValueError: stays)"]
    assert harness.core.view("c").leftovers == harness.core.view("p").leftovers


def test_a_member_without_rollback_is_listed_by_the_root() -> None:
    harness = CoreHarness(workers=2, rollback_supported=True)
    harness.register("Bare")
    harness.submit(harness.new("p", unit=""))
    harness.answer("p", Suspended(state=b"", unit="", children=(harness.new("bare", "Bare"),)))
    harness.answer("bare", boom())

    harness.undo_all()

    assert harness.resolved() == {"bare": ProcedureState.FAILED, "p": ProcedureState.ROLLEDBACK}
    assert [str(left) for left in harness.core.view("p").leftovers] == ["bare (Bare has no rollback)"]
    assert harness.core.view("bare").leftovers == ()


def test_the_head_lists_so_many_leftovers_and_the_log_has_them_all() -> None:
    harness = _best()
    count = MAX_LEFTOVERS + 5
    harness.submit(harness.new("p", unit="0"))
    for number in range(1, count):
        harness.answer("p", Advanced(state=b"", unit=str(number)))
    harness.answer("p", boom())

    while "p" in harness.inbox:
        harness.answer("p", boom("no"))

    assert len(harness.core.view("p").leftovers) == MAX_LEFTOVERS
    assert sum(row.outcome == "skipped" for row in _log(harness, "p")) == count


def test_a_declared_poison_key_stays_when_its_own_undo_was_skipped() -> None:
    harness = _best()
    harness.submit(harness.new("p", unit="", poisons=("cat/t",)))
    harness.answer("p", boom())

    harness.answer("p", boom("no"))

    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)
    assert harness.state("p") is ProcedureState.ROLLEDBACK
    assert image.poisons["cat/t"].by == "p"


# ---------------------------------------------------------------- units of a machine that comes back
def test_a_state_that_is_left_and_entered_again_is_undone_once_for_each_visit() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="A"))
    for unit in ("A", None, "A", "B", "A"):
        harness.answer("p", Advanced(state=b"", unit=unit))
    harness.answer("p", boom())

    assert harness.undo_all() == ["p:A", "p:B", "p:A", "p:A"]


def test_a_step_that_only_its_timeout_came_before_was_never_begun_and_is_not_undone() -> None:
    harness = CoreHarness(rollback_supported=True, has_on_timeout=True)
    harness.submit(harness.new("p", unit="ask"))
    harness.answer("p", Waited(state=b"", unit="use the answer", event="go", timeout=5.0))
    harness.now = 6.0
    harness.handle(Tick())
    assert harness.inbox["p"].token.mode is Mode.ON_TIMEOUT

    harness.answer("p", boom())

    assert harness.undo_all() == ["p:ask"]
