"""Output of commands: a table for people, JSON for programs, ids for pipes."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from actorproc.cli.output.colour import Paint
from actorproc.cli.output.columns import Columns
from actorproc.errors import UsageError
from actorproc.ui.text import ago, fitting, moment_of, plain_line

__all__ = ["FORMATS", "Column", "Output", "complain"]

FORMATS = ("table", "wide", "json", "jsonl", "name")

_GATHERED = 200
"""Rows by which the columns are chosen."""
_EMPTY = frozenset({"", "-"})

Column = tuple[str, Callable[[Any], object]]
"""A heading, and what stands under it for an item."""


class Output:
    """Standard output in the format that was asked for: -o, else ``$ACTORPROC_OUTPUT``, else a table."""

    def __init__(self, options: argparse.Namespace) -> None:
        chosen = getattr(options, "output", None) or os.environ.get("ACTORPROC_OUTPUT")
        if chosen and chosen not in FORMATS:
            msg = f"ACTORPROC_OUTPUT is {chosen!r}; it is one of {', '.join(FORMATS)}"
            raise UsageError(msg)
        self.format: str = chosen or "table"
        self.paint = Paint(options)
        self.width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        """Columns of the terminal; None: no terminal reads it, so nothing is cut."""

    @property
    def is_json(self) -> bool:
        """Programs read it."""
        return self.format in ("json", "jsonl")

    @property
    def is_wide(self) -> bool:
        """There is room for more columns."""
        return self.format == "wide"

    def when(self, at: float | None, now: float) -> str:
        """A moment: relative to now, and in the wide form as a date."""
        return moment_of(at) if self.is_wide else ago(at, now)

    def rows(
        self,
        kind: str,
        chunks: Iterable[Sequence[Any]],
        columns: Sequence[Column],
        *,
        name: Callable[[Any], str],
        empty: str = "",
        drop: Sequence[str] = (),
        live: bool = False,
    ) -> int:
        """Show items, chunk by chunk as they come; returns their number.

        Args:
            kind: of the objects in JSON.
            chunks: the items.
            columns: of the table.
            name: the text of an item under ``-o name``.
            empty: for people, when there are no items.
            drop: headings of columns that a narrow terminal does without, the first one first.
            live: items come one by one, so none waits for the ones after it.
        """
        if self.is_json:
            return self._json_rows(kind, chunks)
        count = 0
        if self.format == "name":
            for chunk in chunks:
                self.lines(plain_line(name(item)) for item in chunk)
                count += len(chunk)
            return count
        count = self._table(chunks, columns, drop, live=live)
        if not count and empty:
            complain(empty)
        return count

    def _table(
        self, chunks: Iterable[Sequence[Any]], columns: Sequence[Column], drop: Sequence[str], *, live: bool
    ) -> int:
        coming = iter(chunks)
        first: list[Any] = []
        is_whole = False
        while not live and len(first) < _GATHERED and not is_whole:
            chunk = next(coming, None)
            is_whole = chunk is None
            first += chunk or ()
        shown = self._columns(columns, first, drop, is_whole=is_whole)
        fit = None if self.is_wide or live else self.width
        table = Columns([heading for heading, _ in shown], fit, self.paint if self.paint.is_on else None)
        count = 0
        for chunk in itertools.chain([first], coming):
            if chunk:
                self.lines(table.lines([cell(item) for _, cell in shown] for item in chunk))
            count += len(chunk)
        return count

    def _columns(
        self, columns: Sequence[Column], items: Sequence[Any], drop: Sequence[str], *, is_whole: bool
    ) -> Sequence[Column]:
        """Columns that the terminal has room for; of the wide form those that say something."""
        if not items or not columns:
            return columns
        headings = [heading for heading, _ in columns]
        rows = [[cell(item) for _, cell in columns] for item in items]
        if self.is_wide and is_whole:
            said = [place for place in range(len(columns)) if any(str(row[place]) not in _EMPTY for row in rows)]
            return [columns[place] for place in said]
        if self.width is None or self.is_wide:
            return columns
        return [columns[place] for place in fitting(headings, rows, self.width, drop)]

    def _json_rows(self, kind: str, chunks: Iterable[Sequence[Any]]) -> int:
        from actorproc.report.schema.shape import enveloped, shaped

        count = 0
        gathered: list[dict[str, Any]] = []
        for chunk in chunks:
            objects = [shaped(kind, item) for item in chunk]
            count += len(objects)
            if self.format == "json":
                gathered += objects
            else:
                self.lines(map(_encoded, objects))
        if self.format == "json":
            print(json.dumps(enveloped(kind, gathered), indent=2))
        return count

    def one(self, kind: str, value: Any, lines: Callable[[], Iterable[str]], *, name: str = "") -> None:
        """Show one thing: as an object, or as the lines that `lines` makes for people (already safe to print)."""
        if self.is_json:
            from actorproc.report.schema.shape import shaped

            found = shaped(kind, value)
            print(json.dumps(found, indent=2) if self.format == "json" else _encoded(found))
        elif self.format == "name":
            print(plain_line(name))
        else:
            self.lines(lines())

    def lines(self, lines: Iterable[str]) -> None:
        """Print lines, and let the reader have them."""
        text = "".join(f"{line}\n" for line in lines)
        encoding = sys.stdout.encoding or "utf-8"
        sys.stdout.write(text.encode(encoding, "backslashreplace").decode(encoding))
        sys.stdout.flush()


def _encoded(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def complain(text: object) -> None:
    """Say something on standard error, in one safe line."""
    print(plain_line(text), file=sys.stderr)
