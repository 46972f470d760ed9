"""Log records of a worker travel to the host as messages."""

from __future__ import annotations

import logging
from collections.abc import Callable

from actorproc.model.ids import StepToken
from actorproc.procedure.context import plain_parts
from actorproc.workers.child.channel import Channel
from actorproc.workers.frames import LogLine

__all__ = ["install"]


class _ToHost(logging.Handler):
    def __init__(self, channel: Channel, current: Callable[[], StepToken | None]) -> None:
        super().__init__()
        self._channel = channel
        self._current = current

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._channel.send([LogLine(self._current(), *plain_parts(record, self.format(record)))])
        except Exception:  # noqa: BLE001 - as logging does: a record that cannot be shown must not fail the step
            self.handleError(record)


def install(channel: Channel, level: int, current: Callable[[], StepToken | None]) -> None:
    """Forward what reaches the root logger at `level` or above; `current` tells the step that is running."""
    root = logging.getLogger()
    root.setLevel(level)
    root.addHandler(_ToHost(channel, current))
    logging.getLogger("pykka").setLevel(max(level, logging.WARNING))
