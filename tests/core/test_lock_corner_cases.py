"""Locks where trees fail, wait in line for themselves, or are asked to abort: each of these was found by a history."""

from __future__ import annotations

from actorproc.model.ids import Mode
from actorproc.model.messages.events import AbortRequested
from actorproc.model.messages.outcomes import Advanced, Answered, Finished, Poisoned, Suspended
from actorproc.model.policies import LockKey
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.rows.writes import PutPoison
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom

DONE = Finished(state=b"")


def _acquire(*keys: LockKey) -> Advanced:
    return Advanced(state=b"", unit="", acquire=keys)


def test_an_undo_of_a_step_waits_for_its_locks_though_its_procedure_keeps_some_for_its_children() -> None:
    harness = CoreHarness(workers=3, rollback_supported=True)
    harness.register("S", rollback_supported=True, lock_scope="step")
    harness.submit(harness.new("p", "S", unit="", locks=(LockKey.write("e"),)))
    harness.answer(
        "p", Suspended(state=b"", unit="", children=(harness.new("c", unit="", locks=(LockKey.write("a"),)),))
    )
    harness.submit(harness.new("other", locks=(LockKey.write("e"),)))

    harness.answer("c", DONE)
    harness.handle(AbortRequested("p", 2))
    harness.answer("c", DONE)  # its undo
    assert "p" not in harness.inbox

    harness.answer("other", DONE)
    assert harness.inbox["p"].token.mode is Mode.ROLLBACK


def test_who_stands_in_line_only_behind_those_that_wait_for_it_goes_first_and_nobody_fails() -> None:
    harness = CoreHarness(workers=4, rollback_supported=True)
    key = (LockKey.write("a/b"),)
    harness.submit(harness.new("r", unit=""))
    harness.answer(
        "r", Suspended(state=b"", unit="", children=tuple(harness.new(name, unit="", locks=key) for name in "xy"))
    )
    harness.submit(harness.new("young", unit="", locks=(LockKey.write("e"),)))
    harness.answer("young", _acquire(LockKey.write("a/b/c")))

    # It stands in line behind both, and both wait for what it holds.
    harness.answer("x", _acquire(LockKey.read("a")))

    assert harness.inbox.keys() == {"x"}
    for name in ("x", "y", "r", "young"):
        harness.answer(name, DONE)
    assert harness.resolved() == dict.fromkeys(("x", "y", "r", "young"), ProcedureState.SUCCESS)


def test_a_circle_that_is_left_when_another_tree_gave_way_is_found_too() -> None:
    harness = CoreHarness(workers=4, rollback_supported=True)
    harness.submit(harness.new("r", unit=""))
    x, y = (harness.new(name, unit="", locks=(LockKey.write(name),)) for name in "xy")
    harness.answer("r", Suspended(state=b"", unit="", children=(x, y)))
    harness.submit(harness.new("young", unit="", locks=(LockKey.write("e"),)))
    harness.answer("young", _acquire(LockKey.write("y")))
    harness.answer("y", _acquire(LockKey.write("x")))

    # It waits for the youngest tree, and for its own sister, and both wait for it.
    harness.answer("x", _acquire(LockKey.write("e"), LockKey.write("y")))

    assert harness.core.view("young").error.kind == "deadlock"
    assert harness.core.view("r").failing
    harness.undo_all()
    assert harness.resolved() == dict.fromkeys(("young", "x", "y", "r"), ProcedureState.ROLLEDBACK)


def test_a_child_in_line_behind_its_parent_goes_on_when_the_parent_has_the_lock() -> None:
    harness = CoreHarness(workers=4)
    harness.submit(harness.new("other", locks=(LockKey.write("a"),)))
    harness.submit(harness.new("p", locks=(LockKey.write("z"),)))
    harness.answer("p", Suspended(state=b"", children=(harness.new("quick"), harness.new("slow")), wait="any"))
    harness.answer("quick", DONE)
    harness.answer("p", _acquire(LockKey.write("a")))
    harness.answer("slow", _acquire(LockKey.read("a/b")))
    assert set(harness.inbox) == {"other"}

    harness.answer("other", DONE)

    assert set(harness.inbox) == {"p", "slow"}


def test_who_fails_while_it_is_asked_to_abort_waits_for_locks_no_more() -> None:
    harness = CoreHarness(workers=3, rollback_supported=True, asks_abort=True)
    harness.submit(harness.new("holder", locks=(LockKey.write("t"),)))
    harness.submit(harness.new("waiter", unit=""))
    harness.answer("waiter", _acquire(LockKey.write("t")))
    harness.handle(AbortRequested("waiter", 2))
    assert harness.inbox["waiter"].token.mode is Mode.ASK_ABORT

    harness.answer("holder", Poisoned(state=b"", keys=("t",), error=ErrorInfo("poisoned", "Poisoned", "half done")))
    assert "waiter" not in harness.core._state.locks.table.holders()
    assert not harness.core._state.locks.table.is_waiting("waiter")

    # Its undo needs nothing of what it never held.
    harness.submit(harness.new("next"))
    harness.answer("waiter", Answered(state=b"", allowed=False))
    assert harness.inbox["waiter"].token.mode is Mode.ROLLBACK


def test_a_key_that_stays_poisoned_by_strangers_alone_is_refused_to_those_who_wait_for_it() -> None:
    harness = CoreHarness(workers=4)
    key = (LockKey.write("t"),)
    harness.submit(harness.new("holder", locks=key))
    harness.submit(harness.new("p"))
    harness.answer(
        "p", Suspended(state=b"", children=(harness.new("risky", poisons=("t",)), harness.new("waiter", locks=key)))
    )
    harness.submit(harness.new("stranger", poisons=("t",)))
    assert harness.core.view("waiter").error is None  # its own tree poisons the key

    harness.answer("risky", DONE)

    error = harness.core.view("waiter").error
    assert error.type_name == "KeyPoisoned"
    assert "poisoned by stranger" in error.message


def test_an_undo_does_not_fail_twice_so_another_tree_gives_way() -> None:
    harness = CoreHarness(workers=4, rollback_supported=True)
    harness.register("S", rollback_supported=True, lock_scope="step")
    harness.register("R", rollback_supported=True, on_child_failure="resume")
    harness.submit(harness.new("old", unit="", locks=(LockKey.write("a"),)))
    harness.submit(harness.new("young", "R", unit="", locks=(LockKey.write("e"),)))
    harness.answer("young", Suspended(state=b"", unit="", children=(harness.new("child", "S", unit="u"),)))
    harness.answer("child", Advanced(state=b"", unit="u", acquire=(LockKey.write("a"),)))

    harness.answer("old", _acquire(LockKey.write("e")))

    # The child gave way, but its parent goes on with the key; the undo of the child's step needs the other one.
    assert harness.core.view("child").error.kind == "deadlock"
    assert harness.core.view("old").error.kind == "deadlock"
    harness.undo_all()
    assert harness.resolved()["old"] is ProcedureState.ROLLEDBACK
    assert harness.resolved()["child"] is ProcedureState.ROLLEDBACK


def test_undos_that_wait_for_each_other_do_not_wait_for_ever() -> None:
    harness = CoreHarness(workers=4, rollback_supported=True)
    harness.register("S", rollback_supported=True, lock_scope="step")
    trees = {"one": ("x", "y"), "two": ("y", "x")}
    for root, (first, _) in trees.items():
        # Its first child changes something under a key for a step; the key is free for others then.
        harness.submit(harness.new(root, unit=""))
        child = harness.new(f"{root}-1", "S", unit="u", locks=(LockKey.write(first),))
        harness.answer(root, Suspended(state=b"", unit="", children=(child,)))
        harness.answer(f"{root}-1", DONE)
    for root, (_, second) in trees.items():
        # Its second one keeps what the other tree's undo is going to need.
        child = harness.new(f"{root}-2", unit="", locks=(LockKey.write(second),))
        harness.answer(root, Suspended(state=b"", unit="", children=(child,)))
    for root in trees:
        harness.answer(f"{root}-2", boom())

    harness.undo_all()

    ended = {root: harness.state(root) for root in trees}
    assert ended == {"one": ProcedureState.ROLLEDBACK, "two": ProcedureState.FAILED}
    error = harness.core.view("two-1").error
    assert error is not None
    assert error.type_name == "DeadlockDetected"
    assert [write.record.path for write in harness.writes if isinstance(write, PutPoison)] == ["x"]


def test_who_began_nothing_gives_its_locks_back_when_its_tree_fails() -> None:
    harness = CoreHarness(workers=1, rollback_supported=True)
    harness.submit(harness.new("p", unit=""))
    children = (harness.new("bad"), harness.new("idle", unit="", locks=(LockKey.write("a"),)))
    harness.answer("p", Suspended(state=b"", unit="", children=children))
    harness.submit(harness.new("other", locks=(LockKey.write("a"),)))
    assert "idle" in harness.core._state.locks.table.holders()

    harness.answer("bad", boom())

    assert harness.core.view("p").failing
    assert "other" in harness.core._state.locks.table.holders()
    harness.undo_all()
    assert harness.state("idle") is ProcedureState.ROLLEDBACK


def test_an_undo_that_has_its_locks_goes_before_one_of_its_tree_that_waits_for_them() -> None:
    harness = CoreHarness(workers=1, rollback_supported=True, on_child_failure="resume")
    harness.register("S", rollback_supported=True, lock_scope="step")
    harness.submit(harness.new("p", unit=""))
    first = harness.new("first", "S", unit="u", locks=(LockKey.read("a"),))
    second = harness.new("second", unit="", locks=(LockKey.write("a/d"),))
    harness.answer("p", Suspended(state=b"", unit="", children=(first, second)))
    harness.answer("first", boom())
    # Its undo asks for "a" again, which the second child, of a scope of its own, has below it until its child is undone.
    below = harness.new("below", "S", unit="u", locks=(LockKey.write("a/b"),))
    harness.answer("second", Suspended(state=b"", unit="", children=(below,)))

    harness.answer("below", boom())
    assert harness.undo_all() == ["below:u"]
    harness.answer("second", DONE)

    assert harness.state("second") is ProcedureState.SUCCESS
    assert harness.state("below") is ProcedureState.ROLLEDBACK
