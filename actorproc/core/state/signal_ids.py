"""Signals that are kept, ids of those that were taken, and replies: what is sent again is no second one, however late.

A signal with an id leaves its row in the events table when it is taken, marked and without its payload. The memory
is bounded: the last `MAX_REMEMBERED` ids of each target and the last `MAX_REMEMBERED_IN_ALL` of all targets together.
The ids of a procedure go when it ends, for then every signal to it is refused. When an operator may have it tried
again, they go with its tree.

The reply to an ask has a row of its own, which stays when its procedure has ended, and is removed with it. While that
one lives the row goes with the id of the ask, since it would count as another one then.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.signals import SignalBuffer
from actorproc.model.ids import name_of_event
from actorproc.model.messages.commands import ResolveAsk
from actorproc.model.messages.outcomes import Outcome
from actorproc.model.rows.asks import ReplyRecord, ask_of
from actorproc.model.rows.records import EventRecord, ProcedureRecord
from actorproc.model.rows.writes import DeleteEvent, DeleteReply, PutEvent, PutReply

__all__ = [
    "MAX_REMEMBERED",
    "MAX_REMEMBERED_IN_ALL",
    "discard",
    "drop",
    "forget",
    "is_repeated",
    "keep",
    "next_number",
    "recall",
    "remember",
    "settle_ask",
]

MAX_REMEMBERED = 1000
"""Ids of taken signals that are remembered for one target."""
MAX_REMEMBERED_IN_ALL = 100_000
"""Ids of taken signals that are remembered for all targets together."""


def is_repeated(signals: SignalBuffer, target: str, dedup: str | None) -> bool:
    """True if a signal with this id is kept for the target or was taken."""
    if dedup is None:
        return False
    if dedup in signals.taken.get(target, ()):
        return True
    return any(known.dedup == dedup for known in signals.buffered.get(target, ()))


def next_number(signals: SignalBuffer, target: str) -> int:
    """The number of the next row of a target: above those kept and those remembered."""
    kept = signals.buffered.get(target)
    taken = signals.taken.get(target)
    return max(kept[-1].seq if kept else 0, next(reversed(taken.values())) if taken else 0) + 1


def keep(state: EngineState, row: EventRecord) -> None:
    """A signal waits from now on for a procedure to take it."""
    state.signals.buffered.setdefault(row.target, []).append(row)
    state.decision.write(PutEvent(row))
    _count(state.signals, row.target, 1)


def discard(state: EngineState, row: EventRecord, *, is_stored: bool = False) -> None:
    """A kept signal waits no more; `is_stored`: its row is for the caller to remove, or to change."""
    kept = state.signals.buffered[row.target]
    kept.remove(row)
    if not kept:
        del state.signals.buffered[row.target]
    _count(state.signals, row.target, -1)
    if not is_stored:
        state.decision.write(DeleteEvent(row.target, row.seq))


def _count(signals: SignalBuffer, target: str, change: int) -> None:
    if name_of_event(target) is not None:
        signals.count_published(change)


def remember(state: EngineState, row: EventRecord) -> None:
    """A signal was taken: its row goes, or stays as a note of its id."""
    if row.dedup is None:
        state.decision.write(DeleteEvent(row.target, row.seq))
        return
    number, before = row.seq, state.signals.taken.get(row.target)
    if before and number < next(reversed(before.values())):
        # One that came later was taken first, as only a wait for its name takes an ask: numbers tell the order here.
        state.decision.write(DeleteEvent(row.target, number))
        number = next_number(state.signals, row.target)
    state.decision.write(PutEvent(EventRecord(row.target, number, b"", row.dedup, state.decision.now, taken=True)))
    _note(state.signals, row.target, row.dedup, number)
    known = state.signals.taken[row.target]
    if len(known) > MAX_REMEMBERED:
        _drop_with_reply(state, row.target, next(iter(known)))
    if len(state.signals.taken_order) > MAX_REMEMBERED_IN_ALL:
        _drop_with_reply(state, *next(iter(state.signals.taken_order)))


def settle_ask(state: EngineState, record: ProcedureRecord, outcome: Outcome) -> None:
    """A step that was woken by a signal ended well: was that an ask, its reply is stored, or that there is none."""
    ask = ask_of(record.payload)
    if ask is None:
        return
    value = b"" if outcome.requests is None else outcome.requests.reply or b""
    step = record.step - outcome.steps
    state.decision.write(PutReply(ReplyRecord(record.id, ask.name, ask.id, value, state.decision.now, step)))
    state.decision.command(ResolveAsk(record.id, ask, value))


def forget(state: EngineState, procedure: str) -> None:
    """A procedure takes no signal any more: those kept for it go, and the ids of those it took. Idempotent."""
    for row in state.signals.buffered.pop(procedure, ()):
        state.decision.write(DeleteEvent(procedure, row.seq))
    for dedup in list(state.signals.taken.get(procedure, ())):
        _drop(state, procedure, dedup)


def drop(signals: SignalBuffer, target: str) -> None:
    """The same for a procedure that is removed: its rows go with it. Idempotent."""
    for dedup in signals.taken.pop(target, ()):
        signals.taken_order.pop((target, dedup), None)


def recall(signals: SignalBuffer, events: Iterable[EventRecord]) -> None:
    """Signals that no procedure has taken yet, and the ids of those that were taken, read back from the store."""
    rows = []
    for row in events:
        if row.taken:
            rows.append(row)
        else:
            signals.buffered.setdefault(row.target, []).append(row)
            _count(signals, row.target, 1)
    for row in sorted(rows, key=lambda row: (row.at, row.target, row.seq)):
        if row.dedup is not None:
            _note(signals, row.target, row.dedup, row.seq)
    # The clock may have been set back in between: of one target the numbers tell the order.
    for target, known in signals.taken.items():
        signals.taken[target] = dict(sorted(known.items(), key=itemgetter(1)))


def _note(signals: SignalBuffer, target: str, dedup: str, seq: int) -> None:
    signals.taken.setdefault(target, {})[dedup] = seq
    signals.taken_order[target, dedup] = None


def _drop_with_reply(state: EngineState, target: str, dedup: str) -> None:
    _drop(state, target, dedup)
    if dedup.startswith("\0"):
        state.decision.write(DeleteReply(target, dedup))


def _drop(state: EngineState, target: str, dedup: str) -> None:
    known = state.signals.taken[target]
    state.decision.write(DeleteEvent(target, known.pop(dedup)))
    if not known:
        del state.signals.taken[target]
    state.signals.taken_order.pop((target, dedup), None)
