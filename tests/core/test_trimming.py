"""The step log of a procedure that goes on for long: which records stay, and what may still happen to it."""

from __future__ import annotations

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import WorkerReady
from actorproc.model.messages.outcomes import Advanced, Finished
from actorproc.model.policies import Quotas
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import PutStep, TrimLog
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference


def numbers_left(harness: CoreHarness) -> list[int]:
    """The numbers of the records that a store would have."""
    left: set[int] = set()
    for write in harness.writes:
        if isinstance(write, PutStep):
            left.add(write.record.number)
        elif isinstance(write, TrimLog):
            left -= set(range(write.first, write.last + 1))
    return sorted(left)


def harness_with(keep: int | None, quota: int | None = None, **traits: object) -> CoreHarness:
    harness = CoreHarness(0)
    snapshot = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [])
    harness.core, _ = Coordinator.restore(snapshot, 0.0, quotas=Quotas(steps=quota))
    harness.register("T", keep_steps=keep, **traits)
    harness.handle(WorkerReady(WorkerId(0, 1)))
    harness.submit(harness.new("a"))
    return harness


@pytest.mark.parametrize("keep", [1, 2, 3, 10])
@pytest.mark.parametrize("in_a_row", [1, 3])
def test_the_first_record_and_the_last_ones_stay(keep: int, in_a_row: int) -> None:
    harness = harness_with(keep)

    for number in range(100):
        harness.answer("a", Advanced(state=b"%d" % number, steps=in_a_row, persist=in_a_row == 1))
        left = numbers_left(harness)
        newest = 1 + (number + 1) * in_a_row
        done = left[1:-1]
        assert left[0] == 1
        assert left[-1] == newest
        assert len(done) <= 2 * keep + 1
        if number >= keep:
            assert len(done) >= 1
            assert newest - max(done[0] - in_a_row, 1) > keep
        assert difference(harness) is None


@pytest.mark.parametrize(
    ("keep", "quota", "traits", "is_trimmed"),
    [
        (None, None, {}, False),
        (None, 5, {}, True),
        (None, 5, {"rollback_supported": True}, False),
        (5, None, {"rollback_supported": True}, True),
        (50, 5, {}, False),
    ],
)
def test_what_may_have_to_be_undone_is_trimmed_only_where_its_class_says_so(
    keep: int | None, quota: int | None, traits: dict[str, object], is_trimmed: bool
) -> None:
    harness = harness_with(keep, quota, **traits)

    for number in range(40):
        harness.answer("a", Advanced(state=b"%d" % number))

    assert (len(numbers_left(harness)) < 41) is is_trimmed
    assert any(isinstance(write, TrimLog) for write in harness.writes) is is_trimmed


def test_a_trimmed_procedure_that_fails_is_undone_from_its_last_state() -> None:
    harness = harness_with(1, rollback_supported=True)
    for number in range(20):
        harness.answer("a", Advanced(state=b"%d" % number, unit=f"u{number}"))

    harness.answer("a", boom())

    assert harness.inbox["a"].record in numbers_left(harness)
    assert harness.undo_all() == [f"a:u{number}" for number in reversed(range(20))]
    assert harness.state("a") is ProcedureState.ROLLEDBACK
    assert difference(harness) is None


def test_a_trimmed_procedure_that_ends_keeps_its_closing_record_and_the_first() -> None:
    harness = harness_with(2)
    for number in range(20):
        harness.answer("a", Advanced(state=b"%d" % number))

    harness.answer("a", Finished(state=b"end", output=b"out"))

    left = numbers_left(harness)
    assert (left[0], left[-1]) == (1, 22)
    assert harness.state("a") is ProcedureState.SUCCESS
