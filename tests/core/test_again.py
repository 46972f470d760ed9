"""`Status.again` in the core: what a new generation keeps, what it gives up, and what a crash or a failure finds."""

from __future__ import annotations

import pytest

from actorproc.core.lifecycle import renewal
from actorproc.model.messages.events import AbortRequested
from actorproc.model.messages.outcomes import Advanced, Finished, Renewed, Suspended
from actorproc.model.policies import LockKey, LockMode
from actorproc.model.rows.writes import DeleteLock, DeleteProcedure, PutLock, PutUndo
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference, image_of, restarted

READ, WRITE = LockKey.read, LockKey.write


def again(*locks: LockKey, unit: str | None = None, poisons: tuple[str, ...] | None = None) -> Renewed:
    return Renewed(state=b"old", fresh=b"new", locks=locks, unit=unit, poisons=poisons)


def held(harness: CoreHarness) -> dict[tuple[str, str], LockMode]:
    return {key: lock.mode for key, lock in image_of(harness).locks.items()}


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [
        ((WRITE("a"), WRITE("b")), (WRITE("a"), WRITE("b")), {"a": 2, "b": 2}),
        ((WRITE("a"), WRITE("b")), (WRITE("a"),), {"a": 2}),
        ((WRITE("a"),), (), {}),
        ((), (WRITE("a"),), {"a": 2}),
        ((WRITE("a"),), (READ("a"),), {"a": 1}),
        ((READ("a"),), (WRITE("a"),), {"a": 2}),
        ((WRITE("a"),), (WRITE("b"),), {"b": 2}),
        ((WRITE("a"),), (WRITE("a"), READ("c")), {"a": 2, "c": 1}),
    ],
)
def test_keys_of_both_generations_are_held_on(
    before: tuple[LockKey, ...], after: tuple[LockKey, ...], kept: dict[str, int]
) -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p", locks=before))
    in_both = {key.path for key in before} & {key.path for key in after}
    at = len(harness.writes)

    harness.answer("p", again(*after))

    assert {path: int(mode) for (path, _), mode in held(harness).items()} == kept
    given_up = {write.path for write in harness.writes[at:] if isinstance(write, DeleteLock)}
    assert given_up.isdisjoint(in_both)
    assert harness.inbox["p"].begun == 1
    assert difference(harness) is None


def test_a_key_that_is_given_up_goes_to_the_next_and_a_new_one_is_waited_for() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("p", locks=(WRITE("a"),)))
    harness.submit(harness.new("other", locks=(WRITE("b"),)))
    harness.submit(harness.new("waits", locks=(WRITE("a"),)))

    harness.answer("p", again(WRITE("b")))

    assert "waits" in harness.inbox, "the key it waited for is free"
    assert "p" not in harness.inbox
    harness.answer("other", Finished(state=b""))
    assert harness.inbox["p"].generation == 2
    assert difference(harness) is None


def test_units_go_and_a_failure_undoes_only_the_last_generation() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="u0"))
    harness.answer("p", Advanced(state=b"1", unit="u1"))
    harness.answer("p", again(unit="u0"))
    harness.answer("p", Advanced(state=b"2", unit="u1"))

    harness.answer("p", boom())

    assert harness.undo_all() == ["p:u1", "p:u0"]
    assert harness.state("p") is ProcedureState.ROLLEDBACK
    assert difference(harness) is None


def test_a_tree_that_failed_meanwhile_is_undone_with_the_step_that_wanted_to_begin_again() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="u0"))
    harness.answer("p", Advanced(state=b"1", unit="u1"))
    harness.handle(AbortRequested("p", reply=2, force=False))

    harness.answer("p", again(unit="u0"))
    harness.undo_all()

    assert harness.state("p") is ProcedureState.ROLLEDBACK
    assert difference(harness) is None


def fan_out(harness: CoreHarness, count: int, *, generation: int = 1) -> list[str]:
    names = [f"p.{generation}.{n}" for n in range(count)]
    harness.answer("p", Suspended(state=b"s", children=tuple(harness.new(name) for name in names)))
    return names


def finish(harness: CoreHarness, names: list[str]) -> None:
    for name in names:
        harness.answer(name, Finished(state=b"", output=b"o"))


def removed(harness: CoreHarness) -> list[str]:
    return [write.record.id for write in harness.writes if isinstance(write, DeleteProcedure)]


def test_ended_children_are_removed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "SLICE", 3)
    harness = CoreHarness(workers=8)
    harness.submit(harness.new("p"))
    names = fan_out(harness, 8)
    finish(harness, names)

    harness.answer("p", again())
    assert removed(harness) == names[:-4:-1], "the latest first, as a child goes before its parent"
    assert difference(harness) is None
    harness.answer("p", Advanced(state=b"1"))
    harness.answer("p", Advanced(state=b"2"))

    assert removed(harness) == names[::-1]
    assert set(image_of(harness).heads) == {"p"}
    assert difference(harness) is None


def test_a_start_goes_on_with_the_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "SLICE", 3)
    harness = CoreHarness(workers=8)
    harness.submit(harness.new("p"))
    names = fan_out(harness, 8)
    finish(harness, names)
    harness.answer("p", again())

    harness = restarted(harness)
    for _ in range(3):
        harness.handle(AbortRequested("nobody", reply=9, force=False))

    assert set(image_of(harness).heads) == {"p"}


def test_an_id_of_an_earlier_generation_may_be_given_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "SLICE", 1)
    harness = CoreHarness(workers=8)
    harness.submit(harness.new("p"))
    finish(harness, fan_out(harness, 5))
    harness.answer("p", again())

    names = fan_out(harness, 5)  # the same ids

    assert harness.state("p") is ProcedureState.WAITING
    finish(harness, names)
    harness.answer("p", Finished(state=b"", output=b"end"))
    assert set(image_of(harness).heads) == {"p", *names}
    assert difference(harness) is None


def test_a_child_may_begin_again_once_its_parent_has_ended() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("p"))
    harness.answer(
        "p", Suspended(state=b"s", children=(harness.new("c"), harness.new("d")), wait="any", on_parent_end="leave")
    )
    harness.answer("d", Finished(state=b""))
    harness.answer("p", Finished(state=b"", output=b"end"))

    harness.answer("c", again())

    assert harness.state("p") is ProcedureState.SUCCESS
    assert harness.inbox["c"].generation == 2
    harness.answer("c", Finished(state=b""))
    assert harness.state("c") is ProcedureState.SUCCESS


def test_units_of_the_new_generation_are_counted_from_one() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="u"))
    for _ in range(3):
        harness.answer("p", again(unit="u"))

    pushed = [write.record.seq for write in harness.writes if isinstance(write, PutUndo)]
    assert pushed == [1, 1, 1, 1]
    assert [unit.seq for unit in image_of(harness).units.values()] == [1]


def test_with_locks_for_a_step_each_generation_asks_anew() -> None:
    harness = CoreHarness(lock_scope="step")
    harness.submit(harness.new("p", locks=(WRITE("a"),)))

    harness.answer("p", again(WRITE("b")))

    assert [path for path, _ in held(harness)] == ["b"]
    assert any(isinstance(write, PutLock) and write.record.path == "b" for write in harness.writes)
    assert difference(harness) is None
