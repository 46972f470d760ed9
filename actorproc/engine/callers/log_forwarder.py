"""Log records of workers on their way to the host's logging, on the thread for callbacks.

A record reaches the logger that the step used, by its name, with the attributes that it had. Steps may log faster than
the host's handlers write. Records that do not fit are counted and dropped there. The log buffer, which
`ProcedureManager.logs` reads, keeps them.
"""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Callable
from typing import Any

import msgspec

from actorproc.engine.runtime.bounded_queue import BoundedQueue
from actorproc.errors import RemoteError
from actorproc.model.ids import WorkerId
from actorproc.model.lines import plain_line, plain_text
from actorproc.model.messages.commands import RunStep
from actorproc.procedure.encoding.log_records import EXCEPTION
from actorproc.support.log_attributes import RESERVED
from actorproc.workers.output.log_records import step_facts
from actorproc.workers.protocol.frames import LogLine

__all__ = ["LogForwarder"]

_extra = msgspec.msgpack.Decoder(dict[str, Any])


class LogForwarder:
    """Takes lines from the manager. `post` runs an errand on the thread for callbacks.

    Needs the manager's turn (`CombiningInbox`).
    """

    def __init__(self, post: Callable[[Callable[[], object]], None], *, bound: int = 16_384) -> None:
        self._queue = BoundedQueue(self._deliver, post, bound=bound)
        self._told = 0

    def put(self, line: LogLine, worker: WorkerId, command: RunStep | None, pid: int = 0) -> None:
        """Deliver a line soon.

        Args:
            line: what was logged.
            worker: the worker it came from.
            command: the step that logged it; None: no step that this worker still has in hand.
            pid: process of the worker; 0: not known.
        """
        self._queue.put((line, worker, command, pid))

    def _deliver(self, item: tuple[LogLine, WorkerId, RunStep | None, int]) -> None:
        line, worker, command, pid = item
        try:
            _emit(line, _facts(line, worker, command, pid))
        finally:
            dropped = self._queue.lost - self._told
            if dropped and not self._queue:
                self._told += dropped
                slow = "the log handlers of this program are too slow for them"
                logging.getLogger("actorproc").warning("%d log lines of workers were dropped: %s", dropped, slow)


def _emit(line: LogLine, facts: dict[str, Any]) -> None:
    logger = _logger_of(line.name)
    if logger.isEnabledFor(line.level):
        logger.handle(_record(line, facts))


def _facts(line: LogLine, worker: WorkerId, command: RunStep | None, pid: int) -> dict[str, Any]:
    """Attributes that say which step logged it, and where."""
    token = line.token
    return step_facts(
        token.procedure if token is not None else "",
        command.root if command is not None else "",
        command.type_name if command is not None else "",
        token.step if token is not None else 0,
        command.step_name if command is not None else None,
        token.attempt if token is not None else 0,
        worker.slot,
        pid or None,
    )


def _logger_of(name: str) -> logging.Logger:
    """The logger of this name, or the nearest above it: one that the program does not have is not made."""
    known = logging.Logger.manager.loggerDict
    while name:
        found = known.get(name)
        if isinstance(found, logging.Logger):
            return found
        name = name.rpartition(".")[0]
    return logging.getLogger()


def _record(line: LogLine, facts: dict[str, Any]) -> logging.LogRecord:
    origin = line.origin
    record = logging.makeLogRecord({})
    record.name, record.levelno, record.levelname = plain_line(line.name), line.level, logging.getLevelName(line.level)
    record.msg, record.args = plain_text(line.text), None
    record.pathname, record.lineno, record.funcName = plain_line(origin.path), origin.line, plain_line(origin.function)
    record.filename = posixpath.basename(record.pathname)
    record.module = posixpath.splitext(record.filename)[0]
    record.process, record.processName = origin.process, plain_line(origin.process_name)
    record.thread, record.threadName = origin.thread, plain_line(origin.thread_name)
    if origin.created:
        record.relativeCreated += (origin.created - record.created) * 1000
        record.created, record.msecs = origin.created, origin.created % 1 * 1000 // 1
    given = vars(record)
    given.update(facts)
    extra = _extra_of(line)
    trace = plain_text(line.trace) if line.trace else ""
    match extra.get(EXCEPTION):
        case [str() as kind, str() as message]:
            error = RemoteError(message, trace, kind)
            error.add_note(trace)  # for handlers that format exceptions themselves
            record.exc_info = (RemoteError, error, None)
            record.exc_text = trace
        case _ if trace:
            record.stack_info = trace
    # Attributes that the step gave by the names of ours are its own.
    given.update((name, value) for name, value in extra.items() if name not in RESERVED)
    return record


def _extra_of(line: LogLine) -> dict[str, Any]:
    try:
        return _extra.decode(line.extra) if line.extra else {}
    except msgspec.MsgspecError:
        return {}
