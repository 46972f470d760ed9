"""The worker pool protocol: start, send, kill; events: booted, messages, died.

Nothing above this protocol may assume a pid, a pipe or a file; pids are shown, never used.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec

from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.events import CrashReport
from actorproc.model.plain import plain_dict
from actorproc.model.policies import StepLimits
from actorproc.workers.protocol.frames import DEFAULT_MAX_FRAME, FromWorker, ToWorker
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = [
    "DUMP_SECONDS",
    "STACK_SECONDS",
    "HostDrains",
    "HostJoined",
    "HostLeft",
    "PoolEvent",
    "PoolFailed",
    "PoolSettings",
    "WorkerBooted",
    "WorkerDied",
    "WorkerExceeded",
    "WorkerInfo",
    "WorkerMessages",
    "WorkerPool",
]

DUMP_SECONDS = 0.02
"""Between the request for a stack dump and SIGTERM."""

STACK_SECONDS = 0.1
"""Time for a stack dump where SIGKILL comes next: the thread that writes it may wait for a processor."""


class HostJoined(msgspec.Struct, frozen=True, gc=False):
    """A machine offers workers. The first event of a pool is the one of the manager's own machine, with number 0."""

    host: int
    """Its number, of which those of its slots are made (`first_slot`)."""
    limits: str = "none"
    """Enforcement of memory limits there: "cgroup", "rlimit" or "none"."""
    process_limits: str = "none"
    """Protection against a fork bomb before it is seen: "cgroup", "rlimit", "sampling" (nothing does) or "none"."""
    name: str = ""
    """Name as people see it; "": the manager's own machine."""
    slots: int = 0
    """Number of workers to start there; of the manager's own machine the manager knows it."""
    labels: tuple[str, ...] = ()
    resources: dict[str, float] = {}
    living: tuple[tuple[WorkerId, int, tuple[StepToken, ...]], ...] = ()
    """Workers that live there already, with their pids and the steps in their hands that count."""
    machine: str = ""
    """The name that it gave itself."""
    code: str = ""
    """Revision of its code as the user names it (`Config.code`); "": files are compared."""
    digests: dict[str, str] = {}
    """SHA-256 of the file of each type that it knows, by the type's name."""


class HostDrains(msgspec.Struct, frozen=True, gc=False):
    """A machine wants to leave: its workers are to end what they have begun."""

    host: int
    reason: str


class HostLeft(msgspec.Struct, frozen=True, gc=False):
    """A machine is gone; the deaths of the workers that it still had follow, with the kind host-lost."""

    host: int
    reason: str
    is_lost: bool
    """It was not expected to go."""


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
    successor: WorkerId | None = None
    """A spare that took the place at once (`launch(…, replace=True)`); its `WorkerBooted` follows."""


class WorkerExceeded(msgspec.Struct, frozen=True, gc=False):
    """A step that is watched uses more than it may. Told once; its worker is left alive."""

    worker: WorkerId
    token: StepToken
    kind: str
    """cpu-limit, memory-limit or process-limit."""
    why: str
    """A sentence for the report."""


class PoolFailed(msgspec.Struct, frozen=True):
    """The pool itself is no more, by a bug: its workers are dead, none of them is told of, and none can be started."""

    error: BaseException


PoolEvent = (
    HostJoined | HostDrains | HostLeft | WorkerBooted | WorkerMessages | WorkerExceeded | WorkerDied | PoolFailed
)


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
    step_name: str | None = None
    """Name of the step, or the label of what is being undone; None: it has a number only."""
    queued: int = 0
    """Steps handed to this worker and not begun."""
    step_age: float | None = None
    """Seconds since the step began; None: no step."""
    age: float = 0.0
    """Seconds since the process was started."""
    restarts: int = 0
    """Of this slot."""
    cpu: float | None = None
    """CPU seconds used."""
    rss: int | None = None
    """Bytes resident."""
    progress: float | None = None
    message: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class PoolSettings(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Settings of a manager that hold for the workers of all its machines, as `LocalPool` has them."""

    max_frame: int = DEFAULT_MAX_FRAME
    max_state: int = 0
    max_call: int = 0
    warm_limit: int = 1024
    log_level: int = 20
    recycle_steps: int | None = None
    recycle_age: float | None = None
    recycle_memory: int | None = None


class WorkerPool(Protocol):
    """Starts, feeds and kills workers, from any thread, and does what needs their machine.

    All methods return at once, but the questions `stack`, `logs` and `facts`, and `close`: these are not for the
    manager's thread.
    """

    def open(self, sink: Callable[[PoolEvent], None]) -> None:
        """Begin.

        Args:
            sink: Called with every event, on a thread of the pool, the first ones maybe on this one; it must not block.
        """
        ...

    def launch(self, worker: WorkerId, *, replace: bool = False) -> None:
        """Start a worker, or name a warm spare so. Ends in `WorkerBooted` or `WorkerDied`.

        Args:
            worker: The worker.
            replace: When it dies in a step, the pool may give its place to a spare: the next incarnation, and so on.
                Default: False.
        """
        ...

    def send(self, worker: WorkerId, messages: Sequence[ToWorker]) -> None:
        """Queue messages for a worker. Messages for a dead or unknown worker are dropped.

        Args:
            worker: The worker.
            messages: The messages, in order.
        """
        ...

    def forget_spares(self) -> None:
        """End the processes that wait to replace a worker: they have loaded the code of their start."""
        ...

    def stop(self, worker: WorkerId) -> None:
        """Ask for an orderly end after the running step.

        Args:
            worker: The worker.
        """
        ...

    def kill(
        self,
        worker: WorkerId,
        *,
        grace: float = 0.0,
        blamed: StepToken | None = None,
        reason: str = "",
        kind: str = "",
        ask: bool = True,
    ) -> None:
        """Send SIGTERM, then SIGKILL to the whole process group.

        Args:
            worker: The worker.
            grace: Seconds between the two signals. Default: 0.
            blamed: The step that is the cause, for the crash report. Default: None.
            reason: The cause in words, for the crash report. Default: "".
            kind: Kind of the crash report. Default: "", "timeout" when a step is blamed, else "stopped".
            ask: Send SIGTERM. Default: True; False leaves `grace` for the stacks alone.
        """
        ...

    def watch(self, worker: WorkerId, token: StepToken, limits: StepLimits) -> None:
        """Sample what a running step uses, and limit its memory by the system where that can be done.

        Ends in `WorkerExceeded`, or without a word when the step is answered, given back, or put off for its state.

        Args:
            worker: The worker.
            token: The step, which runs now.
            limits: The limits of which ``cpu_time``, ``memory_hard`` and ``processes`` are seen to.
        """
        ...

    def stack(self, token: StepToken, timeout: float = 5.0) -> str:
        """The Python stack of a running step; waits for the worker's answer.

        Args:
            token: The step.
            timeout: Seconds to wait at most. Default: 5.

        Returns:
            The stack as text; "" when the step no longer runs.
        """
        ...

    def logs(self, procedure: str, timeout: float = 5.0) -> list[LogEntry]:
        """Prints and log records of a procedure, as far as they are kept.

        Args:
            procedure: The id of the procedure.
            timeout: Seconds to wait at most. Default: 5.

        Returns:
            The entries, oldest first.
        """
        ...

    def facts(self, timeout: float = 5.0) -> dict[WorkerId, WorkerInfo]:
        """pid, age, cpu and rss of every live worker, sampled now.

        Args:
            timeout: Seconds to wait at most. Default: 5.

        Returns:
            The facts of those that answered.
        """
        ...

    def close(self, timeout: float) -> None:
        """Stop all workers in order, kill those that are left, and reap everything. Idempotent.

        Args:
            timeout: Seconds before the kill.
        """
        ...
