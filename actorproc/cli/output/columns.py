"""Tables of a terminal: rows are written as they come, and fit its width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from actorproc.ui.text import clipped, plain_line, width_of

if TYPE_CHECKING:
    from actorproc.cli.output.colour import Paint

__all__ = ["Columns"]

_LEAST = 8
"""Columns that the last cell of a line has in any case."""


class Columns:
    """Rows of a table, written as they come: a later and wider row shifts its own line only, and widens the next.

    Args:
        headings: one for each column.
        width: columns of the terminal: the last cell of a line is clipped to it. Default: None, nothing is clipped.
        paint: gives the colour of a cell by its heading. Default: none.
    """

    def __init__(self, headings: Sequence[str], width: int | None = None, paint: Paint | None = None) -> None:
        self._headings = headings
        self._widths = [len(heading) for heading in headings]
        self._begun = False
        self._width = width
        self._paint = paint

    def lines(self, rows: Iterable[Sequence[object]]) -> list[str]:
        """The lines of these rows; before the first ones come the headings."""
        safe = [[plain_line(cell) for cell in row] for row in rows]
        for row in safe:
            for place, cell in enumerate(row):
                self._widths[place] = max(self._widths[place], width_of(cell))
        lines = [self._line(row) for row in safe]
        if not self._begun:
            self._begun = True
            heading = self._line(list(self._headings), is_heading=True)
            lines.insert(0, heading if self._paint is None else self._paint(heading, "strong"))
        return lines

    def _line(self, row: Sequence[str], *, is_heading: bool = False) -> str:
        cells = list(row)
        if self._width is not None:
            room = self._width - sum(self._widths[:-1]) - 2 * (len(cells) - 1)
            cells[-1] = clipped(cells[-1], max(_LEAST, room))
        padded = [
            (cell if self._paint is None or is_heading else self._paint.cell(heading, cell))
            + " " * (width - width_of(cell))
            for cell, width, heading in zip(cells, self._widths, self._headings, strict=True)
        ]
        return "  ".join(padded).rstrip()
