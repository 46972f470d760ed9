"""Modes of locks, and what is held and asked for on one node of the hierarchy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from actorproc.core.locks.wait_list import Place, WaitList
from actorproc.model.policies import LockKey, LockMode

__all__ = ["CONFLICTS", "IS", "IX", "ModeCounts", "Node", "S", "X", "ancestors_of", "needs_of"]

IS, IX, S, X = 1, 2, 4, 8
"""Intention to read below, intention to write below, read, write; bits, so that a mask holds several."""
_AGAINST = {IS: X, IX: S | X, S: IX | X, X: IS | IX | S | X}
CONFLICTS = [0] * 16
for _mask in range(16):
    for _bit, _against in _AGAINST.items():
        if _mask & _bit:
            CONFLICTS[_mask] |= _against
_BITS = (IS, IX, S, X)
_PLACES = [[place for place, bit in enumerate(_BITS) if mask & bit] for mask in range(16)]
"""Places of the bits that a mask has, by mask."""
_WRITE = LockMode.WRITE


def needs_of(keys: Iterable[LockKey]) -> dict[str, int]:
    """Mode bits per node, intentions on ancestors included."""
    needs: dict[str, int] = {}
    for key in keys:
        path = key.path
        own, intention = (X, IX) if key.mode is _WRITE else (S, IS)
        needs[path] = needs.get(path, 0) | own
        if "/" in path:
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
        self._counts = [0, 0, 0, 0]
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
