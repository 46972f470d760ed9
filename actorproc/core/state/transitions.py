"""The lifecycle of a procedure as a table; tests and the documentation's diagram are drawn from it.

Two rules: everything that may change `ProcedureRecord.state` is listed here, and `move` is the only
function that changes it. An illegal move raises and leaves the record as it was.
"""

from __future__ import annotations

from enum import StrEnum

from actorproc.errors import InternalError
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState as S

__all__ = ["TRANSITIONS", "Trigger", "draw_mermaid", "move"]


class Trigger(StrEnum):
    """Reason for a change of state."""

    SUBMITTED = "submitted"
    SUSPENDED = "suspended"
    SLEPT = "slept"
    WAITED = "waited"
    WAITED_LIMITED = "waited with a limit"
    CHILDREN_DONE = "children done"
    SIGNALLED = "signalled"
    DUE = "due"
    STOPPED = "stopped"
    """Its failure scope is being undone: it waits for nothing any more."""
    FINISHED = "finished"
    UNDONE = "undone"
    GAVE_UP = "gave up"
    """Failed without rollback support, or its rollback was exhausted."""
    RETRIED = "retried"
    """An operator had its failed root tried once more."""
    BYPASSED = "bypassed"
    """An operator ended it as if it had succeeded."""


TRANSITIONS: dict[S, dict[Trigger, S]] = {
    S.INITIALIZING: {Trigger.SUBMITTED: S.RUNNABLE},
    S.RUNNABLE: {
        Trigger.SUSPENDED: S.WAITING,
        Trigger.SLEPT: S.WAITING_TIMEOUT,
        Trigger.WAITED: S.WAITING,
        Trigger.WAITED_LIMITED: S.WAITING_TIMEOUT,
        Trigger.STOPPED: S.RUNNABLE,
        Trigger.FINISHED: S.SUCCESS,
        Trigger.UNDONE: S.ROLLEDBACK,
        Trigger.GAVE_UP: S.FAILED,
        Trigger.BYPASSED: S.SUCCESS,
    },
    S.WAITING: {
        Trigger.CHILDREN_DONE: S.RUNNABLE,
        Trigger.SIGNALLED: S.RUNNABLE,
        Trigger.STOPPED: S.RUNNABLE,
        Trigger.BYPASSED: S.SUCCESS,
    },
    S.WAITING_TIMEOUT: {
        Trigger.DUE: S.RUNNABLE,
        Trigger.SIGNALLED: S.RUNNABLE,
        Trigger.STOPPED: S.RUNNABLE,
        Trigger.BYPASSED: S.SUCCESS,
    },
    # A finished child is undone, or cannot be undone, when its tree fails. A root that finished well never moves.
    S.SUCCESS: {Trigger.UNDONE: S.ROLLEDBACK, Trigger.GAVE_UP: S.FAILED},
    # Only by an operator's word, and only with the whole tree. Who was cancelled unexecuted ended ROLLEDBACK.
    S.FAILED: {Trigger.RETRIED: S.RUNNABLE, Trigger.BYPASSED: S.SUCCESS},
    S.ROLLEDBACK: {Trigger.RETRIED: S.RUNNABLE},
}


_BY_VALUE: dict[str, dict[str, S]] = {
    state.value: {trigger.value: target for trigger, target in row.items()} for state, row in TRANSITIONS.items()
}
"""The table by values: the hash of a member is Python code, and each submit and each end looks here."""


def move(record: ProcedureRecord, trigger: Trigger) -> None:
    """Change the state of `record` as the table says; `InternalError` when it does not say."""
    try:
        record.state = _BY_VALUE[record.state._value_][trigger._value_]
    except KeyError:
        msg = f"procedure {record.id} in state {record.state} was {trigger.value}: no such transition"
        raise InternalError(msg) from None


def draw_mermaid() -> str:
    """The table as a Mermaid state diagram, for the documentation."""
    lines = ["stateDiagram-v2", "    [*] --> INITIALIZING"]
    for source, row in TRANSITIONS.items():
        lines.extend(f"    {source.value} --> {target.value}: {trigger.value}" for trigger, target in row.items())
        if source in TERMINAL:
            lines.append(f"    {source.value} --> [*]")
    return "\n".join(lines) + "\n"
