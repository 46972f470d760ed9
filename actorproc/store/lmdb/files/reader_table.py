"""A forked copy of a process that has LMDB environments open: it leaves them, so that it can open its own.

`mdb_env_close` frees the places among the readers of the process that *opened* the environment, which in a copy is the
parent. So the table of readers is first exchanged for a private copy of it. LMDB then writes there, unmaps it, and
closes the copy's descriptors; locks of the parent (fcntl) are the parent's alone.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from pathlib import Path

__all__ = ["part_from_table_of_readers"]

_FIXED = 0x10
"""MAP_FIXED of Linux: in the place of what is mapped there."""


def part_from_table_of_readers(lock_file: Path) -> None:
    """Exchange each shared map of this file for a private copy. Raises `OSError` where that cannot be done."""
    wanted = os.stat(lock_file)  # noqa: PTH116
    device = f"{os.major(wanted.st_dev):02x}:{os.minor(wanted.st_dev):02x}"
    library = ctypes.CDLL(None, use_errno=True)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines():
        span, permissions, _, on, inode, *_ = line.split(maxsplit=5)
        if not permissions.endswith("s") or int(inode) != wanted.st_ino or on != device:
            continue
        begin, end = (int(part, 16) for part in span.split("-"))
        content = ctypes.string_at(begin, end - begin)
        how = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _FIXED
        if library.mmap(begin, end - begin, mmap.PROT_READ | mmap.PROT_WRITE, how, -1, 0) != begin:
            raise OSError(ctypes.get_errno(), "the table of readers of the parent could not be left")
        ctypes.memmove(begin, content, len(content))
