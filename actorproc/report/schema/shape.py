"""Structs as JSON: every object says of which version and kind it is; times are ISO 8601 in UTC."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import msgspec

from actorproc.model.plain import plain_dict

__all__ = ["TIMES", "VERSION", "enveloped", "iso", "shaped"]

VERSION = 1
"""Of the schema. Fields may be added within a version; renaming, removing or changing one makes a new version."""

TIMES = frozenset(
    {
        "at",
        "created_at",
        "updated_at",
        "finished_at",
        "started_at",
        "ended_at",
        "due_at",
        "oldest_signal_at",
        "cancelled_at",
        "joined_at",
        "newest_at",
        "enqueued_at",
        "refused_at",
        "deadline",
        "since",
        "exported_at",
        "checked_at",
        "declared_at",
        "last_at",
        "next_at",
        "until",
        "upcoming",
        "waiting",
    }
)
"""Fields that hold moments: epoch seconds in Python, text in JSON."""


_USERS = {
    "outcome": ("result",),
    "procedure-detail": ("input", "fields", "output"),
    "state": ("state", "output", "notes"),
}
"""Fields that hold values of user's code, whatever is in them."""


def shaped(kind: str, value: msgspec.Struct | dict[str, Any]) -> dict[str, Any]:
    """A struct as the JSON object of its kind: ``{"schema": 1, "object": "procedure", "id": …}``."""
    fields = value if isinstance(value, dict) else plain_dict(value)
    shown = {"schema": VERSION, "object": kind, **_timed(fields)}
    for name in _USERS.get(kind, ()):  # the user's own: a number under "at" is no moment of ours
        shown[name] = _finite(fields[name])
    return shown


def enveloped(kind: str, items: list[dict[str, Any]]) -> dict[str, Any]:
    """A list of objects as one JSON object: ``{"schema": 1, "object": "list", "of": "procedure", "items": […]}``."""
    return {"schema": VERSION, "object": "list", "of": kind, "items": items}


def iso(at: float | None) -> str | None:
    """Epoch seconds as "2026-11-21T12:00:00.000000Z"; None for no time, and for one no calendar holds."""
    if not at or not math.isfinite(at):
        return None
    try:
        return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except (OverflowError, ValueError, OSError):
        return None


def _timed(value: Any) -> Any:
    if isinstance(value, dict):
        # What counts by user's names ({"at": 3}) counts in whole numbers; moments are fractions.
        return {
            name: iso(item)
            if name in TIMES and (item is None or isinstance(item, float))
            else list(map(iso, item))
            if name in TIMES and isinstance(item, list) and all(isinstance(at, float) for at in item)
            else (_finite if name == "exposed" else _timed)(item)  # the user's own, as above
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_timed(item) for item in value]
    return _finite(value)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None  # JSON has no such number
    return value
