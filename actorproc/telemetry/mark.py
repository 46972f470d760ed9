"""The mark in a store's directory up to where spans were given to the SDK; it survives a kill of the process."""

from __future__ import annotations

import contextlib
import mmap
import os
import struct
from pathlib import Path

__all__ = ["FILE", "SpanMark"]

FILE = "spans.mark"
_TIME = struct.Struct("<d")


class SpanMark:
    """Time of the newest commit whose spans were given to the SDK, in a mapped file.

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
                if os.fstat(number).st_size != _TIME.size:
                    os.ftruncate(number, 0)  # what is in it is no time
                    os.ftruncate(number, _TIME.size)
                self._map = mmap.mmap(number, _TIME.size)
            finally:
                os.close(number)

    @property
    def at(self) -> float | None:
        """Epoch seconds; None: nothing was traced here."""
        if self._map is None:
            return None
        at: float = _TIME.unpack_from(self._map)[0]
        return at if at > 0 else None

    def move(self, at: float) -> None:
        """Note that the spans of this commit, and of those before it, were given to the SDK.

        Args:
            at: Epoch seconds: time of its newest decision.
        """
        if self._map is not None:
            _TIME.pack_into(self._map, 0, at)
