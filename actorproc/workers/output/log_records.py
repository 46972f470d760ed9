"""Log records of the engine: attributes that say which step they are of, and text that no terminal obeys.

Records of the engine name errors, reasons and output of others. Control characters in these, and marks that change the
direction of text, are escaped in the record itself, so that no handler brings them to a terminal.
"""

from __future__ import annotations

import logging
from typing import Any

from actorproc.model.lines import is_harmless, plain_text

__all__ = ["step_facts"]

_formatter = logging.Formatter()


class _Escaping(logging.Filter):
    """Escapes the arguments and the traceback of a record; one that is harmless stays as it is."""

    def filter(self, record: logging.LogRecord) -> bool:
        if isinstance(record.args, tuple) and record.args:
            record.args = tuple(map(_escaped, record.args))
        if record.exc_info and not record.exc_text:
            text = _formatter.formatException(record.exc_info)
            if not is_harmless(text):
                record.exc_text = plain_text(text)
        return True


def _escaped(argument: object) -> object:
    if isinstance(argument, int | float):
        return argument
    try:
        text = str(argument)
    except Exception:  # noqa: BLE001 - it is for the handler to find out
        return argument
    return argument if is_harmless(text) else plain_text(text)


logging.getLogger("actorproc").addFilter(_Escaping())


def step_facts(
    procedure: str,
    root: str,
    type_name: str,
    step: int,
    step_name: str | None,
    attempt: int,
    slot: int | None,
    pid: int | None,
) -> dict[str, Any]:
    """The attributes by name. Without a step they are "" and 0; without a process `pid` is None."""
    return {
        "procedure": procedure,
        "root": root,
        "type": type_name,
        "step": step,
        "step_name": step_name,
        "attempt": attempt,
        "slot": slot,
        "pid": pid,
    }
