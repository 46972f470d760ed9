"""Small scenarios about what operators ask for, and about what keeps work waiting: limits, pauses, gates."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from actorproc.model.policies import Backoff, LockKey, Retention, Scheduling
from tests.simulator.generators.scenario_parts import make_calls, make_program, make_saga, make_small
from tests.simulator.generators.scripts import Operation, Program, Scenario

__all__ = ["OPERATOR_SCENARIOS"]

_THREE = Backoff(max_attempts=3, base=0.5, cap=4.0)
"""Fewer errors than a late undo or a flaky step makes, and more than it makes after a retry, disturbed or not."""
_TIME_TO_FAIL = ("nap",) * 5
_LAST = Operation("done")


# ---------------------------------------------------------------- verbs
def _retry_of_a_rollback_that_gave_up() -> Scenario:
    operations = (Operation("go", "u0", undo="late"), Operation("fatal", "u1"))
    program = make_program("Undone", *operations, locks=(LockKey.write("a"),), rollback_retry=_THREE)
    other = make_saga("Other", "go", "done", locks=(LockKey.write("a/b"),))
    # The key that was poisoned when the rollback gave up is sound again when it has been done after all.
    calls = make_calls("submit A", *_TIME_TO_FAIL, "retry A", *_TIME_TO_FAIL, "submit B")
    return make_small(program, other, actions=calls)


def _retry_of_a_failed_step() -> Scenario:
    operations = (Operation("go"), Operation("go", flaky=5), _LAST)
    program = make_program("Failing", *operations, retry=_THREE, rollback_supported=False)
    return make_small(program, actions=make_calls(*_TIME_TO_FAIL, "retry A"))


def _waiting_child(name: str) -> Program:
    return make_program(name, Operation("go", "u0"), Operation("wait", "u1", event=f"never {name}"), _LAST)


def _bypass_of_a_suspended_parent() -> Scenario:
    children = (make_saga("Quick", "go", "done"), _waiting_child("Left"), _waiting_child("Right"))
    operations = (Operation("go", "u0"), Operation("spawn", "u1", children=children), _LAST)
    # Refused first: its children have not ended.
    return make_small(make_program("Parent", *operations), actions=make_calls("bypass A", "bypass A children"))


def _kill_of_an_attempt() -> Scenario:
    """Whichever process dies around it, the step runs again, and nothing is charged or undone."""
    calls = make_calls("submit A", "kill A", "submit B", "kill A")
    return make_small(make_saga("Killed", "go", "go", "done"), make_saga("Other", "go", "done"), actions=calls)


def _pause_and_resume() -> Scenario:
    child = make_program("Child", Operation("wait", "u0", event="event0"), Operation("go", "u1"), _LAST)
    parent = make_program("Parent", Operation("spawn", "u0", children=(child,)), _LAST)
    other = make_saga("Other", "go", "done")
    calls = make_calls("submit A", "pause A", "publish event0", "submit B", "nap", "resume A")
    return make_small(parent, other, actions=calls)


def _pause_of_the_whole_manager() -> Scenario:
    """The switch is stored: whichever process dies, nothing runs until it is lifted."""
    sleeper = make_program("Sleeper", Operation("sleep", "u0", seconds=2.0), Operation("go", "u1"), _LAST)
    calls = make_calls("submit A", "pause", "submit B", "nap", "resume")
    return make_small(sleeper, make_saga("Other", "go", "done"), actions=calls)


def _reload_of_the_workers() -> Scenario:
    """Of two procedures one waits while workers are replaced; who dies in the middle of it changes nothing."""
    sleeper = make_program("Sleeper", Operation("sleep", "u0", seconds=2.0), Operation("go", "u1"), _LAST)
    calls = make_calls("submit A", "reload", "submit B", "nap")
    return make_small(sleeper, make_saga("Other", "go", "go", "done"), actions=calls)


def _results_that_are_taken() -> Scenario:
    """A call, its result taken, and another one under its id; asked too early nothing happens."""
    calls = make_calls("submit A", "taken A", "submit A", "submit B", "taken B", "publish event0", "taken B")
    waiting = make_program("Waiting", Operation("wait", event="event0"), _LAST, rollback_supported=False)
    return make_small(make_program("Call", _LAST, rollback_supported=False), waiting, actions=calls)


def _start_behind_a_gate() -> Scenario:
    calls = make_calls("submit A", "nap", "open")
    return make_small(make_saga("Gated", "go", "done"), actions=calls, is_gated=True)


# ---------------------------------------------------------------- submits of ids that exist
def _restart_of_an_undone_tree() -> Scenario:
    children = (make_saga("Left", "done"), make_saga("Right", "done"))
    operations = (Operation("spawn", "u0", children=children), Operation("fatal", "u1"))
    again = ("resubmit A restart-failed", "repeat", *_TIME_TO_FAIL, "repeat")
    return make_small(make_program("Parent", *operations), actions=make_calls("submit A", *_TIME_TO_FAIL, *again))


def _restart_of_what_succeeded() -> Scenario:
    refused = ("resubmit A error", "resubmit A restart-failed")
    again = ("resubmit A restart", *_TIME_TO_FAIL, "repeat", "resubmit A restart", "repeat")
    calls = make_calls("submit A", *_TIME_TO_FAIL, *refused, *again)
    return make_small(make_saga("Repeated", "go", "done", locks=(LockKey.write("a"),)), actions=calls)


def _restart_by_id() -> Scenario:
    calls = make_calls("submit A", *_TIME_TO_FAIL, "restart A")
    operations = (Operation("go", "u0"), Operation("fatal", "u1"))
    return make_small(make_program("Again", *operations, locks=(LockKey.write("a"),)), actions=calls)


def _fork_of_one_that_runs() -> Scenario:
    calls = make_calls("submit A", "fork A F", "fork A F", *_TIME_TO_FAIL)
    return make_small(make_saga("Forked", "go", "done", locks=(LockKey.write("a"),)), actions=calls)


def _roots_with_the_success_of_a_step() -> Scenario:
    own = (make_saga("Own", "done"),)
    operations = (Operation("go", "u0", children=own, roots=True, flaky=1), Operation("fatal", "u1"))
    return make_small(make_program("Starts", *operations))


def _limited_wait_for_a_lock() -> Scenario:
    holder = make_program("Holder", Operation("sleep", "u0", seconds=500.0), _LAST, locks=(LockKey.write("a"),))
    waiter = make_saga("Waiter", "go", "done", locks=(LockKey.read("a/b"),), lock_wait=30.0)
    return make_small(holder, waiter, actions=make_calls("submit A", "submit B"))


def _debounced_submits() -> Scenario:
    """Submits of one run, one of which comes again once that has begun, and another run.

    After a death those without an answer are asked again, in another order: so they have the same state.
    """
    one = ("debounce A k 5 0 same", "debounce A k 5 9 same", "debounce-again 0")
    calls = (*one, *_TIME_TO_FAIL, "debounce-again 1", "debounce A k 3 0", *_TIME_TO_FAIL)
    return make_small(make_saga("Saved", "go", "done", locks=(LockKey.write("a"),)), actions=make_calls(*calls))


# ---------------------------------------------------------------- schedules
def _reports(schedule: str) -> Scenario:
    """A root, and its schedule of two instants, the second of which comes while the first firing sleeps."""
    report = make_program("Report", Operation("go", "u0"), Operation("sleep", "u1", seconds=7.0), _LAST)
    return make_small(report, actions=make_calls("submit A", f"schedule S A 5 2 {schedule}"))


def _schedule_whose_instants_wait_for_each_other() -> Scenario:
    return _reports("queue all")


def _schedule_that_cancels_what_it_has_started() -> Scenario:
    return _reports("cancel-running last")


# ---------------------------------------------------------------- removal
def _family() -> Program:
    children = (make_saga("Left", "done"), make_saga("Right", "done"))
    return make_program("Parent", Operation("spawn", "u0", children=children), _LAST)


def _delete_by_hand() -> Scenario:
    """A tree that leaves in several commits, and then another one under its id."""
    calls = make_calls("submit A", "delete A", "submit A", "delete A")
    return make_small(_family(), actions=calls)


def _expiry_of_a_tree() -> Scenario:
    calls = make_calls("submit A", "submit B", "acknowledge A", "sweep")
    retention = Retention(seconds=1000.0, acknowledged_seconds=0.0)
    return make_small(_family(), make_saga("Kept", "go", "done"), actions=calls, retention=retention)


# ---------------------------------------------------------------- limits
def _limited(program: Program, *keys: str) -> Program:
    return msgspec.structs.replace(program, limit_keys=keys)


def _one_at_a_time_by_a_key() -> Scenario:
    napping = _limited(
        make_program("Napping", Operation("sleep", "u0", seconds=1.0), Operation("go", "u1"), _LAST), "k"
    )
    failing = _limited(make_saga("Failing", "go", "fatal"), "k")
    child = _limited(make_saga("Child", "go", "done"), "k")
    parent = _limited(make_program("Parent", Operation("spawn", "u0", children=(child,)), _LAST), "k")
    return make_small(napping, failing, parent, scheduling=Scheduling(concurrency={"k": 1}))


def _few_starts_by_a_key() -> Scenario:
    roots = (_limited(make_saga(name, "go", "done"), "r") for name in ("First", "Second", "Third"))
    return make_small(*roots, scheduling=Scheduling(rate={"r": (1, 5.0)}))


def _one_root_at_a_time() -> Scenario:
    roots = (make_program(name, Operation("sleep", "u0", seconds=1.0), _LAST) for name in ("First", "Second"))
    return make_small(*roots, scheduling=Scheduling(max_running=1))


def _worker_of_its_own() -> Scenario:
    return make_small(make_saga("Alone", "go", "go", "done", dedicated=True), make_saga("Other", "go", "done"))


OPERATOR_SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "retry of a rollback that gave up": _retry_of_a_rollback_that_gave_up,
    "retry of a failed step": _retry_of_a_failed_step,
    "bypass of a suspended parent": _bypass_of_a_suspended_parent,
    "kill of an attempt": _kill_of_an_attempt,
    "pause and resume": _pause_and_resume,
    "pause of the whole manager": _pause_of_the_whole_manager,
    "reload of the workers": _reload_of_the_workers,
    "results that are taken": _results_that_are_taken,
    "start behind a gate": _start_behind_a_gate,
    "restart of an undone tree": _restart_of_an_undone_tree,
    "restart of what succeeded": _restart_of_what_succeeded,
    "restart by id": _restart_by_id,
    "fork of one that runs": _fork_of_one_that_runs,
    "limited wait for a lock": _limited_wait_for_a_lock,
    "debounced submits": _debounced_submits,
    "roots with the success of a step": _roots_with_the_success_of_a_step,
    "schedule whose instants wait for each other": _schedule_whose_instants_wait_for_each_other,
    "schedule that cancels what it has started": _schedule_that_cancels_what_it_has_started,
    "delete by hand": _delete_by_hand,
    "expiry of a tree": _expiry_of_a_tree,
    "one at a time by a key": _one_at_a_time_by_a_key,
    "few starts by a key": _few_starts_by_a_key,
    "one root at a time": _one_root_at_a_time,
    "worker of its own": _worker_of_its_own,
}
"""Scenarios by name; each call makes a new one."""
