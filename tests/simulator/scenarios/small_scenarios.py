"""Small hand-written scenarios, each about one mechanism: what the exhaustive crash points are tried on.

They use the programs of `scripts`, so a step is a pure function of its state and a repeated step gives the same
answer. Whatever is disturbed, the outcomes of each of them must stay what they are undisturbed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from actorproc.model.policies import LockKey, Quotas
from tests.simulator.generators.scenario_parts import make_calls, make_program, make_saga, make_small
from tests.simulator.generators.scripts import Operation, Program, Scenario
from tests.simulator.scenarios.operator_scenarios import OPERATOR_SCENARIOS

__all__ = ["SMALL_SCENARIOS"]


def _two_step_saga() -> Scenario:
    return make_small(make_saga("Saga", "go", "done"))


def _parent_with_two_children() -> Scenario:
    children = (make_saga("Left", "go", "done"), make_saga("Right", "go", "done"))
    parent = make_program("Parent", Operation("go", "u0"), Operation("spawn", "u1", children=children), _LAST)
    return make_small(parent)


def _failing_child_with_rollback() -> Scenario:
    children = (make_saga("Sound", "go", "done"), make_saga("Failing", "go", "go", "fatal"))
    parent = make_program("Parent", Operation("go", "u0"), Operation("spawn", "u1", children=children), _LAST)
    return make_small(parent)


def _resuming_parent_with_a_failing_child() -> Scenario:
    children = (make_saga("Sound", "go", "done"), make_saga("Failing", "go", "fatal"))
    spawn = Operation("spawn", "u1", children=children)
    return make_small(make_program("Resuming", Operation("go", "u0"), spawn, _LAST, on_child_failure="resume"))


def _two_trees_contend_for_a_lock() -> Scenario:
    child = make_saga("Child", "go", "done", locks=(LockKey.write("a/b"),))
    spawn = Operation("spawn", "u1", children=(child,))
    first = make_program("First", Operation("go", "u0"), spawn, Operation("done"), locks=(LockKey.write("a"),))
    second = make_saga("Second", "go", "fatal", locks=(LockKey.read("a/b"), LockKey.write("e")))
    third = make_saga("Third", "go", "done", locks=(LockKey.write("e"),))
    return make_small(first, second, third)


def _step_scoped_locks_with_undo() -> Scenario:
    lock = (LockKey.write("a"),)
    return make_small(
        make_saga("Stepwise", "go", "go", "fatal", locks=lock, lock_scope="step"),
        make_saga("Other", "go", "done", locks=lock, lock_scope="step"),
    )


def _sleep_and_signal() -> Scenario:
    operations = (
        Operation("sleep", "u0", seconds=2.0),
        Operation("wait", "u1", event="event0"),
        Operation("wait", "u2", event="event1", seconds=600.0),
        Operation("done"),
    )
    return make_small(make_program("Sleeper", *operations), actions=make_calls("publish event0", "publish event1"))


def _retry_with_backoff() -> Scenario:
    operations = (Operation("go", "u0", flaky=1), Operation("go", "u1", flaky=2, note=True), Operation("done"))
    return make_small(make_program("Flaky", *operations))


def _rollback_retry() -> Scenario:
    operations = (
        Operation("go", "u0", undo="flaky"),
        Operation("go", "u1", undo="twice"),
        Operation("go", "u2", undo="flaky"),
        Operation("fatal", "u3"),
    )
    return make_small(make_program("Undone", *operations, locks=(LockKey.write("a"),)))


def _tags_and_fields_of_what_is_undone_and_of_what_is_not() -> Scenario:
    """By the numbers of their operations, `scripts` has all three change their tags and have searchable fields."""
    child = make_saga("Found", "go", "go", "go", "go", "done")
    undone = make_program(
        "Undone",
        Operation("go", "u0", undo="twice"),
        Operation("spawn", "u1", children=(child,)),
        Operation("go", "u2", flaky=1),
        Operation("go", "u3", undo="flaky"),
        Operation("fatal", "u4"),
    )
    going_on = (Operation("go", persist=False), Operation("go", flaky=1), Operation("sleep", seconds=2.0), _LAST)
    return make_small(undone, make_program("Goes on", *going_on))


# ---------------------------------------------------------------- children
def _quick_and_slow(**how: Any) -> Scenario:
    slow = make_program("Slow", Operation("sleep", "u0", seconds=50.0), Operation("done", "u1"))
    spawn = Operation("spawn", "u1", children=(make_saga("Quick", "go", "done"), slow), wait="any", **how)
    return make_small(make_program("Parent", Operation("go", "u0"), spawn, Operation("done")))


def _wait_for_any_child() -> Scenario:
    return _quick_and_slow()


def _children_that_outlive_their_parent() -> Scenario:
    return _quick_and_slow(leave=True)


def _wait_for_each_child() -> Scenario:
    children = (make_saga("First", "go", "done"), make_saga("Second", "done"))
    spawn = Operation("spawn", "u0", children=children, wait="each")
    return make_small(make_program("Parent", spawn, Operation("spawn", wait="each"), Operation("done")))


def _few_children_at_a_time() -> Scenario:
    children = (make_saga("First", "done"), make_saga("Failing", "go", "fatal"), make_saga("Last", "done"))
    spawn = Operation("spawn", "u0", children=children, max_parallel=1)
    return make_small(make_program("Parent", spawn, Operation("done"), on_child_failure="resume"))


def _quotas_exceeded() -> Scenario:
    leaf = make_saga("Leaf", "done")
    nested = make_program("Nested", Operation("spawn", "u0", children=(leaf,)), Operation("done"))
    return make_small(
        make_program("Broad", Operation("go", "u0"), Operation("spawn", "u1", children=(leaf,) * 4), Operation("done")),
        make_program("Deep", Operation("spawn", "u0", children=(nested,)), Operation("done")),
        make_program("Large", Operation("go", "u0"), Operation("spawn", "u1", children=(leaf,) * 3), Operation("done")),
        quotas=Quotas(depth=1, children=3, tree=3),
    )


# ---------------------------------------------------------------- poison keys
def _a_step_poisons_and_takes_back() -> Scenario:
    operations = (
        Operation("go", "u0", poisons=("f",)),
        Operation("wait", "u1", event="event0"),
        Operation("go", "u2", poisons=()),
        Operation("done"),
    )
    needing = make_saga("Needing", "go", "done", locks=(LockKey.write("f/1"),))
    calls = make_calls("submit A", "submit B", "publish event0", "submit B")
    return make_small(make_program("Risky", *operations), needing, actions=calls)


def _poisoned_until_an_operator_clears_it() -> Scenario:
    """The waiter fails when the key that it waits for is poisoned; the submit after it is refused until then."""
    poisoning = (Operation("wait", "u0", event="event0"), Operation("poison", "u1"), _LAST)
    holding = make_program("Holding", *poisoning, locks=_A)
    waiting = make_saga("Waiting", "go", "done", locks=(LockKey.read("a"), LockKey.read("own/A")))
    later = make_saga("Later", "done", locks=(LockKey.write("own"),))
    calls = make_calls("submit A", "submit B", "publish event0", "submit C", "clear own/A", "submit C")
    return make_small(holding, waiting, later, actions=calls)


def _rollback_that_gives_up() -> Scenario:
    failing = make_program("Failing", Operation("go", "u0", undo="broken"), Operation("fatal", "u1"), locks=_A)
    needing = make_saga("Needing", "go", "done", locks=(LockKey.read("a/b"),))
    # Time for all attempts to undo; naps without a purpose are short.
    calls = make_calls("submit A", *["nap -"] * 9, "submit B", "clear a", "submit B")
    return make_small(failing, needing, actions=calls)


# ---------------------------------------------------------------- locks
def _step_scoped_locks_asked_for_later() -> Scenario:
    def program(name: str, first: str, second: str) -> Program:
        asking = Operation("go", "u0", acquire=(LockKey.write(second),))
        operations = (asking, Operation("go", "u1"), Operation("done"))
        return make_program(name, *operations, locks=(LockKey.write(first),), lock_scope="step")

    return make_small(program("One", "a", "e"), program("Other", "e", "a"))


def _deadlock_of_two_trees() -> Scenario:
    """Each holds what the other asks for later; the younger gives way."""

    def program(name: str, event: str, first: str, second: str) -> Program:
        asking = Operation("go", "u1", acquire=(LockKey.write(second),))
        operations = (Operation("wait", "u0", event=event), asking, Operation("done"))
        return make_program(name, *operations, locks=(LockKey.write(first),))

    roots = (program("Older", "event0", "a", "e"), program("Younger", "event1", "e", "a"))
    return make_small(*roots, actions=make_calls("publish event0", "publish event1"))


# ---------------------------------------------------------------- calls
def _signals_to_an_id_and_to_a_name() -> Scenario:
    waits = (Operation("wait", "u0", event="event0"), Operation("wait", "u1", event="event1"), Operation("done"))
    other = make_program("Other", Operation("wait", "u0", event="event2"), Operation("done"))
    calls = make_calls("signal A", "publish event2", "signal A")
    return make_small(make_program("Named", *waits), other, actions=calls)


def _asks_and_their_replies() -> Scenario:
    """One ask comes before its wait, one twice, and one gets no reply."""
    waits = (
        Operation("wait", "u0", event="event0"),
        Operation("go", "u1", replies=True, flaky=1),
        Operation("wait", "u2", event="event1"),
        Operation("done", replies=True),
    )
    silent = (Operation("wait", "u0", event="event0"), Operation("go", "u1"), Operation("done"))
    calls = make_calls("ask A event1 k1", "ask A event0 k0", "ask A event0 k0", "ask B event0 k0")
    return make_small(make_program("Asked", *waits), make_program("Silent", *silent), actions=calls)


def _an_ask_whose_step_is_undone() -> Scenario:
    operations = (
        Operation("wait", "u0", event="event0"),
        Operation("go", "u1", replies=True),
        Operation("fatal", "u2"),
    )
    return make_small(make_program("Undone", *operations), actions=make_calls("ask A event0 k0"))


def _forced_abort() -> Scenario:
    """It would refuse if it were asked, and its step never ends."""
    operations = (Operation("go", "u0"), Operation("go", "u1", hangs=1000), Operation("done"))
    program = make_program("Hanging", *operations, locks=_A, asks_abort=True)
    return make_small(msgspec.structs.replace(program, allows_abort=False), actions=make_calls("force A"))


def _cancelled_while_it_runs(**limits: float) -> Program:
    """A parent whose child never ends by itself."""
    endless = make_program("Endless", Operation("go", "u0", hangs=1000), Operation("done"), locks=_A, **limits)
    parent = (Operation("spawn", "u0", children=(endless,)), Operation("done"))
    return make_program("Parent", *parent)


def _forced_abort_of_a_tree() -> Scenario:
    return make_small(_cancelled_while_it_runs(), actions=make_calls("force A"))


def _abort_of_a_tree_with_little_patience() -> Scenario:
    return make_small(_cancelled_while_it_runs(abort_grace=1.0), actions=make_calls("abort A"))


def _race_with_an_endless_loser() -> Scenario:
    quick = make_program("Quick", Operation("go", "u0"), Operation("done"))
    slow = (Operation("go", "u0", hangs=1000), Operation("done"))
    loser = make_program("Loser", *slow, locks=(LockKey.write("a/b"),), abort_grace=1.0)
    race = (Operation("spawn", "u0", children=(quick, loser), wait="any"), Operation("done"))
    return make_small(make_program("Race", *race, locks=_A))


_A = (LockKey.write("a"),)
_LAST = Operation("done")

SMALL_SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "two-step saga": _two_step_saga,
    "parent with two children": _parent_with_two_children,
    "failing child with rollback": _failing_child_with_rollback,
    "resuming parent with a failing child": _resuming_parent_with_a_failing_child,
    "two trees contend for a lock": _two_trees_contend_for_a_lock,
    "step-scoped locks with undo": _step_scoped_locks_with_undo,
    "sleep and signal": _sleep_and_signal,
    "retry with backoff": _retry_with_backoff,
    "rollback retry": _rollback_retry,
    "tags and fields": _tags_and_fields_of_what_is_undone_and_of_what_is_not,
    "wait for any child": _wait_for_any_child,
    "wait for each child": _wait_for_each_child,
    "children that outlive their parent": _children_that_outlive_their_parent,
    "few children at a time": _few_children_at_a_time,
    "quotas exceeded": _quotas_exceeded,
    "a step poisons and takes back": _a_step_poisons_and_takes_back,
    "poisoned until an operator clears it": _poisoned_until_an_operator_clears_it,
    "rollback that gives up": _rollback_that_gives_up,
    "step-scoped locks asked for later": _step_scoped_locks_asked_for_later,
    "deadlock of two trees": _deadlock_of_two_trees,
    "signals to an id and to a name": _signals_to_an_id_and_to_a_name,
    "asks and their replies": _asks_and_their_replies,
    "an ask whose step is undone": _an_ask_whose_step_is_undone,
    "forced abort": _forced_abort,
    "forced abort of a tree": _forced_abort_of_a_tree,
    "abort of a tree with little patience": _abort_of_a_tree_with_little_patience,
    "race with an endless loser": _race_with_an_endless_loser,
    **OPERATOR_SCENARIOS,
}
"""Scenarios by name; each call makes a new one."""
