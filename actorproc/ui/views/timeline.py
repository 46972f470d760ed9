"""Timeline of a procedure: a row for each step, a bar for each attempt, and bands of counts when there are too many."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

import msgspec

from actorproc.model.rows.records import StepKind
from actorproc.report.info import ProcedureInfo
from actorproc.report.step_log import AttemptInfo, StepInfo

__all__ = [
    "BAND_ROWS",
    "Band",
    "Bar",
    "BarKind",
    "Timeline",
    "TimelineRow",
    "Wait",
    "WaitCause",
    "bar_text",
    "timeline_of",
]

BarKind = Literal["done", "failed", "crashed", "killed", "undone", "running", "waiting"]
WaitCause = Literal["lock", "queue", "worker", "retry", "children", "event", "timer", "paused", "parked"]
"""Reason of a time in which nothing ran; "queue": for a lock or a worker, the store does not know which."""
BAND_ROWS = 500
"""Rows above which a timeline is told in bands."""
_BANDS = 100
_MARKS: dict[BarKind, str] = {
    "done": "█",
    "failed": "x",
    "crashed": "!",
    "killed": "/",
    "undone": "◂",
    "running": "▶",
    "waiting": "·",
}


_CAUSES: dict[str, WaitCause] = {
    "locked-out": "lock",
    "queued": "worker",
    "retrying": "retry",
    "stuck": "retry",
    "suspended": "children",
    "sleeping": "timer",
    "waiting": "event",
    "paused": "paused",
    "parked": "parked",
}
"""Causes by phase."""
_AFTER: dict[str, WaitCause] = {"suspended": "children", "sleep": "timer", "wait": "event"}
"""Causes by outcome of the step before."""
_SEEN = 0.002
"""Part of the whole time that a wait must have to be told."""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """A span of time; epoch seconds."""

    kind: BarKind
    start: float
    end: float
    attempt: int = 1
    words: str = ""
    """The error of a failed one, the reason of a wait."""
    cause: WaitCause | None = None
    """Cause of a bar that waits."""


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A time before an attempt in which nothing ran; epoch seconds."""

    cause: WaitCause
    start: float
    end: float


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """A step, or an undo."""

    number: int
    name: str
    run: int
    bars: tuple[Bar, ...]
    waits: tuple[Wait, ...] = ()
    """Times before the first bar and between bars."""
    is_undone: bool = False
    """The step was done, and was undone later."""


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """Number of bars by kind that begin in a part of the time."""

    start: float
    end: float
    counts: dict[str, int]


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Rows in order of steps; or bands, when there are more than `BAND_ROWS`."""

    start: float
    end: float
    rows: tuple[TimelineRow, ...] = ()
    bands: tuple[Band, ...] = ()


def timeline_of(
    info: ProcedureInfo,
    steps: Sequence[StepInfo],
    attempts: Sequence[AttemptInfo],
    now: float,
    locked_at: float | None = None,
) -> Timeline:
    """The timeline of one procedure at `now` (epoch seconds).

    Args:
        info: the procedure.
        steps: its step log.
        attempts: its failed attempts.
        now: the end of the bar that still grows.
        locked_at: the moment at which it got its first lock; None: not known.

    Returns:
        The timeline.
    """
    rows: dict[tuple[int, str, bool], list[Bar]] = {}
    for step in steps:
        if step.started_at is None or step.finished_at is None:
            continue
        is_undo = step.kind is StepKind.ROLLBACK
        kind: BarKind = "undone" if is_undo else "failed" if step.outcome == "failed" else "done"
        name = step.label if is_undo else step.step_name
        words = step.error.message if step.error is not None else ""
        bar = Bar(kind=kind, start=step.started_at, end=step.finished_at, attempt=max(1, step.attempts), words=words)
        rows.setdefault((step.number if is_undo else step.number - 1, name or "", is_undo), []).append(bar)
    for attempt in attempts:
        key = (attempt.step, attempt.step_name or "", attempt.mode == "rollback")
        rows.setdefault(key, []).append(_attempt(attempt))
    if info.finished_at is None:
        running = info.phase in ("running", "rolling-back")
        bar = Bar(
            kind="running" if running else "waiting",
            start=min(info.updated_at, now),
            end=now,
            attempt=max(1, info.attempt),
            words=info.reason or "",
            cause=None if running else _CAUSES.get(info.phase),
        )
        rows.setdefault((info.step, info.step_name or "", info.phase == "rolling-back"), []).append(bar)
    bars = [bar for row in rows.values() for bar in row]
    start = min((bar.start for bar in bars), default=info.created_at)
    end = max((bar.end for bar in bars), default=info.finished_at or now)
    if len(rows) > BAND_ROWS:
        return Timeline(start=start, end=end, bands=_bands(bars, start, end))
    least = _SEEN * (end - start)
    waits = _Waits(info, steps, locked_at)
    undone = {step.label for step in steps if step.outcome == "undone"}
    found = []
    for (number, name, is_undo), unsorted in rows.items():
        row = tuple(sorted(unsorted, key=lambda bar: (bar.start, bar.end)))
        before = waits.before(number - 1 if is_undo else number, row[0].start) if row[0].kind != "waiting" else ()
        between = (Wait(cause="retry", start=one.end, end=other.start) for one, other in pairwise(row))
        found.append(
            TimelineRow(
                number=number,
                name=f"undo {name}".rstrip() if is_undo else name,
                run=info.run,
                bars=row,
                waits=tuple(wait for wait in (*before, *between) if wait.end - wait.start > least),
                is_undone=not is_undo and bool(name) and name in undone,
            )
        )
    start = min((start, *(wait.start for row in found for wait in row.waits)))
    return Timeline(start=start, end=end, rows=tuple(sorted(found, key=lambda row: (row.bars[0].start, row.number))))


class _Waits:
    """Reasons for which steps did not begin at once.

    Args:
        info: Of the procedure.
        steps: Its step log.
        locked_at: Moment of its first lock.
    """

    def __init__(self, info: ProcedureInfo, steps: Sequence[StepInfo], locked_at: float | None) -> None:
        self._records = {step.number: step for step in steps}
        self._has_locks = bool(info.locks)
        self._locked_at = locked_at

    def before(self, number: int, start: float) -> tuple[Wait, ...]:
        """Waits between the record from which a step runs and its first attempt."""
        record = self._records.get(number)
        if record is None or record.at >= start:
            return ()
        if (cause := _AFTER.get(record.outcome)) is not None:
            return (Wait(cause=cause, start=record.at, end=start),)
        if not self._has_locks or record.outcome != "submitted":
            return (Wait(cause="worker", start=record.at, end=start),)
        if self._locked_at is None or self._locked_at > start:
            return (Wait(cause="queue", start=record.at, end=start),)
        got = max(record.at, self._locked_at)
        return (Wait(cause="lock", start=record.at, end=got), Wait(cause="worker", start=got, end=start))


def _attempt(attempt: AttemptInfo) -> Bar:
    crash = attempt.error.crash
    kind: BarKind = "failed"
    if attempt.error.kind == "killed":
        kind = "killed"
    elif crash is not None:
        kind = "crashed"
    return Bar(
        kind=kind,
        start=min(attempt.started_at, attempt.ended_at),
        end=attempt.ended_at,
        attempt=attempt.attempt,
        words=attempt.error.message,
    )


def _bands(bars: Sequence[Bar], start: float, end: float) -> tuple[Band, ...]:
    width = (end - start) / _BANDS or 1.0
    counts: list[dict[str, int]] = [{} for _ in range(_BANDS)]
    for bar in bars:
        band = counts[min(_BANDS - 1, int((bar.start - start) / width))]
        band[bar.kind] = band.get(bar.kind, 0) + 1
    return tuple(
        Band(start=start + place * width, end=start + (place + 1) * width, counts=found)
        for place, found in enumerate(counts)
    )


def bar_text(row: TimelineRow, start: float, end: float, width: int) -> str:
    """A row in so many columns; later bars are drawn over earlier ones, and each has one column at least."""
    cells = [" "] * width
    span = end - start
    for bar in row.bars if width > 0 else ():
        first = min(width - 1, int((bar.start - start) / span * width)) if span > 0 else 0
        last = min(width - 1, int((bar.end - start) / span * width)) if span > 0 else width - 1
        for place in range(first, max(first, last) + 1):
            cells[place] = _MARKS[bar.kind]
    return "".join(cells).rstrip()
