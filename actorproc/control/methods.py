"""Methods of the engine that other processes may call, and the types that go in and out."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from actorproc.core.locks.request import LockWaiter
from actorproc.core.operator.verbs import VERBS
from actorproc.engine.messages import Described, ManagerMetrics, ManagerStatus, SlotStatus
from actorproc.model.ids import StepToken, WorkerId, new_id
from actorproc.model.messages import events
from actorproc.model.messages.definitions import Definition
from actorproc.model.reports import BackupReport, CompactionReport
from actorproc.model.rows.records import LockRecord, ProcedureRecord
from actorproc.report.hosts import HostInfo
from actorproc.workers.base import WorkerInfo
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = ["METHODS", "REPEATABLE", "REQUESTS", "Method", "with_dedup"]


class Method(msgspec.Struct, frozen=True):
    """Place of the method (`owner`: an attribute of the engine, "" for itself), and its types."""

    owner: str
    takes: tuple[Any, ...]
    gives: Any
    repeatable: bool = True
    """Asked again after a lost connection without harm."""

    @property
    def arguments(self) -> Any:
        """The type of all arguments together."""
        return tuple.__class_getitem__(self.takes)


METHODS: dict[str, Method] = {
    "describe": Method("", (tuple[ProcedureRecord, ...],), tuple[Described, ...]),
    "glance": Method("", (str,), Described | None),
    "lock_waiters": Method("", (), list[LockWaiter]),
    "dangling_locks": Method("", (), list[tuple[LockRecord, str]]),
    "manager_status": Method("", (), ManagerStatus | None),
    "metrics": Method("", (), ManagerMetrics),
    "slots": Method("", (), tuple[SlotStatus, ...]),
    "learn": Method("", (Definition,), None),
    "open_gate": Method("", (), None),
    "hosts": Method("", (), tuple[HostInfo, ...]),
    "drain_host": Method("", (str,), bool),
    "step_down": Method("", (), None, repeatable=False),
    "compact": Method("", (), CompactionReport),
    "reload": Method("", (float,), int, repeatable=False),
    "backup": Method("store", (str,), BackupReport, repeatable=False),
    "facts": Method("pool", (), list[tuple[WorkerId, WorkerInfo]]),
    "stack": Method("pool", (StepToken,), str),
    "logs": Method("pool", (str,), list[LogEntry]),
}

REQUESTS: dict[str, type[events.Event]] = {
    kind.__name__: kind for kind in get_args(events.Event) if "reply" in kind.__struct_fields__
}
"""The events that callers may send: those that are answered."""

REPEATABLE = frozenset({"Submitted", *(verb.event.__name__ for verb in VERBS if verb.is_repeatable)})
"""Requests that may be sent again when it is not known whether the first was heard: twice is as good as once."""


def with_dedup(event: events.Event) -> events.Event:
    """The event in the form in which it may be sent again: a signal gets an id by which it counts once."""
    if isinstance(event, events.Signalled) and event.ask is not None:
        return event
    if isinstance(event, events.Signalled | events.Published) and event.dedup is None:
        return msgspec.structs.replace(event, dedup=f"client {new_id()}")
    return event
