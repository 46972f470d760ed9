"""A store whose procedures are described by what it says of them: for readers, where no engine can be asked."""

from __future__ import annotations

from actorproc.core.locks.modes import needs_of
from actorproc.core.locks.request import LockWaiter
from actorproc.core.state.phases import is_waiting_for_locks, seen_in_store
from actorproc.engine.messages import Described
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import ProcedureState
from actorproc.store.base import RecordStore

__all__ = ["StoredSource"]


class StoredSource:
    """A `Source`. `is_owned`: a manager has the store open."""

    def __init__(self, store: RecordStore, *, is_owned: bool) -> None:
        self.store = store
        self._is_owned = is_owned

    def describe(self, records: tuple[ProcedureRecord, ...]) -> tuple[Described, ...]:
        """These heads with what they say that they are doing."""
        return tuple(self._described(record) for record in records)

    def _described(self, record: ProcedureRecord) -> Described:
        phase, reason = seen_in_store(record, is_owned=self._is_owned)
        return Described(record, phase, reason, None)

    def lock_waiters(self) -> list[LockWaiter]:
        """Procedures that wait for locks, in the order of the queue."""
        waiting = [
            head
            for head in self.store.scan(state=ProcedureState.RUNNABLE, skip_damaged=True)
            if is_waiting_for_locks(head)
        ]
        return [
            LockWaiter(head.id, head.locks, needs_of(head.locks), self._lineage(head), head.ticket, ahead=False)
            for head in sorted(waiting, key=lambda head: head.ticket)
        ]

    def _lineage(self, head: ProcedureRecord) -> frozenset[str]:
        names = [head.id]
        while head.parent is not None:
            names.append(head.parent)
            parent = self.store.procedure(head.parent)
            if parent is None:
                break
            head = parent
        return frozenset(names)
