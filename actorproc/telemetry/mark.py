"""The mark in a store's directory up to where spans were given to the SDK; it survives a kill of the process."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path
from typing import NamedTuple

__all__ = ["FILE", "Marked", "SpanMark"]

FILE = "spans.mark"
_MARK = struct.Struct("<dq")


class Marked(NamedTuple):
    """Up to where spans were given to the SDK."""

    at: float
    """Time of the newest commit whose spans were, epoch seconds."""
    epoch: int
    """Epoch of the store in which that was: later ones may have been those of managers on other machines."""


class SpanMark:
    """The mark of one machine, in a mapped file.

    A write costs no system call, and what is written is there after a kill, though not after a power cut. Without the
    file, where it cannot be made, the mark is never known.

    Args:
        folder: Directory of the store; None: it has none.
    """

    def __init__(self, folder: Path | None) -> None:
        self._map: mmap.mmap | None = None
        if folder is None:
            return
        with contextlib.suppress(OSError, ValueError):
            number = os.open(folder / FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                if os.fstat(number).st_size != _MARK.size:
                    os.ftruncate(number, 0)  # what is in it is no mark
                    os.ftruncate(number, _MARK.size)
                self._map = mmap.mmap(number, _MARK.size)
            finally:
                os.close(number)

    @property
    def found(self) -> Marked | None:
        """The mark; None: nothing was traced here."""
        if self._map is None:
            return None
        found = Marked(*_MARK.unpack_from(self._map))
        return found if found.at > 0 else None

    def move(self, at: float, epoch: int) -> None:
        """Note that the spans of this commit, and of those before it, were given to the SDK.

        Args:
            at: Epoch seconds: time of its newest decision.
            epoch: Of the store.
        """
        if self._map is not None:
            _MARK.pack_into(self._map, 0, at, epoch)
