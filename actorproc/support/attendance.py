"""Attendance of a thread at a place where it is expected, and the moment from which another one stands in for it.

To wake a thread costs more than most of what there is to do meanwhile. So the stand-in is not woken when the attendant
leaves: it looks now and then, as long as the attendant comes and goes, and sleeps while it stays.
"""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["Attendance"]

_LOOK = 0.02
"""Seconds between two looks of the stand-in. An attendant that was away for all of them is missed."""
_STILL = 2
"""Looks without a coming after which the stand-in looks no more, if the attendant is there."""


class Attendance:
    """The comings and goings of one thread, the attendant. `look` is for one other thread, the stand-in.

    `call` wakes the stand-in.
    """

    __slots__ = ("_looked", "_seen", "_still", "call", "comings", "is_expected", "is_here", "is_off", "stands_in")

    def __init__(self, call: Callable[[], None]) -> None:
        self.call = call
        self.comings = 0
        self._seen = -1
        self._still = 0
        self._looked = 0.0
        self.is_off = False
        """The stand-in looks no more until it is called."""
        self.is_expected = False
        """There is an attendant."""
        self.is_here = False
        """The attendant is at its place; set on its thread, also while `look` is under way."""
        self.stands_in = False
        """The attendant is missed: the stand-in has its place."""

    def come(self) -> None:
        """The attendant comes."""
        self.comings += 1
        self.is_here = True

    def leave(self) -> None:
        """The attendant leaves; it will be back soon, or is missed."""
        self.is_here = False
        if self.is_off:
            self.is_off = False
            self.call()

    def look(self) -> float | None:
        """Find out whether the attendant is missed; the seconds until the next look, None: when it is called."""
        if not self.is_expected:
            self.stands_in = True
            return None
        self.stands_in &= not self.is_here
        now = time.monotonic()
        left = self._looked + _LOOK - now
        if left > 0:
            return left
        self._looked = now
        came, self._seen = self.comings != self._seen, self.comings
        if came:
            self._still = 0
            self.stands_in = False
        elif not self.is_here:
            self.stands_in = True
        else:
            self._still += 1
            if self._still >= _STILL:
                self.is_off = True
                if self.is_away():  # maybe before it could know that it has to call
                    self.is_off = False
                else:
                    return None
        return _LOOK

    def is_away(self) -> bool:
        """The attendant is not at its place now."""
        return not self.is_here
