"""`JsonFormatter`: log records as JSON, one object a line, for collectors of logs."""

from __future__ import annotations

import contextlib
import datetime as dt
import decimal
import enum
import json
import logging
import math
import uuid
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from actorproc.support.log_attributes import STANDARD

__all__ = ["JsonFormatter"]

_OWN = frozenset({"time", "level", "logger", "exception", "stack", "file", "line", "function", "format_error"})
"""Keys of a line that no attribute of a record gives."""
_SHORTENED = 1000
"""Characters of the repr of an object."""
_LONGEST = 16 * 1024
"""Characters of a text in an attribute."""
_DEPTH = 8
"""Containers in containers."""
_MOST = 1000
"""Values in one attribute."""
_AS_TEXT = (uuid.UUID, decimal.Decimal, PurePath)


class JsonFormatter(logging.Formatter):
    """Formats each record as one line of JSON, in ASCII.

    The keys are ``time`` (UTC), ``level``, ``logger``, ``message``, ``file``, ``line``, ``function``, ``process`` and
    ``thread``. ``exception`` (``type``, ``message``, ``trace``) and ``stack`` come where there are some. All further
    attributes follow under their names, as ``procedure``, ``type``, ``step`` and ``attempt`` of the engine's records.
    One with the name of a key above gets ``extra_`` before it. Those that are None are left out.

    Any value is shown. Numbers that JSON does not have, bytes, dates and objects are texts. Long and deep ones are cut.
    A message whose arguments do not fit is shown with them, and ``format_error`` says what is wrong. It never raises.

    The arguments are those of `logging.Formatter`, and are not used.
    """

    def format(self, record: logging.LogRecord) -> str:
        """The line, without its end.

        Args:
            record: The record; it is not changed.

        Returns:
            A JSON object.
        """
        try:
            return json.dumps(dict(self._fields(record)), allow_nan=False)
        except Exception as error:  # noqa: BLE001 - a line of a log must not end the program that wrote it
            words = f"a log record could not be shown: {type(error).__name__}"
            return json.dumps({"level": "ERROR", "logger": __name__, "message": words})

    def _fields(self, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
        yield "time", _time(record.created)
        yield "level", _text(record.levelname)
        yield "logger", _text(record.name)
        try:
            yield "message", _text(record.getMessage())
        except Exception as error:  # noqa: BLE001 - arguments of user code
            yield "message", f"{_text(record.msg)} % {_repr(record.args)}"
            yield "format_error", f"{type(error).__name__}: {_text(error)}"
        for name, value in list(vars(record).items()):
            if name not in STANDARD and value is not None:
                key = _text(name)
                yield f"extra_{key}" if key in _OWN else key, _Plain().of(value)
        yield from self._traces(record)
        yield "file", _text(record.pathname)
        yield "line", _Plain().of(record.lineno)
        yield "function", _text(record.funcName or "")
        yield "process", _Plain().of(record.process)
        yield "thread", _text(record.threadName or "")

    def _traces(self, record: logging.LogRecord) -> Iterator[tuple[str, Any]]:
        raised = record.exc_info
        if isinstance(raised, tuple) and len(raised) == 3 and isinstance(raised[1], BaseException):
            kind = type(raised[1])
            # An exception that came from a worker stands for one of another class.
            name = vars(raised[1]).get("type_name") if kind.__module__ == "actorproc.errors" else None
            trace = record.exc_text or ""
            with contextlib.suppress(Exception):
                trace = trace or self.formatException(raised)
            shown = name if isinstance(name, str) and name else f"{kind.__module__}.{kind.__qualname__}"
            message = _text(raised[1])
            yield "exception", {"type": _text(shown), "message": message, "trace": _text(trace)}
        elif record.exc_text:
            yield "exception", {"trace": _text(record.exc_text)}
        if record.stack_info:
            yield "stack", _text(record.stack_info)


def _time(created: float) -> str:
    try:
        moment = dt.datetime.fromtimestamp(created, dt.UTC)
    except (OverflowError, OSError, TypeError, ValueError):  # of a record that was made by hand
        return _repr(created)
    return moment.isoformat(timespec="microseconds").replace("+00:00", "Z")


def _text(value: Any) -> str:
    """The text of a value, which UTF-8 can hold."""
    try:
        text = str(value)
    except Exception:  # noqa: BLE001 - user code
        text = _repr(value)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _repr(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - user code
        text = f"<{type(value).__name__} without a repr>"
    return _text(text[:_SHORTENED])


class _Plain:
    """Turns one attribute into what JSON has."""

    def __init__(self) -> None:
        self._room = _MOST

    def of(self, value: Any, depth: int = _DEPTH) -> Any:
        kind = type(value)
        self._room -= 1
        if value is None or kind is bool:
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**64 else _repr(hex(value))[1:-1]
        if kind is float:
            return value if math.isfinite(value) else str(value)
        if kind is str:
            return _text(value[:_LONGEST])
        if kind is bytes or kind is bytearray:
            return value[:_LONGEST].decode("utf-8", "backslashreplace")
        if isinstance(value, dt.datetime | dt.date | dt.time):
            return _text(value.isoformat())
        if isinstance(value, enum.Enum):
            return self.of(value.value, 0)
        if isinstance(value, _AS_TEXT):
            return _text(value)
        if depth and self._room > 0:
            if kind in (list, tuple, set, frozenset):
                return [self.of(item, depth - 1) for item in self._some(value)]
            if kind is dict:
                return {_text(key)[:_SHORTENED]: self.of(value[key], depth - 1) for key in self._some(value)}
        return _repr(value)

    def _some(self, values: Any) -> Iterator[Any]:
        """The items for which there is room."""
        for item in list(values):
            if self._room <= 0:
                return
            yield item
