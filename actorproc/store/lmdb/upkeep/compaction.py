"""Compaction: the pages in use are copied to a new file, which then takes the place of the old one.

LMDB reuses the pages that removals free, but never gives them back. A copy without them is written beside the
data file and synced first, so until the rename nothing has happened, and after it everything has.

Two things need care. A copy counts its transactions from one again, so it must never meet the lock file of the file it
replaces. That lock file holds the old count, and a process that shares it would look for the newest commit in the
wrong place. And other processes that read have the old files open. So the lock file goes with the data file it belongs
to. A mark stands from before the swap until after it, and the next owner of the store finishes a marked swap. At each
snapshot readers check that the files are still those they opened.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import lmdb

from actorproc.errors import ActorprocError, EngineError, StorageUnavailable
from actorproc.store.directory import DATA_FILE, LOCK_FILE, OWNER_FILE, new_private, sync_names
from actorproc.store.lmdb.environment import Databases, translated
from actorproc.store.lmdb.owner_lock import owner_of
from actorproc.store.rows.tables import Table

__all__ = [
    "FRESH_FILE",
    "MARK_FILE",
    "WORTH_WHILE",
    "Stopwatch",
    "copy_compact",
    "copy_to",
    "drop_leftovers",
    "files_of",
    "put_in_place",
    "unmark",
    "wait_for_a_swap",
]

FRESH_FILE = "data.mdb.compact"
MARK_FILE = "compacting"

WORTH_WHILE = 64 * 1024
"""Bytes that must be gained; a few pages are free after any commit."""

_PATIENCE = 2.0
"""Seconds a reader waits for a swap, which takes milliseconds, to end."""


class Stopwatch:
    """Seconds since it was made."""

    def __init__(self) -> None:
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started


def copy_compact(env: lmdb.Environment, databases: Databases, path: Path) -> Path:
    """Write a synced copy of the last commit without unused pages beside the data file, and check it.

    Raises `EngineError`s, and leaves nothing then.
    """
    fresh = path / FRESH_FILE
    fresh.unlink(missing_ok=True)
    try:
        copy_to(env, fresh, doing=f"compacting the store {path}")
        _check(env, databases, fresh)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise
    return fresh


def copy_to(env: lmdb.Environment, file: Path, *, doing: str) -> None:
    """Write the last commit into a new private file, without unused pages, and sync it."""
    try:
        fd = new_private(file)
        try:
            env.copyfd(fd, compact=True)
            os.fsync(fd)
        finally:
            os.close(fd)
    except lmdb.Error as error:
        raise _as_ours(error, doing) from error
    except OSError as error:
        raise StorageUnavailable(f"{doing}: {error.strerror}; nothing was changed") from error


def _as_ours(error: lmdb.Error, doing: str) -> ActorprocError:
    if isinstance(error, lmdb.IncompatibleError):
        return EngineError(f"{doing}: {error}; LMDB found pages without an owner. Nothing was changed")
    return translated(error, doing)


def _check(env: lmdb.Environment, databases: Databases, fresh: Path) -> None:
    """Check that each database of the copy has as many rows as the original, which it is to replace."""
    copy = lmdb.open(
        os.fsencode(fresh), subdir=False, readonly=True, lock=False, readahead=False, max_dbs=len(Table), lib_version=0
    )
    try:
        with env.begin() as there:
            wanted = {table: there.stat(db)["entries"] for table, db in databases.items()}
        found = {table: copy.open_db(table.label.encode(), create=False) for table in databases}
        with copy.begin() as here:
            counts = {table: here.stat(db)["entries"] for table, db in found.items()}
    finally:
        copy.close()
    if counts != wanted:
        raise EngineError(
            f"the compact copy of {fresh.parent} is not complete; it was thrown away, nothing was changed"
        )


def put_in_place(path: Path) -> None:
    """Let the copy take the place of the data file, which must be closed; `unmark` once it is open again."""
    mark = path / MARK_FILE
    os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    sync_names(path)
    (path / LOCK_FILE).unlink(missing_ok=True)
    (path / FRESH_FILE).replace(path / DATA_FILE)
    (path / LOCK_FILE).unlink(missing_ok=True)
    sync_names(path)


def unmark(path: Path) -> None:
    """The swap is over."""
    (path / MARK_FILE).unlink(missing_ok=True)


def drop_leftovers(path: Path) -> None:
    """Finish or forget a compaction that was interrupted; for the owner, before it opens the data file."""
    if (path / MARK_FILE).exists():
        (path / LOCK_FILE).unlink(missing_ok=True)
        sync_names(path)
    (path / FRESH_FILE).unlink(missing_ok=True)
    unmark(path)


def wait_for_a_swap(path: Path) -> None:
    """For readers, before they open the files: a moment in which these do not belong together passes.

    A mark whose owner is gone says that a swap was interrupted, and is waited for no longer.
    """
    mark = path / MARK_FILE
    deadline = time.monotonic() + _PATIENCE
    while mark.exists() and time.monotonic() < deadline and owner_of(path / OWNER_FILE) is not None:
        time.sleep(0.002)


def files_of(path: Path) -> tuple[int, ...]:
    """Files of a store, compared: the value changes when they are others than before."""
    found = []
    for name in (DATA_FILE, LOCK_FILE):
        try:
            at = (path / name).stat()
        except FileNotFoundError:
            return ()
        found += [at.st_dev, at.st_ino]
    return tuple(found)
