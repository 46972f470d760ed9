"""The last resort: a procedure ends as if it had succeeded."""

from __future__ import annotations

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.errors import NotAllowed
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import Decision, Reply
from actorproc.model.messages.events import (
    BypassRequested,
    CrashReport,
    RetryRequested,
    Tick,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished, Slept, Suspended, Waited
from actorproc.model.policies import Backoff, LockKey
from actorproc.model.rows.records import StepKind, StepRecord
from actorproc.model.rows.writes import PutAudit, PutStep
from actorproc.model.states import ProcedureState
from tests.core.stage import Stage, boom, difference, image_of, later

DONE = Finished(state=b"")
KEY = LockKey.write("cat/t")
SUCCESS = ProcedureState.SUCCESS
KILLED = CrashReport(kind="stopped", message="bypassed by force")


def _bypass(stage: Stage, id: str = "p", **options: object) -> Reply:
    return _reply(stage.handle(BypassRequested(id, 7, **options)))  # type: ignore[arg-type]


def _reply(decision: Decision) -> Reply:
    return next(command for command in decision.commands if isinstance(command, Reply))


def _closing(stage: Stage, id: str = "p") -> StepRecord:
    return next(
        write.record for write in reversed(stage.writes) if isinstance(write, PutStep) and write.record.procedure == id
    )


def _agrees(stage: Stage) -> None:
    assert difference(stage) is None


@pytest.mark.parametrize(
    "outcome",
    [
        Waited(state=b"", event="go"),
        Waited(state=b"", event="go", timeout=60.0),
        Slept(state=b"", seconds=60.0),
        later("busy", after=60.0),
    ],
    ids=["waiting", "waiting with a limit", "sleeping", "backing off"],
)
def test_a_procedure_that_waits_for_anything_ends_as_if_it_had_succeeded(outcome: object) -> None:
    stage = Stage(1, rollback_supported=True)
    stage.submit(stage.new("p", unit="", locks=(KEY,)))
    stage.answer("p", outcome)  # type: ignore[arg-type]

    assert _bypass(stage, reason="done by hand").value is True

    record = stage.core.view("p")
    assert record is not None
    assert (record.state, record.bypassed, record.error) == (SUCCESS, True, None)
    assert stage.resolved() == {"p": SUCCESS}
    closing = _closing(stage)
    assert (closing.kind, closing.outcome, closing.output) == (StepKind.COMMIT, "bypassed", b"")
    assert (image_of(stage).locks, image_of(stage).units) == ({}, {})
    assert [write.record.reason for write in stage.writes if isinstance(write, PutAudit)] == ["done by hand"]
    stage.now = 100.0
    stage.handle(Tick())
    assert not stage.inbox


def test_a_procedure_whose_class_is_not_known_can_be_bypassed() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    again = Stage(0)
    again.core, _ = Coordinator.restore(image_of(stage).snapshot(), 1.0)

    assert _bypass(again).value is True
    assert again.state("p") is SUCCESS


def test_a_parent_goes_on_as_if_its_child_had_succeeded() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"),)))
    stage.answer("c", Waited(state=b"", event="never"))

    _bypass(stage, "c")

    assert stage.inbox["p"].token.step == 2
    stage.answer("p", DONE)
    assert stage.state("p") is SUCCESS


def test_children_must_have_ended_or_be_bypassed_too() -> None:
    stage = Stage(2)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"), stage.new("d"))))
    stage.answer("c", Suspended(state=b"", children=(stage.new("g"),)))
    stage.answer("d", Waited(state=b"", event="never"))
    stage.answer("g", Waited(state=b"", event="never"))

    refused = _bypass(stage).error
    assert isinstance(refused, NotAllowed)
    assert "3 descendants" in str(refused)
    assert "children=True" in str(refused)

    assert _bypass(stage, children=True).value is True
    assert stage.resolved() == dict.fromkeys(("p", "c", "d", "g"), SUCCESS)
    assert list(stage.resolved())[-1] == "p"


def test_ancestors_end_as_soon_as_their_other_children_have() -> None:
    stage = Stage(2)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"), stage.new("d"))))
    stage.answer("c", Waited(state=b"", event="never"))

    assert _bypass(stage, "c", ancestors=True).value is True

    assert stage.resolved() == {"c": SUCCESS}
    _agrees(stage)
    stage.answer("d", DONE)
    assert stage.resolved() == dict.fromkeys(("c", "d", "p"), SUCCESS)
    assert _closing(stage).outcome == "bypassed"


def test_a_bypassed_ancestor_waits_for_its_children_across_a_restart() -> None:
    stage = Stage(2)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"), stage.new("d"))))
    stage.answer("c", Waited(state=b"", event="never"))
    _bypass(stage, "c", ancestors=True)

    again = Stage(0)
    again.core, decision = Coordinator.restore(image_of(stage).snapshot(), 1.0)
    again.writes = [*stage.writes, *decision.writes]
    again.register("T")
    again.handle(WorkerReady(WorkerId(0, 9)))
    again.answer("d", DONE)

    assert image_of(again).heads["p"].state is SUCCESS


# ---------------------------------------------------------------- running
def test_a_running_step_is_killed_only_by_force() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p", locks=(KEY,)))

    refused = _bypass(stage).error
    assert isinstance(refused, NotAllowed)
    assert "force=True" in str(refused)
    assert stage.kills() == []

    assert _bypass(stage, force=True).value is True
    assert [kill.reason for kill in stage.kills()] == ["bypassed by force"]
    # Its keys are free only when it does not run any more.
    assert stage.state("p") is ProcedureState.RUNNABLE
    assert len(image_of(stage).locks) == 1

    stage.handle(WorkerLost(WorkerId(0, 1), KILLED, blamed=stage.inbox["p"].token))
    assert stage.state("p") is SUCCESS
    assert image_of(stage).locks == {}


def test_what_a_killed_step_answered_before_it_died_does_not_count() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    _bypass(stage, force=True)

    stage.answer("p", Suspended(state=b"", children=(stage.new("c"),)))

    assert stage.state("p") is SUCCESS
    assert stage.core.view("c") is None
    assert _closing(stage).outcome == "bypassed"


def test_a_host_that_dies_before_the_step_was_killed_bypasses_it_at_the_next_start() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p", locks=(KEY,)))
    _bypass(stage, force=True)

    again = Stage(0)
    again.core, decision = Coordinator.restore(image_of(stage).snapshot(), 1.0)
    again.writes = [*stage.writes, *decision.writes]

    assert image_of(again).heads["p"].state is SUCCESS
    assert image_of(again).locks == {}


def test_a_step_that_waits_behind_another_is_taken_back_and_its_neighbour_lives() -> None:
    stage = Stage(1)
    for _ in range(40):  # short steps, so that the next two go to the same worker
        stage.submit(stage.new(f"s{stage.now}"))
        stage.answer(f"s{stage.now}", DONE)
        stage.now += 1
    stage.submit(stage.new("a"), stage.new("b"))
    assert set(stage.inbox) == {"a", "b"}

    _bypass(stage, "b", force=True)

    assert stage.kills() == []


# ---------------------------------------------------------------- failing trees
def test_a_member_whose_undo_is_stuck_is_given_up_and_the_rest_is_undone() -> None:
    stage = Stage(1, rollback_supported=True, rollback_retry=Backoff(max_attempts=99))
    stage.submit(stage.new("p", unit=""))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c", unit=""), stage.new("d", unit=""))))
    stage.answer("c", DONE)
    stage.answer("d", DONE)
    stage.answer("p", boom())
    assert stage.inbox["d"].token.mode is Mode.ROLLBACK
    stage.answer("d", boom("still locked", retryable=True))

    assert _bypass(stage, "d").value is True

    assert stage.undo_all() == ["c:", "p:"]
    assert stage.state("p") is ProcedureState.ROLLEDBACK
    assert image_of(stage).heads["d"].state is SUCCESS
    assert image_of(stage).units == {}


def test_a_root_whose_rollback_is_stuck_ends_and_gives_its_locks_back() -> None:
    stage = Stage(1, rollback_supported=True, rollback_retry=Backoff(max_attempts=99))
    stage.submit(stage.new("p", unit="", locks=(KEY,)))
    stage.answer("p", boom())
    stage.answer("p", boom("cannot", retryable=True))

    assert _bypass(stage).value is True

    assert stage.resolved() == {"p": SUCCESS}
    image = image_of(stage)
    assert (image.locks, image.poisons, image.units) == ({}, {}, {})


def test_a_failed_root_ends_well_in_a_new_run_and_frees_what_it_poisoned() -> None:
    stage = Stage(1, rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    stage.submit(stage.new("p", unit="", locks=(KEY,)))
    stage.answer("p", boom())
    stage.answer("p", boom("cannot"))
    assert set(image_of(stage).poisons) == {"cat/t"}

    assert _bypass(stage).value is True

    record = stage.core.view("p")
    assert record is not None
    assert (record.state, record.run) == (SUCCESS, 2)
    image = image_of(stage)
    assert (image.poisons, image.units) == ({}, {})
    assert isinstance(_reply(stage.handle(RetryRequested("p", 8))).error, NotAllowed)


def test_a_failed_child_is_its_parents_business_and_what_ended_well_is_left_alone() -> None:
    stage = Stage(1, on_child_failure="resume")
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"),)))
    stage.answer("c", boom())

    assert isinstance(_bypass(stage, "c").error, NotAllowed)
    stage.answer("p", Advanced(state=b""))
    stage.answer("p", DONE)
    assert _bypass(stage).value is False


def test_a_root_ends_only_when_the_undo_that_runs_far_below_it_was_killed() -> None:
    stage = Stage(1, rollback_supported=True)
    stage.submit(stage.new("p", unit="", locks=(KEY,)))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"),)))
    stage.answer("c", Suspended(state=b"", children=(stage.new("g", unit=""),)))
    stage.answer("g", DONE)
    stage.answer("c", DONE)
    stage.answer("p", boom())
    assert stage.inbox["g"].token.mode is Mode.ROLLBACK

    assert _bypass(stage, children=True, force=True).value is True
    assert stage.state("p") is ProcedureState.RUNNABLE

    stage.handle(WorkerLost(WorkerId(0, 1), KILLED, blamed=stage.inbox["g"].token))
    assert stage.state("p") is SUCCESS
    image = image_of(stage)
    assert (image.locks, image.units) == ({}, {})
    assert image.heads["g"].bypassed


def test_an_ancestor_that_is_to_be_bypassed_ends_well_though_its_other_child_fails() -> None:
    stage = Stage(2, rollback_supported=True)
    stage.submit(stage.new("p", unit=""))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"), stage.new("d", unit=""))))
    stage.answer("c", Waited(state=b"", event="never"))
    _bypass(stage, "c", ancestors=True)

    stage.answer("d", boom())
    assert stage.undo_all() == ["d:"]

    assert stage.resolved() == {"c": SUCCESS, "d": ProcedureState.ROLLEDBACK, "p": SUCCESS}


def test_a_rollback_ends_with_the_bypass_of_the_root_it_is_for() -> None:
    stage = Stage(1, rollback_supported=True, rollback_retry=Backoff(max_attempts=99))
    stage.submit(stage.new("p", unit=""))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c", unit=""), stage.new("d", unit=""))))
    stage.answer("c", DONE)
    stage.answer("d", boom())
    stage.answer("d", boom("not now", retryable=True))

    assert _bypass(stage, "d", ancestors=True).value is True

    assert stage.undo_all() == []
    assert {head.state for head in image_of(stage).heads.values()} == {SUCCESS}
    assert image_of(stage).units == {}


def test_children_that_are_kept_back_start_in_their_order_though_one_of_them_was_bypassed() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    children = tuple(stage.new(name) for name in "abcd")
    stage.answer("p", Suspended(state=b"", children=children, max_parallel=1))
    _bypass(stage, "c")
    _agrees(stage)

    order = []
    while "p" not in stage.inbox:
        order += list(stage.inbox)
        stage.answer(order[-1], DONE)
        _agrees(stage)

    assert order == ["a", "b", "d"]


def test_an_answer_that_does_not_count_changes_nothing_in_memory_either() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=tuple(stage.new(name) for name in "cde"), wait="any"))
    stage.answer("c", Waited(state=b"", event="never"))
    stage.answer("d", Waited(state=b"", event="never"))
    stage.answer("e", DONE)
    again = Stage(0)
    again.core, decision = Coordinator.restore(image_of(stage).snapshot(), 1.0)
    again.writes = [*stage.writes, *decision.writes]
    again.register("T")
    again.handle(WorkerReady(WorkerId(0, 9)))
    _bypass(again, "c", ancestors=True)

    again.answer("p", Advanced(state=b""))

    _agrees(again)
    assert again.state("p") is ProcedureState.RUNNABLE
    _bypass(again, "d")
    assert image_of(again).heads["p"].state is SUCCESS
