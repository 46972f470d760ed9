"""Ends that came a moment ago, for callers who ask for them next.

A caller that submits many procedures and then asks each handle for its result finds most ended. To read an end back
from the store takes the caller some 15 us, and the interpreter lock from the manager several times.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable

from actorproc.engine.messages import Ending
from actorproc.model.rows.writes import DeleteProcedure, PutRemoval, Write
from actorproc.model.states import ProcedureState

__all__ = ["ResultCache"]

_MOST = 2_048
_LONGEST = 1_024
"""Bytes of an output that is kept here."""
_SUCCESS = ProcedureState.SUCCESS


class ResultCache:
    """The newest ends of roots that succeeded, which nothing changes any more but their removal; a bounded number.

    Only what is durable comes here. `get` is for any thread, the rest for the manager's.
    """

    def __init__(self, most: int = _MOST) -> None:
        self._most = most
        # A plain dict finds its first key behind those of all that have left: half a microsecond.
        self._ends: OrderedDict[str, Ending] = OrderedDict()
        self._removed: set[str] = set()
        """By the last commit."""

    def get(self, id: str) -> Ending | None:
        """End of this procedure, if it is known here."""
        return self._ends.get(id)

    def note(self, ending: Ending) -> None:
        """This end is durable."""
        record, ends = ending.record, self._ends
        if record.parent is not None or record.state is not _SUCCESS or record.id in self._removed:
            return
        if len(ending.output) <= _LONGEST:
            ends[record.id] = ending
            if len(ends) > self._most:
                ends.popitem(last=False)

    def forget_removed(self, writes: Iterable[Write]) -> None:
        """These writes are durable: what they remove is unknown from now on, and another one may get its id.

        To be called before those are noted that ended in the same commit: it may have removed them as well.
        """
        self._removed.clear()
        for write in writes:
            if type(write) is DeleteProcedure:
                self._removed.add(write.record.id)
            elif type(write) is PutRemoval:
                self._removed.add(write.record.root)
        for id in self._removed:
            self._ends.pop(id, None)

    def forget(self) -> None:
        """The store was opened again, and says what there is."""
        self._ends.clear()
