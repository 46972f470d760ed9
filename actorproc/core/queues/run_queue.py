"""Run queue: order of the steps that may run, by class of work, priority with ageing, work already begun, and turn.

Everything that could run now waits in a *lane*: one for each class of work, priority, and new roots apart from the
rest. In a lane the trees take turns (round robin), and each tree gives its own procedures in the order they came. So a
tree with ten thousand ready children delays others by one turn only.

The lane whose first tree has the earliest *virtual deadline* goes first: the time since when that tree waits for
its turn, less `ageing` seconds for every level of priority. A tree that waits that long per level goes before
newcomers of the higher one. That is ageing as in Unix schedulers, here by an order that is never computed anew. New
roots count half a level less: begun work and children go first (HBase's addFront), and cannot keep new roots out for
ever.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict
from typing import Any, Protocol

__all__ = ["DEFAULT_AGEING", "DEFAULT_CLASS", "OWN_CLASS", "RunQueue"]

DEFAULT_AGEING = 60.0
"""Seconds of waiting that outweigh one level of priority."""
DEFAULT_CLASS = "default"
"""The class of work of procedures that name none."""
OWN_CLASS = "\0own"
"""Class of those that run in workers of their own: the turns of the others are nothing to them."""
_NEW_ROOT = 0.5
"""Levels of priority by which new roots stand back."""
_NEVER = 1e9
"""Seconds of ageing that outweigh nothing while an engine lives; an order of infinite numbers would be none."""
_FEW_LANES = 4
"""Lanes of one class of work that are looked at one by one; from there on a heap pays."""
_SPARE_LANES = 32
"""Empty lanes worth keeping."""


class _Room(Protocol):
    """A place where procedures wait for something else than a worker; one that leaves the queue leaves it too."""

    def discard(self, procedure: str) -> None: ...


_Turn = list[Any]
"""The ready procedures of one tree in one lane: the time since it waits, the first procedure, and an OrderedDict of
those behind it (None: none). It waits since it came, or since its last turn. A list, as one is made for nearly every
step."""


class _Lane:
    """Trees that take turns, in the order of `since`."""

    __slots__ = ("handicap", "is_listed", "key", "turns")

    def __init__(self, key: tuple[str, int, bool], handicap: float) -> None:
        self.key = key
        self.handicap = handicap
        self.is_listed = False
        """It stands in the heap of its class."""
        self.turns: OrderedDict[str, _Turn] = OrderedDict()


class RunQueue:
    """Procedures that could run now. All methods take O(1), or O(log n) in the number of priorities in use."""

    def __init__(self, ageing: float = DEFAULT_AGEING) -> None:
        self.ageing = min(ageing, _NEVER)
        self.rooms: list[_Room] = []
        """Other places that `discard` takes a procedure out of."""
        self.live: dict[str, tuple[_Lane, str]] = {}
        """Procedures that wait, with their places; for others to look at."""
        self._lanes: dict[tuple[str, int, bool], _Lane] = {}
        self._heaps: dict[str, list[tuple[float, int, _Lane]]] = {}
        """Per class of work every lane that is not empty, with a lower bound of its virtual deadline."""
        self._count = 0
        self._time = 0.0
        self.told = 0.0
        """The time that `clock` was told last."""
        self.waited = 0.0
        """Seconds that the tree of the procedure waited that was taken last."""

    def __len__(self) -> int:
        return len(self.live)

    def __contains__(self, procedure: str) -> bool:
        return procedure in self.live

    def clock(self, now: float) -> float:
        """Time that never goes back: what passed between calls, and nothing when the clock was set back."""
        if now != self.told:
            if now > self.told:
                self._time += now - self.told
            self.told = now
        return self._time

    def virtual_deadline(self, priority: int, now: float, *, is_new_root: bool) -> float:
        """The order key of something that begins to wait now; the smallest goes first."""
        return self.order_of(self.clock(now), priority, is_new_root=is_new_root)

    def order_of(self, since: float, priority: int, *, is_new_root: bool) -> float:
        """The order key of something that has been waiting since that time by the queue's clock."""
        return since + (_NEW_ROOT * is_new_root - priority) * self.ageing

    def push(
        self,
        procedure: str,
        *,
        root: str,
        priority: int,
        is_new_root: bool,
        now: float,
        work_class: str = DEFAULT_CLASS,
    ) -> None:
        """Queue a procedure behind those of its tree; one that is queued already keeps its place."""
        live = self.live
        if procedure in live:
            return
        lane = self._lanes.get((work_class, priority, is_new_root))
        if lane is None or not lane.is_listed:
            lane = self._list((work_class, priority, is_new_root), now)
        live[procedure] = (lane, root)
        turn = lane.turns.get(root)
        if turn is None:
            lane.turns[root] = [self._time if now == self.told else self.clock(now), procedure, None]
        elif turn[2] is None:
            turn[2] = OrderedDict(((procedure, None),))
        else:
            turn[2][procedure] = None

    def put_back(
        self,
        procedure: str,
        *,
        root: str,
        priority: int,
        is_new_root: bool,
        now: float,
        work_class: str = DEFAULT_CLASS,
        since: float | None = None,
    ) -> None:
        """Queue a procedure that has had its turn and lost it, at the head of its lane.

        Or one that has waited `since` that time by the queue's clock.
        """
        if procedure in self.live:
            return
        lane = self._lanes.get((work_class, priority, is_new_root))
        if lane is None or not lane.is_listed:
            lane = self._list((work_class, priority, is_new_root), now)
        self.live[procedure] = (lane, root)
        if lane.turns:
            first = next(iter(lane.turns.values()))[0]
            since = first if since is None else min(first, since)
        elif since is None:
            since = self.clock(now)
        self._lower(lane, since + lane.handicap)
        turn = lane.turns.get(root)
        if turn is None:
            lane.turns[root] = [since, procedure, None]
        else:
            if turn[2] is None:
                turn[2] = OrderedDict()
            turn[2][turn[1]] = None
            turn[2].move_to_end(turn[1], last=False)
            turn[0], turn[1] = since, procedure
        lane.turns.move_to_end(root, last=False)

    def discard(self, procedure: str) -> None:
        """Take a procedure out, if it is in, here or in one of the `rooms`."""
        place = self.live.pop(procedure, None)
        if place is None:
            for room in self.rooms:
                room.discard(procedure)
            return
        lane, root = place
        turn = lane.turns[root]
        if turn[1] != procedure:
            del turn[2][procedure]
        elif turn[2]:
            turn[1] = turn[2].popitem(last=False)[0]
        else:
            del lane.turns[root]

    def peek(self, work_class: str = DEFAULT_CLASS) -> tuple[float, str] | None:
        """The next procedure of a class of work with its virtual deadline, None when there is none."""
        heap = self._heaps.get(work_class)
        if heap is None:
            return None
        if len(heap) > _FEW_LANES:
            return self._peek_heap(heap)
        best = None
        earliest = math.inf
        for _, _, lane in heap:
            turns = lane.turns
            if turns:
                turn = turns[next(iter(turns))]
                order = turn[0] + lane.handicap
                if order < earliest:
                    earliest, best = order, turn[1]
        return None if best is None else (earliest, best)

    def _peek_heap(self, heap: list[tuple[float, int, _Lane]]) -> tuple[float, str] | None:
        while heap:
            bound, number, lane = heap[0]
            if not lane.turns:
                heapq.heappop(heap)
                lane.is_listed = False
                if len(self._lanes) > _SPARE_LANES:
                    del self._lanes[lane.key]
                continue
            turn = next(iter(lane.turns.values()))
            order = turn[0] + lane.handicap
            if order <= bound:
                return order, turn[1]
            heapq.heapreplace(heap, (order, number, lane))
        return None

    def take(self, procedure: str, now: float) -> bool:
        """Take out the procedure that `peek` named, as its tree has had its turn; False when it is not queued here."""
        place = self.live.pop(procedure, None)
        if place is None:
            return False
        lane, root = place
        turns = lane.turns
        turn = turns[root]
        self.waited = (self._time if now == self.told else self.clock(now)) - turn[0]
        if turn[2]:
            turn[0], turn[1] = self._time, turn[2].popitem(last=False)[0]
            turns.move_to_end(root)
        else:
            del turns[root]
        return True

    def oldest(self, now: float) -> float:
        """Seconds for which the tree has waited that waits longest; 0 when none does."""
        firsts = [next(iter(lane.turns.values()))[0] for lane in self._lanes.values() if lane.turns]
        return max(0.0, self.clock(now) - min(firsts)) if firsts else 0.0

    def classes(self) -> list[str]:
        """Classes of work of which something may be queued."""
        return [name for name, heap in self._heaps.items() if any(lane.turns for _, _, lane in heap)]

    def members(self) -> set[str]:
        """All queued procedures."""
        return set(self.live)

    def names(self) -> list[str]:
        """The same in the order they came."""
        return list(self.live)

    def _lower(self, lane: _Lane, order: float) -> None:
        """The first of this lane is to come before its bound."""
        heap = self._heaps[lane.key[0]]
        place = next(place for place, (_, _, listed) in enumerate(heap) if listed is lane)
        bound, number, _ = heap[place]
        if order < bound:
            heap[place] = (order, number, lane)
            heapq.heapify(heap)

    def _list(self, key: tuple[str, int, bool], now: float) -> _Lane:
        """The lane of this key, put into the heap of its class."""
        lane = self._lanes.get(key)
        if lane is None:
            lane = self._lanes[key] = _Lane(key, (_NEW_ROOT * key[2] - key[1]) * self.ageing)
        lane.is_listed = True
        self._count += 1
        heapq.heappush(self._heaps.setdefault(key[0], []), (self.clock(now) + lane.handicap, self._count, lane))
        return lane
