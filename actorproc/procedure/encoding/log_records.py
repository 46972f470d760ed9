"""Log records as plain data, on their way from a step to the loggers of the program."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import logging
import uuid
from typing import Any, NamedTuple

import msgspec

from actorproc.procedure.values.error_text import encodable
from actorproc.support.log_attributes import STANDARD, free_name

__all__ = ["EXCEPTION", "LogOrigin", "LogParts", "log_parts"]

EXCEPTION = "exc_info"
"""Key of the exception's type and text among the extra attributes."""

_LONGEST = 64 * 1024
"""Characters of a text."""
_LONGEST_FACT = 16 * 1024
"""Bytes of one attribute of a record; a longer one goes as the beginning of its repr."""
_SHORTENED = 1000
_EXTRAS = 128
"""Attributes beside those of every record, at most."""
_DEPTH = 8
"""Containers in containers."""
_PLAIN = (type(None), bool, int, float, bytes, dt.datetime, dt.date, dt.time, uuid.UUID, decimal.Decimal)
_formatter = logging.Formatter()
_encode = msgspec.msgpack.Encoder().encode


class LogOrigin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The time and place of a log record."""

    created: float = 0.0
    path: str = ""
    line: int = 0
    function: str = ""
    process: int = 0
    process_name: str = ""
    thread: int = 0
    thread_name: str = ""


class LogParts(NamedTuple):
    """One log record."""

    level: int
    name: str
    """Of the logger."""
    text: str
    """The message."""
    trace: str
    """Traceback of `exc_info` and the stack of `stack_info`; "": neither was given."""
    origin: LogOrigin
    extra: bytes
    """A msgpack map of the attributes that `extra` gave, and the exception's type and text; empty: there are none."""


def log_parts(record: logging.LogRecord) -> LogParts:
    """The parts of a record. One that was made by hand may have anything in its attributes."""
    extra = {}
    for name in list(vars(record).keys() - STANDARD)[:_EXTRAS]:
        extra[free_name(encodable(str(name)[:_SHORTENED]))] = msgspec.Raw(_fact(vars(record)[name]))
    trace = record.exc_text or ""
    if record.exc_info and record.exc_info[1] is not None:
        trace = trace or _formatter.formatException(record.exc_info)
        kind = type(record.exc_info[1])
        extra[EXCEPTION] = msgspec.Raw(_fact([f"{kind.__module__}.{kind.__qualname__}", _said(record.exc_info[1])]))
    if record.stack_info:
        trace += ("\n" if trace else "") + record.stack_info
    return LogParts(
        int(record.levelno),
        encodable(str(record.name)[:_LONGEST]),
        # Of its class: `extra` may have given the record an attribute of that name.
        encodable(type(record).getMessage(record)[:_LONGEST]),
        encodable(trace[-_LONGEST:]) if trace else "",  # the last lines say most
        _origin(record),
        _encode(extra) if extra else b"",
    )


def _origin(record: logging.LogRecord) -> LogOrigin:
    try:
        return LogOrigin(
            float(record.created),
            encodable(record.pathname),
            int(record.lineno),
            encodable(record.funcName or ""),
            record.process or 0,
            encodable(record.processName or ""),
            record.thread or 0,
            encodable(record.threadName or ""),
        )
    except (AttributeError, TypeError, ValueError):
        return LogOrigin()


def _fact(value: Any) -> bytes:
    """The value as msgpack. Objects go as their repr, which may hide secrets; of a long value its beginning goes."""
    with contextlib.suppress(Exception):  # an integer or a key that msgpack does not have, a container that changes
        found = _encode(_plain(value, _DEPTH))
        if len(found) <= _LONGEST_FACT:
            return found
    return _encode(encodable(_said_of(value)[:_SHORTENED]))


def _plain(value: Any, depth: int) -> Any:
    kind = type(value)
    if kind is str:
        return encodable(value)
    if kind in _PLAIN:
        return value
    if depth and kind in (list, tuple, set, frozenset):
        return [_plain(item, depth - 1) for item in value]
    if depth and kind is dict:
        return {_plain(key, 0): _plain(item, depth - 1) for key, item in value.items()}
    return encodable(_said_of(value)[:_SHORTENED])


def _said_of(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - user code
        return f"<{type(value).__name__} without a repr>"


def _said(error: BaseException) -> str:
    try:
        return encodable(str(error)[: _LONGEST_FACT // 4])
    except Exception:  # noqa: BLE001 - user code
        return _said_of(error)
