"""The descriptors 0, 1 and 2, which must never be those of a store.

A program may be started without them. The next files that it opens take their numbers then, and output of a library to
"stderr" goes into them. A later opening of `/dev/null` there, as of a daemon, takes them away. So they are given to
`/dev/null` before anything of ours is opened, as SQLite does it.
"""

from __future__ import annotations

import contextlib
import os

__all__ = ["occupy_standard_files"]

_STDERR = 2


def occupy_standard_files() -> None:
    """See that 0, 1 and 2 are open: those that are not become `/dev/null`, for this program alone and for its life."""
    with contextlib.suppress(OSError):  # no descriptor is free, or there is no such file: what is opened next says it
        fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        while fd <= _STDERR:
            fd = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.close(fd)
