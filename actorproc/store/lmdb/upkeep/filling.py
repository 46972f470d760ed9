"""A new directory made of rows that come from elsewhere, byte for byte: a store that starts.

It is filled aside and renamed when it is whole, as a backup is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

import lmdb

from actorproc.errors import EngineError, NotAllowed, StorageUnavailable
from actorproc.store.directory import DATA_FILE, KEY_FILE, LOCK_FILE, new_private, sync_names
from actorproc.store.lmdb.environment import open_databases, open_environment, translated
from actorproc.store.lmdb.upkeep.staging_dir import aside_of
from actorproc.store.rows.tables import Table

__all__ = ["RowsOfTable", "make_filled"]

RowsOfTable = Callable[[Table], Iterator[tuple[bytes, bytes]]]
"""Gives the rows of a table in key order; it is asked again when the map was too small."""

_AT_ONCE = 1000
_FIRST_MAP = 1 << 30


def make_filled(destination: Path, rows_of: RowsOfTable, keys: bytes, *, doing: str) -> int:
    """Make a store in a new directory.

    Args:
        destination: The directory, which does not exist yet.
        rows_of: The rows.
        keys: Content of the file of signing keys; empty: there is none.
        doing: Beginning of error messages.

    Returns:
        Bytes of the data file.

    Raises:
        NotAllowed: Something is there already.
        EngineError: The directory cannot be written; nothing is left of it then.
    """
    if os.path.lexists(destination):
        raise NotAllowed(f"there is something at {destination} already; it is not overwritten, give a new path")
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        with aside_of(destination) as aside:
            _fill(aside, rows_of)
            if keys:
                with os.fdopen(new_private(aside / KEY_FILE), "wb") as file:
                    file.write(keys)
                    file.flush()
                    os.fsync(file.fileno())
            size = (aside / DATA_FILE).stat().st_size
            sync_names(aside)
            aside.rename(destination)
            sync_names(destination.parent)
    except lmdb.Error as error:
        raise translated(error, doing) from error
    except (FileExistsError, NotADirectoryError) as error:
        raise NotAllowed(f"{doing}: something else is in the way; give another path") from error
    except PermissionError as error:
        raise EngineError(f"{doing}: {error.strerror}; give a directory in which this user may write") from error
    except OSError as error:
        raise StorageUnavailable(f"{doing}: {error.strerror}; nothing was kept of it") from error
    return size


def _fill(aside: Path, rows_of: RowsOfTable) -> None:
    size = _FIRST_MAP
    while True:
        env = open_environment(aside, map_size=size, create=True, sync=False)
        try:
            with env.begin(write=True) as txn:
                databases = open_databases(env, txn, create=True)
                for table in Table:
                    rows = rows_of(table)
                    with txn.cursor(databases[table]) as cursor:
                        while some := list(islice(rows, _AT_ONCE)):
                            cursor.putmulti(some, append=True)
            env.sync(True)
        except lmdb.MapFullError:
            size *= 4
        else:
            break
        finally:
            env.close()
        (aside / DATA_FILE).unlink()
    (aside / LOCK_FILE).unlink(missing_ok=True)
