"""Lifecycle events: to the logger ``actorproc.events`` and to the host's hook, on the thread for callbacks.

Best effort, as in GreptimeDB: events are for people and dashboards, the store is the truth. The queue is bounded,
and what does not fit is counted and dropped, so neither a slow log handler nor a hook that hangs holds the engine up.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping

from actorproc.changes import EventKind, LifecycleEvent, ProcedureEvent, WorkerEvent, WorkerEventKind

__all__ = ["EventSink"]

logger = logging.getLogger("actorproc.events")
# A library's own word about a procedure is not for the stderr of a host that configured no logging.
logger.addHandler(logging.NullHandler())

_LEVELS: Mapping[EventKind | WorkerEventKind, int] = {
    "submitted": logging.INFO,
    "recovered": logging.INFO,
    "started": logging.DEBUG,
    "suspended": logging.DEBUG,
    "waiting": logging.DEBUG,
    "sleeping": logging.DEBUG,
    "locked-out": logging.DEBUG,
    "retrying": logging.INFO,
    "stuck": logging.WARNING,
    "parked": logging.WARNING,
    "rolling-back": logging.INFO,
    "poisoned": logging.ERROR,
    "succeeded": logging.INFO,
    "failed": logging.ERROR,
    "rolled-back": logging.WARNING,
    "worker-died": logging.WARNING,
    "worker-recycled": logging.INFO,
    "worker-parked": logging.ERROR,
    "worker-recovered": logging.WARNING,
}


class EventSink:
    """Takes events from the manager's thread and delivers them elsewhere.

    `hook` is called with each event; what it raises is logged. `post` runs an errand on the thread for callbacks.
    """

    def __init__(
        self,
        hook: Callable[[LifecycleEvent], object] | None,
        post: Callable[[Callable[[], object]], None],
        *,
        bound: int = 16_384,
    ) -> None:
        self._hook = hook
        self._post = post
        self.bound = bound
        """Events that wait to be delivered; more are dropped."""
        self._queue: deque[LifecycleEvent] = deque()
        self._lock = threading.Lock()
        self._posted = False
        self.lost = 0

    @property
    def level(self) -> int:
        """Events below this level are of no use to anybody."""
        return logging.NOTSET if self._hook is not None else logger.getEffectiveLevel()

    def put(self, event: LifecycleEvent) -> None:
        """Deliver an event soon; returns at once."""
        if self._hook is None and not logger.isEnabledFor(_LEVELS[event.kind]):
            return
        with self._lock:
            if len(self._queue) >= self.bound:
                self.lost += 1
                return
            self._queue.append(event)
            if self._posted:
                return
            self._posted = True
        self._post(self._deliver)

    def _deliver(self) -> None:
        try:
            while (event := self._next()) is not None:
                self._tell(event)
        except (
            BaseException
        ):  # sys.exit() in the hook, or a log handler that raises: the next ones are told all the same
            self._post(self._deliver)
            raise

    def _next(self) -> LifecycleEvent | None:
        with self._lock:
            self._posted = bool(self._queue)
            return self._queue.popleft() if self._queue else None

    def _tell(self, event: LifecycleEvent) -> None:
        try:
            self._log(event)
        finally:
            if self._hook is not None:
                try:
                    self._hook(event)
                except Exception:
                    logger.exception("on_event raised for: %s", event)

    @staticmethod
    def _log(event: LifecycleEvent) -> None:
        level = _LEVELS[event.kind]
        if logger.isEnabledFor(level):
            extra = _procedure_facts(event) if isinstance(event, ProcedureEvent) else _worker_facts(event)
            logger.log(level, "%s", event, extra=extra)


def _procedure_facts(event: ProcedureEvent) -> dict[str, object]:
    return {
        "event": event.kind,
        "procedure": event.id,
        "root": event.root,
        "parent": event.parent,
        "type_name": event.type_name,
        "state": str(event.state),
        "step": event.step,
        "attempt": event.attempt,
        "error": f"{event.error.type_name}: {event.error.message}" if event.error is not None else None,
        "key": event.key,
    }


def _worker_facts(event: WorkerEvent) -> dict[str, object]:
    return {
        "event": event.kind,
        "procedure": event.id,
        "type_name": event.type_name,
        "step": event.step,
        "attempt": event.attempt,
        "slot": event.slot,
        "incarnation": event.incarnation,
        "worker_pid": event.pid,
        "cause": event.cause,
        "signal": event.signal,
        "exit_code": event.code,
    }
