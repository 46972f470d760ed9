"""Modes of locks, and what is held and asked for on one node of the hierarchy."""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Iterator
from typing import Final

from actorproc.core.locks.wait_list import Place, WaitList
from actorproc.model.policies import LockBit, LockKey, LockMode

__all__ = [
    "CONFLICTS",
    "COVERED",
    "EXCLUSIVE",
    "OWN",
    "WEAKEST",
    "ModeCounts",
    "Node",
    "ancestors_of",
    "needs_of",
]

_BITS = tuple(int(bit) for bit in LockBit)
_MASKS = range(1 << len(_BITS))
_AGAINST = dict.fromkeys(_BITS, 0)
for _mode in LockMode:
    _AGAINST[_mode.own] |= _mode.against
    for _bit in _BITS:
        if _mode.against & _bit:
            _AGAINST[_bit] |= _mode.own


def _union(values: dict[int, int]) -> list[int]:
    """The union of the values of a mask's bits, by mask."""
    return [functools.reduce(operator.or_, (values[bit] for bit in _BITS if mask & bit), 0) for mask in _MASKS]


CONFLICTS = _union(_AGAINST)
"""Bits that conflict with those of a mask."""
COVERED = _union(dict.fromkeys(_BITS, 0) | {mode.own: mode.covers for mode in LockMode})
"""Bits, there and below, that the holder of a mask has by it."""
OWN = functools.reduce(operator.or_, (mode.own for mode in LockMode))
"""Bits of a key itself, and not of one below it."""
EXCLUSIVE = functools.reduce(operator.or_, (mode.own for mode in LockMode if mode.is_exclusive))
"""Bits that stand beside no others."""
WEAKEST = int(LockBit.READS_BELOW)
"""Bit that every other one implies."""
_PLACES = [[place for place, bit in enumerate(_BITS) if mask & bit] for mask in _MASKS]
"""Places of the bits that a mask has, by mask."""


def needs_of(keys: Iterable[LockKey]) -> dict[str, int]:
    """Mode bits per node, intentions on ancestors included."""
    needs: dict[str, int] = {}
    for key in keys:
        path = key.path
        mode = key.mode
        needs[path] = needs.get(path, 0) | mode.own
        if "/" in path:
            intention = mode.above
            for ancestor in ancestors_of(path):
                needs[ancestor] = needs.get(ancestor, 0) | intention
    return needs


def ancestors_of(path: str) -> Iterator[str]:
    """The nodes above a path, nearest first."""
    end = path.rfind("/")
    while end > 0:
        path = path[:end]
        yield path
        end = path.rfind("/")


class ModeCounts:
    """Numbers of holders or waiters by mode; `mask` is the union."""

    __slots__ = ("_counts", "mask")

    def __init__(self) -> None:
        self._counts = [0] * len(_BITS)
        self.mask = 0

    def add(self, mask: int) -> None:
        """One more with these modes."""
        for place in _PLACES[mask]:
            self._counts[place] += 1
        self.mask |= mask

    def remove(self, mask: int) -> bool:
        """One less with these modes; whether a mode vanished."""
        before = self.mask
        for place in _PLACES[mask]:
            self._counts[place] -= 1
            if not self._counts[place]:
                self.mask &= ~_BITS[place]
        return self.mask != before


class Queue(WaitList):
    """Waiters on a node, by ticket, with the modes they wait for."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked = ModeCounts()


_NOBODY: Final = Queue()
"""Most nodes have no waiters, or ordinary ones only: those share this one, which stays empty."""


class Node:
    """Holders of a node with their modes, and its waiters: privileged and ordinary ones, each by ticket."""

    __slots__ = ("held", "holders", "ordinary", "privileged")

    def __init__(self) -> None:
        self.holders: dict[str, int] = {}
        self.held = ModeCounts()
        self.privileged = _NOBODY
        self.ordinary = _NOBODY

    def join(self, place: Place, mask: int, *, privileged: bool) -> None:
        """Add a waiter."""
        queue = self.privileged if privileged else self.ordinary
        if queue is _NOBODY:
            queue = Queue()
            if privileged:
                self.privileged = queue
            else:
                self.ordinary = queue
        queue.join(place)
        queue.asked.add(mask)

    def leave(self, place: Place, mask: int, *, privileged: bool) -> None:
        """Remove a waiter that has joined."""
        queue = self.privileged if privileged else self.ordinary
        queue.leave(place)
        queue.asked.remove(mask)

    def frees(self, mask: int, *, vanished: bool) -> bool:
        """True when a waiter here may go on now that a holder gave up these modes.

        Only who conflicts with them. An ordinary waiter's tree holds nothing, so it can move only when a mode vanished;
        a privileged one may be a relative of the remaining holders.
        """
        waiting = self.privileged.asked.mask | (self.ordinary.asked.mask if vanished else 0)
        return bool(waiting & CONFLICTS[mask])

    @property
    def is_empty(self) -> bool:
        """It has no holders and no waiters."""
        return not (self.holders or self.privileged or self.ordinary)
