"""The step record of a rollback: of an undo step, of an undo that was skipped, or of the end."""

from __future__ import annotations

from typing import Any

from actorproc.core.state.engine_state import EngineState
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutStep

__all__ = ["write_rollback"]


def write_rollback(state: EngineState, record: ProcedureRecord, outcome: str, /, **fields: Any) -> None:
    """Write the next record of the step log.

    A record without a user state leaves the one there is in force.

    Args:
        state: The engine's.
        record: Head of the procedure that is rolled back.
        outcome: The name of the outcome, as in the step log.
        fields: More fields of the `StepRecord`. With ``version``, the record has a user state.
    """
    record.state_at = 0 if "version" in fields else record.state_at or record.records
    record.records += 1
    fields.setdefault("version", record.version)
    state.decision.write(
        PutStep(StepRecord(record.id, record.records, StepKind.ROLLBACK, state.decision.now, outcome=outcome, **fields))
    )
