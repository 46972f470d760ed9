"""Wait list of a lock node, by ticket: joining and leaving cost the same with 100,000 entries as with ten.

A sorted list in pieces. Joining is one append at the end; leaving costs two binary searches and
the shift of one piece. It is a list of its pieces, so that to see whether it is empty costs nothing.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator

__all__ = ["Place", "WaitList"]

Place = tuple[int, str]
"""Ticket and procedure."""
_FULL = 512


class WaitList(list[list[Place]]):
    """Places in order of tickets. True when there are any."""

    __slots__ = ()

    def join(self, place: Place) -> None:
        """Take this place."""
        if not self:
            self.append([place])
            return
        at = len(self) - 1
        piece = self[at]
        if place > piece[-1]:
            piece.append(place)
        else:
            at = bisect_left(self, place, key=_last)
            piece = self[at]
            piece.insert(bisect_left(piece, place), place)
        if len(piece) > _FULL:
            self[at : at + 1] = [piece[: _FULL // 2], piece[_FULL // 2 :]]

    def leave(self, place: Place) -> None:
        """Give this place up; it must be taken."""
        # The first to come is the first to go, as a rule: no search then, whose steps would grow with the list.
        at = 0 if place <= self[0][-1] else bisect_left(self, place, key=_last)
        piece = self[at]
        del piece[bisect_left(piece, place)]
        if not piece:
            del self[at]

    @property
    def last(self) -> Place:
        """The youngest place of a wait list that is not empty."""
        return self[-1][-1]

    def places(self) -> Iterator[Place]:
        """From the oldest on. The list must not change meanwhile."""
        for piece in self:
            yield from piece

    def walk(self) -> Iterator[Place]:
        """From the oldest on; the one that was given may leave before the next is asked for."""
        found: Place = (-1, "")
        while self and found < self[-1][-1]:
            at = 0 if found < self[0][-1] else bisect_right(self, found, key=_last)
            piece = self[at]
            found = piece[bisect_right(piece, found)]
            yield found

    def before(self, place: Place) -> Iterator[Place]:
        """Requests in front of a place, the nearest first. The list must not change meanwhile."""
        at = bisect_left(self, place, key=_last)
        if at < len(self):
            piece = self[at]
            yield from reversed(piece[: bisect_left(piece, place)])
        for other in range(at - 1, -1, -1):
            yield from reversed(self[other])


def _last(piece: list[Place]) -> Place:
    return piece[-1]
