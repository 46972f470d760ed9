"""Logger of one step, `Context.log`: its records go to the host, and no mistake in a call of it fails the step."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from actorproc.procedure.encoding.log_records import LogParts, log_parts
from actorproc.support.log_attributes import RESERVED, free_name

__all__ = ["StepLogger"]

_told: set[str] = set()
"""Reserved names of attributes of which this process has said that they get others."""


class StepLogger(logging.Logger):
    """A logger that lives as long as its step; not from `getLogger`, as handlers of the process are not for it.

    Args:
        type_name: Of the procedure.
        level: From which records are sent.
        send: Sends a record; it does not wait.
    """

    def __init__(self, type_name: str, level: int, send: Callable[[LogParts], None]) -> None:
        super().__init__(f"actorproc.procedure.{type_name}", level)
        self.addHandler(_ToChannel(send))

    def makeRecord(self, *args: Any, extra: Any = None, **options: Any) -> logging.LogRecord:  # noqa: N802 - of logging
        """The record. Attributes that cannot have their names get others, where `logging` raises `KeyError`."""
        given, args = (args[8], (*args[:8], None, *args[9:])) if len(args) > 8 else (extra, args)
        record = super().makeRecord(*args, **options)
        if given is not None:
            self._add(record, given)
        return record

    def _add(self, record: logging.LogRecord, extra: Any) -> None:
        named = extra if isinstance(extra, Mapping) else {"extra": extra}
        try:
            found = {str(name): value for name, value in named.items()}
        except Exception:  # noqa: BLE001 - user code
            found = {"extra": f"<{type(extra).__name__} that cannot be read>"}
        vars(record).update((free_name(name), value) for name, value in found.items())
        clashing = sorted((found.keys() & RESERVED) - _told)
        if clashing:
            _told.update(clashing)
            words = ", ".join(f"{name!r} as {free_name(name)!r}" for name in clashing)
            self.warning("extra={…} of a log call has names that records have themselves; they are sent: %s", words)


class _ToChannel(logging.Handler):
    """Sends each record; its id and step travel with the channel."""

    def __init__(self, send: Callable[[LogParts], None]) -> None:
        super().__init__()
        self._send = send

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._send(log_parts(record))
        except Exception:  # noqa: BLE001 - as logging does: a bad format must not fail the step
            self.handleError(record)
