"""Text for terminals: nothing that data holds can move the cursor, hide a line or begin another one."""

from __future__ import annotations

import math
import time
import unicodedata
from collections.abc import Sequence

from actorproc.model.lines import plain_line

__all__ = [
    "ago",
    "clipped",
    "counted",
    "duration",
    "fitting",
    "moment_of",
    "plain_line",
    "size_of",
    "width_of",
    "wrapped",
]

_SOME = 24
"""Columns of the last cell of a line, for which other cells give way."""
_UNITS = ((86_400.0, "d"), (3_600.0, "h"), (60.0, "m"))


def duration(seconds: float) -> str:
    """Seconds in at most two parts: "40ms", "12s", "3m20s", "2h5m", "9d3h"."""
    if not math.isfinite(seconds):
        return str(seconds)
    if seconds < 0:
        return f"-{duration(-seconds)}"
    if seconds < 1:
        return f"{seconds * 1000:.0f}ms" if seconds else "0s"
    if seconds < 10:
        return f"{seconds:.1f}s".replace(".0s", "s")
    for (unit, name), (lower, smaller) in zip(_UNITS, (*_UNITS[1:], (1.0, "s")), strict=True):
        if seconds >= unit:
            whole = int(seconds // unit)
            rest = int((seconds - whole * unit) // lower)
            return f"{whole}{name}{rest}{smaller}" if rest else f"{whole}{name}"
    return f"{int(seconds)}s"


def ago(at: float | None, now: float) -> str:
    """Distance in time: "3m20s" for the past, "in 12s" for the future; "-" when it is not known."""
    if not at:
        return "-"
    return f"in {duration(at - now)}" if at > now else duration(now - at)


def moment_of(at: float | None) -> str:
    """A moment as the clock on the wall shows it; "-" when it is not known, or when no calendar holds it."""
    try:
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at else "-"
    except (OverflowError, ValueError, OSError):
        return "-"


def size_of(size: float | None) -> str:
    """Bytes for people: "312 B", "4.5 MiB"."""
    if size is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def counted(count: int, noun: str) -> str:
    """A number of things: "1 step", "2,000 steps"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def clipped(text: str, limit: int) -> str:
    """The text, cut to `limit` characters, with a mark where it was cut."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


def width_of(text: str) -> int:
    """Columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


def wrapped(text: str, width: int) -> list[str]:
    """The text in lines of so many columns; those that follow are set in two columns deeper than the first."""
    if width_of(text) <= width:
        return [text]
    indent = " " * min(len(text) - len(text.lstrip(" │├└─⇒")) + 2, width // 2)
    lines: list[str] = []
    while width_of(text) > width:
        at = len(text)
        while width_of(text[:at]) > width:
            at -= 1
        space = text.rfind(" ", width // 2, at + 1)
        at = space if space > len(indent) else max(at, len(indent) + 1)
        lines.append(text[:at].rstrip())
        text = indent + text[at:].lstrip()
    return [*lines, text]


def fitting(headings: Sequence[str], rows: Sequence[Sequence[object]], width: int, drop: Sequence[str]) -> list[int]:
    """Places of the columns that fit into a terminal, the last one with some room; `drop` go first, in this order."""
    cells = [[plain_line(cell) for cell in row] for row in (headings, *rows)]
    widths = [max(width_of(row[place]) for row in cells) for place in range(len(headings))]
    kept = list(range(len(headings)))
    for heading in drop:
        last = min(widths[kept[-1]], _SOME)
        if sum(widths[place] for place in kept[:-1]) + last + 2 * (len(kept) - 1) <= width:
            break
        kept = [place for place in kept if headings[place] != heading]
    return kept
