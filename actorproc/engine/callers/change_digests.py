"""Digests of changes: which procedures changed lately, each once, at most ten times a second.

A commit costs one entry of a dictionary for each head it stores; rows are made when a digest is due. Without such
watchers it costs nothing. It runs after the commit was acted on, and needs the manager's turn (`CombiningInbox`).
"""

from __future__ import annotations

import math

from msgspec.structs import replace

from actorproc.core.state.phases import is_interrupted, is_waiting_for_locks, phase_of
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.runtime.subscription import MOST_ROWS, SHORTEST_DIGEST, DigestSubscription
from actorproc.model.ids import StepToken
from actorproc.model.messages.commands import RunStep
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import DeleteProcedure, PutProcedure
from actorproc.model.states import Phase, ProcedureState
from actorproc.report.changes import DigestRow
from actorproc.support.clock import Clock

__all__ = ["ChangeDigests"]


class ChangeDigests:
    """Gathers what changed and releases it to the watchers of digests."""

    def __init__(self, *, clock: Clock, in_flight: InFlightTable) -> None:
        self._clock = clock
        self._in_flight = in_flight
        self._subscriptions: list[DigestSubscription] = []
        self._heads: dict[str, ProcedureRecord | None] = {}
        """Newest stored heads of what changed; None: it was removed."""
        self._beats: dict[str, tuple[RunStep, float | None]] = {}
        """Steps that told their progress."""
        self._omitted = 0
        self._next_at = -math.inf
        """Monotonic time before which nothing more is made into rows."""
        self.is_watched = False
        """There are watchers; a plain attribute, as each commit asks for it."""
        self.due_at: float | None = None
        """Monotonic time when `look` is to be called; None: nothing waits."""

    @property
    def watchers(self) -> int:
        """Open watches of digests."""
        return len(self._subscriptions)

    def subscribe(self, subscription: DigestSubscription, *, is_known: bool) -> None:
        """Notify a watcher from now on. `is_known` False: it missed something before."""
        subscription.interval = max(SHORTEST_DIGEST, subscription.interval)
        self._subscriptions.append(subscription)
        self.is_watched = True
        if not is_known:
            subscription.gather(self._clock.wall(), (), (), None)
            subscription.release()

    def unsubscribe(self, subscription: DigestSubscription) -> None:
        """Notify this watcher of nothing more."""
        if subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
        if not self._subscriptions:
            self.is_watched = False
            self._forget()
            self.due_at = None

    def committed(self, batch: CommitBatch) -> None:
        """Note the heads of a batch that is durable; only called while there are watchers."""
        heads = self._heads
        for write in batch.writes:
            if type(write) is PutProcedure:
                heads[write.record.id] = write.record
            elif type(write) is DeleteProcedure:
                heads[write.record.id] = None
        self._noted()

    def heartbeat(self, token: StepToken, command: RunStep, progress: float | None) -> None:
        """Note the progress of a running step."""
        self._beats[token.procedure] = command, progress
        self._noted()

    def _noted(self) -> None:
        waiting = len(self._heads) + len(self._beats)
        if waiting > MOST_ROWS:
            self._omitted += waiting
            self._heads.clear()
            self._beats.clear()
        if not waiting:
            return
        now = self._clock.monotonic()
        if now >= self._next_at:
            self.look(now)
        elif self.due_at is None or self.due_at > self._next_at:
            self.due_at = self._next_at

    def look(self, now: float) -> None:
        """Make rows of what was noted when they are due, and release them to each watcher whose time has come."""
        if now >= self._next_at and (self._heads or self._beats or self._omitted):
            self._next_at = now + SHORTEST_DIGEST
            at = self._clock.wall()
            rows, removed, omitted = self._rows()
            for subscription in self._subscriptions:
                subscription.gather(at, rows, removed, omitted)
        due = math.inf if not (self._heads or self._beats or self._omitted) else self._next_at
        for subscription in self._subscriptions:
            if not subscription.has_gathered:
                continue
            if now >= subscription.next_at:
                subscription.next_at = now + subscription.interval
                subscription.release()
            else:
                due = min(due, subscription.next_at)
        self.due_at = None if due == math.inf else due

    def _rows(self) -> tuple[list[DigestRow], list[str], int]:
        if self._omitted:
            omitted = self._omitted + len(self._heads) + len(self._beats)
            self._forget()
            return [], [], omitted
        running = {
            (token.procedure, token.step, token.attempt)
            for entry in self._in_flight.entries.values()
            for token in entry.held
        }
        rows = {
            record.id: self._row(record, running=(record.id, record.step, record.attempt) in running)
            for record in self._heads.values()
            if record is not None
        }
        removed = [id for id, record in self._heads.items() if record is None]
        for id, (command, progress) in self._beats.items():
            token = command.token
            seen = rows.get(id)
            if id in self._heads and (seen is None or (seen.step, seen.attempt) != (token.step, token.attempt)):
                continue  # it has gone on since
            rows[id] = replace(seen, progress=progress) if seen is not None else _beat(command, progress)
        self._forget()
        return list(rows.values()), removed, 0

    @staticmethod
    def _row(record: ProcedureRecord, *, running: bool) -> DigestRow:
        phase = phase_of(
            record,
            running=running and is_interrupted(record),
            waits_for_locks=is_waiting_for_locks(record),
        )
        return DigestRow(
            id=record.id,
            root=record.root,
            state=record.state,
            phase=phase,
            step=record.step,
            attempt=record.attempt,
            step_name=record.current_name,
        )

    def _forget(self) -> None:
        self._heads.clear()
        self._beats.clear()
        self._omitted = 0


def _beat(command: RunStep, progress: float | None) -> DigestRow:
    token = command.token
    return DigestRow(
        id=token.procedure,
        root=command.root,
        state=ProcedureState.RUNNABLE,
        phase=Phase.ROLLING_BACK if command.unit is not None else Phase.RUNNING,
        step=token.step,
        attempt=token.attempt,
        step_name=command.step_name,
        progress=progress,
    )
