"""Lifecycle events: to the logger ``actorproc.events`` and to the host's hook, on the thread for callbacks.

Best effort, as in GreptimeDB: events are for people and dashboards, the store is the truth. The queue is bounded,
and what does not fit is counted and dropped, so neither a slow log handler nor a hook that hangs holds the engine up.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from actorproc.engine.runtime.bounded_queue import BoundedQueue
from actorproc.model.messages.definitions import CALL_TYPE
from actorproc.report.changes import (
    EventKind,
    HostEvent,
    HostEventKind,
    LeaderEventKind,
    LifecycleEvent,
    ProcedureEvent,
    WorkerEvent,
    WorkerEventKind,
)

__all__ = ["EventHooks"]

logger = logging.getLogger("actorproc.events")

_LEVELS: Mapping[EventKind | WorkerEventKind | HostEventKind | LeaderEventKind, int] = {
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
    "host-joined": logging.INFO,
    "host-drains": logging.INFO,
    "host-left": logging.INFO,
    "host-lost": logging.WARNING,
    "leader-changed": logging.WARNING,
    "deposed": logging.WARNING,
}


class EventHooks:
    """Takes events from the manager, on the thread that has its turn, and delivers them on the thread for callbacks.

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
        self._queue = BoundedQueue(self._tell, post, bound=bound)

    @property
    def bound(self) -> int:
        """Events that wait to be delivered; more are dropped."""
        return self._queue.bound

    @property
    def lost(self) -> int:
        """Events dropped so far."""
        return self._queue.lost

    @property
    def level(self) -> int:
        """Lowest level of events that a hook or a log handler takes."""
        return logging.NOTSET if self._hook is not None else logger.getEffectiveLevel()

    def put(self, event: LifecycleEvent) -> None:
        """Deliver an event soon; returns at once."""
        if self._hook is not None or logger.isEnabledFor(_level_of(event)):
            self._queue.put(event)

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
        level = _level_of(event)
        if logger.isEnabledFor(level):
            logger.log(level, "%s", event, extra=_facts(event))


def _level_of(event: LifecycleEvent) -> int:
    if isinstance(event, ProcedureEvent) and event.kind in {"failed", "rolled-back"} and event.type_name == CALL_TYPE:
        return logging.DEBUG  # an exception and a cancellation are results of a call, and its future has them
    return _LEVELS[event.kind]


def _facts(event: LifecycleEvent) -> dict[str, object]:
    if isinstance(event, ProcedureEvent):
        return _procedure_facts(event)
    if isinstance(event, WorkerEvent):
        return _worker_facts(event)
    if isinstance(event, HostEvent):
        return {"event": event.kind, "host": event.name, "machine": event.machine, "steps": event.steps}
    return {"event": event.kind, "epoch": event.epoch, "store": event.store}


def _procedure_facts(event: ProcedureEvent) -> dict[str, object]:
    return {
        "event": event.kind,
        "procedure": event.id,
        "root": event.root,
        "parent": event.parent,
        "type": event.type_name,
        "state": str(event.state),
        "step": event.step,
        "step_name": event.step_name,
        "attempt": event.attempt,
        "error": f"{event.error.type_name}: {event.error.message}" if event.error is not None else None,
        "key": event.key,
    }


def _worker_facts(event: WorkerEvent) -> dict[str, object]:
    return {
        "event": event.kind,
        "procedure": event.id,
        "type": event.type_name,
        "step": event.step,
        "step_name": event.step_name,
        "attempt": event.attempt,
        "slot": event.slot,
        "incarnation": event.incarnation,
        "pid": event.pid,
        "cause": event.cause,
        "signal": event.signal,
        "exit_code": event.code,
    }
