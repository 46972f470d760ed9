"""Text for terminals: nothing that data holds can move the cursor, hide a line or begin another one."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Iterable, Sequence

from actorproc.model.lines import plain_line

__all__ = ["Columns", "ago", "clipped", "duration", "plain_line", "size_of", "width_of"]

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


def size_of(size: float | None) -> str:
    """Bytes for people: "312 B", "4.5 MiB"."""
    if size is None:
        return "-"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def clipped(text: str, limit: int) -> str:
    """At most so many characters, with a mark where it was cut."""
    return text if len(text) <= limit else text[: max(0, limit - 1)] + "…"


def width_of(text: str) -> int:
    """Columns a text takes on a terminal."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(letter) else 2 if unicodedata.east_asian_width(letter) in "WF" else 1
        for letter in text
    )


class Columns:
    """Rows of a table, written as they come: a later and wider row shifts its own line only, and widens the next."""

    def __init__(self, headings: Sequence[str]) -> None:
        self._headings = headings
        self._widths = [len(heading) for heading in headings]
        self._begun = False

    def lines(self, rows: Iterable[Sequence[object]]) -> list[str]:
        """The lines of these rows; before the first ones come the headings."""
        safe = [[plain_line(cell) for cell in row] for row in rows]
        for row in safe:
            for place, cell in enumerate(row):
                self._widths[place] = max(self._widths[place], width_of(cell))
        if not self._begun:
            self._begun = True
            safe.insert(0, list(self._headings))
        return [self._line(row) for row in safe]

    def _line(self, row: Sequence[str]) -> str:
        cells = [cell + " " * (width - width_of(cell)) for cell, width in zip(row, self._widths, strict=True)]
        return "  ".join(cells).rstrip()
