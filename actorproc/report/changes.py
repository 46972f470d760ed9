"""Changes of procedures while they go on: for watchers, and as events for logs and hooks.

A change is a difference between two committed heads, told in the order of commits, never before the commit.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from actorproc.model.lines import plain_line
from actorproc.model.names import step_in_words
from actorproc.model.plain import plain_dict
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.states import TERMINAL, Phase, ProcedureState

__all__ = [
    "Change",
    "ChangeDigest",
    "ChangeKind",
    "DigestRow",
    "EventKind",
    "HostEvent",
    "HostEventKind",
    "LeaderEvent",
    "LeaderEventKind",
    "LifecycleEvent",
    "Overflow",
    "ProcedureEvent",
    "WorkerEvent",
    "WorkerEventKind",
]

ChangeKind = Literal["present", "state", "step", "progress"]
EventKind = Literal[
    "submitted",
    "recovered",  # a root that an earlier life of the manager left unfinished
    "started",
    "suspended",
    "waiting",
    "sleeping",
    "locked-out",
    "retrying",
    "stuck",
    "parked",
    "rolling-back",
    "poisoned",
    "succeeded",
    "failed",
    "rolled-back",
]
WorkerEventKind = Literal[
    "worker-died",  # of itself, killed from outside, or killed for a limit
    "worker-recycled",  # replaced in order: its steps, age or memory
    "worker-parked",  # its slot failed too often and rests
    "worker-recovered",  # a worker has booted in a parked slot
]

HostEventKind = Literal[
    "host-joined",
    "host-drains",  # it gets no further step, and leaves when those that run have ended
    "host-left",  # in order
    "host-lost",  # it was silent for too long, or broke; its steps run again elsewhere
]

LeaderEventKind = Literal[
    "leader-changed",  # this manager leads from now on
    "deposed",  # another one leads; this one follows
]


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that happened to a procedure; `at` in epoch seconds (UTC)."""

    kind: ChangeKind
    """"state": its state or phase is another one. "step": the same, with another step or attempt. "progress": the
    running step told how far it is. "present": nothing happened, this is how it is now."""
    seq: int
    """Grows with every change, also over restarts of the manager; give it as ``since`` to go on from here."""
    at: float
    id: str
    root: str
    type_name: str
    state: ProcedureState
    phase: Phase
    previous: ProcedureState
    """The state before; INITIALIZING for a procedure that is new."""
    step: int
    attempt: int
    step_name: str | None = None
    """Name of the step, or the label of what is being undone; None: it has a number only."""
    error: ErrorInfo | None = None
    reason: str | None = None
    """Reason for this phase, in words."""
    progress: float | None = None
    """From 0 to 1, of ``ctx.heartbeat``; only in changes of that kind."""
    message: str | None = None

    @property
    def ended(self) -> bool:
        """The procedure is in a terminal state."""
        return self.state in TERMINAL

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in this order of fields."""
        return plain_dict(self)


class Overflow(msgspec.Struct, frozen=True, kw_only=True):
    """A gap: changes the watcher did not take in time, or that are no longer known, were dropped here."""

    kind: Literal["overflow"] = "overflow"
    seq: int
    """The change that comes next is a later one than this."""
    lost: int | None
    """Number of changes that were dropped; None: not known."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class DigestRow(msgspec.Struct, frozen=True, kw_only=True):
    """A procedure that has changed, as its newest change left it."""

    id: str
    root: str
    state: ProcedureState
    phase: Phase
    step: int
    attempt: int
    step_name: str | None = None
    """Name of the step, or the label of what is being undone; None: it has a number only."""
    progress: float | None = None
    """From 0 to 1, of ``ctx.heartbeat``, if the running step has told it since the last digest."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in this order of fields."""
        return plain_dict(self)


class ChangeDigest(msgspec.Struct, frozen=True, kw_only=True):
    """Coalesced changes of a short time: each procedure once, however often it changed."""

    kind: Literal["digest"] = "digest"
    at: float
    """Epoch seconds (UTC)."""
    rows: tuple[DigestRow, ...] = ()
    removed: tuple[str, ...] = ()
    """Ids of procedures that are no longer stored."""
    omitted: int | None = 0
    """Number of changes that were too many to list; `rows` and `removed` are empty then. None: not known, because
    the manager was away, so anything may have changed. 0: nothing is left out."""

    @property
    def is_whole(self) -> bool:
        """All that changed is listed."""
        return self.omitted == 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in this order of fields."""
        return plain_dict(self)


class ProcedureEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A moment in the life of a procedure, for logs and hooks. Best effort: a full queue drops the newest."""

    kind: EventKind
    at: float
    """Epoch seconds (UTC)."""
    id: str
    root: str
    parent: str | None
    type_name: str
    state: ProcedureState
    step: int
    attempt: int
    step_name: str | None = None
    """Name of the step, or the label of what is being undone; None: it has a number only."""
    error: ErrorInfo | None = None
    reason: str | None = None
    key: str | None = None
    """The key, of a "poisoned"."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in this order of fields."""
        return plain_dict(self)

    def __str__(self) -> str:
        """One line: "retrying Order order-7 step 3 attempt 2: ConnectionError: refused"."""
        line = f"{self.kind} {self.type_name} {self.id}"
        if self.key is not None:
            line += f" key {self.key!r}"
        elif self.attempt:
            line += f" {step_in_words(self.step, self.step_name)} attempt {self.attempt}"
        if self.error is not None:
            line = f"{line}: {self.error.type_name}: {self.error.message}"
        elif self.reason:
            line = f"{line}: {self.reason}"
        return plain_line(line)


class WorkerEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A moment in the life of a worker process. The end of the whole engine tells none."""

    kind: WorkerEventKind
    at: float
    """Epoch seconds (UTC)."""
    slot: int
    incarnation: int
    pid: int | None
    """None: it never booted, or the slot is meant."""
    cause: str | None
    """The kind of the `CrashReport`: exit, signal, out-of-memory, memory-limit, process-limit, timeout, cpu-limit,
    heartbeat-limit, boot, protocol."""
    signal: str | None = None
    """"SIGKILL", if it was one."""
    code: int | None = None
    """The exit code, if there was one."""
    reason: str | None = None
    """In one sentence."""
    id: str | None = None
    """The procedure whose step it died in; None: it had nothing to do."""
    type_name: str | None = None
    step: int | None = None
    attempt: int | None = None
    step_name: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in this order of fields."""
        return plain_dict(self)

    def __str__(self) -> str:
        """One line: "worker-died 0.3 pid 4711 in Order order-7 step 3 attempt 1: killed by signal 9 (SIGKILL)"."""
        line = f"{self.kind} {self.slot}.{self.incarnation}"
        if self.pid is not None:
            line += f" pid {self.pid}"
        if self.id is not None:
            line += f" in {self.type_name} {self.id} {step_in_words(self.step or 0, self.step_name)}"
            line += f" attempt {self.attempt}"
        return plain_line(f"{line}: {self.reason}" if self.reason else line)


class LeaderEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A change of leaders, as a manager on a store that several machines share took part in it."""

    kind: LeaderEventKind
    at: float
    """Epoch seconds (UTC)."""
    epoch: int
    """Epoch with which this manager leads, or led until now."""
    store: str
    """The store, as messages name it."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in this order of fields."""
        return plain_dict(self)

    def __str__(self) -> str:
        """One line: "leader-changed epoch 7 of postgresql://db/app"."""
        return plain_line(f"{self.kind} epoch {self.epoch} of {self.store}")


class HostEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A moment in the life of a worker host, as the manager that leads sees it. The end of the manager tells none."""

    kind: HostEventKind
    at: float
    """Epoch seconds (UTC)."""
    name: str
    """Its name in reports, such as ``h3``."""
    machine: str
    """The name that it gave itself; "": it has not joined this leader, which knows it from steps of the one before."""
    workers: int = 0
    """Workers that it offers, of a "host-joined"; else those that were there."""
    steps: int = 0
    """Steps in the hands of its workers: adopted ones, of a "host-joined"; of a "host-lost" those that run again."""
    reason: str | None = None
    """In one sentence."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in this order of fields."""
        return plain_dict(self)

    def __str__(self) -> str:
        """One line: "host-lost h3 (gpu-box) workers 8 steps 5: host h3 (gpu-box) was silent for 10 s"."""
        line = f"{self.kind} {self.name}{f' ({self.machine})' if self.machine else ''}"
        line += f" workers {self.workers} steps {self.steps}"
        return plain_line(f"{line}: {self.reason}" if self.reason else line)


LifecycleEvent = ProcedureEvent | WorkerEvent | HostEvent | LeaderEvent
"""Argument of ``on_event``; ``kind`` tells which."""
