"""Leader of a store that several machines share, as its row names it."""

from __future__ import annotations

import msgspec

__all__ = ["Leader"]


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
