"""Small hand-written scenarios, each about one mechanism: what the exhaustive crash points are tried on.

They use the programs of `scripts`, so a step is a pure function of its state and a repeated step gives the same
answer. Whatever is disturbed, the outcomes of each of them must stay what they are undisturbed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actorproc.model.policies import Backoff, LockKey, TypeMeta
from actorproc.testing.scripts import ClientAction, Operation, Program, Scenario

__all__ = ["SMALL_SCENARIOS"]

_RETRY = Backoff(max_attempts=6, base=0.5, cap=4.0)
"""Room for the disturbed attempts as well: deaths of hosts count as attempts, never as errors."""


def _program(name: str, *operations: Operation, locks: tuple[LockKey, ...] = (), **traits: Any) -> Program:
    meta = TypeMeta(type_name=name, retry=_RETRY, rollback_retry=_RETRY, rollback_supported=True, **traits)
    return Program(meta, operations, locks)


def _saga(name: str, *kinds: str, locks: tuple[LockKey, ...] = (), **traits: Any) -> Program:
    """A program of plain steps, each with an undo unit of its own."""
    return _program(name, *(Operation(kind, f"u{n}") for n, kind in enumerate(kinds)), locks=locks, **traits)


def _scenario(*roots: Program, actions: tuple[ClientAction, ...] = (), slots: int = 2) -> Scenario:
    programs: dict[str, Program] = {}

    def collect(program: Program) -> None:
        programs[program.meta.type_name] = program
        for operation in program.operations:
            for child in operation.children:
                collect(child)

    for root in roots:
        collect(root)
    named = dict(zip("ABC", roots, strict=False))
    submits = tuple(ClientAction("submit", (name,)) for name in named)
    return Scenario(
        roots=named,
        programs=programs,
        actions=submits + actions,
        bystander=None,
        steps=sum(len(program.operations) for program in programs.values()),
        slots=slots,
        is_prefetching=False,
    )


def _two_step_saga() -> Scenario:
    return _scenario(_saga("Saga", "go", "done"))


def _parent_with_two_children() -> Scenario:
    children = (_saga("Left", "go", "done"), _saga("Right", "go", "done"))
    parent = _program("Parent", Operation("go", "u0"), Operation("spawn", "u1", children=children), Operation("done"))
    return _scenario(parent)


def _failing_child_with_rollback() -> Scenario:
    children = (_saga("Sound", "go", "done"), _saga("Failing", "go", "go", "fatal"))
    parent = _program("Parent", Operation("go", "u0"), Operation("spawn", "u1", children=children), Operation("done"))
    return _scenario(parent)


def _resuming_parent_with_a_failing_child() -> Scenario:
    children = (_saga("Sound", "go", "done"), _saga("Failing", "go", "fatal"))
    spawn = Operation("spawn", "u1", children=children)
    return _scenario(_program("Resuming", Operation("go", "u0"), spawn, Operation("done"), on_child_failure="resume"))


def _two_trees_contend_for_a_lock() -> Scenario:
    child = _saga("Child", "go", "done", locks=(LockKey.write("a/b"),))
    spawn = Operation("spawn", "u1", children=(child,))
    first = _program("First", Operation("go", "u0"), spawn, Operation("done"), locks=(LockKey.write("a"),))
    second = _saga("Second", "go", "fatal", locks=(LockKey.read("a/b"), LockKey.write("e")))
    third = _saga("Third", "go", "done", locks=(LockKey.write("e"),))
    return _scenario(first, second, third)


def _step_scoped_locks_with_undo() -> Scenario:
    lock = (LockKey.write("a"),)
    return _scenario(
        _saga("Stepwise", "go", "go", "fatal", locks=lock, lock_scope="step"),
        _saga("Other", "go", "done", locks=lock, lock_scope="step"),
    )


def _sleep_and_signal() -> Scenario:
    operations = (
        Operation("sleep", "u0", seconds=2.0),
        Operation("wait", "u1", event="event0"),
        Operation("wait", "u2", event="event1", seconds=600.0),
        Operation("done"),
    )
    signals = tuple(ClientAction("signal", (name,)) for name in ("event0", "event1"))
    return _scenario(_program("Sleeper", *operations), actions=signals)


def _retry_with_backoff() -> Scenario:
    operations = (Operation("go", "u0", flaky=1), Operation("go", "u1", flaky=2, note=True), Operation("done"))
    return _scenario(_program("Flaky", *operations))


def _rollback_retry() -> Scenario:
    operations = (
        Operation("go", "u0", undo="flaky"),
        Operation("go", "u1", undo="twice"),
        Operation("go", "u2", undo="flaky"),
        Operation("fatal", "u3"),
    )
    return _scenario(_program("Undone", *operations, locks=(LockKey.write("a"),)))


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
}
"""Scenarios by name; each call makes a new one."""
