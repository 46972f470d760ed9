"""Phase of the host, in a page of shared memory: readable after the host was killed, to the instant."""

from __future__ import annotations

import mmap
import os
from enum import IntEnum
from pathlib import Path

from actorproc.testing.torture.faults import FaultPhase

__all__ = ["HostPeriod", "PhaseProbe", "ProbeMark"]

_SIZE = 4096


class ProbeMark(IntEnum):
    """Bytes of the page."""

    PERIOD = 0
    COMMITTING = 1
    ACTING = 2
    HEARD = 3
    TROUBLE = 4


class HostPeriod(IntEnum):
    """Of a host's life."""

    STARTING = 0
    RECOVERING = 1
    RUNNING = 2
    STOPPING = 3


class PhaseProbe:
    """The page of one life. The host sets marks, the episode runner reads them."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, _SIZE)
            self._page = mmap.mmap(fd, _SIZE)
        finally:
            os.close(fd)

    def set(self, mark: ProbeMark, value: int) -> None:
        """Set one mark."""
        self._page[mark] = value

    def get(self, mark: ProbeMark) -> int:
        """Read one mark."""
        return self._page[mark]

    @property
    def period(self) -> HostPeriod:
        """Phase of the host's life."""
        return HostPeriod(self.get(ProbeMark.PERIOD))

    def phase(self) -> FaultPhase | None:
        """The phase, as far as the host alone can tell; None: it depends on what its workers do."""
        if self.period is HostPeriod.STARTING:
            return FaultPhase.STARTING
        if self.period is HostPeriod.RECOVERING:
            return FaultPhase.RECOVERING
        if self.period is HostPeriod.STOPPING:
            return FaultPhase.STOPPING
        if self.get(ProbeMark.TROUBLE):
            return FaultPhase.TROUBLE
        if self.get(ProbeMark.COMMITTING):
            return FaultPhase.COMMITTING
        if self.get(ProbeMark.ACTING):
            return FaultPhase.ACTING
        return FaultPhase.HEARD if self.get(ProbeMark.HEARD) else None

    def close(self) -> None:
        """Let go of the page."""
        self._page.close()
