"""States and phases of a procedure."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["TERMINAL", "Phase", "ProcedureState"]


class ProcedureState(StrEnum):
    """The seven states of HBase ProcedureV2 and IoTDB, as stored."""

    INITIALIZING = "INITIALIZING"
    """Not durable yet; never seen in the store."""
    RUNNABLE = "RUNNABLE"
    """Has something to do now: queued, running, waiting for a lock, backing off, or rolling back."""
    WAITING = "WAITING"
    """Suspended on children or on an event, without a time limit."""
    WAITING_TIMEOUT = "WAITING_TIMEOUT"
    """Sleeping, or waiting for an event with a time limit."""
    SUCCESS = "SUCCESS"
    FAILED = "FAILED"
    ROLLEDBACK = "ROLLEDBACK"


TERMINAL = frozenset({ProcedureState.SUCCESS, ProcedureState.FAILED, ProcedureState.ROLLEDBACK})


class Phase(StrEnum):
    """Activity of a procedure at this moment; derived, never stored."""

    QUEUED = "queued"
    LOCKED_OUT = "locked-out"
    RUNNING = "running"
    RETRYING = "retrying"
    STUCK = "stuck"
    """Retrying what only an operator can mend: a fatal error behind the point of no return."""
    SUSPENDED = "suspended"
    SLEEPING = "sleeping"
    WAITING = "waiting"
    ROLLING_BACK = "rolling-back"
    PAUSED = "paused"
    """An operator paused it or one of its ancestors."""
    PARKED = "parked"
    DONE = "done"
