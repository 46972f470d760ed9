"""The newest commits, as far as they are asked for next: first states of new procedures, and ends.

To read a state back costs the manager about as much as to decide about its step: LMDB's binding gives the interpreter
lock away twice for a row, and busy threads give it back late. A caller that submits many procedures and then asks each
handle for its result finds most ended. To read an end back takes some 15 µs, and the interpreter lock from the
manager.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from actorproc.engine.messages import Ending
from actorproc.model.rows.records import StepRecord
from actorproc.model.rows.writes import DeleteProcedure, PutRemoval, PutStep, Write
from actorproc.model.states import ProcedureState

__all__ = ["CommitCache"]

_MOST_STATES = 16_384
_MOST_BYTES = 4 * 1024 * 1024
_LONG = 10.0
"""Seconds after which a procedure that has not begun gives its place to a new one: it waits for something else."""
_MOST_ENDS = 2_048
_LONGEST = 1_024
"""Bytes of an output that is kept here."""
_SUCCESS = ProcedureState.SUCCESS


class CommitCache:
    """First records until their steps are handed out, and ends of roots that succeeded; a bounded number of each.

    Only what is durable comes here, and only what nothing changes but a removal or another first record.
    Records that are not here are read
    from the store. `end` is for any thread, the rest for the manager's.
    """

    def __init__(self, *, most: int = _MOST_STATES, most_bytes: int = _MOST_BYTES, most_ends: int = _MOST_ENDS) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        # Two, as pairs would be looked through by the cycle collector, and make it look through all that is young.
        self._states: dict[str, StepRecord] = {}
        self._since: dict[str, float] = {}
        self._most_ends = most_ends
        # A plain dict finds its first key behind those of all that have left: half a microsecond.
        self._ends: OrderedDict[str, Ending] = OrderedDict()
        self._removed: set[str] = set()
        """By the last commit."""

    def committed(self, writes: Iterable[Write], now: float) -> None:
        """These writes are durable: keep their first states, and forget what they remove, whose id may come again.

        To be called before the ends of the same commit are noted: it may have removed them as well. `now` is the time
        of a clock that never goes back.
        """
        self._removed.clear()
        has_room = True
        for write in writes:
            if type(write) is PutStep:
                if write.record.number == 1:
                    if write.record.procedure in self._states:  # of a debounced submit, whose place another one took
                        self._drop(write.record.procedure)
                    if has_room and write.record.state:
                        has_room = self._keep(write.record, now)
            elif type(write) is DeleteProcedure:
                self._drop(write.record.id)
                self._removed.add(write.record.id)
                has_room = True
            elif type(write) is PutRemoval:
                self._removed.add(write.record.root)
        for id in self._removed:
            self._ends.pop(id, None)

    def forget(self) -> None:
        """The store was opened again, and says what there is."""
        self._states.clear()
        self._since.clear()
        self._bytes = 0
        self._ends.clear()

    # ------------------------------------------------------------ ends
    def end(self, id: str) -> Ending | None:
        """End of this procedure, if it is known here."""
        return self._ends.get(id)

    def note_end(self, ending: Ending) -> None:
        """This end is durable."""
        record, ends = ending.record, self._ends
        if record.parent is not None or record.state is not _SUCCESS or record.id in self._removed:
            return
        if len(ending.output) <= _LONGEST:
            ends[record.id] = ending
            if len(ends) > self._most_ends:
                ends.popitem(last=False)

    # ------------------------------------------------------------ first states
    def take_state(self, procedure: str, number: int) -> StepRecord | None:
        """The record, if it is here; it is given away once."""
        return self._drop(procedure) if number == 1 else None

    def has_state(self, procedure: str, number: int) -> bool:
        """The record is here."""
        return number == 1 and procedure in self._states

    def _keep(self, record: StepRecord, now: float) -> bool:
        """Keep it, if there is room; False when there is none for any other either."""
        size = len(record.state)
        kept = self._states
        while kept and (len(kept) >= self._most or self._bytes + size > self._most_bytes):
            oldest = next(iter(kept))
            if now - self._since[oldest] < _LONG:
                return len(kept) < self._most  # those before it will be needed before it
            self._drop(oldest)
        if size <= self._most_bytes:
            kept[record.procedure] = record
            self._since[record.procedure] = now
            self._bytes += size
        return True

    def _drop(self, procedure: str) -> StepRecord | None:
        found = self._states.pop(procedure, None)
        if found is None:
            return None
        del self._since[procedure]
        self._bytes -= len(found.state)
        return found
