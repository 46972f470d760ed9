"""Bytes that make a state long, and show when one was mixed up with another one or changed on its way."""

from __future__ import annotations

import hashlib
from random import Random

from actorproc.support.staged_files import LONG as IN_FILES

__all__ = ["check_padding", "draw_padding", "padding_of"]

_SHARE = 0.1
"""Share of the roots with padding, among those that can carry some."""
_IN_FILES = 0.2
"""Share of the padded states that are files."""


def draw_padding(chance: Random) -> int:
    """Bytes for one root, mostly none; else enough to travel beside the frames of the channel, or as a file."""
    if chance.random() >= _SHARE:
        return 0
    size = chance.randint(256 * 1024, 1536 * 1024)
    return size + IN_FILES if chance.random() < _IN_FILES else size


def padding_of(size: int, owner: str) -> bytes:
    """So many bytes, of this owner."""
    part = hashlib.sha256(f"{size} {owner}".encode()).digest()
    return (part * (size // len(part) + 1))[:size]


def check_padding(padding: bytes, size: int, owner: str) -> None:
    """Raise `RuntimeError` when these are not the bytes of this owner."""
    if padding != padding_of(size, owner):
        msg = f"{owner} has other padding than the {size} bytes it was made with"
        raise RuntimeError(msg)
