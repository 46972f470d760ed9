"""Parts of small scenarios."""

from __future__ import annotations

from typing import Any

from actorproc.model.policies import Backoff, LockKey, Quotas, TypeMeta
from tests.simulator.generators.scripts import ClientAction, Operation, Program, Scenario

__all__ = ["make_calls", "make_program", "make_saga", "make_small"]

_RETRY = Backoff(max_attempts=6, base=0.5, cap=4.0)
"""Room for the disturbed attempts as well: deaths of hosts count as attempts, never as errors."""


def make_program(name: str, *operations: Operation, locks: tuple[LockKey, ...] = (), **traits: Any) -> Program:
    """A program of these operations; the traits are those of `TypeMeta`."""
    meta = TypeMeta(**{"retry": _RETRY, "rollback_retry": _RETRY, "rollback_supported": True, **traits}, type_name=name)
    return Program(meta, operations, locks)


def make_saga(name: str, *kinds: str, locks: tuple[LockKey, ...] = (), **traits: Any) -> Program:
    """A program of plain steps, each with an undo unit of its own."""
    return make_program(name, *(Operation(kind, f"u{n}") for n, kind in enumerate(kinds)), locks=locks, **traits)


def make_small(
    *roots: Program,
    actions: tuple[ClientAction, ...] = (),
    slots: int = 2,
    quotas: Quotas | None = None,
    **settings: Any,
) -> Scenario:
    """The roots are A, B and C. All are submitted before the `actions`, but for those that these submit.

    With actions each call is made when nothing else can happen. `settings` are further fields of `Scenario`.
    """
    programs: dict[str, Program] = {}

    def collect(program: Program) -> None:
        programs[program.meta.type_name] = program
        for operation in program.operations:
            for child in operation.children:
                collect(child)

    for root in roots:
        collect(root)
    named = dict(zip("ABC", roots, strict=False))
    later = {name for action in actions if action.kind == "submit" for name in action.targets}
    submits = tuple(ClientAction("submit", (name,)) for name in named if name not in later)
    return Scenario(
        roots=named,
        programs=programs,
        actions=submits + actions,
        bystander=None,
        steps=sum(len(program.operations) for program in programs.values()),
        slots=slots,
        is_prefetching=False,
        quotas=Quotas() if quotas is None else quotas,
        is_patient=bool(actions),
        **settings,
    )


def make_calls(*words: str) -> tuple[ClientAction, ...]:
    """Each word is a kind, a target if there is one, and options."""
    return tuple(ClientAction(kind, tuple(targets)) for kind, *targets in (word.split(" ") for word in words))
