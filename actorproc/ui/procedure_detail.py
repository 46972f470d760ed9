"""All about one procedure as one object: ``procedure-detail`` of the schema."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorproc.procedure.values.viewing import ShownValue
    from actorproc.report.audit import AuditInfo
    from actorproc.report.info import LockInfo, ProcedureInfo
    from actorproc.report.states import StateInfo
    from actorproc.report.step_log import AttemptInfo, StepInfo

__all__ = ["LAST", "detail_of", "locks_of", "values_of"]

LAST = 5
"""Steps and failed attempts that are shown: the last ones."""


def detail_of(
    info: ProcedureInfo,
    steps: Sequence[StepInfo],
    locks: Sequence[LockInfo],
    audit: Sequence[AuditInfo],
    attempts: Sequence[AttemptInfo],
    values: Mapping[str, ShownValue | None],
) -> dict[str, Any]:
    """The object as plain data; moments as epoch seconds.

    Args:
        info: the procedure.
        steps: its step log.
        locks: of `locks_of`.
        audit: requests of operators about it.
        attempts: its failed attempts.
        values: of `values_of`.
    """
    return {
        **info.to_dict(),
        "last_steps": [step.to_dict() for step in steps[-LAST:]],
        "held": [lock.to_dict() for lock in locks if lock.holder == info.id],
        "waits_for": [lock.to_dict() for lock in locks if lock.holder != info.id],
        "audit": [row.to_dict() for row in audit],
        "failed_attempts": [attempt.to_dict() for attempt in attempts[-LAST:]],
        **{title: None if shown is None else shown.plain() for title, shown in values.items()},
    }


def locks_of(id: str, locks: Iterable[LockInfo]) -> list[LockInfo]:
    """Locks that a procedure holds or waits for."""
    return [lock for lock in locks if lock.holder == id or any(waiter.procedure == id for waiter in lock.waiters)]


def values_of(states: Sequence[StateInfo]) -> dict[str, ShownValue | None]:
    """The first state, the newest one, and the output."""
    known = [info.state for info in states if info.state is not None]
    return {
        "input": states[0].state if states and states[0].number == 1 else None,
        "fields": known[-1] if known else None,
        "output": next((info.output for info in reversed(states) if info.output is not None), None),
    }
