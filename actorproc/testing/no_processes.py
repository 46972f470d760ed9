"""Base of pools without processes."""

from __future__ import annotations

from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.policies import StepLimits
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = ["NoProcesses"]


class NoProcesses:
    """The part of a `WorkerPool` that is about its processes, for one whose workers have none of their own."""

    def watch(self, worker: WorkerId, token: StepToken, limits: StepLimits) -> None:
        """There is no process to measure, and the memory is the program's."""

    def logs(self, procedure: str, timeout: float = 5.0) -> list[LogEntry]:
        """Return nothing: prints go where the program's output goes."""
        del procedure, timeout
        return []
