"""Numbers of worker slots, of which each host has its own: host × 1,000 + n, and others for dedicated workers."""

from __future__ import annotations

__all__ = [
    "FIRST_DEDICATED_SLOT",
    "MOST_WORKERS",
    "absent_slot",
    "count_before",
    "dedicated_slot",
    "first_slot",
    "host_of",
    "is_absent",
    "is_dedicated",
]

_SLOTS_OF_HOST = 1000
MOST_WORKERS = _SLOTS_OF_HOST - 1
"""Workers of a machine at most, dedicated ones not counted. The last slot is never a worker's (`absent_slot`)."""
FIRST_DEDICATED_SLOT = 10_000_000
"""Slot numbers from here on belong to dedicated workers."""
_DEDICATED = 100_000
"""Numbers for dedicated workers of one host."""


def first_slot(host: int) -> int:
    """Number of the first worker slot of a host."""
    return host * _SLOTS_OF_HOST


def absent_slot(host: int) -> int:
    """Slot that stands for the workers of a host that has not joined this leader yet: the last one of the host."""
    return first_slot(host) + MOST_WORKERS


def is_absent(slot: int) -> bool:
    """True for the slot that stands for the workers of a host that has not joined."""
    return not is_dedicated(slot) and slot % _SLOTS_OF_HOST == MOST_WORKERS


def is_dedicated(slot: int) -> bool:
    """True for the slot of a worker that belongs to one procedure."""
    return slot >= FIRST_DEDICATED_SLOT


def dedicated_slot(host: int, count: int) -> tuple[int, int]:
    """Slot and incarnation of a dedicated worker of a host, where there were `count` before it."""
    return FIRST_DEDICATED_SLOT + host * _DEDICATED + count % _DEDICATED, count // _DEDICATED + 1


def count_before(slot: int, incarnation: int) -> int:
    """Number of dedicated workers that its host had before this one: the inverse of `dedicated_slot`."""
    return (slot - FIRST_DEDICATED_SLOT) % _DEDICATED + (incarnation - 1) * _DEDICATED


def host_of(slot: int) -> int:
    """Number of the host that a slot belongs to; 0: the manager's own machine."""
    return (slot - FIRST_DEDICATED_SLOT) // _DEDICATED if is_dedicated(slot) else slot // _SLOTS_OF_HOST
