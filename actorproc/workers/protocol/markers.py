"""Marks in a worker's output that say whose text follows.

A worker writes stdout and stderr into pipes that all its steps share. Output of Python code is preceded by a mark
when its step changes: the record separator of ASCII, facts about the step, the separator again. A mark without facts
ends it. Output of C code and child processes has no marks of its own. It belongs to the last marked step, or, after
an end mark, to the step that runs when it is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["MARK", "UNOWNED", "MarkReader", "OutputOwner", "mark"]

MARK = "\x1e"
_NAME = 300
"""Bytes of a type's or a step's name in a mark."""
_ID = r"[A-Za-z0-9._:@-]"
_PATTERN = re.compile(
    rf"\x1e(?:({_ID}{{1,128}})/([0-9]{{1,18}})\.([0-9]{{1,9}})/({_ID}{{0,128}})/([0-9a-f]{{0,600}})/([0-9a-f]{{0,600}}))?\x1e".encode()
)
_LONGEST = 2 + 128 + 30 + 129 + 2 * (1 + 2 * _NAME)
"""Bytes of a mark at most."""


class OutputOwner(NamedTuple):
    """The attempt of a step that a text belongs to. Without a procedure it belongs to none that is known."""

    procedure: str = ""
    step: int = 0
    attempt: int = 0
    root: str = ""
    type_name: str = ""
    step_name: str = ""


UNOWNED = OutputOwner()


def mark(owner: OutputOwner) -> str:
    """The mark before the text of this step; for `UNOWNED` the one that ends what was marked."""
    if not owner.procedure:
        return f"{MARK}{MARK}"
    names = "/".join(name.encode(errors="replace")[:_NAME].hex() for name in (owner.type_name, owner.step_name))
    return f"{MARK}{owner.procedure}/{owner.step}.{owner.attempt}/{owner.root}/{names}{MARK}"


def _owner_of(found: re.Match[bytes]) -> OutputOwner:
    if not found[1]:
        return UNOWNED
    procedure, step, attempt, root, *names = (part.decode() for part in found.groups())
    type_name, step_name = (bytes.fromhex(name[: len(name) // 2 * 2]).decode(errors="ignore") for name in names)
    return OutputOwner(procedure, int(step), int(attempt), root, type_name, step_name)


class MarkReader:
    """Cuts a stream into pieces with their owners, and takes the marks out."""

    def __init__(self) -> None:
        self._owner = UNOWNED
        self._held = b""

    def feed(self, chunk: bytes) -> Iterator[tuple[OutputOwner, bytes]]:
        """Pairs of owner (`UNOWNED` when not marked) and text, in order."""
        if not self._held and b"\x1e" not in chunk:
            yield self._owner, chunk
            return
        data = self._held + chunk
        self._held = b""
        start = 0
        for found in _PATTERN.finditer(data):
            if found.start() > start:
                yield self._owner, data[start : found.start()]
            self._owner = _owner_of(found)
            start = found.end()
        rest = data[start:]
        opened = rest.rfind(b"\x1e")
        if opened >= 0 and len(rest) - opened < _LONGEST and b"\n" not in rest[opened:]:
            self._held, rest = rest[opened:], rest[:opened]  # the mark may go on in the next chunk
        if rest:
            yield self._owner, rest

    def rest(self) -> tuple[OutputOwner, bytes]:
        """At the end of the stream: what looked like the beginning of a mark and was none."""
        held, self._held = self._held, b""
        return self._owner, held
