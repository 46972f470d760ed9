"""`Status.again` in the core: what a new generation keeps, what it gives up, and what a crash or a failure finds."""

from __future__ import annotations

import pytest

from actorproc.core.lifecycle import renewal
from actorproc.model.messages.events import AbortRequested
from actorproc.model.messages.outcomes import Advanced, Finished, Renewed, Suspended
from actorproc.model.policies import LockKey, LockMode
from actorproc.model.rows.writes import DeleteLock, DeleteProcedure, PutLock, PutUndo
from actorproc.model.states import ProcedureState
from tests.core.stage import Stage, boom, difference, image_of, restarted

READ, WRITE = LockKey.read, LockKey.write


def again(*locks: LockKey, unit: str | None = None, poisons: tuple[str, ...] | None = None) -> Renewed:
    return Renewed(state=b"old", fresh=b"new", locks=locks, unit=unit, poisons=poisons)


def held(stage: Stage) -> dict[tuple[str, str], LockMode]:
    return {key: lock.mode for key, lock in image_of(stage).locks.items()}


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
    stage = Stage()
    stage.submit(stage.new("p", locks=before))
    in_both = {key.path for key in before} & {key.path for key in after}
    at = len(stage.writes)

    stage.answer("p", again(*after))

    assert {path: int(mode) for (path, _), mode in held(stage).items()} == kept
    given_up = {write.path for write in stage.writes[at:] if isinstance(write, DeleteLock)}
    assert given_up.isdisjoint(in_both)
    assert stage.inbox["p"].begun == 1
    assert difference(stage) is None


def test_a_key_that_is_given_up_goes_to_the_next_and_a_new_one_is_waited_for() -> None:
    stage = Stage(workers=2)
    stage.submit(stage.new("p", locks=(WRITE("a"),)))
    stage.submit(stage.new("other", locks=(WRITE("b"),)))
    stage.submit(stage.new("waits", locks=(WRITE("a"),)))

    stage.answer("p", again(WRITE("b")))

    assert "waits" in stage.inbox, "the key it waited for is free"
    assert "p" not in stage.inbox
    stage.answer("other", Finished(state=b""))
    assert stage.inbox["p"].generation == 2
    assert difference(stage) is None


def test_units_go_and_a_failure_undoes_only_the_last_generation() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="u0"))
    stage.answer("p", Advanced(state=b"1", unit="u1"))
    stage.answer("p", again(unit="u0"))
    stage.answer("p", Advanced(state=b"2", unit="u1"))

    stage.answer("p", boom())

    assert stage.undo_all() == ["p:u1", "p:u0"]
    assert stage.state("p") is ProcedureState.ROLLEDBACK
    assert difference(stage) is None


def test_a_tree_that_failed_meanwhile_is_undone_with_the_step_that_wanted_to_begin_again() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="u0"))
    stage.answer("p", Advanced(state=b"1", unit="u1"))
    stage.handle(AbortRequested("p", reply=2, force=False))

    stage.answer("p", again(unit="u0"))
    stage.undo_all()

    assert stage.state("p") is ProcedureState.ROLLEDBACK
    assert difference(stage) is None


def fan_out(stage: Stage, count: int, *, generation: int = 1) -> list[str]:
    names = [f"p.{generation}.{n}" for n in range(count)]
    stage.answer("p", Suspended(state=b"s", children=tuple(stage.new(name) for name in names)))
    return names


def finish(stage: Stage, names: list[str]) -> None:
    for name in names:
        stage.answer(name, Finished(state=b"", output=b"o"))


def removed(stage: Stage) -> list[str]:
    return [write.record.id for write in stage.writes if isinstance(write, DeleteProcedure)]


def test_ended_children_are_removed_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "SLICE", 3)
    stage = Stage(workers=8)
    stage.submit(stage.new("p"))
    names = fan_out(stage, 8)
    finish(stage, names)

    stage.answer("p", again())
    assert removed(stage) == names[:-4:-1], "the latest first, as a child goes before its parent"
    assert difference(stage) is None
    stage.answer("p", Advanced(state=b"1"))
    stage.answer("p", Advanced(state=b"2"))

    assert removed(stage) == names[::-1]
    assert set(image_of(stage).heads) == {"p"}
    assert difference(stage) is None


def test_a_start_goes_on_with_the_removal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "SLICE", 3)
    stage = Stage(workers=8)
    stage.submit(stage.new("p"))
    names = fan_out(stage, 8)
    finish(stage, names)
    stage.answer("p", again())

    stage = restarted(stage)
    for _ in range(3):
        stage.handle(AbortRequested("nobody", reply=9, force=False))

    assert set(image_of(stage).heads) == {"p"}


def test_an_id_of_an_earlier_generation_may_be_given_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renewal, "SLICE", 1)
    stage = Stage(workers=8)
    stage.submit(stage.new("p"))
    finish(stage, fan_out(stage, 5))
    stage.answer("p", again())

    names = fan_out(stage, 5)  # the same ids

    assert stage.state("p") is ProcedureState.WAITING
    finish(stage, names)
    stage.answer("p", Finished(state=b"", output=b"end"))
    assert set(image_of(stage).heads) == {"p", *names}
    assert difference(stage) is None


def test_a_child_may_begin_again_once_its_parent_has_ended() -> None:
    stage = Stage(workers=2)
    stage.submit(stage.new("p"))
    stage.answer(
        "p", Suspended(state=b"s", children=(stage.new("c"), stage.new("d")), wait="any", on_parent_end="leave")
    )
    stage.answer("d", Finished(state=b""))
    stage.answer("p", Finished(state=b"", output=b"end"))

    stage.answer("c", again())

    assert stage.state("p") is ProcedureState.SUCCESS
    assert stage.inbox["c"].generation == 2
    stage.answer("c", Finished(state=b""))
    assert stage.state("c") is ProcedureState.SUCCESS


def test_units_of_the_new_generation_are_counted_from_one() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="u"))
    for _ in range(3):
        stage.answer("p", again(unit="u"))

    pushed = [write.record.seq for write in stage.writes if isinstance(write, PutUndo)]
    assert pushed == [1, 1, 1, 1]
    assert [unit.seq for unit in image_of(stage).units.values()] == [1]


def test_with_locks_for_a_step_each_generation_asks_anew() -> None:
    stage = Stage(lock_scope="step")
    stage.submit(stage.new("p", locks=(WRITE("a"),)))

    stage.answer("p", again(WRITE("b")))

    assert [path for path, _ in held(stage)] == ["b"]
    assert any(isinstance(write, PutLock) and write.record.path == "b" for write in stage.writes)
    assert difference(stage) is None
