"""Checks of requests from other processes, before they reach the engine.

A client checks what its user hands over, but not each process that can write to the socket is a client. Requests have
the right types by then. Here they must also make sense: ids that are ids, keys and texts that the store can hold,
numbers that are numbers. The manager's own thread must never meet anything else.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from actorproc.core.operator.verbs import VERBS
from actorproc.engine.arguments import (
    check_context,
    check_new,
    check_number,
    check_type,
    check_workers,
    checked_ask_id,
    checked_by,
    checked_dedup,
    checked_event,
    checked_max_workers,
    checked_reason,
    checked_text,
)
from actorproc.errors import StateTooLarge, UsageError
from actorproc.model.ids import check_id
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import (
    Acknowledged,
    DeleteRequested,
    EnqueuedRemoved,
    Event,
    ForkRequested,
    PoisonCleared,
    Published,
    Resized,
    RestartRequested,
    ScheduleDeclared,
    Signalled,
    SignalsWithdrawn,
    Submitted,
)
from actorproc.model.policies import LockKey
from actorproc.model.rows.enqueued import REFUSED
from actorproc.model.rows.schedules import ScheduleRecord

__all__ = ["MOST_CHANGES", "checked_definition", "checked_request"]

MOST_CHANGES = 100_000
"""Changes that may wait for one watcher."""
_LARGEST = 2**53
_LONGEST_KEY = 64
_RECORDED = frozenset(verb.event for verb in VERBS)
"""Requests that the audit log has."""
_FOR_ALL = frozenset(verb.event for verb in VERBS if verb.is_for_all)
"""Requests that are for the whole manager without an id."""


def checked_request(event: Event, max_state: int, *, traced: bool = False) -> Event:
    """The event as the engine may take it. Raises `UsageError`s, `TypeError` and `ValueError`."""
    match event:
        case Submitted():
            for new in event.procedures:
                check_new(new, max_state)
                if new.debounce is not None and len(event.procedures) > 1:
                    raise UsageError(f"{new.id} is debounced, so it is submitted alone")
            if any(new.fresh or new.trace is not None for new in event.procedures):
                # Only the process that made an id can know that none has it: the store would not be asked.
                news = tuple(
                    msgspec.structs.replace(new, fresh=False, trace=new.trace if traced else None)
                    for new in event.procedures
                )
                event = msgspec.structs.replace(event, procedures=news)
        case RestartRequested() | ForkRequested():
            event = _checked_anew(event, max_state, traced=traced)
        case Signalled() | Published():
            _check_sent(event, max_state)
            event = event if traced or not event.trace else msgspec.structs.replace(event, trace=b"")
        case SignalsWithdrawn():
            _check_withdrawn(event)
        case PoisonCleared():
            LockKey.write(event.path)
        case Resized():
            _check_size(event)
        case Acknowledged():
            event = msgspec.structs.replace(event, id=check_id(event.id), head=None)
        case DeleteRequested():
            event = msgspec.structs.replace(event, id=check_id(event.id), tree=None)
        case _:
            event = _checked_other(event, max_state)
    checked_reason(getattr(event, "reason", None))
    return _with_name(event) if type(event) in _RECORDED else event


def _checked_other(event: Event, max_state: int) -> Event:
    if isinstance(event, EnqueuedRemoved):
        _check_keys(event)
        return event
    if isinstance(event, ScheduleDeclared):
        return msgspec.structs.replace(event, schedule=_checked_schedule(event.schedule, max_state))
    id_ = getattr(event, "id", None)
    if id_ is not None or type(event) not in _FOR_ALL:
        check_id(id_)
    return event


def _with_name(event: Any) -> Event:
    """A request that is recorded, with the name of the one who asks: the socket lets in this process's user alone."""
    if event.by is None and event.reason is None and isinstance(event, Signalled | Published | Acknowledged):
        return event  # of a program
    named: Event = msgspec.structs.replace(event, by=checked_by(event.by))
    return named


def _checked_anew(event: Any, max_state: int, *, traced: bool) -> Event:
    """A request with the stored state that is to run again."""
    check_id(event.id)
    check_new(event.new, max(max_state, len(event.new.state)))  # it is stored already, whatever the limit is now
    check_number(event.generation if isinstance(event, RestartRequested) else event.step, "a restart or a fork")
    if (
        event.new.reuse is None
        or event.new.debounce is not None
        or (isinstance(event, RestartRequested) and event.new.id != event.id)
    ):
        msg = f"a request about {event.id} names {event.new.id}, or has no token"
        raise UsageError(msg)
    new = msgspec.structs.replace(event.new, fresh=False, trace=event.new.trace if traced else None)
    checked: Event = msgspec.structs.replace(event, new=new)
    return checked


def checked_definition(definition: Definition) -> Definition:
    """A class that a client brings."""
    check_type(definition.meta.type_name)
    for number in _numbers_in(definition.meta):
        check_number(number, "a definition")
    if definition.meta.version < 1 or definition.meta.crashes < 1 or definition.meta.threads < 1:
        msg = f"the definition of {definition.meta.type_name} has a version, crashes or threads below 1"
        raise UsageError(msg)
    return definition


def _check_sent(event: Signalled | Published, max_state: int) -> None:
    if isinstance(event, Signalled):
        check_id(event.id)
    else:
        checked_event(event.name)
    if isinstance(event, Signalled) and event.ask is not None:
        checked_event(event.ask.name)
        checked_ask_id(event.ask.id)
    if event.dedup is not None:
        checked_dedup(event.dedup)
    _check_value(event.payload, max_state)
    if event.trace:
        check_context(event.trace)


def _check_keys(event: EnqueuedRemoved) -> None:
    check_id(event.name)
    if not event.keys or not all(key.startswith(REFUSED) and len(key) <= _LONGEST_KEY for key in event.keys):
        msg = f"a request to remove what was enqueued as {event.name} names rows that were not refused"
        raise UsageError(msg)


def _check_withdrawn(event: SignalsWithdrawn) -> None:
    if (event.id is None) == (event.name is None):
        raise UsageError("signals to an id are withdrawn, or events called by a name, not both")
    if event.id is not None:
        check_id(event.id)
    else:
        checked_event(event.name)
    if event.number is not None:
        check_number(event.number, "a signal")


def _checked_schedule(schedule: ScheduleRecord, max_state: int) -> ScheduleRecord:
    check_new(schedule.new, max_state)
    if check_id(schedule.id) != schedule.new.id or schedule.new.codec != "data":
        msg = f"the procedure of the schedule {schedule.id} has another id, or a state that is signed"
        raise UsageError(msg)
    checked_text(schedule.spec, "the rule of a schedule", 1024)
    checked_text(schedule.timezone, "the time zone of a schedule")
    for number in _numbers_in(schedule):
        check_number(number, "a schedule")
    return msgspec.structs.replace(
        schedule, new=msgspec.structs.replace(schedule.new, fresh=False, trace=None, reuse=None, debounce=None)
    )


def _check_size(event: Resized) -> None:
    check_workers(event.workers)
    if event.max_workers is not None:
        checked_max_workers(event.max_workers, event.workers)


def _check_value(data: bytes, max_state: int) -> None:
    """A payload: msgpack, as every codec reads it."""
    if len(data) > max_state:
        msg = f"the payload has {len(data)} bytes; Config.max_state is {max_state}"
        raise StateTooLarge(msg)
    if data:
        msgspec.msgpack.decode(data, type=msgspec.Raw)


def _numbers_in(value: Any) -> Iterator[float]:
    if isinstance(value, int | float):
        yield value
    elif isinstance(value, msgspec.Struct):
        for _, inner in _fields_of(value):
            yield from _numbers_in(inner)
    elif isinstance(value, tuple):
        for inner in value:
            yield from _numbers_in(inner)


def _fields_of(value: msgspec.Struct) -> Iterator[tuple[str, Any]]:
    return ((name, getattr(value, name)) for name in value.__struct_fields__)
