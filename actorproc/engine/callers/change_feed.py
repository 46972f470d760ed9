"""Change feed for watchers, logs and hooks: what a commit changed, as the differences between the heads it stored.

A batch holds one head per decision, in order, so every transition is there exactly once, also those that follow each
other inside one commit. Nothing is kept about a procedure that is not watched, and without watchers a commit
costs one comparison here. It runs after the commit was acted on, and needs the manager's turn (`CombiningInbox`).
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator
from itertools import chain, islice

import msgspec

from actorproc.core.state.phases import is_interrupted, is_waiting_for_locks, phase_of, reason_of
from actorproc.engine.callers.change_digests import ChangeDigests
from actorproc.engine.callers.event_hooks import EventHooks
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.runtime.subscription import EPOCH_BITS, DigestSubscription, Subscription
from actorproc.model.ids import StepToken
from actorproc.model.messages.commands import RunStep
from actorproc.model.rows.cold_trees import COLD_STATES
from actorproc.model.rows.records import ErrorInfo, PoisonRecord, ProcedureRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import DeleteProcedure, PutPoison, PutProcedure, PutStep
from actorproc.model.states import TERMINAL, Phase, ProcedureState
from actorproc.report.changes import Change, ChangeKind, EventKind, ProcedureEvent
from actorproc.report.info import as_text
from actorproc.store.base import ProcedureStore
from actorproc.support.clock import Clock

__all__ = ["ChangeFeed"]

_HISTORY = 4096
"""Changes kept for those who come back with ``since``."""
_LINGER = 60.0
"""Seconds for which changes are still noted after the last watcher left, so that it may come back."""
_RETURN = 10.0
"""Seconds for which changes are noted after a restart, for watchers in other processes that come back."""

_PHASE_EVENTS: dict[Phase, EventKind] = {
    Phase.SUSPENDED: "suspended",
    Phase.WAITING: "waiting",
    Phase.SLEEPING: "sleeping",
    Phase.LOCKED_OUT: "locked-out",
    Phase.RETRYING: "retrying",
    Phase.STUCK: "stuck",
    Phase.ROLLING_BACK: "rolling-back",
}
_END_EVENTS: dict[ProcedureState, EventKind] = {
    ProcedureState.SUCCESS: "succeeded",
    ProcedureState.FAILED: "failed",
    ProcedureState.ROLLEDBACK: "rolled-back",
}
_STEADY = {ProcedureState.WAITING, ProcedureState.WAITING_TIMEOUT, *TERMINAL}
"""States in which a head can be stored again while nothing happened to the procedure itself."""


class _SeenHead(msgspec.Struct, gc=False):
    """Last state of a procedure that was told."""

    state: ProcedureState
    phase: Phase
    place: tuple[int, int, int, int]
    """Run, step, attempt, undo steps."""
    faults: int
    """Errors and crashes of the present step."""


class ChangeFeed:
    """Finds out what changed and tells those who asked."""

    def __init__(
        self, *, epoch: int, clock: Clock, in_flight: InFlightTable, events: EventHooks, last_batch: int | None = None
    ) -> None:
        """`last_batch` is the number of the last commit of the life before; None: no watcher of it can come back."""
        self._clock = clock
        self._in_flight = in_flight
        self._events = events
        self._seq = epoch << EPOCH_BITS
        self._subscriptions: list[Subscription] = []
        self._history: deque[Change] = deque(maxlen=_HISTORY)
        self._known_since = self._seq
        """Every change after this number is in the history, or was in it."""
        self._first, self._epoch = self._seq, epoch
        self._batch = 0
        """Number of the last commit."""
        self._last_batch = last_batch
        self._noting = epoch > 1 and last_batch is not None
        self._noted_until: float | None = clock.monotonic() + _RETURN if self._noting else None
        """Time until which changes are noted; monotonic. None: there are watchers, or changes are not noted."""
        self._awaits_first = self._noting
        """Changes are noted for watchers of the life before, and none has come yet."""
        self._seen: dict[str, _SeenHead] = {}
        self.digests = ChangeDigests(clock=clock, in_flight=in_flight)

    @property
    def watchers(self) -> int:
        """Open watches."""
        return len(self._subscriptions) + self.digests.watchers

    @property
    def events_lost(self) -> int:
        """Lifecycle events dropped because logs or hooks were too slow."""
        return self._events.lost

    # ------------------------------------------------------------ who watches
    def subscribe(
        self, subscription: Subscription, since: int | None, present: ProcedureRecord | None, parked: str | None
    ) -> None:
        """Tell a watcher what comes from now on; first what came after `since`, or how its procedure is now.

        `present` is the stored head of the procedure it watches, `parked` says why that one cannot run. Called between
        two commits, so that nothing is missed and nothing comes twice.
        """
        if isinstance(subscription, DigestSubscription):
            self.digests.subscribe(subscription, is_known=since is None)
            return
        if not self._noting:
            self._noting = True
            self._history.clear()
            # Nothing had numbers meanwhile: a watcher that knows an earlier one has missed something.
            self._seq += 1
            self._known_since = self._seq
        self._noted_until, self._awaits_first = None, False
        if since is not None and (self._knows(since) or self._goes_on(since, subscription.batch)):
            for change in self._history:
                if change.seq > since and subscription.wants(change):
                    subscription.offer(change)
        else:
            if since is not None:
                subscription.mark_gap(self._seq)
            if present is not None:
                subscription.offer(self._present(present, parked))
        if present is not None and present.state in TERMINAL:
            subscription.end()
            self._noted_until = self._clock.monotonic() + _LINGER if not self._subscriptions else None
        else:
            self._subscriptions.append(subscription)
            subscription.mark(self._seq, self._batch)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Tell this watcher nothing more."""
        if isinstance(subscription, DigestSubscription):
            self.digests.unsubscribe(subscription)
        elif subscription in self._subscriptions:
            self._subscriptions.remove(subscription)
            if not self._subscriptions:
                self._noted_until = self._clock.monotonic() + _LINGER

    def _knows(self, since: int) -> bool:
        first = self._history[0].seq - 1 if len(self._history) == _HISTORY else self._known_since
        return first <= since <= self._seq

    def _goes_on(self, since: int, batch: int | None) -> bool:
        """A watcher was told of all commits of the life before, and every change since then is still known."""
        return (
            batch is not None
            and batch == self._last_batch
            and since >> EPOCH_BITS == self._epoch - 1
            and self._known_since == self._first
            and len(self._history) < _HISTORY
        )

    def _present(self, record: ProcedureRecord, parked: str | None) -> Change:
        in_hand = _InHand(None, self._in_flight)
        phase = phase_of(
            record,
            running=in_hand.has(record),
            waits_for_locks=is_waiting_for_locks(record),
            stands_still=parked is not None,
        )
        if record.state not in TERMINAL:
            self._seen[record.id] = _SeenHead(*self._look(record, phase))
        return self._change("present", record, phase, record.state, parked or reason_of(record, phase))

    # ------------------------------------------------------------ what happens
    def recovered(self, snapshot: RecoverySnapshot, store: ProcedureStore) -> None:
        """The roots an earlier life left unfinished; those that were not loaded are looked up for who wants to know.

        Of these no more than the sink could take anyway.
        """
        if self._events.level > logging.INFO:
            return
        for record in snapshot.procedures:
            if record.parent is None and record.state not in TERMINAL:
                self._emit("recovered", record, record.updated_at)
        if snapshot.cold.roots:
            loaded = {record.id for record in snapshot.procedures}
            for state in sorted(COLD_STATES):
                for record in islice(store.scan(state=state, skip_damaged=True), self._events.bound):
                    if record.parent is None and record.id not in loaded:
                        self._emit("recovered", record, record.updated_at)

    def heartbeat(self, token: StepToken, progress: float | None, message: str | None) -> None:
        """The running step told how far it is; not durable, told to those who asked for it."""
        is_wanted = any(subscription.progress for subscription in self._subscriptions)
        if not is_wanted and not self.digests.is_watched:
            return
        entry = self._in_flight.entries.get(token.worker)
        command = entry.queue.get(token) if entry is not None else None
        if command is None:
            return
        if self.digests.is_watched:
            self.digests.heartbeat(token, command, progress)
        if not is_wanted:
            return
        self._seq += 1
        self._tell(
            Change(
                kind="progress",
                seq=self._seq,
                at=self._clock.wall(),
                id=token.procedure,
                root=command.root,
                type_name=command.type_name,
                state=ProcedureState.RUNNABLE,
                phase=Phase.ROLLING_BACK if command.unit is not None else Phase.RUNNING,
                previous=ProcedureState.RUNNABLE,
                step=token.step,
                attempt=token.attempt,
                step_name=command.step_name,
                progress=progress,
                message=message,
            )
        )

    def parked(self, record: ProcedureRecord, reason: str) -> None:
        """A procedure has been parked for a while."""
        self._emit("parked", record, record.updated_at, reason)

    def committed(self, batch: CommitBatch) -> None:
        """A batch is durable and was acted on."""
        if self.digests.is_watched:
            self.digests.committed(batch)
        if self._noted_until is not None and (
            self._clock.monotonic() > self._noted_until
            or (self._awaits_first and len(self._history) == _HISTORY)  # it would be told a gap anyway
        ):
            self._noted_until, self._noting, self._awaits_first = None, False, False
            self._history.clear()
        level = self._events.level
        if self._noting or level <= logging.INFO:
            self._compare(batch, events=level <= logging.INFO)
        elif self._seen:
            self._seen.clear()
        if level > logging.INFO:
            self._tell_troubles(batch)
        if batch.number:
            self._batch = batch.number
            for subscription in self._subscriptions:
                subscription.mark(self._seq, self._batch)

    def _compare(self, batch: CommitBatch, *, events: bool) -> None:
        in_hand = _InHand(batch, self._in_flight)
        for write in batch.writes:
            if isinstance(write, PutProcedure):
                self._compare_head(write, in_hand, events=events)
            elif isinstance(write, PutPoison) and events:
                self._emit_poison(write.record, batch)
            elif isinstance(write, DeleteProcedure):
                self._seen.pop(write.record.id, None)

    def _compare_head(self, write: PutProcedure, in_hand: _InHand, *, events: bool) -> None:
        record = write.record
        phase = phase_of(record, running=in_hand.has(record), waits_for_locks=is_waiting_for_locks(record))
        state, _, place, faults = self._look(record, phase)
        before = self._seen.get(record.id)
        if before is not None:
            previous = before.state
            is_state = (before.state, before.phase) != (state, phase)
            is_step = before.place != place
        else:
            previous = write.was.state if write.was is not None else ProcedureState.INITIALIZING
            unchanged = previous is state and state in _STEADY and phase is not Phase.ROLLING_BACK
            is_state, is_step = not unchanged, False
        if events:
            for event in _events_of(write, before, phase, faults):
                self._emit(event, record, record.updated_at, reason_of(record, phase))
        if self._noting and (is_state or is_step):
            self._seq += 1
            change_kind: ChangeKind = "state" if is_state else "step"
            change = self._change(change_kind, record, phase, previous, reason_of(record, phase))
            self._history.append(change)
            self._tell(change)
        if phase is Phase.DONE:
            self._seen.pop(record.id, None)
        else:
            self._seen[record.id] = _SeenHead(state, phase, place, faults)

    @staticmethod
    def _look(record: ProcedureRecord, phase: Phase) -> tuple[ProcedureState, Phase, tuple[int, int, int, int], int]:
        place = (record.run, record.step, record.attempt, record.undone)
        return record.state, phase, place, record.errors + record.crashes

    def _tell_troubles(self, batch: CommitBatch) -> None:
        """Without comparing: only what logs tell by default, that is what may need an operator."""
        for write in batch.writes:
            if type(write) is PutStep:  # half of all writes
                continue
            if isinstance(write, PutProcedure):
                record, was = write.record, write.was
                if record.finished_at is not None:
                    end = _END_EVENTS.get(record.state)
                    if end is not None and end != "succeeded" and was is not None and was.state is not record.state:
                        self._emit(end, record, record.updated_at)
                elif record.stuck and record.stuck == record.step and record.errors and record.due_at is not None:
                    self._emit("stuck", record, record.updated_at)
            elif isinstance(write, PutPoison):
                self._emit_poison(write.record, batch)

    # ------------------------------------------------------------ notices
    def _change(
        self, kind: ChangeKind, record: ProcedureRecord, phase: Phase, previous: ProcedureState, reason: str | None
    ) -> Change:
        return Change(
            kind=kind,
            seq=self._seq,
            at=record.updated_at,
            id=record.id,
            root=record.root,
            type_name=record.type_name,
            state=record.state,
            phase=phase,
            previous=previous,
            step=record.step,
            attempt=record.attempt,
            step_name=record.current_name,
            error=as_text(record.error),
            reason=reason,
        )

    def _tell(self, change: Change) -> None:
        over = []
        for subscription in self._subscriptions:
            if subscription.wants(change):
                subscription.offer(change)
                if subscription.id is not None and change.ended:
                    over.append(subscription)
        for subscription in over:
            self.unsubscribe(subscription)

    def _emit(self, kind: EventKind, record: ProcedureRecord, at: float, reason: str | None = None) -> None:
        self._events.put(
            ProcedureEvent(
                kind=kind,
                at=at,
                id=record.id,
                root=record.root,
                parent=record.parent,
                type_name=record.type_name,
                state=record.state,
                step=record.step,
                attempt=record.attempt,
                step_name=record.current_name,
                error=as_text(record.error) if kind not in {"submitted", "started", "recovered", "succeeded"} else None,
                reason=reason,
            )
        )

    def _emit_poison(self, poison: PoisonRecord, batch: CommitBatch) -> None:
        head = batch.head(poison.by)  # as it is stored with the key
        record = None if head is None else head.record
        self._events.put(
            ProcedureEvent(
                kind="poisoned",
                at=poison.at,
                id=poison.by,
                root=poison.root,
                parent=None if record is None else record.parent,
                type_name="" if record is None else record.type_name,
                state=ProcedureState.RUNNABLE if record is None else record.state,
                step=0 if record is None else record.step,
                attempt=0 if record is None else record.attempt,
                step_name=None if record is None else record.current_name,
                error=ErrorInfo("poisoned", "Poisoned", poison.reason, procedure=poison.by),
                reason=poison.reason,
                key=poison.path,
            )
        )


class _InHand:
    """Steps that workers had in hand when a batch was stored, by its own commands or by earlier ones."""

    def __init__(self, batch: CommitBatch | None, in_flight: InFlightTable) -> None:
        self._commands = batch.commands if batch is not None else []
        self._in_flight = in_flight
        self._tokens: set[tuple[str, int, int]] | None = None

    def has(self, record: ProcedureRecord) -> bool:
        """The present step of this head."""
        if not is_interrupted(record):
            return False
        if self._tokens is None:
            handed = (command.token for command in self._commands if type(command) is RunStep)
            held = (token for entry in self._in_flight.entries.values() for token in entry.held)
            self._tokens = {(token.procedure, token.step, token.attempt) for token in chain(handed, held)}
        return (record.id, record.step, record.attempt) in self._tokens


def _events_of(write: PutProcedure, before: _SeenHead | None, phase: Phase, faults: int) -> Iterator[EventKind]:
    """The moments between what was seen before and this head."""
    record, was = write.record, write.was
    if was is None:
        yield "submitted"
    if record.state in TERMINAL:
        if was is None or was.state is not record.state:
            yield _END_EVENTS[record.state]
        return
    is_new = before is None or before.phase is not phase
    if phase is Phase.RUNNING and is_new and record.step == record.attempt == record.run == 1:
        yield "started"
    elif phase is Phase.RUNNING and before is not None and faults > before.faults:
        yield "retrying"  # at once: the next attempt is in the same commit
    kind = _PHASE_EVENTS.get(phase)
    if kind is None:
        return
    is_known_before = before is None and was is not None and was.state is record.state and record.state in _STEADY
    if (is_new and not is_known_before) or (kind == "retrying" and before is not None and faults > before.faults):
        yield kind
