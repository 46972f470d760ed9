"""A store that is open for reading only, as other processes than its owner's have it."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Any, Literal, Protocol, Self

from actorproc.model.reports import BackupReport
from actorproc.store.base import RecordStore

__all__ = ["Durability", "OwnerRole", "ReadingStore", "StoreOwner"]

Durability = Literal["power", "process"]
OwnerRole = Literal["manager", "command"]
"""A command owns a store for as long as it takes to write down what was asked for."""


class StoreOwner(Protocol):
    """The process that owns a store."""

    @property
    def pid(self) -> int:
        """Id of the process."""
        ...

    @property
    def host(self) -> str:
        """Name of its machine."""
        ...

    @property
    def role(self) -> str:
        """Role of the owner: "manager" or "command"."""
        ...


class ReadingStore(RecordStore, Protocol):
    """A store that is open for reading, while another process may own it. A context manager."""

    @property
    def path(self) -> str | os.PathLike[str]:
        """Its place, absolute, as it is shown."""
        ...

    def owner(self) -> StoreOwner | None:
        """The process whose manager has the store open; None: there is none, or a command that is done in a moment."""
        ...

    def rows(self) -> AbstractContextManager[Any]:
        """All rows as of the last commit, undecoded; a context manager, to be left soon."""
        ...

    def facts(self) -> dict[str, Any]:
        """Sizes in bytes and numbers of rows, for a diagnosis; further ones are the store's own."""
        ...

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy the last commit into a new directory; see `ProcedureStore.backup`.

        Args:
            path: Directory that does not exist yet.

        Returns:
            A `BackupReport`.

        Raises:
            NotAllowed: Something is at ``path`` already.
            UsageError: ``path`` is a URL.
            EngineError: The copy cannot be written; nothing is left of it then.
        """
        ...

    def close(self) -> None:
        """Stop reading. Idempotent."""
        ...

    def __enter__(self) -> Self:
        """Itself."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop reading."""
        ...
