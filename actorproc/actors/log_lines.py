"""Log records of workers on their way to the host's logging, on the thread for callbacks.

A record reaches the logger that the step used, by its name, with the attributes that it had. Steps may log faster than
the host's handlers write. What does not fit is counted and dropped there; what is kept for `ProcedureManager.logs` is
not concerned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import msgspec

from actorproc.actors.outlet import Outlet
from actorproc.errors import RemoteError
from actorproc.model.lines import plain_text
from actorproc.workers.frames import LogLine

__all__ = ["LogLines"]

_facts = msgspec.msgpack.Decoder(dict[str, Any])


class LogLines:
    """Takes lines from the manager's thread. `post` runs an errand on the thread for callbacks."""

    def __init__(self, post: Callable[[Callable[[], object]], None], *, bound: int = 16_384) -> None:
        self._outlet = Outlet(self._deliver, post, bound=bound)
        self._told = 0

    def put(self, line: LogLine, type_name: str = "") -> None:
        """Deliver a line soon; `type_name` is that of the procedure whose step logged it."""
        self._outlet.put((line, type_name))

    def _deliver(self, item: tuple[LogLine, str]) -> None:
        try:
            _emit(*item)
        finally:
            dropped = self._outlet.lost - self._told
            if dropped and not self._outlet:
                self._told += dropped
                slow = "the log handlers of this program are too slow for them"
                logging.getLogger("actorproc").warning("%d log lines of workers were dropped: %s", dropped, slow)


def _emit(line: LogLine, type_name: str) -> None:
    logger = _logger_of(line.name)
    if logger.isEnabledFor(line.level):
        logger.handle(_record(line, type_name))


def _logger_of(name: str) -> logging.Logger:
    """The logger of this name, or the nearest above it: one that the program does not have is not made."""
    known = logging.Logger.manager.loggerDict
    while name:
        found = known.get(name)
        if isinstance(found, logging.Logger):
            return found
        name = name.rpartition(".")[0]
    return logging.getLogger()


def _record(line: LogLine, type_name: str) -> logging.LogRecord:
    try:
        facts = _facts.decode(line.facts) if line.facts else {}
    except msgspec.MsgspecError:
        facts = {}
    kind, message = facts.pop("exc_type", None), facts.pop("exc_message", None)
    token = line.token
    facts = {
        "procedure": token.procedure if token is not None else "",
        "type_name": type_name,
        "step": token.step if token is not None else 0,
        "attempt": token.attempt if token is not None else 0,
    } | facts  # attributes that the step gave by these names are its own
    trace = plain_text(line.trace)
    if kind is not None:
        error = RemoteError(str(message), trace, str(kind))
        facts["exc_info"] = (RemoteError, error, None)
        facts["exc_text"] = trace
    elif trace:
        facts["stack_info"] = trace
    level = logging.getLevelName(line.level)
    facts |= {"name": line.name, "levelno": line.level, "levelname": level, "msg": plain_text(line.text), "args": None}
    return logging.makeLogRecord(facts)
