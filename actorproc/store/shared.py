"""A store that several machines share: one of them leads, and the store says which."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import msgspec

from actorproc.store.base import ProcedureStore

__all__ = ["Leader", "SharedStore"]


class Leader(msgspec.Struct, frozen=True):
    """The manager that leads, or led last."""

    epoch: int
    owner: str
    """The process, in words: its pid and its machine."""
    address: str
    """Address of its door, as `actorproc.workers.link.addresses` reads it; "": it lets no process in."""
    pin: bytes
    """SHA-256 of the certificate that its door shows."""
    secret: bytes
    """Secret that its door and its clients share."""
    since: float
    """Time at which it became the leader, epoch seconds of the database."""
    lease: float
    """Seconds for which it is still taken for alive; 0 or less: its lease has ended."""
    leads: bool
    """It has not given the lead back, and its lease, or its session with the lock, lasts."""


class SharedStore(ProcedureStore, Protocol):
    """A store whose owner is the leader of its time."""

    def campaign(self, stop: threading.Event) -> bool:
        """Wait until this process may own the store; no trouble of the store ends that.

        Args:
            stop: Set to give up.

        Returns:
            True when `own` is to follow; False when it was stopped.
        """
        ...

    def show_door(self, address: str, pin: bytes, secret: bytes) -> None:
        """Name the door of the owner, to be found by others: from `own` on, or at once.

        Args:
            address: The address.
            pin: SHA-256 of the certificate that it shows.
            secret: The secret that its clients must know.

        Raises:
            StoreInUse: Another process owns the store by now.
            StorageUnavailable: The store cannot be written.
        """
        ...

    def see_epoch(self, epoch: int) -> None:
        """Take an epoch that was heard of elsewhere: that of the next `own` is above it.

        Args:
            epoch: The epoch.
        """
        ...

    def watch_manager(self, is_alive: Callable[[], bool]) -> None:
        """Hold the store only for as long as the manager lives.

        Args:
            is_alive: Called before each renewal, on a thread of the store; False: the manager hangs.
        """
        ...

    @property
    def waits_for(self) -> float:
        """Seconds for which a commit has waited, if they are more than half a lease; else 0."""
        ...

    @property
    def late_renewals(self) -> int:
        """Number of renewals of the lease that came later than half a lease after the one before."""
        ...

    @property
    def regained_locks(self) -> int:
        """Number of times that the lock was taken again, as its session had ended."""
        ...

    @property
    def round_trip(self) -> float | None:
        """Seconds of the last renewal of the lease that worked; None: there was none."""
        ...

    @property
    def has_lapsed(self) -> bool:
        """Another process may own the store by now: its owner has not been able to renew its lease in time."""
        ...

    @property
    def held_back(self) -> str:
        """Sentence about what keeps the database from removing old rows, for health; "": nothing does."""
        ...
