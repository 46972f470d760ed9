"""Firings: a schedule has come due, or what it waited for has ended.

A schedule is looked at by the ticks for which it has a timer. A look takes the instants that have come since the
watermark. It decides which of them start a procedure, now or when the firing before has ended. The watermark, the
procedure and what waits are one decision, so each instant is decided about once. The id of a firing contains its
instant.

A clock may be wrong. The watermark is not moved back by a clock that was set back. Where a schedule is due for more
than a day, the clock is looked at once more, a minute later. If it has gone on by then, the watermark from before is
remembered: should the clock go back by more than a day again, the schedule goes on from there.
"""

from __future__ import annotations

import zlib
from typing import NamedTuple

from msgspec.structs import replace

from actorproc.core.lifecycle.finish import has_given_up
from actorproc.core.lifecycle.submit import submit
from actorproc.core.results.abort import request_abort
from actorproc.core.state.engine_state import EngineState
from actorproc.errors import ActorprocError
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import AbortRequested, Submitted
from actorproc.model.rows.record_parts import TOKEN
from actorproc.model.rows.records import IdReuse, NewProcedure
from actorproc.model.rows.schedules import Leap, Rule, ScheduleRecord
from actorproc.model.rows.writes import PutSchedule
from actorproc.model.states import TERMINAL

__all__ = ["DAY", "PATIENCE", "RETRY", "SECOND_LOOK", "look_at", "needed", "put", "rule_for"]

DAY = 86_400.0
SECOND_LOOK = 60.0
"""Seconds after which a clock is believed that has come more than a day too far."""
RETRY = 30.0
"""Seconds after which a firing that was refused is tried again."""
TOLERANCE = 60.0
"""Seconds by which an instant may be late that nothing makes up for."""
PATIENCE = 10.0
"""Seconds after a start for which missed instants wait for the program to declare the schedule anew."""
MOST_WAITING = 1000
"""Instants of a schedule that are made up for, or wait, at most."""
_COUNTED = 100
"""Missed instants that are counted where only the last of them fires."""
_LEAPS = 8


class _Come(NamedTuple):
    """Instants that have come, and what follows for the schedule before anything is started."""

    record: ScheduleRecord
    chosen: tuple[int, ...] = ()
    """Instants that are to start a procedure."""
    again_at: float | None = None
    """Time until which what has come waits for its declaration, or for a second look at the clock."""
    is_suspect: bool = False
    """The clock is to be looked at again then."""


def rule_for(state: EngineState, record: ScheduleRecord) -> Rule:
    """The rule of a schedule; raises ValueError where this machine cannot have it."""
    return state.schedules.rule_of(record.spec, record.timezone, record.anchor)


def needed(state: EngineState, schedule: str, now: float) -> list[str]:
    """Procedures that a look at this schedule decides on."""
    record = state.schedules.records[schedule]
    names = []
    last = state.schedules.last_state.get(schedule)
    if record.fired and (last is None or (last == "open" and record.overlap == "cancel-running")):
        names.append(record.id_of(record.fired))
    come = _come(state, record, now)
    names += [record.id_of(at) for at in (*record.waiting[:1], *come.chosen[:1])]
    return list(dict.fromkeys(names))


def look_at(state: EngineState, schedule: str) -> None:
    """Decide on what a schedule has come to at this time."""
    known = state.schedules.records.get(schedule)
    if known is None or known.paused is not None:
        return
    now = state.decision.now
    record, chosen, again_at, is_suspect = _come(state, known, now)
    if is_suspect and again_at is not None:
        state.schedules.suspected[schedule] = again_at
    else:
        state.schedules.suspected.pop(schedule, None)
    last = _last_state(state, known)
    if chosen:
        record = _overlapping(state, record, chosen, is_open=bool(last))
    if record.waiting and not last:
        record, again_at = _fire(state, record, again_at)
    put(state, record, known)
    if record.fired != known.fired:
        state.schedules.last_state[schedule] = "open"
    due = record.due if record.due is not None and record.due > now else None
    state.look_at_schedule(schedule, min((at for at in (again_at, due) if at is not None), default=None))


def put(state: EngineState, record: ScheduleRecord, known: ScheduleRecord | None) -> None:
    """Store a schedule if it is another than before."""
    if record != known:
        state.schedules.put(record)
        state.decision.write(PutSchedule(record))


# ---------------------------------------------------------------------- instants
def _come(state: EngineState, record: ScheduleRecord, now: float) -> _Come:
    """The instants that have come by now, as the catch-up policy has them."""
    try:
        rule = rule_for(state, record)
    except ValueError as error:
        return _Come(replace(record, fault=str(error)))
    told, record = record, _by_true_clock(record, now)
    due = record.next_due(rule)
    if record is told and due is not None and due <= now and told.due is not None and now < told.due:
        # By the time zone data of then it was to come later: what has passed by today's was never due.
        record = replace(record, watermark=now)
        due = record.next_due(rule)
    record = replace(record, due=due, fault=_lost_time(record, rule, now) or _of_refusal(record))
    if due is None or due > now:
        return _Come(record)
    declared_by = state.schedules.began + PATIENCE
    if record.epoch != state.counters.epoch and due < state.schedules.began and now < declared_by:
        return _Come(record, again_at=declared_by)
    if now - due > DAY:
        if (at := _second_look(state.schedules.suspected.get(record.id), now)) is not None:
            return _Come(record, again_at=at, is_suspect=True)
        record = replace(record, leaps=(*record.leaps, Leap(now, record.watermark))[-_LEAPS:])
    found = record.come_by(rule, now, MOST_WAITING if record.catch_up == "all" else _COUNTED)
    chosen = tuple(found) if record.catch_up == "all" else tuple(found[-1:])
    oldest = TOLERANCE if record.catch_up == "none" else record.catch_up_within
    if oldest is not None:
        chosen = tuple(at for at in chosen if now - at <= oldest)
    record = replace(record, watermark=float(found[-1]), passed=record.passed + len(found) - len(chosen))
    return _Come(replace(record, due=record.next_due(rule)), chosen)


def _by_true_clock(record: ScheduleRecord, now: float) -> ScheduleRecord:
    """The schedule without the leaps of a clock that has gone back behind them."""
    for number, leap in enumerate(record.leaps):
        if now < leap.at - DAY:
            again_until = max(record.again_until, record.watermark)
            return replace(record, watermark=leap.watermark, leaps=record.leaps[:number], again_until=again_until)
    return record


_BACK = "the clock was set back"


def _lost_time(record: ScheduleRecord, rule: Rule, now: float) -> str | None:
    """Words on a schedule that is still because the clock was set back by more than its period; None: it is not."""
    following = rule.next(now)
    following = None if following is None or following > record.watermark else rule.next(following)
    if following is None or following > record.watermark:
        return None
    until = record.id_of(record.watermark).rpartition("@")[2]
    return f"{_BACK}: its instants up to {until} have come already; reset it if they have not"


def _of_refusal(record: ScheduleRecord) -> str | None:
    """The fault of before, as long as an instant waits for it."""
    return record.fault if record.waiting and record.fault is not None and not record.fault.startswith(_BACK) else None


def _second_look(look: float | None, now: float) -> float | None:
    """Time at which a clock that has come too far is looked at again; None: it was, and went on as clocks do."""
    if look is None or now - look > DAY:
        return now + SECOND_LOOK
    return look if now < look else None


# ---------------------------------------------------------------------- procedures
def _last_state(state: EngineState, record: ScheduleRecord) -> str:
    """The last firing is "open", or "stuck" where its undo gave up and the schedule waits for that; "": neither."""
    if not record.fired:
        return ""
    found = state.schedules.last_state.get(record.id)
    if found is None:
        last = record.id_of(record.fired)
        if last in state.damage.procedures:
            return "open"
        head = state.residents.procs.get(last)
        if head is None:
            found = ""
        elif head.state not in TERMINAL:
            found = "open"
        else:
            found = "stuck" if has_given_up(state.residents.tree_of(head), head) else ""
        state.schedules.last_state[record.id] = found
    return found if found != "stuck" or record.overlap == "cancel-running" else ""


def _overlapping(
    state: EngineState, record: ScheduleRecord, chosen: tuple[int, ...], *, is_open: bool
) -> ScheduleRecord:
    """The schedule with the chosen instants waiting, as far as its overlap policy lets them."""
    is_late = len(chosen) > 1  # made up for, one after the other
    if record.overlap == "skip" and is_open and not is_late:
        return replace(record, passed=record.passed + 1)
    waiting = (*record.waiting, *chosen)
    if not is_late and (record.overlap == "cancel-running" or (record.overlap == "skip" and record.catch_up != "all")):
        waiting = chosen  # what waited before was refused, or was to start after an abort
    if record.overlap == "cancel-running" and is_open and not is_late:
        _abort_last(state, record)
    kept = waiting[:MOST_WAITING]
    over = len(record.waiting) + len(chosen) - len(kept)
    return replace(record, waiting=kept, passed=record.passed + over)


def _abort_last(state: EngineState, record: ScheduleRecord) -> None:
    last = record.id_of(record.fired)
    head = state.residents.procs.get(last)
    if head is None or head.state in TERMINAL or head.aborting:
        return
    reason = f"its schedule {record.id} fires again"
    request_abort(state, AbortRequested(last, 0, force=False, reason=reason, by=f"schedule {record.id}"))
    state.decision.commands.pop()  # the answer, which no caller waits for


def _fire(state: EngineState, record: ScheduleRecord, again_at: float | None) -> tuple[ScheduleRecord, float | None]:
    """Start the first of the waiting instants; the schedule then, and when it is to be looked at again."""
    at, now = record.waiting[0], state.decision.now
    rest = record.waiting[1:]
    new = _firing_of(record, at, now)
    existing = state.residents.procs.get(new.id)
    if existing is not None:
        if at > record.again_until or existing.state not in TERMINAL:
            # A procedure has this id, of this schedule or of the user: the instant has had its one.
            return replace(record, waiting=rest, passed=record.passed + 1), now if rest else again_at
        new = replace(new, reuse=IdReuse("restart", _token(new.id, now)))
    error = _submitted(state, new)
    if error is None:
        return replace(record, waiting=rest, fired=at, firings=record.firings + 1, fault=None), again_at
    if record.catch_up == "none":
        return replace(record, waiting=rest, passed=record.passed + 1, fault=str(error)), again_at
    return replace(record, fault=str(error)), now + RETRY


def _submitted(state: EngineState, new: NewProcedure) -> ActorprocError | None:
    """Submit a firing as a caller would; the error for which it was refused."""
    submit(state, Submitted((new,), 0))
    answer = state.decision.commands.pop()
    assert isinstance(answer, Reply)
    return answer.error


def _firing_of(record: ScheduleRecord, at: int, now: float) -> NewProcedure:
    id = record.id_of(at)
    spread = zlib.crc32(id.encode()) / 0xFFFFFFFF  # so that a repetition decides alike
    return replace(
        record.new,
        id=id,
        due_at=now + record.jitter * spread if record.jitter else None,
        deadline=None if record.deadline is None else now + record.deadline,
    )


def _token(id: str, now: float) -> bytes:
    """Bytes of this restart alone."""
    return zlib.crc32(f"{id}\0{now}".encode()).to_bytes(TOKEN, "big")
