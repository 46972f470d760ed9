"""Schedules as programs declare them and operators steer them."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from actorproc.core.results.firings import put, rule_for
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.quarantine import error_of_schedule
from actorproc.errors import ActorprocError, UnknownProcedure, UnknownType, UsageError
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import ScheduleDeclared, ScheduleSteered
from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.model.rows.writes import DeleteSchedule

__all__ = ["declare", "steer"]

_NO_REASON = "on request"
_DECLARED = (
    *("id", "spec", "timezone", "new", "catch_up", "catch_up_within"),
    *("overlap", "jitter", "until", "deadline"),
)
"""Fields of a declaration; of what is sent nothing else counts."""


def declare(state: EngineState, event: ScheduleDeclared) -> None:
    """Make a schedule, or change the one of this id; the reply is False when it was declared so before.

    Instants before the declaration of a rule are never made up for: with another rule or zone the watermark is now.
    """
    given = event.schedule
    error = error_of_schedule(state.damage, given.id) or _refusal(state, given)
    if error is not None:
        state.decision.command(Reply(event.reply, error=error))
        return
    known = state.schedules.records.get(given.id)
    now, epoch = state.decision.now, state.counters.epoch
    declared: dict[str, Any] = {field: getattr(given, field) for field in _DECLARED}
    if known is None or (known.spec, known.timezone) != (given.spec, given.timezone):
        record = ScheduleRecord(**declared, anchor=int(now), declared_at=now, epoch=epoch, watermark=now)
        if known is not None:
            record = replace(
                record,
                again_until=_again_until(known, now),
                fired=known.fired,
                paused=known.paused,
                firings=known.firings,
                passed=known.passed + len(known.waiting),
            )
    else:
        record = replace(known, **declared)
        is_same = record == known
        record = replace(record, epoch=epoch, declared_at=known.declared_at if is_same else now)
        if is_same:
            _keep(state, record, known)
            state.decision.command(Reply(event.reply, value=False))
            return
    _keep(state, record, known)
    state.audit(None, "schedule", event, f"{record.id}: {record.spec} {record.timezone}")
    state.decision.command(Reply(event.reply, value=True))


def _refusal(state: EngineState, given: ScheduleRecord) -> ActorprocError | None:
    if given.new.type_name not in state.types.metas:
        return UnknownType(
            f"no class is registered as {given.new.type_name!r}; register it before scheduling {given.id}"
        )
    try:
        rule_for(state, given)
    except ValueError as error:
        return UsageError(f"the schedule {given.id} cannot be: {error}")
    return None


def _again_until(known: ScheduleRecord, now: float) -> float:
    """`ScheduleRecord.again_until` of a schedule that goes on from now; 0: its watermark was not later."""
    until = max(known.again_until, known.watermark)
    return until if until > now else 0.0


def _keep(state: EngineState, record: ScheduleRecord, known: ScheduleRecord | None) -> None:
    """Store a schedule with its next instant, and have it looked at."""
    due: int | None = None
    fault = record.fault
    try:
        due = record.next_due(rule_for(state, record))
    except ValueError as error:
        fault = str(error)
    put(state, replace(record, due=due, fault=fault), known)
    if record.paused is None and (due is not None or record.waiting):
        state.look_at_schedule(record.id, state.decision.now if record.waiting or due is None else due)
    else:
        state.look_at_schedule(record.id, None)


def steer(state: EngineState, event: ScheduleSteered) -> None:
    """Remove, pause, resume or reset a schedule; the reply is False when it was so already."""
    known = state.schedules.records.get(event.id)
    if known is None and event.action == "remove" and state.damage.schedules.pop(event.id, None) is not None:
        _remove(state, event)
        return
    if known is None:
        error = error_of_schedule(state.damage, event.id) or UnknownProcedure(f"no schedule has the id {event.id!r}")
        state.decision.command(Reply(event.reply, error=error))
        return
    now = state.decision.now
    match event.action:
        case "remove":
            state.look_at_schedule(event.id, None)
            state.schedules.drop(event.id)
            _remove(state, event)
            return
        case "pause":
            _keep(state, replace(known, paused=event.reason or _NO_REASON), known)
        case "resume":
            if known.paused is None:
                state.decision.command(Reply(event.reply, value=False))
                return
            _keep(state, replace(known, paused=None, watermark=max(known.watermark, now)), known)
        case "reset":
            again_until = _again_until(known, now)
            _keep(
                state,
                replace(known, watermark=now, waiting=(), leaps=(), fault=None, again_until=again_until),
                known,
            )
    _answer(state, event)


def _remove(state: EngineState, event: ScheduleSteered) -> None:
    state.decision.write(DeleteSchedule(event.id))
    _answer(state, event)


def _answer(state: EngineState, event: ScheduleSteered) -> None:
    state.audit(None, "schedules", event, f"{event.action} {event.id}")
    state.decision.command(Reply(event.reply, value=True))
