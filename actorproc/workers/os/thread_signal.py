"""A signal to one thread of another process."""

from __future__ import annotations

import functools
import importlib
from typing import Any

__all__ = ["signal_thread"]


def signal_thread(pid: int, thread: int, number: int) -> bool:
    """Signal this thread; False where the C library cannot, or the thread is not there.

    Args:
        pid: its process, which must be a child that is not reaped.
        thread: number of the thread, as the system has it.
        number: the signal.
    """
    tgkill = _tgkill()
    return tgkill is not None and tgkill(pid, thread, number) == 0


@functools.cache
def _tgkill() -> Any:
    try:
        return importlib.import_module("ctypes").CDLL(None).tgkill  # only a kill needs it
    except (ImportError, OSError, AttributeError, TypeError):  # a Python without it, macOS, an older C library
        return None
