"""What needs nothing but a worker and has not had its turn yet, left as it was read or submitted.

After a restart, or a `submit_many`, there may be hundreds of thousands of them. To make them resident and queue them
takes as long as reading or storing them, and the first step would wait for the last of them. So those that nothing
stands beside stay here, in the order in which they would stand in the queue, until it is their turn or somebody
names them.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterable, Sequence

from actorproc.model.records import ProcedureRecord

__all__ = ["Backlog", "is_new_root"]

_AHEAD = 0.001
"""Seconds by which who goes before others of the backlog came earlier. They decide between those of one moment."""


class _Lane:
    """Those of one lane of the queue: groups that came together, since when they wait, and their names."""

    __slots__ = ("groups", "number", "open")

    def __init__(self, number: int) -> None:
        self.number = number
        self.groups: deque[tuple[float, list[str]]] = deque()
        """The first goes first; of a group the last, and with those that have left."""
        self.open = 0
        """How many have not left."""


_Place = tuple[float, int, _Lane]
"""Virtual deadline and number in submit order of who is the first of a lane, or was when it was looked at."""


class Backlog(dict[str, ProcedureRecord]):
    """Heads by procedure. One of the rooms beside the ready queue: who is here is queued, and is not in that queue.

    The heads are as they were stored. A procedure that somebody names is made resident, by a copy, and keeps its
    place. All are of the default class of work. ``ageing`` is that of the ready queue.
    """

    def __init__(self, ageing: float) -> None:
        super().__init__()
        self._ageing = ageing
        self._lanes: dict[int, _Lane] = {}
        self._heap: list[_Place] = []
        self._first: tuple[float, ProcedureRecord] | None = None

    def fill(self, records: Iterable[ProcedureRecord], since: float) -> None:
        """Take these in, given in submit order: they wait since that time by the queue's clock."""
        lanes: dict[int, list[ProcedureRecord]] = {}
        for record in records:
            lanes.setdefault(_lane(record), []).append(record)
        for number, members in lanes.items():
            self._join(number, members, since)

    def add_new(self, records: Sequence[ProcedureRecord], priority: int, since: float) -> None:
        """As `fill`, for new roots of this priority."""
        self._join(_NEW - 2 * priority, records, since)

    def _join(self, number: int, records: Sequence[ProcedureRecord], since: float) -> None:
        names = [record.id for record in records]
        self.update(zip(names, records, strict=True))
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = _Lane(number)
            heapq.heappush(self._heap, (self._order(since, number), records[0].seq, lane))
            self._first = None
        names.reverse()
        lane.groups.append((since, names))
        lane.open += len(names)

    def first(self) -> tuple[float, ProcedureRecord]:
        """Whose turn it is: its virtual deadline, and its head. Not when there are none."""
        while self._first is None:
            order, seq, lane = self._heap[0]
            head = self._head(lane)
            if head is None:
                heapq.heappop(self._heap)
                continue
            since, record = head
            place = (self._order(since, lane.number), record.seq)
            if place > (order, seq):
                heapq.heapreplace(self._heap, (*place, lane))
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
        if not lane.open:
            lane.groups.clear()
            del self._lanes[lane.number]

    def ahead_of(self, record: ProcedureRecord) -> float | None:
        """Since when somebody waits who goes before all those of its lane; None when there are none."""
        lane = self._lanes.get(_lane(record))
        head = None if lane is None else self._head(lane)
        return None if head is None else head[0] - _AHEAD

    def _head(self, lane: _Lane) -> tuple[float, ProcedureRecord] | None:
        groups = lane.groups
        while groups:
            since, names = groups[0]
            while names:
                record = self.get(names[-1])
                if record is not None:
                    return since, record
                names.pop()
            groups.popleft()
        return None

    def _order(self, since: float, number: int) -> float:
        """As `ReadyQueue.order_of`."""
        return since + number / 2 * self._ageing


def is_new_root(record: ProcedureRecord) -> bool:
    """Whether it is a root that never began, which stands back behind begun work."""
    return record.parent is None and record.step == 1 and not record.attempt


_NEW = 1
"""A new root stands back by half a level of priority."""


def _lane(record: ProcedureRecord) -> int:
    """A number for each lane of a class of work; the smallest goes first among those who came at once.

    The order of `ReadyQueue`, where a new root stands back by half a level of priority.
    """
    return _NEW * is_new_root(record) - 2 * record.priority
