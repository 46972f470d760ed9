"""Arguments of callers, checked and in the engine's units; wrong ones are a `TypeError` or `ValueError`."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any, get_args

from actorproc.config import Config
from actorproc.errors import InvalidId, StateTooLarge, UsageError
from actorproc.model.ids import check_id, event_target
from actorproc.model.policies import LockKey, OnExisting, StepLimits
from actorproc.model.rows.record_parts import TOKEN, DebounceTerms
from actorproc.model.rows.records import NewProcedure
from actorproc.model.slots import MOST_WORKERS
from actorproc.model.trace_context import CONTEXT, MOST_CONTEXT
from actorproc.procedure.declaring.policies import Limits
from actorproc.procedure.declaring.submit_options import (
    MAX_TAGS,
    checked_limit_keys,
    checked_priority,
    checked_tags,
    checked_text,
)
from actorproc.support.clock import Clock
from actorproc.support.durations import LATEST, in_seconds, moment
from actorproc.support.login_name import login_name
from actorproc.support.search_texts import MAX_SEARCHABLE

__all__ = [
    "LONGEST_KEY",
    "LONGEST_WAIT",
    "MAX_TAGS",
    "check_context",
    "check_flag",
    "check_new",
    "check_number",
    "check_parts",
    "check_type",
    "check_wiring",
    "check_workers",
    "checked_ask_id",
    "checked_by",
    "checked_classes",
    "checked_debounce",
    "checked_dedup",
    "checked_event",
    "checked_limits",
    "checked_max_workers",
    "checked_modules",
    "checked_on_existing",
    "checked_priority",
    "checked_reason",
    "checked_receiver",
    "checked_tags",
    "checked_text",
    "checked_tracing",
    "due_time",
    "epoch_seconds",
    "kept_target",
    "pair",
]

LONGEST_KEY = 91
"""Characters of the key of a debounce: with a colon and a UUID behind it, it makes an id."""
LONGEST_WAIT = 100 * 365 * 86400.0
"""Seconds."""
_STORE = ("own", "load", "commit", "reopen", "close")
_CLOCK = ("wall", "monotonic")
_LARGEST = 2**53


def check_flag(value: Any, name: str) -> None:
    """A yes or no that does much harm where it was meant to be something else, such as the reason."""
    if not isinstance(value, bool):
        msg = f"{name} is True or False, not {value!r:.60}"
        raise TypeError(msg)


def checked_tracing(tracing: Any) -> Any:
    """The `Tracing` of a manager; looked at by its methods, as a manager without one does not load it."""
    if tracing is not None and not hasattr(tracing, "_recorder"):
        msg = f"tracing is a Tracing(…) of actorproc.telemetry, not {tracing!r:.60}"
        raise TypeError(msg)
    return tracing


def checked_limits(limits: Any) -> Limits:
    """Limits given with a submit."""
    if not isinstance(limits, Limits):
        msg = f"limits is a Limits(…), not {limits!r:.60}"
        raise TypeError(msg)
    return limits


def checked_on_existing(policy: Any) -> OnExisting:
    """Policy of a submit whose id exists."""
    known: tuple[OnExisting, ...] = get_args(OnExisting)
    for name in known:
        if isinstance(policy, str) and policy == name:
            return name
    msg = f"on_existing is one of {', '.join(map(repr, known))}, not {policy!r:.60}"
    raise (ValueError if isinstance(policy, str) else TypeError)(msg)


def checked_debounce(key: Any, within: Any, at_most: Any, others: dict[str, bool]) -> DebounceTerms | None:
    """The debounce of a submit, with a token of its own; `others` says which options are given that it excludes."""
    if key is None:
        for name, value in (("within", within), ("at_most", at_most)):
            if value is not None:
                msg = f"{name}={value!r:.60} is about a debounce: give debounce= with a key as well"
                raise ValueError(msg)
        return None
    for name, is_given in others.items():
        if is_given:
            msg = f"debounce={key!r:.60} says under which id and when it starts: leave {name}= out"
            raise ValueError(msg)
    if within is None:
        msg = f"debounce={key!r:.60} needs within=, the seconds without a further submit after which it starts"
        raise ValueError(msg)
    if not isinstance(key, str) or len(key) > LONGEST_KEY:
        raise InvalidId(f"the key of a debounce is text of at most {LONGEST_KEY} characters, not {key!r:.60}")
    try:
        name = check_id(key)
    except InvalidId:
        raise InvalidId(
            f"the key of a debounce, {key!r}, is not valid: ids begin with it, so use letters, digits or any of "
            ". _ : @ -, starting with a letter or digit"
        ) from None
    seconds = in_seconds(within, "within")
    longest = 0.0 if at_most is None else in_seconds(at_most, "at_most")
    if not seconds > 0 or max(seconds, longest) > LONGEST_WAIT:
        msg = f"within={within!r:.60} and at_most are more than 0 seconds, and a hundred years at most"
        raise ValueError(msg)
    if at_most is not None and longest < seconds:
        msg = f"at_most={at_most!r:.60} is less than within={within!r:.60}: it is the longest wait in all"
        raise ValueError(msg)
    return DebounceTerms(name, seconds, longest, os.urandom(TOKEN))


def checked_reason(reason: Any) -> str | None:
    """An operator's reason, if it can be kept: text of at most 1024 bytes."""
    return None if reason is None else checked_text(reason, "reason", 1024)


def checked_by(by: Any) -> str:
    """The name of the one who asks for something; without one, that of this process's user."""
    return login_name() if by is None else checked_text(by, "by")


def checked_event(name: Any) -> str:
    """The name of an event, as `Status.wait` takes it: text of 1 to 255 bytes."""
    return checked_text(name, "the name of an event", 255)


def checked_receiver(id: Any) -> str:
    """The id of the procedure that a signal is for."""
    try:
        return check_id(id)
    except InvalidId as error:
        raise InvalidId(f"{error}; publish() sends an event by name") from None


def checked_dedup(dedup: Any) -> str:
    """The text by which a signal or an event counts once."""
    text = checked_text(dedup, "dedup")
    if text.startswith("\0"):
        msg = f"dedup {text!r:.60} begins with NUL, which stands before the ids of asks; use another text"
        raise ValueError(msg)
    return text


def checked_ask_id(id: Any) -> str:
    """The id by which an ask counts once."""
    text = checked_text(id, "the id of an ask")
    if "\0" in text:
        msg = f"the id of an ask {text!r:.60} holds NUL; use another text"
        raise ValueError(msg)
    return text


def kept_target(id: str | None, event: str | None) -> str | None:
    """The target of kept signals that are given by an id or by the name of an event; None for neither."""
    if id is not None and event is not None:
        raise UsageError("give the id of a procedure or the name of an event, not both")
    if event is not None:
        return event_target(checked_event(event))
    return None if id is None else checked_receiver(id)


def check_workers(workers: Any, *, least: int = 1) -> None:
    """A number of worker processes."""
    if not isinstance(workers, int) or isinstance(workers, bool):
        msg = f"workers is a number of processes or None, not {workers!r:.60}"
        raise TypeError(msg)
    if workers < least:
        msg = f"workers={workers}: a manager needs at least one worker process"
        if workers == 0:
            msg += "; only with a store in a database (postgresql://…) others run its steps, when it may lead"
        raise ValueError(msg)
    _check_most("workers", workers)


def _check_most(name: str, workers: int) -> None:
    if workers > MOST_WORKERS:
        msg = f"{name}={workers}: a machine has at most {MOST_WORKERS} worker processes"
        raise ValueError(msg)


def check_parts(store: Any, clock: Any) -> None:
    """A store and a clock of the caller's own, or None: that they have the methods the engine calls first."""
    parts = (("store", store, "ProcedureStore", _STORE), ("clock", clock, "Clock", _CLOCK))
    for name, part, protocol, methods in parts:
        lacking = [method for method in methods if not callable(getattr(part, method, None))]
        if part is not None and lacking:
            msg = f"{name} is a {protocol} or None, not {part!r:.60}, which has no method {lacking[0]}()"
            raise TypeError(msg)


def checked_classes(procedures: Any) -> tuple[Any, ...]:
    """Classes of procedures, each of which is looked at when it is registered."""
    if isinstance(procedures, type | str) or not isinstance(procedures, Iterable):
        msg = f"procedures is a list of classes, not {procedures!r:.60}"
        raise TypeError(msg)
    return tuple(procedures)


def checked_modules(preload: Any) -> tuple[str, ...]:
    """Names of the modules that workers load beforehand."""
    modules: tuple[Any, ...] = tuple(preload) if isinstance(preload, Iterable) else (None,)
    if isinstance(preload, str) or not all(isinstance(name, str) and name for name in modules):
        msg = f"preload is a list of names of modules, not {preload!r:.60}"
        raise TypeError(msg)
    return modules


def check_wiring(config: Any, durability: Any, **functions: Any) -> None:
    """Check the parts of a manager besides its workers; the functions may be None."""
    if not isinstance(config, Config):
        msg = f"config is a Config(…) or None, not {config!r:.60}"
        raise TypeError(msg)
    if durability not in {"power", "process"}:
        msg = f'durability is "power" or "process", not {durability!r:.60}'
        raise ValueError(msg)
    for name, function in functions.items():
        if function is not None and not callable(function):
            msg = f"{name} is a function or None, not {function!r:.60}"
            raise TypeError(msg)


def checked_max_workers(max_workers: Any, workers: int) -> int:
    """Most workers there may be when all are stuck; by default twice as many as there should be."""
    if max_workers is None:
        return min(2 * workers, MOST_WORKERS)
    if not isinstance(max_workers, int) or isinstance(max_workers, bool):
        msg = f"max_workers is a number of processes or None, not {max_workers!r:.60}"
        raise TypeError(msg)
    if max_workers < workers:
        msg = f"max_workers={max_workers} is less than workers={workers}"
        raise ValueError(msg)
    _check_most("max_workers", max_workers)
    return max_workers


def pair(item: Any) -> tuple[str | None, Any]:
    """An item of `submit_many` as id and procedure."""
    if not isinstance(item, tuple):
        return None, item
    if len(item) != 2:
        msg = f"submit_many takes procedures and (id, procedure) pairs, not a tuple of {len(item)}"
        raise TypeError(msg)
    return item


def due_time(delay: Any, clock: Clock, at: Any = None) -> float | None:
    """Time at which a delayed procedure may start, in epoch seconds; None: at once."""
    seconds = in_seconds(delay, "delay")
    if at is not None:
        if seconds:
            msg = f"delay={delay!r:.60} and at={at!r:.60} both say when it may start: give one of them"
            raise ValueError(msg)
        return moment(at, "at", instead=f"For so long from now give delay={at!r:.60}")
    if not seconds:
        return None
    now = clock.wall()
    if seconds > LATEST - now:
        msg = f"delay={delay!r:.60} ends after the year 9999; to wait without a limit, wait for an event"
        raise ValueError(msg)
    return now + seconds


def epoch_seconds(deadline: datetime | timedelta | float | None, clock: Clock) -> float | None:
    """A deadline as epoch seconds: a moment, or a timedelta from now."""
    if deadline is None:
        return None
    if isinstance(deadline, timedelta):
        return moment(clock.wall() + deadline.total_seconds(), "deadline")
    return moment(deadline, "deadline", instead=f"For so long from now give timedelta(seconds={deadline})")


def _check_texts(new: NewProcedure) -> None:
    """Tags and searchable fields. Those of older stores are not refused for what a submit may not say any more."""
    for texts, most, what in ((new.tags, MAX_TAGS, "a tag"), (new.searchable, MAX_SEARCHABLE, "a searchable field")):
        if len(texts) > most:
            msg = f"{len(texts)} are given of what may be there {most} times: {what}"
            raise ValueError(msg)
        for text in texts:
            checked_text(text, what)


def check_new(new: NewProcedure, max_state: int) -> None:
    """Check a procedure that another process sends. Raises `UsageError`s, `TypeError` and `ValueError`."""
    check_id(new.id)
    check_type(new.type_name)
    if len(new.state) > max_state:
        msg = f"the state of {new.type_name} has {len(new.state)} bytes; Config.max_state is {max_state}"
        raise StateTooLarge(msg)
    for key in new.locks:
        LockKey.write(key.path)
    for path in new.poisons:
        LockKey.write(path)
    for text, what in ((new.owner, "owner"), (new.unit, "the undo unit"), (new.codec, "the codec")):
        if text:
            checked_text(text, what, 1024)
    _check_texts(new)
    checked_priority(new.priority)
    checked_limit_keys(new.limit_keys, "limit_keys")
    if not 1 <= new.version < _LARGEST or len(new.digest) > 64:
        msg = f"{new.id} has the version {new.version} and a digest of {len(new.digest)} bytes; that is no submit"
        raise UsageError(msg)
    _check_token(new)
    if new.trace is not None:
        check_context(new.trace.context)
    for at in (new.due_at, new.deadline):
        if at is not None:
            check_number(at, "a time")
    if new.limits is not None:
        _check_limits(new.limits)


def _check_token(new: NewProcedure) -> None:
    """Check the tokens of a submit, and its debounce."""
    if new.reuse is not None and len(new.reuse.token) != TOKEN:
        msg = f"the token of the submit of {new.id} has {len(new.reuse.token)} bytes, not {TOKEN}"
        raise UsageError(msg)
    if new.debounce is not None:
        _check_debounce(new, new.debounce)


def _check_debounce(new: NewProcedure, terms: DebounceTerms) -> None:
    others = {"on_existing": new.reuse is not None, "at": new.due_at is not None}
    checked_debounce(terms.key, terms.within, terms.at_most or None, others)
    if new.codec != "data" or not new.id.startswith(f"{terms.key}:") or len(terms.token) != TOKEN:
        msg = f"the debounce {terms.key} of {new.id} has an id, a state or a token that it cannot have"
        raise UsageError(msg)


def _check_limits(limits: StepLimits) -> None:
    if not set(limits.given or ()) <= set(Limits.__struct_fields__):
        msg = f"a submit gives limits that there are not: {', '.join(limits.given or ())!a:.120}"
        raise UsageError(msg)
    fields = (name for name in limits.__struct_fields__ if name in Limits.__struct_fields__)
    Limits(**{name: getattr(limits, name) for name in fields})


def check_context(context: bytes) -> None:
    """Check the context of a trace. Raises `UsageError`."""
    if not CONTEXT <= len(context) <= MOST_CONTEXT or not any(context[:16]) or not any(context[16:24]):
        msg = f"{len(context)} bytes are no context of a trace"
        raise UsageError(msg)
    try:
        context[CONTEXT:].decode("ascii")
    except UnicodeDecodeError:
        raise UsageError("the tracestate of a context is no ASCII text") from None


def check_type(name: str) -> None:
    """Check the name of a type. Raises `UsageError`."""
    if not 0 < len(name) <= 255 or not name.isprintable():
        msg = f"a type name has 1 to 255 printable characters; {name!r:.60} has not"
        raise UsageError(msg)


def check_number(number: float, what: str) -> None:
    """Check a number that is stored. Raises `UsageError`."""
    if not math.isfinite(number) or abs(number) > _LARGEST:
        msg = f"{what} has the number {number!r}, which means nothing here"
        raise UsageError(msg)
