"""Instants as text: in the ids of procedures that schedules start, and in sentences."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["in_utc", "instant_of"]

_STAMP = "%Y-%m-%dT%H:%M:%SZ"
_STAMP_SIZE = len("@2026-01-01T00:00:00Z")


def instant_of(id: str) -> datetime | None:
    """The instant in the id of a procedure that a schedule started; None: it is no such id."""
    if id[-_STAMP_SIZE : 1 - _STAMP_SIZE] != "@":
        return None
    try:
        return datetime.strptime(id[1 - _STAMP_SIZE :], _STAMP).replace(tzinfo=UTC)
    except ValueError:
        return None


def in_utc(at: float) -> str:
    """A moment, in epoch seconds, as a sentence has it: "2026-11-28 01:00:00 UTC"."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
