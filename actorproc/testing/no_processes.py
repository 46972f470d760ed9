"""Base of pools without processes."""

from __future__ import annotations

from actorproc.model.ids import WorkerId
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = ["NoProcesses"]


class NoProcesses:
    """The part of a `WorkerPool` that is about its processes, for one whose workers have none of their own."""

    def usage(self, worker: WorkerId) -> tuple[float, int] | None:
        """There is no process to measure."""

    @property
    def limits(self) -> str:
        """Memory is not limited."""
        return "none"

    @property
    def process_limits(self) -> str:
        """Processes are not counted."""
        return "none"

    def processes(self, worker: WorkerId) -> int | None:
        """There are none to count."""

    def limit_memory(self, worker: WorkerId, size: int | None) -> None:
        """The memory is the program's."""

    def logs(self, procedure: str) -> list[LogEntry]:
        """Return nothing: prints go where the program's output goes."""
        del procedure
        return []
