"""Phase of the host, in a page of shared memory: readable after the host was killed, to the instant."""

from __future__ import annotations

import mmap
import os
from enum import IntEnum
from pathlib import Path

from actorproc.testing.torture.faults import Phase

__all__ = ["Gauge", "Mark", "Stage"]

_SIZE = 4096


class Mark(IntEnum):
    """Bytes of the page."""

    STAGE = 0
    COMMITTING = 1
    ACTING = 2
    HEARD = 3
    TROUBLE = 4


class Stage(IntEnum):
    """Of a host's life."""

    STARTING = 0
    RECOVERING = 1
    RUNNING = 2
    STOPPING = 3


class Gauge:
    """The page of one life. The host sets marks, the tormentor reads them."""

    def __init__(self, path: Path) -> None:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.ftruncate(fd, _SIZE)
            self._page = mmap.mmap(fd, _SIZE)
        finally:
            os.close(fd)

    def set(self, mark: Mark, value: int) -> None:
        """Set one mark."""
        self._page[mark] = value

    def get(self, mark: Mark) -> int:
        """Read one mark."""
        return self._page[mark]

    @property
    def stage(self) -> Stage:
        """Phase of the host's life."""
        return Stage(self.get(Mark.STAGE))

    def phase(self) -> Phase | None:
        """The phase, as far as the host alone can tell; None: it depends on what its workers do."""
        if self.stage is Stage.STARTING:
            return Phase.STARTING
        if self.stage is Stage.RECOVERING:
            return Phase.RECOVERING
        if self.stage is Stage.STOPPING:
            return Phase.STOPPING
        if self.get(Mark.TROUBLE):
            return Phase.TROUBLE
        if self.get(Mark.COMMITTING):
            return Phase.COMMITTING
        if self.get(Mark.ACTING):
            return Phase.ACTING
        return Phase.HEARD if self.get(Mark.HEARD) else None

    def close(self) -> None:
        """Let go of the page."""
        self._page.close()
