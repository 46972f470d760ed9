"""Signals to procedures, and named events: delivered, kept until one waits, withdrawn, or removed for their age.

A signal is for one procedure, which must exist, and stays as long as that one may take it. An event is published under
a name for whichever procedure waits for it, now or later; one that no procedure takes is removed in the end.
An ask is a signal that only a wait for its name takes, and that the step which takes it may reply to.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from actorproc.core.lifecycle.finish import forget_listening
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.signals import SignalBuffer
from actorproc.core.state.quarantine import error_of
from actorproc.core.state.signal_ids import discard, is_repeated, keep, next_number, remember
from actorproc.core.state.transitions import Trigger, move
from actorproc.errors import ActorprocError, NotAllowed, UnknownProcedure
from actorproc.model.ids import event_target, name_of_event
from actorproc.model.messages.commands import Reply, ResolveAsk
from actorproc.model.messages.events import Published, Signalled, SignalsExpired, SignalsWithdrawn
from actorproc.model.rows.asks import ask_of, enclosed
from actorproc.model.rows.records import EventRecord, ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = [
    "MAX_BUFFERED",
    "MAX_PUBLISHED",
    "expire",
    "first_listener",
    "publish",
    "published",
    "signal",
    "take_buffered",
    "too_old",
    "withdraw",
]

MAX_BUFFERED = 1000
"""Signals kept for one procedure, and events kept under one name, that none has taken yet."""
MAX_PUBLISHED = 100_000
"""Events kept under all names together."""


# ---------------------------------------------------------------------- signals to a procedure
def signal(state: EngineState, event: Signalled) -> None:
    """Deliver a signal to a procedure; it is kept when the procedure does not wait yet. False: it has ended."""
    record = state.residents.procs.get(event.id)
    if event.id in state.damage.procedures or record is None:
        unknown = UnknownProcedure(
            f"no procedure has the id {event.id!r}, so nothing would take this signal; publish() sends an event by name"
        )
        state.decision.command(Reply(event.reply, error=error_of(state.damage, event.id) or unknown))
        return
    if record.state in TERMINAL:
        state.decision.command(Reply(event.reply, value=False))
        return
    row = _row(state, event.id, event)
    if is_repeated(state.signals, event.id, row.dedup):
        state.decision.command(Reply(event.reply, value=True))
        return
    if record.event is not None and record.state is not ProcedureState.RUNNABLE and _fits(row, record.event):
        _deliver(state, record, row)
    elif len(state.signals.buffered.get(event.id, ())) < MAX_BUFFERED:
        keep(state, row)
    else:
        state.decision.command(Reply(event.reply, error=_too_many(f"signals to {event.id}")))
        return
    if event.reason is not None or event.by is not None:
        state.audit(record, "signal", event)
    state.decision.command(Reply(event.reply, value=True))


# ---------------------------------------------------------------------- events by name
def publish(state: EngineState, event: Published) -> None:
    """Deliver an event to the procedure that has waited for it longest; it is kept when none waits yet."""
    target = event_target(event.name)
    if is_repeated(state.signals, target, event.dedup):
        state.decision.command(Reply(event.reply))
        return
    record = next((state.residents.procs[name] for name in first_listener(state, event.name)), None)
    row = _row(state, target, event)
    if record is not None:
        _deliver(state, record, row)
    elif (error := _no_room(state.signals, event.name)) is None:
        keep(state, row)
    else:
        state.decision.command(Reply(event.reply, error=error))
        return
    if event.reason is not None or event.by is not None:
        state.audit(record, "publish", event, event.name)
    state.decision.command(Reply(event.reply))


def _row(state: EngineState, target: str, event: Signalled | Published) -> EventRecord:
    number = next_number(state.signals, target)
    payload, dedup = event.payload, event.dedup
    if type(event) is Signalled and event.ask is not None:
        payload, dedup = enclosed(event.ask, payload), event.ask.mark
    return EventRecord(target, number, payload, dedup, state.decision.now, trace=event.trace)


def _fits(row: EventRecord, event: str) -> bool:
    """True if a procedure that waits for this event may take the signal: an ask is for waits for its own name."""
    ask = ask_of(row.payload)
    return ask is None or ask.name == event


def first_listener(state: EngineState, event: str) -> tuple[str, ...]:
    """Id of the procedure that has waited longest for an event name, if one does; damaged ones wait no more."""
    return tuple(
        islice((name for name in state.signals.subscribers.of(event) if name not in state.damage.procedures), 1)
    )


def _no_room(signals: SignalBuffer, name: str) -> ActorprocError | None:
    if len(signals.buffered.get(event_target(name), ())) >= MAX_BUFFERED:
        return _too_many(f"events called {name!r}")
    if signals.published >= MAX_PUBLISHED:
        return _too_many("events by name", MAX_PUBLISHED)
    return None


def _too_many(things: str, number: int | None = None) -> NotAllowed:
    waiting = f"{MAX_BUFFERED if number is None else number} {things} are kept already and no procedure has taken one"
    return NotAllowed(f"{waiting}; send it again when some were taken, or withdraw those that are of no use")


# ---------------------------------------------------------------------- taking
def _deliver(state: EngineState, record: ProcedureRecord, row: EventRecord) -> None:
    """A procedure that waits gets a signal that was not kept."""
    forget_listening(state.signals, record)
    record.payload = row.payload
    head.came_from(record, row.trace)
    head.wait_no_longer(record)
    move(record, Trigger.SIGNALLED)
    state.decision.touch(record)
    wake(state, record)
    if row.dedup is not None:
        remember(state, row)


def take_buffered(state: EngineState, record: ProcedureRecord, event: str) -> bytes | None:
    """The payload of the oldest signal kept for a procedure, or else of the event that it begins to wait for."""
    for target in (record.id, event_target(event)):
        row = next((row for row in state.signals.buffered.get(target, ()) if _fits(row, event)), None)
        if row is not None:
            discard(state, row, is_stored=True)
            remember(state, row)
            head.came_from(record, row.trace)
            return row.payload
    return None


# ---------------------------------------------------------------------- removing
def withdraw(state: EngineState, event: SignalsWithdrawn) -> None:
    """Remove kept signals for an operator; the reply is how many there were."""
    target = event.id if event.name is None else event_target(event.name)
    assert target is not None
    kept = state.signals.buffered.get(target, ())
    chosen = [row for row in kept if event.number is None or row.seq == event.number]
    for row in chosen:
        discard(state, row)
        if (ask := ask_of(row.payload)) is not None:
            state.decision.command(ResolveAsk(row.target, ask))
    if chosen:
        state.audit(None, "withdraw", event, f"{len(chosen)} of {target}", event.id or "")
    state.decision.command(Reply(event.reply, value=len(chosen)))


def published(signals: SignalBuffer) -> list[str]:
    """Targets of all events by name that are kept."""
    return [target for target in signals.buffered if name_of_event(target) is not None] if signals.published else []


def too_old(state: EngineState, targets: Iterable[str], at: float) -> tuple[tuple[str, int], ...]:
    """Events kept under these targets whose time is over at `at`."""
    limit = state.settings.retention.signals_seconds
    if limit is None:
        return ()
    kept = (row for target in targets for row in state.signals.buffered.get(target, ()))
    return tuple((row.target, row.seq) for row in kept if at - row.at >= limit)


def expire(state: EngineState, event: SignalsExpired) -> None:
    """Remove those of the events that are still there and have been kept long enough."""
    chosen = set(event.rows)
    targets = dict.fromkeys(target for target, _ in event.rows if name_of_event(target) is not None)
    for target, number in too_old(state, targets, event.at):
        if (target, number) in chosen:
            discard(state, next(row for row in state.signals.buffered[target] if row.seq == number))
