"""Marks in a worker's output that say whose text follows.

A worker writes stdout and stderr into pipes that all its steps share. Output of Python code is preceded by a mark when
its procedure changes: the record separator of ASCII, the procedure's id, the separator again. An empty id ends it.
Output of C code and child processes has no marks of its own. It belongs to the last marked procedure, or, after an end
mark, to the step that runs when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["MARK", "MarkReader", "mark"]

MARK = "\x1e"
_PATTERN = re.compile(rb"\x1e([A-Za-z0-9._:@-]{0,128})\x1e")
_LONGEST = 130
"""Bytes of a mark at most."""


def mark(procedure: str) -> str:
    """The mark before the text of this procedure; "" for text of no procedure."""
    return f"{MARK}{procedure}{MARK}"


class MarkReader:
    """Cuts a stream into pieces with their owners, and takes the marks out."""

    def __init__(self) -> None:
        self._owner = ""
        self._held = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[str, bytes]]:
        """Pairs of owner ("" when not marked) and text, in order."""
        if not self._held and b"\x1e" not in chunk:
            yield self._owner, chunk
            return
        data = self._held + chunk
        self._held = b""
        start = 0
        for found in _PATTERN.finditer(data):
            if found.start() > start:
                yield self._owner, data[start : found.start()]
            self._owner = found.group(1).decode()
            start = found.end()
        rest = data[start:]
        opened = rest.rfind(b"\x1e")
        if opened >= 0 and len(rest) - opened < _LONGEST and b"\n" not in rest[opened:]:
            self._held, rest = rest[opened:], rest[:opened]  # the mark may go on in the next chunk
        if rest:
            yield self._owner, rest

    def rest(self) -> tuple[str, bytes]:
        """At the end of the stream: what looked like the beginning of a mark and was none."""
        held, self._held = self._held, b""
        return self._owner, held
