"""Records of failed attempts. They are written with what a failure changes anyway; a success writes none."""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.queues.worker_table import InHand
from actorproc.core.state.parts.decision import PendingDecision
from actorproc.model.rows.records import AttemptRecord, ErrorInfo, ProcedureRecord
from actorproc.model.rows.writes import PutAttempt

__all__ = ["note_attempt"]


def note_attempt(
    decision: PendingDecision, record: ProcedureRecord, item: InHand, error: ErrorInfo, seconds: float | None
) -> None:
    """Write that the attempt in hand failed with this error, and after how many `seconds` (None: not known)."""
    token = item.token
    decision.write(
        PutAttempt(
            AttemptRecord(
                record.id,
                token.step,
                token.mode,
                token.attempt,
                record.run,
                decision.now - (seconds or 0.0),
                decision.now,
                token.worker.slot,
                token.worker.incarnation,
                item.pid,
                replace(error, pickled=b"", step_name=error.step_name or record.current_name or ""),
            )
        )
    )
