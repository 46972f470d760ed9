"""Backup: a consistent copy of a store that is at work, as a store of its own.

The copy is made aside and renamed when it is whole, so a directory under the name that was asked for is a whole
backup. It gets a name of its own (`store_id`) and remembers which store it is a copy of (`copied_from`), so it is not
taken for the store that still runs.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import lmdb

from actorproc.errors import EngineError, NotAllowed, StorageUnavailable
from actorproc.model.ids import new_id
from actorproc.model.reports import BackupReport
from actorproc.store.directory import BLOBS, DATA_FILE, KEY_FILE, LOCK_FILE, new_private, read_private, sync_names
from actorproc.store.lmdb.environment import Databases, open_databases, open_environment, translated
from actorproc.store.lmdb.files.blobs import blobs_in, names_in, open_blob, size_of_blobs
from actorproc.store.lmdb.log.place import LogPlace, open_place, place_in
from actorproc.store.lmdb.log.record import LogRow
from actorproc.store.lmdb.transaction import apply_rows
from actorproc.store.lmdb.upkeep.compaction import Stopwatch, copy_to
from actorproc.store.lmdb.upkeep.staging_dir import aside_of
from actorproc.store.rows import codec
from actorproc.store.rows.layout import COPIED_FROM, FORMAT, FORMAT_KEY, STORE_ID
from actorproc.store.rows.tables import Table

__all__ = ["back_up"]

_LONGEST_KEY = 1 << 16
"""Bytes; many times those of all keys that a store keeps."""


def back_up(
    env: lmdb.Environment,
    source: Path,
    destination: Path,
    *,
    source_id: Callable[[Databases, lmdb.Transaction[bytes]], str],
    records_behind: Callable[[LogPlace], list[list[LogRow]]],
    still_named: Callable[[], set[str]],
) -> BackupReport:
    """Copy what is committed into `destination`, which must not exist; raises `NotAllowed` and `EngineError`s.

    `records_behind` gives the rows of the commits in the log that a copy of the data file lacks. `still_named` gives
    the names of the files of long values that the source has rows for now.
    """
    watch = Stopwatch()
    if os.path.lexists(destination):
        raise NotAllowed(f"there is something at {destination} already; a backup never overwrites, give a new path")
    doing = f"backing the store {source} up to {destination}"
    try:
        _make_parent(destination, doing)
        with aside_of(destination) as aside:
            _pin_blobs(source, aside)
            copy_to(env, aside / DATA_FILE, doing=doing)
            copied_from, store_id, blobs = _name_anew(aside, source_id, records_behind)
            missing = _copy_blobs(source, aside, blobs)
            if missing and not missing <= still_named():
                raise NotAllowed(f"{doing}: long values were removed meanwhile; try again, nothing was kept of it")
            _copy_key(source, aside)
            size = (aside / DATA_FILE).stat().st_size + size_of_blobs(aside)
            sync_names(aside)
            aside.rename(destination)
            sync_names(destination.parent)
    except lmdb.Error as error:
        raise translated(error, doing) from error
    except FileExistsError as error:
        raise NotAllowed(f"{doing}: something else was put there meanwhile; give a new path") from error
    except PermissionError as error:
        raise EngineError(f"{doing}: {error.strerror}; give a directory in which this user may write") from error
    except OSError as error:
        raise StorageUnavailable(f"{doing}: {error.strerror}; nothing was kept of it") from error
    return BackupReport(str(destination), size, watch.seconds, store_id, copied_from)


def _make_parent(destination: Path, doing: str) -> None:
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        in_the_way = f"{destination.parent}, or what it lies below, is no directory"
        raise NotAllowed(f"{doing}: {in_the_way}; give another path") from error


def _pin_blobs(source: Path, aside: Path) -> None:
    """Before the copy: give the files of long values a second name, so that they stay until it is made.

    On another file system they cannot have one; there the owner, if it makes the copy itself, keeps them.
    """
    names = blobs_in(source / BLOBS)
    if names:
        _make_blobs(aside)
    for name in names:
        with contextlib.suppress(OSError):
            os.link(source / BLOBS / name, aside / BLOBS / name, follow_symlinks=False)


def _copy_blobs(source: Path, aside: Path, names: set[str]) -> set[str]:
    """Copy the files of long values that the copy has rows for; return the names of those that are missing."""
    if names:
        _make_blobs(aside)
    missing = set()
    for name in names:
        pinned = aside / BLOBS / name
        fresh = aside / BLOBS / f"{name}.new"
        try:
            _copy_file(pinned if os.path.lexists(pinned) else source / BLOBS / name, fresh)
            fresh.replace(pinned)  # not the file of the source under a second name
        except FileNotFoundError:
            missing.add(name)
    for name in blobs_in(aside / BLOBS):
        if name not in names or name in missing:
            (aside / BLOBS / name).unlink()
    if (aside / BLOBS).exists():
        sync_names(aside / BLOBS)
    return missing


def _make_blobs(aside: Path) -> None:
    if not (aside / BLOBS).exists():
        (aside / BLOBS).mkdir(mode=0o700)
        (aside / BLOBS).chmod(0o700)


def _copy_file(file: Path, fresh: Path) -> None:
    """Into a new private file, synced. Raises `OSError`."""
    fd = open_blob(file)
    if fd is None:
        raise FileNotFoundError(file)
    with os.fdopen(fd, "rb") as found, os.fdopen(new_private(fresh), "wb") as copy:
        shutil.copyfileobj(found, copy, 1 << 20)
        copy.flush()
        os.fsync(copy.fileno())


def _name_anew(
    aside: Path,
    source_id: Callable[[Databases, lmdb.Transaction[bytes]], str],
    records_behind: Callable[[LogPlace], list[list[LogRow]]],
) -> tuple[str, str, set[str]]:
    """Give the copy its own name; return the name of its source, its own, and the names of its long values."""
    store_id = new_id()
    env = open_environment(aside, map_size=4 * (aside / DATA_FILE).stat().st_size + (1 << 24))
    try:
        with env.begin(write=True) as txn:
            databases = open_databases(env, txn, create=True)
            meta = databases[Table.META]
            for rows in records_behind(place_in(txn, open_place(env, txn, create=True))):
                apply_rows(txn, databases, rows)
            copied_from = source_id(databases, txn)
            txn.put(FORMAT_KEY, codec.encode(Table.META, FORMAT_KEY, FORMAT), db=meta)  # a copy has no log
            for key, value in ((COPIED_FROM, copied_from), (STORE_ID, store_id)):
                txn.put(key, codec.encode(Table.META, key, value), db=meta)
            blobs = names_in(txn.cursor(databases[Table.STEPS]))
        env.sync(True)
    finally:
        env.close()
    (aside / LOCK_FILE).unlink(missing_ok=True)
    return copied_from, store_id, blobs


def _copy_key(source: Path, aside: Path) -> None:
    """Pickled states are of no use without the key that signed them."""
    try:
        key, _ = read_private(source / KEY_FILE, _LONGEST_KEY)
    except FileNotFoundError:
        return
    with os.fdopen(new_private(aside / KEY_FILE), "wb") as file:
        file.write(key)
        file.flush()
        os.fsync(file.fileno())
