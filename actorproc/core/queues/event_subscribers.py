"""Procedures that wait for events, by name. Most events have one waiter, and then only that one is kept."""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["EventSubscribers"]


class EventSubscribers:
    """Procedures by the name of the event they wait for, resident or not."""

    def __init__(self) -> None:
        self._waiting: dict[str, str | dict[str, None]] = {}

    def add(self, event: str, procedure: str) -> None:
        """The procedure waits for the event from now on; one that does already keeps its place."""
        waiting = self._waiting.setdefault(event, procedure)
        if waiting == procedure:
            return
        if isinstance(waiting, str):
            waiting = self._waiting[event] = {waiting: None}
        waiting[procedure] = None

    def discard(self, event: str, procedure: str) -> None:
        """The procedure does not wait for the event any more. Idempotent."""
        waiting = self._waiting.get(event)
        if isinstance(waiting, dict):
            waiting.pop(procedure, None)
            if waiting:
                return
        elif waiting != procedure:
            return
        del self._waiting[event]

    def entries(self) -> dict[str, set[str]]:
        """All who wait, by event."""
        return {event: set(self.of(event)) for event in self._waiting}

    def of(self, event: str) -> Iterator[str]:
        """Procedures that wait for an event, the first to come first."""
        waiting = self._waiting.get(event, {})
        return iter((waiting,) if isinstance(waiting, str) else waiting)
