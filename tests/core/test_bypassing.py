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
from tests.core.harness import CoreHarness, boom, difference, image_of, later

DONE = Finished(state=b"")
KEY = LockKey.write("cat/t")
SUCCESS = ProcedureState.SUCCESS
KILLED = CrashReport(kind="stopped", message="bypassed by force")


def _bypass(harness: CoreHarness, id: str = "p", **options: object) -> Reply:
    return _reply(harness.handle(BypassRequested(id, 7, **options)))  # type: ignore[arg-type]


def _reply(decision: Decision) -> Reply:
    return next(command for command in decision.commands if isinstance(command, Reply))


def _closing(harness: CoreHarness, id: str = "p") -> StepRecord:
    return next(
        write.record
        for write in reversed(harness.writes)
        if isinstance(write, PutStep) and write.record.procedure == id
    )


def _agrees(harness: CoreHarness) -> None:
    assert difference(harness) is None


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
    harness = CoreHarness(1, rollback_supported=True)
    harness.submit(harness.new("p", unit="", locks=(KEY,)))
    harness.answer("p", outcome)  # type: ignore[arg-type]

    assert _bypass(harness, reason="done by hand").value is True

    record = harness.core.view("p")
    assert record is not None
    assert (record.state, record.bypassed, record.error) == (SUCCESS, True, None)
    assert harness.resolved() == {"p": SUCCESS}
    closing = _closing(harness)
    assert (closing.kind, closing.outcome, closing.output) == (StepKind.COMMIT, "bypassed", b"")
    assert (image_of(harness).locks, image_of(harness).units) == ({}, {})
    assert [write.record.reason for write in harness.writes if isinstance(write, PutAudit)] == ["done by hand"] * 2
    harness.now = 100.0
    harness.handle(Tick())
    assert not harness.inbox


def test_a_procedure_whose_class_is_not_known_can_be_bypassed() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    again = CoreHarness(0)
    again.core, _ = Coordinator.restore(image_of(harness).snapshot(), 1.0)

    assert _bypass(again).value is True
    assert again.state("p") is SUCCESS


def test_a_parent_goes_on_as_if_its_child_had_succeeded() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"),)))
    harness.answer("c", Waited(state=b"", event="never"))

    _bypass(harness, "c")

    assert harness.inbox["p"].token.step == 2
    harness.answer("p", DONE)
    assert harness.state("p") is SUCCESS


def test_children_must_have_ended_or_be_bypassed_too() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"), harness.new("d"))))
    harness.answer("c", Suspended(state=b"", children=(harness.new("g"),)))
    harness.answer("d", Waited(state=b"", event="never"))
    harness.answer("g", Waited(state=b"", event="never"))

    refused = _bypass(harness).error
    assert isinstance(refused, NotAllowed)
    assert "3 descendants" in str(refused)
    assert "children=True" in str(refused)

    assert _bypass(harness, children=True).value is True
    assert harness.resolved() == dict.fromkeys(("p", "c", "d", "g"), SUCCESS)
    assert list(harness.resolved())[-1] == "p"


def test_ancestors_end_as_soon_as_their_other_children_have() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"), harness.new("d"))))
    harness.answer("c", Waited(state=b"", event="never"))

    assert _bypass(harness, "c", ancestors=True).value is True

    assert harness.resolved() == {"c": SUCCESS}
    _agrees(harness)
    harness.answer("d", DONE)
    assert harness.resolved() == dict.fromkeys(("c", "d", "p"), SUCCESS)
    assert _closing(harness).outcome == "bypassed"


def test_a_bypassed_ancestor_waits_for_its_children_across_a_restart() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"), harness.new("d"))))
    harness.answer("c", Waited(state=b"", event="never"))
    _bypass(harness, "c", ancestors=True)

    again = CoreHarness(0)
    again.core, decision = Coordinator.restore(image_of(harness).snapshot(), 1.0)
    again.writes = [*harness.writes, *decision.writes]
    again.register("T")
    again.handle(WorkerReady(WorkerId(0, 9)))
    again.answer("d", DONE)

    assert image_of(again).heads["p"].state is SUCCESS


# ---------------------------------------------------------------- running
def test_a_running_step_is_killed_only_by_force() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p", locks=(KEY,)))

    refused = _bypass(harness).error
    assert isinstance(refused, NotAllowed)
    assert "force=True" in str(refused)
    assert harness.kills() == []

    assert _bypass(harness, force=True).value is True
    assert [kill.reason for kill in harness.kills()] == ["bypassed by force"]
    # Its keys are free only when it does not run any more.
    assert harness.state("p") is ProcedureState.RUNNABLE
    assert len(image_of(harness).locks) == 1

    harness.handle(WorkerLost(WorkerId(0, 1), KILLED, blamed=harness.inbox["p"].token))
    assert harness.state("p") is SUCCESS
    assert image_of(harness).locks == {}


def test_what_a_killed_step_answered_before_it_died_does_not_count() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    _bypass(harness, force=True)

    harness.answer("p", Suspended(state=b"", children=(harness.new("c"),)))

    assert harness.state("p") is SUCCESS
    assert harness.core.view("c") is None
    assert _closing(harness).outcome == "bypassed"


def test_a_host_that_dies_before_the_step_was_killed_bypasses_it_at_the_next_start() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p", locks=(KEY,)))
    _bypass(harness, force=True)

    again = CoreHarness(0)
    again.core, decision = Coordinator.restore(image_of(harness).snapshot(), 1.0)
    again.writes = [*harness.writes, *decision.writes]

    assert image_of(again).heads["p"].state is SUCCESS
    assert image_of(again).locks == {}


def test_a_step_that_waits_behind_another_is_taken_back_and_its_neighbour_lives() -> None:
    harness = CoreHarness(1)
    for _ in range(40):  # short steps, so that the next two go to the same worker
        harness.submit(harness.new(f"s{harness.now}"))
        harness.answer(f"s{harness.now}", DONE)
        harness.now += 1
    harness.submit(harness.new("a"), harness.new("b"))
    assert set(harness.inbox) == {"a", "b"}

    _bypass(harness, "b", force=True)

    assert harness.kills() == []


# ---------------------------------------------------------------- failing trees
def test_a_member_whose_undo_is_stuck_is_given_up_and_the_rest_is_undone() -> None:
    harness = CoreHarness(1, rollback_supported=True, rollback_retry=Backoff(max_attempts=99))
    harness.submit(harness.new("p", unit=""))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c", unit=""), harness.new("d", unit=""))))
    harness.answer("c", DONE)
    harness.answer("d", DONE)
    harness.answer("p", boom())
    assert harness.inbox["d"].token.mode is Mode.ROLLBACK
    harness.answer("d", boom("still locked", retryable=True))

    assert _bypass(harness, "d").value is True

    assert harness.undo_all() == ["c:", "p:"]
    assert harness.state("p") is ProcedureState.ROLLEDBACK
    assert image_of(harness).heads["d"].state is SUCCESS
    assert image_of(harness).units == {}


def test_a_root_whose_rollback_is_stuck_ends_and_gives_its_locks_back() -> None:
    harness = CoreHarness(1, rollback_supported=True, rollback_retry=Backoff(max_attempts=99))
    harness.submit(harness.new("p", unit="", locks=(KEY,)))
    harness.answer("p", boom())
    harness.answer("p", boom("cannot", retryable=True))

    assert _bypass(harness).value is True

    assert harness.resolved() == {"p": SUCCESS}
    image = image_of(harness)
    assert (image.locks, image.poisons, image.units) == ({}, {}, {})


def test_a_failed_root_ends_well_in_a_new_run_and_frees_what_it_poisoned() -> None:
    harness = CoreHarness(1, rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    harness.submit(harness.new("p", unit="", locks=(KEY,)))
    harness.answer("p", boom())
    harness.answer("p", boom("cannot"))
    assert set(image_of(harness).poisons) == {"cat/t"}

    assert _bypass(harness).value is True

    record = harness.core.view("p")
    assert record is not None
    assert (record.state, record.run) == (SUCCESS, 2)
    image = image_of(harness)
    assert (image.poisons, image.units) == ({}, {})
    assert isinstance(_reply(harness.handle(RetryRequested("p", 8))).error, NotAllowed)


def test_a_failed_child_is_its_parents_business_and_what_ended_well_is_left_alone() -> None:
    harness = CoreHarness(1, on_child_failure="resume")
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"),)))
    harness.answer("c", boom())

    assert isinstance(_bypass(harness, "c").error, NotAllowed)
    harness.answer("p", Advanced(state=b""))
    harness.answer("p", DONE)
    assert _bypass(harness).value is False


def test_a_root_ends_only_when_the_undo_that_runs_far_below_it_was_killed() -> None:
    harness = CoreHarness(1, rollback_supported=True)
    harness.submit(harness.new("p", unit="", locks=(KEY,)))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"),)))
    harness.answer("c", Suspended(state=b"", children=(harness.new("g", unit=""),)))
    harness.answer("g", DONE)
    harness.answer("c", DONE)
    harness.answer("p", boom())
    assert harness.inbox["g"].token.mode is Mode.ROLLBACK

    assert _bypass(harness, children=True, force=True).value is True
    assert harness.state("p") is ProcedureState.RUNNABLE

    harness.handle(WorkerLost(WorkerId(0, 1), KILLED, blamed=harness.inbox["g"].token))
    assert harness.state("p") is SUCCESS
    image = image_of(harness)
    assert (image.locks, image.units) == ({}, {})
    assert image.heads["g"].bypassed


def test_an_ancestor_that_is_to_be_bypassed_ends_well_though_its_other_child_fails() -> None:
    harness = CoreHarness(2, rollback_supported=True)
    harness.submit(harness.new("p", unit=""))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"), harness.new("d", unit=""))))
    harness.answer("c", Waited(state=b"", event="never"))
    _bypass(harness, "c", ancestors=True)

    harness.answer("d", boom())
    assert harness.undo_all() == ["d:"]

    assert harness.resolved() == {"c": SUCCESS, "d": ProcedureState.ROLLEDBACK, "p": SUCCESS}


def test_a_rollback_ends_with_the_bypass_of_the_root_it_is_for() -> None:
    harness = CoreHarness(1, rollback_supported=True, rollback_retry=Backoff(max_attempts=99))
    harness.submit(harness.new("p", unit=""))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c", unit=""), harness.new("d", unit=""))))
    harness.answer("c", DONE)
    harness.answer("d", boom())
    harness.answer("d", boom("not now", retryable=True))

    assert _bypass(harness, "d", ancestors=True).value is True

    assert harness.undo_all() == []
    assert {head.state for head in image_of(harness).heads.values()} == {SUCCESS}
    assert image_of(harness).units == {}


def test_children_that_are_kept_back_start_in_their_order_though_one_of_them_was_bypassed() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    children = tuple(harness.new(name) for name in "abcd")
    harness.answer("p", Suspended(state=b"", children=children, max_parallel=1))
    _bypass(harness, "c")
    _agrees(harness)

    order = []
    while "p" not in harness.inbox:
        order += list(harness.inbox)
        harness.answer(order[-1], DONE)
        _agrees(harness)

    assert order == ["a", "b", "d"]


def test_an_answer_that_does_not_count_changes_nothing_in_memory_either() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=tuple(harness.new(name) for name in "cde"), wait="any"))
    harness.answer("c", Waited(state=b"", event="never"))
    harness.answer("d", Waited(state=b"", event="never"))
    harness.answer("e", DONE)
    again = CoreHarness(0)
    again.core, decision = Coordinator.restore(image_of(harness).snapshot(), 1.0)
    again.writes = [*harness.writes, *decision.writes]
    again.register("T")
    again.handle(WorkerReady(WorkerId(0, 9)))
    _bypass(again, "c", ancestors=True)

    again.answer("p", Advanced(state=b""))

    _agrees(again)
    assert again.state("p") is ProcedureState.RUNNABLE
    _bypass(again, "d")
    assert image_of(again).heads["p"].state is SUCCESS
