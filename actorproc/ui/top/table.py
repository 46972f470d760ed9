"""Widgets of lines: a table with a cursor, and lines of text. Only lines that have changed are drawn again.

Text reaches the terminal as plain segments, never as markup, so that data cannot format, link or hide anything.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.events import Key, Resize
from textual.geometry import Region
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from actorproc.ui.text import fitting, plain_line
from actorproc.ui.top.rendering import Parts, Row

__all__ = ["STYLES", "Lines", "RowTable"]

STYLES = {
    "plain": Style.null(),
    "bad": Style(color="red", bold=True),
    "warn": Style(color="yellow"),
    "good": Style(color="green"),
    "calm": Style(color="cyan"),
    "dim": Style(dim=True),
    "bold": Style(bold=True),
}
_CURSOR = Style(reverse=True)


def _cut(text: str, width: int) -> str:
    """The text in so many columns, with a mark where it was cut."""
    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)) + "…"


class Lines(Widget):
    """Lines of a fixed size, drawn as they change."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines: list[Parts] = []
        self._drawn: list[tuple[Parts, bool]] = []

    def show(self, lines: Sequence[Parts]) -> None:
        """Show these lines."""
        self._lines = [tuple((plain_line(text), style) for text, style in line) for line in lines]
        self._draw()

    def _visible(self) -> list[tuple[Parts, bool]]:
        """Lines in view from the top, each with whether the cursor is on it."""
        return [(line, False) for line in self._lines[: self.size.height]]

    def _draw(self) -> None:
        before, self._drawn = self._drawn, self._visible()
        height, width = self.size.height, self.size.width
        changed = [
            y
            for y in range(height)
            if (before[y] if y < len(before) else None) != (self._drawn[y] if y < len(self._drawn) else None)
        ]
        if changed:
            self.refresh(*(Region(0, y, width, 1) for y in changed))

    def on_resize(self, _event: Resize) -> None:
        """Draw all again."""
        self._drawn = self._visible()
        self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line as textual draws it."""
        width = self.size.width
        if y >= len(self._drawn):
            return Strip.blank(width)
        line, has_cursor = self._drawn[y]
        segments = [
            Segment(text, STYLES.get(style, STYLES["plain"]) + (_CURSOR if has_cursor else STYLES["plain"]))
            for text, style in line
        ]
        strip = Strip(segments)
        return strip.extend_cell_length(width, _CURSOR if has_cursor else None).crop(0, width)


class RowTable(Lines, can_focus=True):
    """A table whose columns fit its width, with a cursor that stays on its row, and marked rows.

    Args:
        headings: one for each column; none: there is no line of headings.
        drop: headings of columns that go when there is little room, the first one first.
        narrow: headings of columns that take a third of the width at most. Default: none.
        hugs: the table is no higher than its rows. Default: False.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
        Binding("enter", "open", show=False),
        Binding("x", "mark", show=False),
    ]

    class Opened(Message):
        """Enter was pressed on a row."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    class AtEnd(Message):
        """The cursor was moved beyond the last row."""

    def __init__(
        self,
        headings: Sequence[str] = (),
        drop: Sequence[str] = (),
        *,
        narrow: Sequence[str] = (),
        hugs: bool = False,
        id: str | None = None,
    ) -> None:
        super().__init__(id=id)
        self._headings = tuple(headings)
        self._drop = drop
        self._narrow = [place for place, heading in enumerate(self._headings) if heading in narrow]
        self._hugs = hugs
        self._rows: list[Row] = []
        self._top = 0
        self._at = 0
        self.marked: set[str] = set()
        """Keys of marked rows."""

    @property
    def key(self) -> str:
        """Key of the row under the cursor; "" when there is none."""
        return self._rows[self._at].key if self._rows else ""

    @property
    def keys(self) -> list[str]:
        """Keys of all rows."""
        return [row.key for row in self._rows]

    def show_rows(self, rows: Sequence[Row]) -> None:
        """Show these rows; the cursor stays on the row it was on, as long as that is there."""
        key, place = self.key, self._at
        self._rows = [Row(row.key, tuple(plain_line(cell) for cell in row.cells), row.tones) for row in rows]
        places = {row.key: at for at, row in reversed(list(enumerate(self._rows))) if row.key}
        self._at = places.get(key, place) if key else place
        self.marked &= set(places)
        if self._hugs:
            self.styles.height = len(self._rows) + bool(self._headings)
        self._settle()

    def select(self, place: int) -> None:
        """Put the cursor on a row."""
        self._at = place
        self._settle()

    @property
    def _room(self) -> int:
        return max(1, self.size.height - bool(self._headings))

    def _settle(self) -> None:
        self._at = max(0, min(self._at, len(self._rows) - 1))
        self._top = min(self._top, max(0, len(self._rows) - self._room), self._at)
        if self._at >= self._top + self._room:
            self._top = self._at - self._room + 1
        self._lay_out()
        self._draw()

    def _lay_out(self) -> None:
        """Columns as wide as the rows in view need."""
        shown = self._rows[self._top : self._top + self._room]
        if not self._headings:
            self._lines = [tuple(zip(row.cells, row.tones or ("plain",), strict=False)) for row in shown]
            return
        width = self.size.width - 2
        cells = [self._narrowed(row.cells, width) for row in shown]
        kept = fitting(self._headings, cells, width, self._drop)
        widths = {place: max(cell_len(row[place]) for row in (self._headings, *cells)) for place in kept}
        spare = sum(widths[place] for place in kept[:-1]) + 2 * (len(kept) - 1) + 8 - width
        if spare > 0:  # long ids give way to the last column
            widest = max(kept[:-1], key=lambda place: widths[place], default=kept[0])
            widths[widest] = max(8, widths[widest] - spare)
        lines = [self._line("", self._headings, ("bold",) * len(self._headings), kept, widths)]
        for row, texts in zip(shown, cells, strict=True):
            mark = "*" if row.key and row.key in self.marked else ""
            lines.append(self._line(mark, texts, row.tones, kept, widths))
        self._lines = lines

    def _narrowed(self, cells: tuple[str, ...], width: int) -> tuple[str, ...]:
        """Cells of which the narrow ones are cut to a third of the width."""
        most = max(12, width // 3)
        if all(cell_len(cells[place]) <= most for place in self._narrow):
            return cells
        return tuple(_cut(cell, most) if place in self._narrow else cell for place, cell in enumerate(cells))

    @staticmethod
    def _line(
        mark: str, cells: Sequence[str], tones: Sequence[str], kept: Sequence[int], widths: dict[int, int]
    ) -> Parts:
        parts = [(f"{mark:<2}", "bold")]
        for place in kept:
            text = cells[place]
            if place != kept[-1]:
                text = set_cell_size(_cut(text, widths[place]), widths[place]) + "  "
            parts.append((text, tones[place] if place < len(tones) else "plain"))
        return tuple(parts)

    def _visible(self) -> list[tuple[Parts, bool]]:
        first = bool(self._headings)
        return [
            (line, self.has_focus and bool(self._rows) and place - first == self._at - self._top)
            for place, line in enumerate(self._lines[: self.size.height])
        ]

    def on_resize(self, event: Resize) -> None:
        """Lay out and draw all again."""
        self._settle()
        super().on_resize(event)

    def on_focus(self) -> None:
        """Show the cursor."""
        self._draw()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self._draw()

    def on_key(self, event: Key) -> None:
        """Let the application have the key behind a prefix."""
        take = getattr(self.app, "take_after_prefix", None)
        if take is not None and take(event.key):
            event.stop()
            event.prevent_default()

    def action_move(self, by: int) -> None:
        """Move the cursor by so many rows."""
        if self._at + by >= len(self._rows):
            self.post_message(self.AtEnd())
        self._at += by
        self._settle()

    def action_page(self, by: int) -> None:
        """Move the cursor by so many pages."""
        self.action_move(by * self._room)

    def action_open(self) -> None:
        """Open the row under the cursor."""
        if self.key:
            self.post_message(self.Opened(self.key))

    def action_mark(self) -> None:
        """Mark the row under the cursor, or take its mark away, and go on."""
        if self.key:
            self.marked ^= {self.key}
            self.action_move(1)
