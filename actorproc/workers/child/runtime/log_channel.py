"""Log records of a worker travel to the host as messages."""

from __future__ import annotations

import logging
from collections.abc import Callable

from actorproc.model.ids import StepToken
from actorproc.procedure.encoding.log_records import log_parts
from actorproc.workers.child.runtime.channel import WorkerChannel
from actorproc.workers.protocol.frames import LogLine
from actorproc.workers.protocol.host_program import HostProgram

__all__ = ["install"]

_OF_STEPS = "actorproc.procedure"
"""Logger of the host above those of `ctx.log`."""


class _ToHost(logging.Handler):
    def __init__(self, channel: WorkerChannel, current: Callable[[], StepToken | None]) -> None:
        super().__init__()
        self._channel = channel
        self._current = current

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._channel.send([LogLine(self._current(), *log_parts(record))])
        except Exception:  # noqa: BLE001 - as logging does: a record that cannot be shown must not fail the step
            self.handleError(record)


def install(channel: WorkerChannel, level: int, program: HostProgram, current: Callable[[], StepToken | None]) -> int:
    """Forward the records that reach the root logger, at the levels that loggers have in the host.

    Args:
        level: records from this level on are forwarded also where the host's root logger has a higher one, because the
            host keeps what procedures logged.
        current: tells the step that is running.

    Returns:
        The level for the loggers of steps.
    """
    root = logging.getLogger()
    root.setLevel(min(level, program.root_level))
    root.addHandler(_ToHost(channel, current))
    for name, own in program.levels.items():
        logging.getLogger(name).setLevel(own)
    pykka = logging.getLogger("pykka")
    pykka.setLevel(max(pykka.getEffectiveLevel(), logging.WARNING))
    of_steps = [own for name, own in program.levels.items() if name.startswith(f"{_OF_STEPS}.")]
    return min(level, logging.getLogger(_OF_STEPS).getEffectiveLevel(), *of_steps)
