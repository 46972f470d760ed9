"""Cold run queue: procedures that need nothing but a worker, left as they were read or submitted until their turn.

After a restart, or a `submit_many`, there may be hundreds of thousands of them. To make them resident and queue them
takes as long as reading or storing them, and the first step would wait for the last of them. So those that nothing
stands beside stay here, in the order in which they would stand in the queue, until it is their turn or they are
named.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable

from actorproc.model.rows.records import ProcedureRecord

__all__ = ["ColdQueue", "is_new_root"]

_AHEAD = 0.001
"""Seconds by which procedures that go before the others count as come earlier. They decide within one moment."""
_MOST_GONE = 64
"""So many more may have left than wait in a lane before they are forgotten."""


class _ColdLane:
    """Heads of one lane of the queue, in groups that came together."""

    __slots__ = ("groups", "held", "number", "open")

    def __init__(self, number: int) -> None:
        self.number = number
        self.groups: deque[tuple[float, list[ProcedureRecord]]] = deque()
        """Since when they wait, and their heads. The first group goes first, and of a group the last."""
        self.open = 0
        """Number of procedures that wait."""
        self.held = 0
        """Number of procedures in the groups; with those that have left."""


class ColdQueue(dict[str, ProcedureRecord]):
    """Heads by procedure. One of the rooms beside the ready queue: who is here is queued, and is not in that queue.

    The heads are as they were stored. A procedure that is named is made resident, by a copy, and keeps its
    place. All are of the default class of work. ``ageing`` is that of the ready queue.
    """

    def __init__(self, ageing: float) -> None:
        super().__init__()
        self._ageing = ageing
        self._lanes: dict[int, _ColdLane] = {}
        self._heap: list[tuple[float, int, int]] = []
        """One for each lane: its number, behind a lower bound of the virtual deadline and the seq of its first one."""
        self._first: tuple[float, ProcedureRecord] | None = None

    def fill(self, records: Iterable[ProcedureRecord], since: float) -> None:
        """Take these in, given in submit order: they wait since that time by the queue's clock."""
        lanes: dict[int, list[ProcedureRecord]] = {}
        for record in records:
            lanes.setdefault(_lane(record), []).append(record)
        for number, members in lanes.items():
            self._join(number, members, since)

    def _join(self, number: int, records: list[ProcedureRecord], since: float) -> None:
        before = len(self)
        self.update((record.id, record) for record in records)
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = _ColdLane(number)
            heapq.heappush(self._heap, (self._order(since, number), records[0].seq, number))
            self._first = None
        elif not lane.open:
            self._first = None
        lane.open += len(self) - before
        lane.held += len(records)
        records.reverse()
        lane.groups.append((since, records))

    def first(self) -> tuple[float, ProcedureRecord]:
        """The next one in turn: its virtual deadline, and its head. Not when there are none."""
        while self._first is None:
            order, seq, number = self._heap[0]
            head = self._head(self._lanes[number])
            if head is None:
                heapq.heappop(self._heap)
                del self._lanes[number]
                continue
            since, record = head
            place = (self._order(since, number), record.seq)
            if place > (order, seq):
                heapq.heapreplace(self._heap, (*place, number))
            else:
                self._first = (place[0], record)
        return self._first

    def discard(self, procedure: str) -> None:
        """It does not wait any more, or waits elsewhere."""
        record = self.pop(procedure, None)
        if record is None:
            return
        if self._first is not None and self._first[1] is record:
            self._first = None
        lane = self._lanes[_lane(record)]
        lane.open -= 1
        if not lane.open or lane.held > 2 * lane.open + _MOST_GONE:
            self._tidy(lane)

    def ahead_of(self, record: ProcedureRecord) -> float | None:
        """Time since which a procedure must wait to go before all those of its lane; None when the lane is empty."""
        lane = self._lanes.get(_lane(record))
        head = None if lane is None else self._head(lane)
        return None if head is None else head[0] - _AHEAD

    def _head(self, lane: _ColdLane) -> tuple[float, ProcedureRecord] | None:
        groups = lane.groups
        while groups:
            since, records = groups[0]
            while records:
                record = records[-1]
                if self.get(record.id) is record:  # else it has left; the id may have come again since, elsewhere
                    return since, record
                records.pop()
                lane.held -= 1
            groups.popleft()
        return None

    def _tidy(self, lane: _ColdLane) -> None:
        """Forget those of a lane that have left."""
        groups = [(since, [one for one in records if self.get(one.id) is one]) for since, records in lane.groups]
        lane.groups = deque(group for group in groups if group[1])
        lane.held = lane.open

    def _order(self, since: float, number: int) -> float:
        """As `RunQueue.order_of`."""
        return since + number / 2 * self._ageing


def is_new_root(record: ProcedureRecord) -> bool:
    """True for a root that never began, which stands back behind begun work."""
    return record.parent is None and record.step == 1 and not record.attempt


def _lane(record: ProcedureRecord) -> int:
    """A number for each lane of a class of work; the smallest goes first among those who came at once.

    The order of `RunQueue`, where a new root stands back by half a level of priority.
    """
    return is_new_root(record) - 2 * record.priority
