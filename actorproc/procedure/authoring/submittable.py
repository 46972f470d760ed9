"""The base of `Procedure` that other modules of this package may name without importing it."""

from __future__ import annotations

__all__ = ["Submittable"]


class Submittable:
    """A procedure, as `Status` sees it: it is told from other values, and nothing of it is called."""

    __slots__ = ()
