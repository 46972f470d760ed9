"""Pickles of what may be large: a long byte string goes from where it is into the result in one copy."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Mapping

__all__ = ["LARGE", "pickled", "unpicklable"]

LARGE = 65536
"""Bytes from which on the pickler hands a byte string on as it is, instead of copying it into a frame of its own."""


class _Parts:
    """A file that keeps what is written to it, uncopied."""

    __slots__ = ("parts", "write")

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.write = self.parts.append


def pickled(value: object, inside: Iterable[object]) -> list[bytes]:
    """The pickle of a value, in parts to be joined; `inside` are the members of it that may be long byte strings."""
    for member in inside:
        if type(member) is bytes and len(member) >= LARGE:
            file = _Parts()
            pickle.Pickler(file, protocol=5).dump(value)
            return file.parts
    return [pickle.dumps(value, protocol=5)]


def unpicklable(members: Mapping[str, object], dumps: Callable[[object], object] = pickle.dumps) -> str | None:
    """The name of the first member that cannot be pickled by itself; None: each of them can.

    For messages, once the whole could not be pickled: it pickles them one by one.
    """
    for name, member in members.items():
        try:
            dumps(member)
        except Exception:  # noqa: BLE001 - __reduce__ and __getstate__ are user code and raise what they like
            return name
    return None
