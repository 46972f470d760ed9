"""One line of what a procedure printed or logged."""

from __future__ import annotations

from typing import Any

import msgspec

from actorproc.model.plain import plain_dict

__all__ = ["LogEntry"]

_OVERHEAD = 100
"""Bytes an entry costs beside its text."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of a procedure's output."""

    at: float
    """Epoch seconds (UTC) when the host received it."""
    stream: str
    """stdout, stderr, or log for a log record."""
    text: str
    level: int | None = None
    """Of a log record: its level as `logging` counts."""
    logger: str | None = None
    """Of a log record: the logger's name."""
    step: int | None = None
    """Number of the step that said it; None: not known."""
    step_name: str | None = None
    """Its name; None: it has a number only, or is not known."""
    attempt: int | None = None
    """Its attempt; None: not known."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)

    @property
    def cost(self) -> int:
        """Bytes it counts for."""
        return len(self.text) + _OVERHEAD
