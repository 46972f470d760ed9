"""The worker pool protocol: start, send, kill; events: booted, messages, died.

Nothing above this protocol may assume a pid, a pipe or a file; pids are shown, never used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import msgspec

from actorproc.model.events import CrashReport
from actorproc.model.ids import StepToken, WorkerId
from actorproc.workers.frames import FromWorker, ToWorker

__all__ = ["PoolEvent", "WorkerBooted", "WorkerDied", "WorkerInfo", "WorkerMessages", "WorkerPool"]


class WorkerBooted(msgspec.Struct, frozen=True, gc=False):
    """The worker said `Ready`."""

    worker: WorkerId
    pid: int


class WorkerMessages(msgspec.Struct, frozen=True, gc=False):
    """Messages of one or more frames, in order of arrival."""

    worker: WorkerId
    messages: list[FromWorker]


class WorkerDied(msgspec.Struct, frozen=True, gc=False):
    """The process is reaped and its channel was read to the end; all its messages were delivered before.

    `booted` is false for a boot failure (it never said `Ready`).
    """

    worker: WorkerId
    report: CrashReport
    booted: bool


PoolEvent = WorkerBooted | WorkerMessages | WorkerDied


class WorkerInfo(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One worker as shown by `ProcedureManager.workers()`; times in seconds, memory in bytes."""

    slot: int
    incarnation: int
    pid: int
    state: str
    """booting, idle, busy, stopping, parked."""
    procedure: str | None = None
    type_name: str | None = None
    step: int | None = None
    attempt: int | None = None
    queued: int = 0
    """Steps handed to this worker and not begun."""
    step_age: float | None = None
    age: float = 0.0
    restarts: int = 0
    cpu: float | None = None
    """CPU seconds used."""
    rss: int | None = None
    progress: float | None = None
    message: str | None = None


class WorkerPool(Protocol):
    """Starts, feeds and kills workers. All methods return at once and may be called from any thread."""

    def open(self, sink: Callable[[PoolEvent], None]) -> None:
        """Begin; `sink` gets every event, on a thread of the pool, and must not block."""
        ...

    def launch(self, worker: WorkerId) -> None:
        """Start this worker, or name a warm spare so. Ends in `WorkerBooted` or `WorkerDied`."""
        ...

    def send(self, worker: WorkerId, messages: Sequence[ToWorker]) -> None:
        """Queue messages for a worker, in order. Messages for a dead or unknown worker are dropped."""
        ...

    def stop(self, worker: WorkerId) -> None:
        """Ask for an orderly end after the running step."""
        ...

    def kill(self, worker: WorkerId, *, grace: float = 0.0, blamed: StepToken | None = None, reason: str = "") -> None:
        """SIGTERM, `grace` seconds, then SIGKILL of the whole group; `reason` goes into the crash report."""
        ...

    def facts(self) -> dict[WorkerId, WorkerInfo]:
        """pid, age, cpu and rss of every live worker, sampled now."""
        ...

    def close(self, timeout: float) -> None:
        """Stop all workers in order, kill what is left after `timeout` seconds, reap everything. Idempotent."""
        ...
