"""Home of a store: what the path that users give stands for.

All that is found by this path is opened here: the store for its owner and for readers, and the keys that sign pickled
states. The log spool and the place of the control socket belong to it as well. Other modules do not name the class of
a store.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorproc.store import signing_key
from actorproc.store.base import ProcedureStore
from actorproc.store.directory import BLOBS, DATA_FILE, OWNER_FILE, refuse_url
from actorproc.store.leader import Leader
from actorproc.store.reading import ReadingStore

if TYPE_CHECKING:
    from actorproc.store.lmdb.owner_lock import Owner, OwnerRole
    from actorproc.store.lmdb.store import Durability

__all__ = ["DirectoryHome", "Home", "home_of"]


class Home(ABC):
    """Place of one store, and of what lies beside it.

    Nothing is opened or made before a method is called.
    """

    words: str
    """The place as it is shown in messages; a relative path is shown absolute."""
    door: Path | None
    """Directory of the control socket of the owner; None: its door is where the leader's row says."""
    spool: Path | None
    """Directory of the log spool; None when there is none."""
    staging: str
    """Directory into which workers write long outputs, which the store then takes as they are; "": there is none."""

    @abstractmethod
    def store(
        self,
        *,
        role: OwnerRole = "manager",
        durability: Durability = "power",
        allow_any_filesystem: bool = False,
    ) -> ProcedureStore:
        """The store for an owner, which is made at `own` where there is none.

        Args:
            role: "command" for an owner that is done in a moment, for which other owners wait. Default: "manager".
            durability: "power" or "process", as `ProcedureManager` has it. Default: "power".
            allow_any_filesystem: As `Config.allow_any_filesystem`. Default: False.

        Returns:
            The store, not owned yet.
        """

    @abstractmethod
    def reader(self, *, allow_any_filesystem: bool = False, even_damaged: bool = False) -> ReadingStore:
        """The store for reading only; its owner may run meanwhile.

        Args:
            allow_any_filesystem: As `Config.allow_any_filesystem`. Default: False.
            even_damaged: Open it also when rows contradict each other. Default: False.

        Returns:
            The store, open.

        Raises:
            EngineError: There is no store, or it cannot be read.
        """

    @abstractmethod
    def exists(self) -> bool:
        """True if there is something that would be opened as a store."""

    @abstractmethod
    def owner(self) -> Owner | None:
        """The process that owns the store, a manager or a command; None: there is none."""

    @abstractmethod
    def is_suspended(self, owner: Owner) -> bool:
        """True if the owner is stopped by a signal, as far as it can be told from here."""

    def leader(self) -> Leader | None:
        """The manager that leads, or led last; None: there is none, or one process at a time has the store.

        Raises:
            EngineError: The store cannot be read.
        """
        return None

    @abstractmethod
    def keys(self) -> tuple[bytes, ...]:
        """Keys that sign pickled states, the newest first; none when there are none yet."""

    @abstractmethod
    def keep_key(self, key: bytes) -> tuple[bytes, ...]:
        """Store a key unless there is one. For the owner.

        Args:
            key: The key.

        Returns:
            The keys from now on, the newest first.

        Raises:
            EngineError: There are keys that cannot be read, or none can be written.
        """

    @abstractmethod
    def rotate_keys(self, *, forget: bool = False) -> tuple[bytes, ...]:
        """Put a new key before the others. For the owner.

        Args:
            forget: Drop the others. Default: False.

        Returns:
            The keys from now on, the newest first.

        Raises:
            EngineError: There are keys that cannot be read, or none can be written.
        """


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
    ) -> ProcedureStore:
        from actorproc.store.lmdb.store import LmdbStore  # noqa: PLC0415 - a module with a manager must not load lmdb

        return LmdbStore(self._directory, role=role, durability=durability, allow_any_filesystem=allow_any_filesystem)

    def reader(self, *, allow_any_filesystem: bool = False, even_damaged: bool = False) -> ReadingStore:
        from actorproc.store.lmdb.reader import LmdbReader  # noqa: PLC0415 - as above

        return LmdbReader(self._directory, allow_any_filesystem=allow_any_filesystem, even_damaged=even_damaged)

    def exists(self) -> bool:
        return os.path.lexists(self._directory / DATA_FILE)

    def owner(self) -> Owner | None:
        from actorproc.store.lmdb.owner_lock import owner_of  # noqa: PLC0415 - as above

        return owner_of(self._directory / OWNER_FILE)

    def is_suspended(self, owner: Owner) -> bool:
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
        path: A directory, which need not be there yet.

    Returns:
        The home.

    Raises:
        TypeError: It is no path.
        ValueError: It is empty.
        UsageError: It is a URL.
    """
    given = os.fsdecode(path)
    if not given:
        msg = "the path of a store is empty; give a directory of its own, such as 'state'"
        raise ValueError(msg)
    refuse_url(path, "a store is kept in a directory of this machine")
    return DirectoryHome(os.fspath(Path(given).absolute()))
