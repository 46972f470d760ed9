"""What people are shown of a procedure and of the engine."""

from __future__ import annotations

from typing import Any

import msgspec

from actorproc.model.policies import LockKey
from actorproc.model.records import ErrorInfo, ProcedureRecord
from actorproc.model.states import Phase, ProcedureState

__all__ = ["Health", "ProcedureInfo", "SlotHealth", "info_of"]


class ProcedureInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A procedure as it is now; times in epoch seconds (UTC)."""

    id: str
    type_name: str
    version: int
    state: ProcedureState
    phase: Phase
    reason: str | None
    """Why it is in this phase: the lock it waits for, the event, why it is parked."""
    parent_id: str | None
    root_id: str
    run: int
    step: int
    attempt: int
    errors: int
    crashes: int
    children: dict[str, int]
    """Number of children by state."""
    locks: tuple[LockKey, ...]
    owner: str | None
    tags: tuple[str, ...]
    priority: int
    created_at: float
    updated_at: float
    finished_at: float | None
    due_at: float | None
    deadline: float | None
    progress: float | None
    error: ErrorInfo | None

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data that JSON can hold."""
        plain: dict[str, Any] = msgspec.to_builtins(self)
        return plain


class SlotHealth(msgspec.Struct, frozen=True, kw_only=True):
    """One worker slot; `reason` says why it is backing off or parked."""

    slot: int
    state: str
    """booting, running, backing-off, parked."""
    incarnation: int
    restarts: int
    reason: str | None


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """A report that a supervisor of the host can act on; times in seconds.

    `status`: "running", "paused", "degraded" (some worker slots are parked), "storage-trouble" (commits are refused
    and retried), "failed" (no worker can be started any more), "broken" (a bug stopped the manager), "stopped".
    """

    status: str
    problems: tuple[str, ...]
    """One sentence each, saying what is wrong; empty when all is well."""
    slots: tuple[SlotHealth, ...]
    busy: int
    """Workers with a step in them."""
    queued: int
    """Steps handed to workers and waiting behind another one."""
    commits: int
    last_commit: float
    slowest_commit: float
    stale_results: int
    """Answers dropped because their step had been given to somebody else."""

    @property
    def ok(self) -> bool:
        """Everything works as it should."""
        return self.status in {"running", "paused"}

    @classmethod
    def stopped(cls) -> Health:
        """The report of a manager that is not running."""
        return cls(
            status="stopped",
            problems=(),
            slots=(),
            busy=0,
            queued=0,
            commits=0,
            last_commit=0.0,
            slowest_commit=0.0,
            stale_results=0,
        )


def info_of(
    record: ProcedureRecord,
    phase: Phase,
    reason: str | None,
    children: dict[str, int],
    progress: float | None = None,
) -> ProcedureInfo:
    """The public view of a head."""
    return ProcedureInfo(
        id=record.id,
        type_name=record.type_name,
        version=record.version,
        state=record.state,
        phase=phase,
        reason=reason,
        parent_id=record.parent,
        root_id=record.root,
        run=record.run,
        step=record.step,
        attempt=record.attempt,
        errors=record.errors,
        crashes=record.crashes,
        children=children,
        locks=record.locks,
        owner=record.owner,
        tags=record.tags,
        priority=record.priority,
        created_at=record.created_at,
        updated_at=record.updated_at,
        finished_at=record.finished_at,
        due_at=record.due_at,
        deadline=record.deadline,
        progress=progress,
        error=record.error,
    )
