"""Output of commands: a table for people, JSON for programs, ids for pipes."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from actorproc.cli.output.text import Columns, plain_line

__all__ = ["FORMATS", "Column", "Output", "complain"]

FORMATS = ("table", "wide", "json", "jsonl", "name")

Column = tuple[str, Callable[[Any], object]]
"""A heading, and what stands under it for an item."""


class Output:
    """Standard output in the format that was asked for: `table` on a terminal, `jsonl` elsewhere."""

    def __init__(self, options: argparse.Namespace) -> None:
        chosen = getattr(options, "output", None)
        self.format: str = chosen or ("table" if sys.stdout.isatty() else "jsonl")

    @property
    def is_json(self) -> bool:
        """Programs read it."""
        return self.format in ("json", "jsonl")

    @property
    def is_wide(self) -> bool:
        """There is room for more columns."""
        return self.format == "wide"

    def rows(
        self,
        kind: str,
        chunks: Iterable[Sequence[Any]],
        columns: Sequence[Column],
        *,
        name: Callable[[Any], str],
        empty: str = "",
    ) -> int:
        """Show items, chunk by chunk as they come; `empty` is what people are told when there are none."""
        if self.is_json:
            return self._json_rows(kind, chunks)
        table = Columns([heading for heading, _ in columns])
        count = 0
        for chunk in chunks:
            if chunk and self.format == "name":
                self.lines(plain_line(name(item)) for item in chunk)
            elif chunk:
                self.lines(table.lines([cell(item) for _, cell in columns] for item in chunk))
            count += len(chunk)
        if not count and empty and self.format != "name":
            complain(empty)
        return count

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
