"""Report on the end of a worker process, in words and numbers."""

from __future__ import annotations

import msgspec

__all__ = ["HOST_LOST", "KINDS_OF_DEATH", "CrashReport"]

HOST_LOST = "host-lost"
"""Kind of the report of a worker that was lost with its host, or ended because host and leader lost each other."""

KINDS_OF_DEATH = (
    *("exit", "signal", "out-of-memory", "memory-limit", "process-limit", "timeout", "cpu-limit", "heartbeat-limit"),
    *("loop-blocked", "boot", "protocol", "killed", "aborted", HOST_LOST),
)
"""Kinds of reports of workers that were not asked to stop."""


class CrashReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """Cause of a worker's end. It is stored with the step it is charged to, and carried by `WorkerCrashed`."""

    kind: str
    """exit, signal, out-of-memory, memory-limit, process-limit, timeout, cpu-limit, heartbeat-limit, loop-blocked,
    boot, protocol, killed, aborted, stopped, host-lost."""
    message: str
    """One sentence: "killed by signal 9 (SIGKILL)", "exited with code 3 in the middle of a step"."""
    code: int | None = None
    signal: str | None = None
    stderr: str = ""
    """The last lines the worker wrote there."""
    stack: str = ""
    """Text of faulthandler: the Python stacks of a native crash, or of the moment before a kill."""
    peak_rss: int | None = None
    """Bytes resident at most; None: not known."""
    cpu_time: float | None = None
    """CPU seconds of the worker's whole life, and of its children that ended."""
    duration: float | None = None
    """Seconds the step ran that it died in; None: it was idle."""
    task: int | None = None
    """Number of the task that it died in, of a worker with an event loop; 0: in none. Not stored."""
