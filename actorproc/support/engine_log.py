"""Loggers for the threads that everything hangs on.

A log handler is code of the host program and runs on the thread that logs. One that raises costs its line, and not the
engine with all that runs on it.
"""

from __future__ import annotations

import contextlib
import logging
import traceback
from typing import Any

__all__ = ["engine_logger"]


class _EngineLogger(logging.LoggerAdapter[logging.Logger]):
    """A logger that never raises; what a handler raised is printed, as the handlers of the standard library do."""

    def log(self, level: int, msg: object, *args: object, **options: Any) -> None:
        try:
            self.logger.log(level, msg, *args, stacklevel=2, **options)
        except Exception:  # noqa: BLE001 - it is the handler's
            if logging.raiseExceptions:
                with contextlib.suppress(Exception):  # stderr may be closed, or be what raised
                    traceback.print_exc()


def engine_logger(name: str) -> logging.LoggerAdapter[logging.Logger]:
    """The logger of this name, for a thread that no log handler may end."""
    return _EngineLogger(logging.getLogger(name), None)
