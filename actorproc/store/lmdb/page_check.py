"""Check of a data file before LMDB opens it: LMDB trusts every byte.

LMDB has no checksums. A damaged page makes it read or write where nothing is, and the process dies of SIGSEGV or
SIGBUS. A damaged list of free pages makes it overwrite live ones. So a file that may have been changed is examined
before it is mapped, by `lmdb.verify`. That reads the file with plain reads and follows every page, so no finding can
kill it. That is why no other process is needed for it.

To look at everything costs time (about 20 ms per MiB), so it is looked at when there is a reason:

- The last owner stopped in good order and noted what the file looked like (size, inode, times of change): the seal.
  While the file still looks like that, it was not written to, and only the meta pages are checked.
- The last owner was killed, and the kernel that took its writes still runs. A kill leaves whole transactions, so a
  file above `EXAMINED_ANYWAY` bytes is trusted, and a smaller one is examined.
- In all other cases (touched, copied, restored, the machine was started anew) the file is examined, whatever its size.

A fault below the file system changes bits without changing times. The records' checksums are for that.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from actorproc.errors import EngineError, StoreDamaged
from actorproc.store.directory import DATA_FILE, OWNER_FILE, damaged_pages
from actorproc.store.lmdb.files.meta_pages import read_meta_pages
from actorproc.store.rows.tables import INDEXES

__all__ = [
    "EXAMINED_ANYWAY",
    "boot_id",
    "check_pages",
    "examined",
    "inode_of",
    "must_examine",
    "seal_of",
]

EXAMINED_ANYWAY = 64 << 20
"""Bytes up to which a file is examined after a mere kill of its owner; that takes somewhat more than a second."""

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_LEAK = "neither reachable nor in the freeDB"
"""Pages that are lost to use: a waste, and no danger."""
_INDEX_ORDER = re.compile(rf"main/({'|'.join(table.label for table in INDEXES)}) DB: leaf keys out of order ")
_SHOWN = 3
_TICK = 0.1
_PAUSE = 0.001
"""Seconds."""


def seal_of(path: Path, now: Callable[[], int], *, durable: bool) -> str:
    """Lines that say what the data file of a closed store looks like; only its size when that is all that is sure.

    `now` tells the file system's time, in nanoseconds. Its clock ticks every few milliseconds, and a write in the tick
    of the last commit could not be told from it. So the check waits for the next tick, at most `_TICK` seconds.
    Without the times the next owner looks at every page.
    `durable`: its last commit is on the disk. Else the seal holds until the machine is started anew.
    """
    try:
        facts, metas = _facts(path), read_meta_pages(path)
    except (OSError, EngineError):
        return ""
    until = time.monotonic() + _TICK
    while not (is_later := now() > int(facts["changed"])) and time.monotonic() < until:
        time.sleep(_PAUSE)
    if not is_later:
        facts = {"size": facts["size"]}
    facts["transaction"] = str(metas.newest if metas is not None else 0)
    if not durable:
        facts["boot"] = boot_id()
    return "".join(f"sealed-{name} {value}\n" for name, value in facts.items())


def examined(path: Path, last: Mapping[str, str]) -> bool:
    """Look at an existing file before it is mapped, as far as there is reason to; whether every page was looked at.

    `last` is what the last owner left in the owner's file. Raises `StoreDamaged`.
    """
    try:
        size = (path / DATA_FILE).stat().st_size
    except OSError:
        size = 0
    if size == 0:
        if "sealed-size" in last or "boot" in last:
            raise StoreDamaged(
                f"{path / DATA_FILE} is empty or gone, and there was a store: put it back, or restore a backup. To "
                f"begin anew, remove {path / OWNER_FILE} too",
                reason="the data file is empty or gone",
            )
        return False
    _check_metas(path, last, size)
    if not must_examine(path, last):
        return False
    check_pages(path)
    return True


def must_examine(path: Path, last: Mapping[str, str]) -> bool:
    """True if the pages have to be looked at."""
    found = {f"sealed-{name}": value for name, value in _facts(path).items()}
    size = int(found["sealed-size"])
    if "sealed-size" in last:
        bound = last.get("sealed-boot", "")
        as_left = all(last.get(name) == value for name, value in found.items())
        return not as_left or (bound != "" and bound != boot_id())
    was_killed_in_this_boot = last.get("boot", "") == boot_id() != ""
    is_the_same = last.get("inode") == found["sealed-inode"]  # a copy of what was written to meanwhile may be torn
    return not (was_killed_in_this_boot and is_the_same) or size <= EXAMINED_ANYWAY


def _check_metas(path: Path, last: Mapping[str, str], size: int) -> None:
    """Raise `StoreDamaged` unless the two meta pages are of two transactions that follow each other.

    LMDB takes the newer one. If its number is damaged, the older one is taken, and the last commit is lost in silence.
    A number that is two too low follows as well: there the seal knows which was the last.
    """
    metas = read_meta_pages(path)
    if metas is None or len(metas.transactions) < 2:
        return
    even, odd = numbers = metas.transactions
    if abs(even - odd) == 1 and even % 2 == 0:
        sealed = last.get("sealed-transaction", "")
        is_as_large = last.get("sealed-size") == str(size)
        if sealed == str(max(numbers) + 1) and is_as_large and last.get("sealed-boot", "") in {"", boot_id()}:
            raise StoreDamaged(
                f"the newest transaction of {path / DATA_FILE} is {max(numbers)}, and the last one was {sealed}: "
                "the number of its newest meta page is damaged; restore a backup. If another file was put there on "
                f"purpose, remove {path / OWNER_FILE}",
                reason="the last transaction is missing",
            )
        return
    if even == odd == 0:
        return
    reason = f"its meta pages are of the transactions {even} and {odd}, which do not follow each other"
    raise damaged_pages(path, reason)


def check_pages(path: Path) -> None:
    """Follow every page of a file that no process writes to; raises `StoreDamaged` when one is not as LMDB leaves it.

    Keys of an index that are out of order are let through: they end no process, and `cross_check` sees to them.
    """
    from lmdb import verify  # noqa: PLC0415 - a start on a sealed store does not need it

    try:
        flaws = verify.verify(os.fspath(path), subdir=True)  # type: ignore[no-untyped-call]
    except OSError as error:
        raise EngineError(f"cannot read {path / DATA_FILE}: {error.strerror}") from error
    except Exception as error:
        # Bytes of any kind were read as numbers: whatever comes of it, the file is not what it should be.
        raise damaged_pages(path, f"its pages cannot be followed: {error}") from error
    flaws = [flaw for flaw in flaws if _LEAK not in flaw and not _INDEX_ORDER.match(flaw)]
    if flaws:
        more = f" (and {len(flaws) - _SHOWN} more)" if len(flaws) > _SHOWN else ""
        raise damaged_pages(path, "; ".join(flaws[:_SHOWN]) + more)


def boot_id() -> str:
    """Names the present life of the kernel; "" where the system does not say."""
    try:
        return _BOOT_ID.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _facts(path: Path) -> dict[str, str]:
    found = (path / DATA_FILE).stat()
    return {
        "size": str(found.st_size),
        "inode": inode_of(found),
        "written": str(found.st_mtime_ns),
        "changed": str(found.st_ctime_ns),
    }


def inode_of(found: os.stat_result) -> str:
    """Identity of a file for as long as it is the same one, under whatever name."""
    return f"{found.st_dev}:{found.st_ino}"
