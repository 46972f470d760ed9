"""What could run when the manager began and has not had its turn yet, left as it was read.

After a restart there may be hundreds of thousands that only wait for their next step. To make them resident and queue
them takes as long as reading them, and the first step would wait for the last of them. So those that nothing stands
beside stay here, in the order in which they would stand in the queue, until it is their turn or somebody names them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from actorproc.model.records import ProcedureRecord

__all__ = ["Backlog", "is_new_root"]

_AHEAD = 0.001
"""Seconds by which who goes before the backlog came earlier. They decide between those who came in the same moment."""


class Backlog(dict[str, ProcedureRecord]):
    """Heads by procedure. One of the rooms beside the ready queue: who is here is queued, and is not in that queue.

    A procedure that somebody names is made resident and keeps its place. All are of the default class of work.
    """

    def __init__(self) -> None:
        super().__init__()
        self.since = 0.0
        """The time by the queue's clock since when they wait."""
        self._order: list[ProcedureRecord] = []
        """The last goes first; with those that have left."""
        self._lanes: Counter[int] = Counter()
        """How many would be in which lane of the queue."""

    def fill(self, records: Iterable[ProcedureRecord], since: float) -> None:
        """Take these in, given in submit order; once, at the start."""
        self.since = since
        # Stable: those of a lane stay in submit order, as if all had come to the queue at once.
        order = self._order = sorted(records, key=_lane)
        self.update((record.id, record) for record in order)
        self._lanes.update(map(_lane, order))
        order.reverse()

    def first(self) -> ProcedureRecord:
        """Whose turn it is among these. Not when there are none."""
        order = self._order
        while order[-1].id not in self:
            order.pop()
        return order[-1]

    def discard(self, procedure: str) -> None:
        """It does not wait any more, or waits elsewhere."""
        record = self.pop(procedure, None)
        if record is not None:
            self._lanes[_lane(record)] -= 1
            if not self:
                self._order.clear()

    @property
    def ahead(self) -> float:
        """Since when somebody waits who goes before all these."""
        return self.since - _AHEAD

    def ahead_of(self, record: ProcedureRecord) -> float | None:
        """The same for one that goes before those of its lane; None when there are none."""
        return self.ahead if self._lanes[_lane(record)] else None


def is_new_root(record: ProcedureRecord) -> bool:
    """Whether it is a root that never began, which stands back behind begun work."""
    return record.parent is None and record.step == 1 and not record.attempt


def _lane(record: ProcedureRecord) -> int:
    """A number for each lane of a class of work; the smallest goes first among those who came at once.

    The order of `ReadyQueue`, where a new root stands back by half a level of priority.
    """
    return is_new_root(record) - 2 * record.priority
