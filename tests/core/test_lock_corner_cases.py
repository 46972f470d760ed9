"""Locks where trees fail, wait in line for themselves, or are asked to abort: each of these was found by a history."""

from __future__ import annotations

from actorproc.model.ids import Mode
from actorproc.model.messages.events import AbortRequested
from actorproc.model.messages.outcomes import Advanced, Answered, Finished, Poisoned, Suspended
from actorproc.model.policies import LockKey
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.rows.writes import PutPoison
from actorproc.model.states import ProcedureState
from tests.core.stage import Stage, boom

DONE = Finished(state=b"")


def _acquire(*keys: LockKey) -> Advanced:
    return Advanced(state=b"", unit="", acquire=keys)


def test_an_undo_of_a_step_waits_for_its_locks_though_its_procedure_keeps_some_for_its_children() -> None:
    stage = Stage(workers=3, rollback_supported=True)
    stage.register("S", rollback_supported=True, lock_scope="step")
    stage.submit(stage.new("p", "S", unit="", locks=(LockKey.write("e"),)))
    stage.answer("p", Suspended(state=b"", unit="", children=(stage.new("c", unit="", locks=(LockKey.write("a"),)),)))
    stage.submit(stage.new("other", locks=(LockKey.write("e"),)))

    stage.answer("c", DONE)
    stage.handle(AbortRequested("p", 2))
    stage.answer("c", DONE)  # its undo
    assert "p" not in stage.inbox

    stage.answer("other", DONE)
    assert stage.inbox["p"].token.mode is Mode.ROLLBACK


def test_who_stands_in_line_only_behind_those_that_wait_for_it_goes_first_and_nobody_fails() -> None:
    stage = Stage(workers=4, rollback_supported=True)
    key = (LockKey.write("a/b"),)
    stage.submit(stage.new("r", unit=""))
    stage.answer(
        "r", Suspended(state=b"", unit="", children=tuple(stage.new(name, unit="", locks=key) for name in "xy"))
    )
    stage.submit(stage.new("young", unit="", locks=(LockKey.write("e"),)))
    stage.answer("young", _acquire(LockKey.write("a/b/c")))

    # It stands in line behind both, and both wait for what it holds.
    stage.answer("x", _acquire(LockKey.read("a")))

    assert stage.inbox.keys() == {"x"}
    for name in ("x", "y", "r", "young"):
        stage.answer(name, DONE)
    assert stage.resolved() == dict.fromkeys(("x", "y", "r", "young"), ProcedureState.SUCCESS)


def test_a_circle_that_is_left_when_another_tree_gave_way_is_found_too() -> None:
    stage = Stage(workers=4, rollback_supported=True)
    stage.submit(stage.new("r", unit=""))
    x, y = (stage.new(name, unit="", locks=(LockKey.write(name),)) for name in "xy")
    stage.answer("r", Suspended(state=b"", unit="", children=(x, y)))
    stage.submit(stage.new("young", unit="", locks=(LockKey.write("e"),)))
    stage.answer("young", _acquire(LockKey.write("y")))
    stage.answer("y", _acquire(LockKey.write("x")))

    # It waits for the youngest tree, and for its own sister, and both wait for it.
    stage.answer("x", _acquire(LockKey.write("e"), LockKey.write("y")))

    assert stage.core.view("young").error.kind == "deadlock"
    assert stage.core.view("r").failing
    stage.undo_all()
    assert stage.resolved() == dict.fromkeys(("young", "x", "y", "r"), ProcedureState.ROLLEDBACK)


def test_a_child_in_line_behind_its_parent_goes_on_when_the_parent_has_the_lock() -> None:
    stage = Stage(workers=4)
    stage.submit(stage.new("other", locks=(LockKey.write("a"),)))
    stage.submit(stage.new("p", locks=(LockKey.write("z"),)))
    stage.answer("p", Suspended(state=b"", children=(stage.new("quick"), stage.new("slow")), wait="any"))
    stage.answer("quick", DONE)
    stage.answer("p", _acquire(LockKey.write("a")))
    stage.answer("slow", _acquire(LockKey.read("a/b")))
    assert set(stage.inbox) == {"other"}

    stage.answer("other", DONE)

    assert set(stage.inbox) == {"p", "slow"}


def test_who_fails_while_it_is_asked_to_abort_waits_for_locks_no_more() -> None:
    stage = Stage(workers=3, rollback_supported=True, asks_abort=True)
    stage.submit(stage.new("holder", locks=(LockKey.write("t"),)))
    stage.submit(stage.new("waiter", unit=""))
    stage.answer("waiter", _acquire(LockKey.write("t")))
    stage.handle(AbortRequested("waiter", 2))
    assert stage.inbox["waiter"].token.mode is Mode.ASK_ABORT

    stage.answer("holder", Poisoned(state=b"", keys=("t",), error=ErrorInfo("poisoned", "Poisoned", "half done")))
    assert "waiter" not in stage.core._state.locks.holders()
    assert not stage.core._state.locks.is_waiting("waiter")

    # Its undo needs nothing of what it never held.
    stage.submit(stage.new("next"))
    stage.answer("waiter", Answered(state=b"", allowed=False))
    assert stage.inbox["waiter"].token.mode is Mode.ROLLBACK


def test_a_key_that_stays_poisoned_by_strangers_alone_is_refused_to_those_who_wait_for_it() -> None:
    stage = Stage(workers=4)
    key = (LockKey.write("t"),)
    stage.submit(stage.new("holder", locks=key))
    stage.submit(stage.new("p"))
    stage.answer(
        "p", Suspended(state=b"", children=(stage.new("risky", poisons=("t",)), stage.new("waiter", locks=key)))
    )
    stage.submit(stage.new("stranger", poisons=("t",)))
    assert stage.core.view("waiter").error is None  # its own tree poisons the key

    stage.answer("risky", DONE)

    error = stage.core.view("waiter").error
    assert error.type_name == "KeyPoisoned"
    assert "poisoned by stranger" in error.message


def test_an_undo_does_not_fail_twice_so_another_tree_gives_way() -> None:
    stage = Stage(workers=4, rollback_supported=True)
    stage.register("S", rollback_supported=True, lock_scope="step")
    stage.register("R", rollback_supported=True, on_child_failure="resume")
    stage.submit(stage.new("old", unit="", locks=(LockKey.write("a"),)))
    stage.submit(stage.new("young", "R", unit="", locks=(LockKey.write("e"),)))
    stage.answer("young", Suspended(state=b"", unit="", children=(stage.new("child", "S", unit="u"),)))
    stage.answer("child", Advanced(state=b"", unit="u", acquire=(LockKey.write("a"),)))

    stage.answer("old", _acquire(LockKey.write("e")))

    # The child gave way, but its parent goes on with the key; the undo of the child's step needs the other one.
    assert stage.core.view("child").error.kind == "deadlock"
    assert stage.core.view("old").error.kind == "deadlock"
    stage.undo_all()
    assert stage.resolved()["old"] is ProcedureState.ROLLEDBACK
    assert stage.resolved()["child"] is ProcedureState.ROLLEDBACK


def test_undos_that_wait_for_each_other_do_not_wait_for_ever() -> None:
    stage = Stage(workers=4, rollback_supported=True)
    stage.register("S", rollback_supported=True, lock_scope="step")
    trees = {"one": ("x", "y"), "two": ("y", "x")}
    for root, (first, _) in trees.items():
        # Its first child changes something under a key for a step; the key is free for others then.
        stage.submit(stage.new(root, unit=""))
        child = stage.new(f"{root}-1", "S", unit="u", locks=(LockKey.write(first),))
        stage.answer(root, Suspended(state=b"", unit="", children=(child,)))
        stage.answer(f"{root}-1", DONE)
    for root, (_, second) in trees.items():
        # Its second one keeps what the other tree's undo is going to need.
        child = stage.new(f"{root}-2", unit="", locks=(LockKey.write(second),))
        stage.answer(root, Suspended(state=b"", unit="", children=(child,)))
    for root in trees:
        stage.answer(f"{root}-2", boom())

    stage.undo_all()

    ended = {root: stage.state(root) for root in trees}
    assert ended == {"one": ProcedureState.ROLLEDBACK, "two": ProcedureState.FAILED}
    error = stage.core.view("two-1").error
    assert error is not None
    assert error.type_name == "DeadlockDetected"
    assert [write.record.path for write in stage.writes if isinstance(write, PutPoison)] == ["x"]


def test_who_began_nothing_gives_its_locks_back_when_its_tree_fails() -> None:
    stage = Stage(workers=1, rollback_supported=True)
    stage.submit(stage.new("p", unit=""))
    children = (stage.new("bad"), stage.new("idle", unit="", locks=(LockKey.write("a"),)))
    stage.answer("p", Suspended(state=b"", unit="", children=children))
    stage.submit(stage.new("other", locks=(LockKey.write("a"),)))
    assert "idle" in stage.core._state.locks.holders()

    stage.answer("bad", boom())

    assert stage.core.view("p").failing
    assert "other" in stage.core._state.locks.holders()
    stage.undo_all()
    assert stage.state("idle") is ProcedureState.ROLLEDBACK


def test_an_undo_that_has_its_locks_goes_before_one_of_its_tree_that_waits_for_them() -> None:
    stage = Stage(workers=1, rollback_supported=True, on_child_failure="resume")
    stage.register("S", rollback_supported=True, lock_scope="step")
    stage.submit(stage.new("p", unit=""))
    first = stage.new("first", "S", unit="u", locks=(LockKey.read("a"),))
    second = stage.new("second", unit="", locks=(LockKey.write("a/d"),))
    stage.answer("p", Suspended(state=b"", unit="", children=(first, second)))
    stage.answer("first", boom())
    # Its undo asks for "a" again, which the second child, of a scope of its own, has below it until its child is undone.
    below = stage.new("below", "S", unit="u", locks=(LockKey.write("a/b"),))
    stage.answer("second", Suspended(state=b"", unit="", children=(below,)))

    stage.answer("below", boom())
    assert stage.undo_all() == ["below:u"]
    stage.answer("second", DONE)

    assert stage.state("second") is ProcedureState.SUCCESS
    assert stage.state("below") is ProcedureState.ROLLEDBACK
