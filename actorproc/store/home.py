"""Home of a store: what the path that users give stands for.

All that is found by this path is opened here: the store for its owner and for readers, and the keys that sign pickled
states. The log spool and the place of the control socket belong to it as well. Other modules do not name the class of
a store.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from actorproc.store import signing_key
from actorproc.store.base import ProcedureStore
from actorproc.store.directory import BLOBS, DATA_FILE, OWNER_FILE, refuse_url
from actorproc.store.home_base import Home
from actorproc.store.reading import Durability, OwnerRole, ReadingStore, StoreOwner

__all__ = ["DirectoryHome", "Home", "home_of"]


class DirectoryHome(Home):
    """A directory of this machine, with the store on LMDB.

    Args:
        directory: Its absolute path.
    """

    def __init__(self, directory: str) -> None:
        self.words = directory
        self.door = self.spool = self._directory = Path(directory)
        self.staging = os.fspath(self._directory / BLOBS)

    def store(
        self,
        *,
        role: OwnerRole = "manager",
        durability: Durability = "power",
        allow_any_filesystem: bool = False,
        lease: float | None = None,
    ) -> ProcedureStore:
        del lease  # the kernel tells of the owner's end
        from actorproc.store.lmdb.store import LmdbStore  # noqa: PLC0415 - a module with a manager must not load lmdb

        return LmdbStore(self._directory, role=role, durability=durability, allow_any_filesystem=allow_any_filesystem)

    def reader(
        self, *, allow_any_filesystem: bool = False, even_damaged: bool = False, patience: float = 0.0
    ) -> ReadingStore:
        del patience  # a directory is there, or it is not
        from actorproc.store.lmdb.reader import LmdbReader  # noqa: PLC0415 - as above

        return LmdbReader(self._directory, allow_any_filesystem=allow_any_filesystem, even_damaged=even_damaged)

    def leave_inherited(self) -> None:
        from actorproc.store.lmdb.open_store import leave_inherited  # noqa: PLC0415 - as above

        leave_inherited(self._directory)

    def exists(self) -> bool:
        return os.path.lexists(self._directory / DATA_FILE)

    def owner(self) -> StoreOwner | None:
        from actorproc.store.lmdb.owner_lock import owner_of  # noqa: PLC0415 - as above

        return owner_of(self._directory / OWNER_FILE)

    def is_suspended(self, owner: StoreOwner) -> bool:
        from actorproc.store.lmdb.owner_lock import is_suspended  # noqa: PLC0415 - as above

        return is_suspended(owner)

    def keys(self) -> tuple[bytes, ...]:
        return signing_key.read_keys(self._directory)

    def keep_key(self, key: bytes) -> tuple[bytes, ...]:
        return signing_key.keep_keys(self._directory, key)

    def rotate_keys(self, *, forget: bool = False) -> tuple[bytes, ...]:
        return signing_key.rotate(self._directory, forget=forget)


def home_of(path: str | os.PathLike[str] | Any) -> Home:
    """The home that a path stands for, valid also once the program has changed its working directory.

    Args:
        path: A directory, which need not be there yet, or the URL of a database (``postgresql://…?store=NAME``).

    Returns:
        The home.

    Raises:
        TypeError: It is no path.
        ValueError: It is empty.
        UsageError: It is a URL of another kind, or one that cannot be used.
    """
    given = os.fsdecode(path)
    if not given:
        msg = "the path of a store is empty; give a directory of its own, such as 'state'"
        raise ValueError(msg)
    if "://" in given:
        from actorproc.store.postgres.home import DatabaseHome  # noqa: PLC0415 - a store in a directory needs none of it
        from actorproc.store.postgres.place import is_database_url, place_of  # noqa: PLC0415 - as above

        if is_database_url(given):
            return DatabaseHome(place_of(given))
    refuse_url(path, "a store is kept in a directory of this machine or in a PostgreSQL database", database=True)
    return DirectoryHome(os.fspath(Path(given).absolute()))
