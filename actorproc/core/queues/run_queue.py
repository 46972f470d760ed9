"""Run queue: order of the steps that may run, by class of work, priority with ageing, work already begun, and turn.

Everything that could run now waits in a *lane*: one for each class of work, priority, and new roots apart from the
rest. In a lane the trees take turns (round robin), and each tree gives its own procedures in the order they came. So a
tree with ten thousand ready children delays others by one turn only.

The lane whose first tree has the earliest *virtual deadline* goes first: the time since when that tree waits for
its turn, less `ageing` seconds for every level of priority. A tree that waits that long per level goes before
newcomers of the higher one. That is ageing as in Unix schedulers, here by an order that is never computed anew. New
roots count half a level less: begun work and children go first (HBase's addFront), and cannot keep new roots out for
ever.

Procedures that need nothing but a worker may stand in a lane *cold*: as they were read or submitted, not resident.
After a restart, or a `submit_many`, there may be hundreds of thousands of them. To make them resident and queue them
takes as long as reading or storing them, and the first step would wait for the last of them.
"""

from __future__ import annotations

import heapq
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from actorproc.model.rows.records import ProcedureRecord

__all__ = ["DEFAULT_CLASS", "OWN_CLASS", "RunQueue", "is_new_root"]

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
_AHEAD = 0.001
"""Seconds by which a procedure that is put before the cold ones of its lane counts as earlier than their first."""
_MOST_GONE = 64
"""Cold procedures that may have left a lane, beyond as many as wait in it, before they are taken out of its groups."""


class _Room(Protocol):
    """A place where procedures wait for something else than a worker; one that leaves the queue leaves it too."""

    def discard(self, procedure: str) -> None: ...


_Turn = list[Any]
"""The ready procedures of one tree in one lane: the time since it waits, the first procedure, and an OrderedDict of
those behind it (None: none). It waits since it came, or since its last turn. A list, as one is made for nearly every
step."""


class _Lane:
    """Trees that take turns, in the order of `since`; and cold procedures."""

    __slots__ = ("cold", "handicap", "held", "is_listed", "key", "open", "turns")

    def __init__(self, key: tuple[str, int, bool], handicap: float) -> None:
        self.key = key
        self.handicap = handicap
        self.is_listed = False
        """It stands in the heap of its class."""
        self.turns: OrderedDict[str, _Turn] = OrderedDict()
        self.cold: deque[tuple[float, list[ProcedureRecord]]] = deque()
        """Since when they wait, and their heads. The first group goes first, and of a group the last."""
        self.open = 0
        """Number of cold procedures that wait."""
        self.held = 0
        """Number of procedures in the groups; with those that have left."""


class RunQueue:
    """Procedures that could run now. All methods take O(1), or O(log n) in the number of priorities in use."""

    def __init__(self, ageing: float, place_of: Callable[[str], int]) -> None:
        self.ageing = min(ageing, _NEVER)
        self._place_of = place_of
        """The number of a procedure's tree in submit order: it decides between a resident and a cold one."""
        self.cold: dict[str, ProcedureRecord] = {}
        """Heads of cold procedures, as they were stored. All are of the default class of work. A procedure that is
        named is made resident, by a copy, and keeps its place."""
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
        return len(self.live) + len(self.cold)

    def __contains__(self, procedure: str) -> bool:
        return procedure in self.live or procedure in self.cold

    def clock(self, now: float) -> float:
        """Time that never goes back: what passed between calls, and nothing when the clock was set back."""
        if now != self.told:
            if now > self.told:
                self._time += now - self.told
            self.told = now
        return self._time

    def virtual_deadline(self, priority: int, now: float, *, is_new_root: bool) -> float:
        """The order key of something that begins to wait now; the smallest goes first."""
        return self.clock(now) + (_NEW_ROOT * is_new_root - priority) * self.ageing

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

    def class_of(self, procedure: str) -> str | None:
        """The class of work in which a procedure waits here; None: it does not."""
        place = self.live.get(procedure)
        if place is not None:
            return place[0].key[0]
        return DEFAULT_CLASS if procedure in self.cold else None

    def put_back(
        self,
        procedure: str,
        *,
        root: str,
        priority: int,
        is_new_root: bool,
        now: float,
        work_class: str = DEFAULT_CLASS,
    ) -> None:
        """Queue a procedure that has had its turn and lost it, at the head of its lane."""
        if procedure in self.live:
            return
        lane = self._lanes.get((work_class, priority, is_new_root))
        if lane is None or not lane.is_listed:
            lane = self._list((work_class, priority, is_new_root), now)
        self.live[procedure] = (lane, root)
        cold = self._first_cold(lane) if lane.cold else None
        since = self.clock(now) if cold is None else cold[0] - _AHEAD
        if lane.turns:
            first = next(iter(lane.turns.values()))[0]
            since = first if cold is None else min(first, since)
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
            if procedure in self.cold:
                self._discard_cold(procedure)
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
        best = ""
        earliest = math.inf
        for _, _, lane in heap:
            turns = lane.turns
            if turns:
                turn = turns[next(iter(turns))]
                order = turn[0] + lane.handicap
                if order < earliest:
                    earliest, best = order, turn[1]
            if lane.cold and (cold := self._first_cold(lane)) is not None:
                order = cold[0] + lane.handicap
                if order < earliest or (order == earliest and self._is_behind(best, cold[1])):
                    earliest, best = order, cold[1].id
        return (earliest, best) if best else None

    def _peek_heap(self, heap: list[tuple[float, int, _Lane]]) -> tuple[float, str] | None:
        while heap:
            bound, number, lane = heap[0]
            cold = self._first_cold(lane)
            if not lane.turns and cold is None:
                heapq.heappop(heap)
                lane.is_listed = False
                if len(self._lanes) > _SPARE_LANES:
                    del self._lanes[lane.key]
                continue
            since, first = next(iter(lane.turns.values()))[:2] if lane.turns else (math.inf, "")
            if cold is not None and (cold[0] < since or (cold[0] == since and self._is_behind(first, cold[1]))):
                since, first = cold[0], cold[1].id
            order = since + lane.handicap
            if order <= bound:
                return order, first
            heapq.heapreplace(heap, (order, number, lane))
        return None

    def take(self, procedure: str, now: float) -> bool:
        """Take out the procedure that `peek` named, as its tree has had its turn; False when it is not queued here."""
        place = self.live.pop(procedure, None)
        if place is None:
            record = self.cold.get(procedure)
            if record is None:
                return False
            self.waited = max(0.0, now - record.updated_at)  # it may have waited since before the start
            self._discard_cold(procedure)
            return True
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
        clock, waits = self.clock(now), [0.0]
        for lane in self._lanes.values():
            if lane.turns:
                waits.append(clock - next(iter(lane.turns.values()))[0])
            if lane.cold and (cold := self._first_cold(lane)) is not None:
                waits.append(now - cold[1].updated_at)
        return max(waits)

    def classes(self) -> list[str]:
        """Classes of work of which something may be queued."""
        return [name for name, heap in self._heaps.items() if any(lane.turns or lane.open for _, _, lane in heap)]

    def members(self) -> set[str]:
        """All queued procedures."""
        return {*self.live, *self.cold}

    def names(self) -> list[str]:
        """Queued procedures that are resident, in the order they came."""
        return list(self.live)

    # ------------------------------------------------------------------ cold procedures
    def fill(self, records: Iterable[ProcedureRecord], now: float) -> None:
        """Queue these, given in submit order, and leave them cold."""
        since = self.clock(now)
        lanes: dict[tuple[str, int, bool], list[ProcedureRecord]] = {}
        for record in records:
            lanes.setdefault((DEFAULT_CLASS, record.priority, is_new_root(record)), []).append(record)
        for key, members in lanes.items():
            lane = self._lanes.get(key)
            if lane is None or not lane.is_listed:
                lane = self._list(key, now)
            before = len(self.cold)
            self.cold.update((record.id, record) for record in members)
            lane.open += len(self.cold) - before
            lane.held += len(members)
            members.reverse()
            lane.cold.append((since, members))

    def _first_cold(self, lane: _Lane) -> tuple[float, ProcedureRecord] | None:
        groups, cold = lane.cold, self.cold
        while groups:
            since, records = groups[0]
            while records:
                record = records[-1]
                if cold.get(record.id) is record:  # else it has left; the id may have come again since, elsewhere
                    return since, record
                records.pop()
                lane.held -= 1
            groups.popleft()
        return None

    def _is_behind(self, procedure: str, record: ProcedureRecord) -> bool:
        """True if a procedure that has waited as long comes after this cold one: its tree was submitted later."""
        other = self.cold.get(procedure)
        return (self._place_of(procedure) if other is None else other.seq) > record.seq

    def _discard_cold(self, procedure: str) -> None:
        record = self.cold.pop(procedure)
        lane = self._lanes[DEFAULT_CLASS, record.priority, is_new_root(record)]
        lane.open -= 1
        if not lane.open or lane.held > 2 * lane.open + _MOST_GONE:
            groups = [(since, [one for one in group if self.cold.get(one.id) is one]) for since, group in lane.cold]
            lane.cold = deque(group for group in groups if group[1])
            lane.held = lane.open

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


def is_new_root(record: ProcedureRecord) -> bool:
    """True for a root that never began, which stands back behind begun work."""
    return record.parent is None and record.step == 1 and not record.attempt
