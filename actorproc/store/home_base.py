"""Interface of a home: what the path that users give stands for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from pathlib import Path

from actorproc.store.base import ProcedureStore
from actorproc.store.reading import Durability, OwnerRole, ReadingStore, StoreOwner
from actorproc.store.shared import Leader
from actorproc.support.clock import Clock, SystemClock

__all__ = ["Home"]


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
    largest_value: int | None = None
    """Bytes of the longest state or result that it can hold; None: any."""
    backoff_cap: float = math.inf
    """Longest wait in seconds before a refused commit is tried again, if `Config.commit_backoff_cap` is longer."""
    is_near: bool = True
    """Its keys can be read at any time, also while a module is imported: no other machine is asked."""
    secrets: tuple[str, ...] = ()
    """Variables of the environment that open it, which workers are not given."""

    def leave_inherited(self) -> None:
        """In a forked copy of a process: leave what the parent has open of this store, so that the copy can open it."""
        return

    @abstractmethod
    def store(
        self,
        *,
        role: OwnerRole = "manager",
        durability: Durability = "power",
        allow_any_filesystem: bool = False,
        lease: float | None = None,
    ) -> ProcedureStore:
        """The store for an owner, which is made at `own` where there is none.

        Args:
            role: "command" for an owner that is done in a moment, for which other owners wait. Default: "manager".
            durability: "power" or "process", as `ProcedureManager` has it. Default: "power".
            allow_any_filesystem: As `Config.allow_any_filesystem`. Default: False.
            lease: As `Config.lease`. Default: None, its default.

        Returns:
            The store, not owned yet.
        """

    @abstractmethod
    def reader(
        self, *, allow_any_filesystem: bool = False, even_damaged: bool = False, patience: float = 0.0
    ) -> ReadingStore:
        """The store for reading only; its owner may run meanwhile.

        Args:
            allow_any_filesystem: As `Config.allow_any_filesystem`. Default: False.
            even_damaged: Open it also when rows contradict each other. Default: False.
            patience: Seconds for which a read waits for a store that cannot be reached at the moment. Default: 0.

        Returns:
            The store, open.

        Raises:
            EngineError: There is no store, or it cannot be read.
        """

    def clock(self) -> Clock:
        """The clock by which the rows of the store are dated: that of this machine, unless the home says otherwise."""
        return SystemClock()

    @abstractmethod
    def exists(self) -> bool:
        """True if there is something that would be opened as a store."""

    @abstractmethod
    def owner(self) -> StoreOwner | None:
        """The process that owns the store, a manager or a command; None: there is none."""

    @abstractmethod
    def is_suspended(self, owner: StoreOwner) -> bool:
        """True if the owner is stopped by a signal, as far as it can be told from here."""

    def leader(self) -> Leader | None:
        """The manager that leads, or led last; None: there is none, or one process at a time has the store.

        Raises:
            EngineError: The store cannot be read.
        """
        return None

    def may_write(self) -> bool:
        """True if this user may change the store, as far as it can be told from here."""
        return True

    def candidates(self) -> tuple[str, ...]:
        """The processes that wait for the lead, each in words.

        Raises:
            EngineError: The store cannot be read.
        """
        return ()

    @abstractmethod
    def keys(self) -> tuple[bytes, ...]:
        """Keys that sign pickled states, the newest first; none when there are none yet.

        Raises:
            StorageUnavailable: They cannot be read at the moment.
        """

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
