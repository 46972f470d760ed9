"""Values of a caller as the types that msgpack holds.

A `StrEnum`, a text that another library marks as safe, a number of an array library: to the program they are texts and
numbers, and they are taken as such. The plain value is kept of them, because only that comes back.
"""

from __future__ import annotations

from typing import Any

__all__ = ["as_plain", "exact_text"]

_PLAIN: tuple[type, ...] = (float, int, bytes)


def exact_text(text: str) -> str:
    """The same characters as a `str` that is of no class derived from it, whatever that class makes of ``str(…)``."""
    return text if type(text) is str else str.__str__(text)


def as_plain(value: object) -> Any:
    """For encoders: the plain value of one that is of a derived class. Raises `TypeError` for anything else."""
    if isinstance(value, str):
        return exact_text(value)
    for kind in _PLAIN:
        if isinstance(value, kind):
            return kind(value)
    msg = f"objects of type {type(value).__name__} cannot be encoded"
    raise TypeError(msg)
