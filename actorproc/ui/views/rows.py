"""Rows of a list of procedures: what a cell says, their order, and what a digest changes in them."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec
from msgspec.structs import replace

from actorproc.report.changes import DigestRow
from actorproc.report.info import ProcedureInfo
from actorproc.ui.text import plain_line
from actorproc.ui.views.tones import Tone, severity_of, tone_of

__all__ = ["SORTS", "ProcedureRow", "row_of", "sorted_rows", "told", "why_of"]


class ProcedureRow(msgspec.Struct, frozen=True, kw_only=True):
    """A procedure in a list; moments are epoch seconds."""

    id: str
    type_name: str
    """Without its module."""
    state: str
    phase: str
    tone: Tone
    step: str
    """Number, and name if it has one and has not ended."""
    attempt: int
    created_at: float
    changed_at: float
    progress: float | None
    why: str
    """The error, or the reason for the phase, in one line."""


def row_of(info: ProcedureInfo) -> ProcedureRow:
    """The row of a procedure."""
    return ProcedureRow(
        id=info.id,
        type_name=info.type_name.rpartition(".")[2],
        state=str(info.state),
        phase=str(info.phase),
        tone=_tone(str(info.state), str(info.phase)),
        step=_step(info.step, info.step_name if info.finished_at is None else None),
        attempt=info.attempt,
        created_at=info.created_at,
        changed_at=info.finished_at or info.updated_at,
        progress=info.progress,
        why=plain_line(why_of(info)),
    )


def why_of(info: ProcedureInfo) -> str:
    """The error or the reason, for one cell."""
    if info.error is not None and (info.reason is None or info.reason == info.error.message):
        return f"{info.error.type_name.rpartition('.')[2]}: {info.error.message}"
    return info.reason or info.message or ""


def told(row: ProcedureRow, digest: DigestRow, at: float) -> ProcedureRow:
    """The row after what a digest tells; the reason goes with the phase that it was for."""
    state, phase = str(digest.state), str(digest.phase)
    return replace(
        row,
        state=state,
        phase=phase,
        tone=_tone(state, phase),
        step=_step(digest.step, digest.step_name if phase != "done" else None),
        attempt=digest.attempt,
        changed_at=at,
        progress=digest.progress,
        why=row.why if (row.state, row.phase) == (state, phase) else "",
    )


def _step(number: int, name: str | None) -> str:
    return f"{number} {name}" if name else str(number)


def _tone(state: str, phase: str) -> Tone:
    return tone_of(state if phase == "done" else phase)


SORTS: dict[str, Callable[[ProcedureRow], tuple[object, ...]]] = {
    "trouble": lambda row: (severity_of(row.state, row.phase), -row.changed_at, row.id),
    "newest": lambda row: (-row.created_at, row.id),
    "oldest": lambda row: (row.created_at, row.id),
    "changed": lambda row: (-row.changed_at, row.id),
    "attempts": lambda row: (-row.attempt, row.id),
    "type": lambda row: (row.type_name, row.id),
    "id": lambda row: (row.id,),
}
"""Orders of a list, by name."""


def sorted_rows(rows: Iterable[ProcedureRow], by: str = "trouble") -> list[ProcedureRow]:
    """Rows in an order of `SORTS`."""
    return sorted(rows, key=SORTS[by])
