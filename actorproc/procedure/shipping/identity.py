"""A value for each object, by the object's identity and as long as it lives."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Generic, TypeVar

__all__ = ["ByIdentity"]

T = TypeVar("T")


class ByIdentity(Generic[T]):
    """Values of objects, made once for each. Equal objects have values of their own.

    Args:
        make: gives the value of an object, which can be referred to weakly.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._known: dict[int, tuple[weakref.ref[Any], T]] = {}

    def of(self, subject: Any) -> T:
        """The value of this very object."""
        place = id(subject)
        known = self._known.get(place)
        if known is not None and known[0]() is subject:
            return known[1]

        def forget(gone: object, known: dict[int, Any] = self._known) -> None:
            if place in known and known[place][0] is gone:
                del known[place]

        value = self._make(subject)
        self._known[place] = weakref.ref(subject, forget), value
        return value
