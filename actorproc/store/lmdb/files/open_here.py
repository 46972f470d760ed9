"""Open-here registry: the stores open in this very process, as LMDB lets a process open an environment once.

A reader in the process of the owner looks through the owner's environment, and a second reader through the first
one's. A reader that was there first gives its own up when an owner comes. Weak references only: nothing is kept alive,
and a forked child has no neighbours.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from weakref import WeakSet, WeakValueDictionary

__all__ = ["OpenHere"]


class _Opened(Protocol):
    path: Path

    def is_open(self) -> bool: ...


_Owner = TypeVar("_Owner")
_Reader = TypeVar("_Reader", bound=_Opened)


class OpenHere(Generic[_Owner, _Reader]):
    """Stores that are open in this process, by directory."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        """Held while a reader opens an environment, so that no owner comes meanwhile."""
        self._owners: WeakValueDictionary[tuple[int, str], _Owner] = WeakValueDictionary()
        self._readers: WeakSet[_Reader] = WeakSet()
        # A fork in the middle must not leave the child a lock that is never released.
        os.register_at_fork(after_in_child=self._forget)

    def owner_of(self, path: Path) -> _Owner | None:
        """The owner of this directory in this process."""
        if not self._owners:  # a process that only looks on asks for each look: it need not find out the real path
            return None
        return self._owners.get(_key(path))

    def move_in(self, path: Path, owner: _Owner) -> tuple[_Reader, ...]:
        """An owner is about to open a directory; the readers that have to step aside for it, if it is theirs."""
        with self.lock:
            self._owners[_key(path)] = owner
            return tuple(self._readers)

    def move_out(self, path: Path, owner: _Owner) -> None:
        """The owner has closed it."""
        with self.lock:
            if self._owners.get(_key(path)) is owner:
                del self._owners[_key(path)]

    def add_reader(self, reader: _Reader) -> None:
        """A reader is here, with or without an environment of its own."""
        with self.lock:
            self._readers.add(reader)

    def open_reader(self, path: Path) -> _Reader | None:
        """A reader of this directory that has an environment; to be asked with the lock held."""
        key = _key(path)
        return next((reader for reader in self._readers if reader.is_open() and _key(reader.path) == key), None)

    def _forget(self) -> None:
        self.lock = threading.Lock()
        self._owners = WeakValueDictionary()
        self._readers = WeakSet()


def _key(path: Path) -> tuple[int, str]:
    return os.getpid(), os.path.realpath(path)
