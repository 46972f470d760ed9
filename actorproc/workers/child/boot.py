"""The first lines of a worker: its name for `ps`, and where it imports from.

The host's module path comes first through the channel, NUL-separated: what follows must be imported from the same
places as in the host. Only the standard library and this package are at hand here.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from typing import NoReturn

__all__ = ["boot"]

_NAME = "actorproc-work"
"""As `ps -e` and `top` show it; the system takes 15 characters."""


def boot() -> NoReturn:
    """Enter the directory, take the module path from the channel, and live as a worker.

    The second argument is the descriptor of the channel, the fifth that of the directory (-1: the inherited one).
    """
    channel, lifeline, fault, directory = map(int, sys.argv[2:6])
    if directory >= 0:
        os.fchdir(directory)
        os.close(directory)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="ascii") as name:  # noqa: PTH123 - Linux
        name.write(_NAME)
    size = int.from_bytes(_taken(channel, 4), "big")
    sys.path[:] = [os.fsdecode(part) for part in _taken(channel, size).split(b"\0")]
    gc.disable()  # what is imported stays for life, and the collector would look through it a dozen times
    from actorproc.workers.child.main import main  # noqa: PLC0415 - from where the host has it

    gc.freeze()
    gc.enable()
    main(channel, lifeline, fault)


def _taken(channel: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = os.read(channel, size - len(data))
        if not chunk:
            os._exit(94)
        data += chunk
    return data
