"""What callers ask of the manager besides verbs: to be told of an end, and how things are."""

from __future__ import annotations

import copy

from actorproc.actors.clock import Clock
from actorproc.actors.ledger import Ledger
from actorproc.actors.messages import Described, Ending, FindDangling, ManagerStatus, Watch
from actorproc.actors.replies import Waiters, fail_future, settle_future
from actorproc.actors.ring import Ring
from actorproc.core.lock_report import dangling
from actorproc.errors import EngineError, StoreDamaged, UnknownProcedure
from actorproc.info import ProcedureInfo, info_of
from actorproc.model.records import ProcedureRecord
from actorproc.model.states import TERMINAL, Phase
from actorproc.store.base import ProcedureStore

__all__ = ["CallerDesk", "children_by_state"]


class CallerDesk:
    """Answers from the store and from the live core. Used by the manager's thread only."""

    def __init__(self, *, store: ProcedureStore, ring: Ring, ledger: Ledger, waiters: Waiters, clock: Clock) -> None:
        self._store = store
        self._ring = ring
        self._ledger = ledger
        self._waiters = waiters
        self._clock = clock

    def watch(self, message: Watch) -> None:
        """Tell the procedure's end now, or when it comes."""
        try:
            self._watch(message)
        except StoreDamaged as error:
            fail_future(message.future, error)

    def _watch(self, message: Watch) -> None:
        # The store is asked, not the core: an end that is decided but not committed has not happened yet.
        record = self._store.procedure(message.id)
        if record is not None and record.state in TERMINAL:
            settle_future(message.future, Ending(record, self._store.step(record.id, record.records)))
        elif record is not None or self._ring.core.view(message.id) is not None:
            self._waiters.add(message.id, message.future)
        else:
            fail_future(message.future, UnknownProcedure(f"no procedure has the id {message.id!r}"))

    def describe(self, record: ProcedureRecord) -> Described:
        """A stored head as it is now."""
        if record.state in TERMINAL and not record.undoing:
            return Described(record, Phase.DONE, None, None)
        live = self._ring.core.view(record.id)
        # A live head that is terminal is decided but not durable: what is stored is still the truth.
        if live is not None and live.state not in TERMINAL:
            record = copy.copy(live)
        phase, reason = self._ring.core.phase(record)
        progress = self._ledger.progress(record.id) if phase in {Phase.RUNNING, Phase.ROLLING_BACK} else None
        return Described(record, phase, reason, progress)

    def find_dangling(self, message: FindDangling) -> None:
        """Compare the stored locks with memory, which is ahead of the store by what is not committed yet."""
        ring = self._ring
        try:
            stored = ring.locks_once_committed(self._store.locks())
            found = dangling(stored, ring.core.lock_holders(), self._head)
        except EngineError as error:
            fail_future(message.future, error)
        else:
            settle_future(message.future, found)

    def _head(self, id: str) -> ProcedureRecord | None:  # noqa: A002 - a procedure id
        return self._ring.core.view(id) or self._store.procedure(id)

    def info(self, record: ProcedureRecord) -> ProcedureInfo:
        """The public view of a stored head, for a step that asks."""
        seen = self.describe(record)
        return info_of(seen.record, seen.phase, seen.reason, children_by_state(self._store, seen.record), seen.progress)

    def status(self, trouble: BaseException | None, since: float) -> ManagerStatus:
        """The manager's own report; `trouble` is why the store refuses writes, since that monotonic time."""
        now = self._clock.monotonic()
        return ManagerStatus(
            workers=self._ledger.status(now),
            storage_error=str(trouble) if trouble is not None else None,
            storage_down_for=now - since if trouble is not None else None,
            commits=self._ring.commits,
            last_commit=self._ring.last_commit,
            slowest_commit=self._ring.slowest_commit,
            stale_results=self._ring.core.stale_results,
            damaged=self._ring.core.damaged,
            dispatching=self._ring.dispatching,
        )


def children_by_state(store: ProcedureStore, record: ProcedureRecord) -> dict[str, int]:
    """How many children of a procedure are in which state; those whose heads cannot be read count as "damaged"."""
    counts: dict[str, int] = {}
    if record.children:
        for link in store.children(record.id):
            try:
                child = store.procedure(link.child)
            except StoreDamaged:
                counts["damaged"] = counts.get("damaged", 0) + 1
                continue
            if child is not None:
                counts[str(child.state)] = counts.get(str(child.state), 0) + 1
    return counts
