"""Signals and named events: those that are kept, and the ids of those that were taken."""

from __future__ import annotations

from actorproc.core.queues.event_subscribers import EventSubscribers
from actorproc.model.rows.records import EventRecord

__all__ = ["SignalBuffer"]


class SignalBuffer:
    """Part of the `EngineState`: signals, and the procedures that wait for an event by name."""

    def __init__(self) -> None:
        self.subscribers = EventSubscribers()
        self.buffered: dict[str, list[EventRecord]] = {}
        """Signals and events that none has taken, by target, in the order in which they came."""
        self.published = 0
        """Events by name among them."""
        self.taken: dict[str, dict[str, int]] = {}
        """Target of signals to the ids of those that were taken, oldest first, with the numbers of their rows."""
        self.taken_order: dict[tuple[str, str], None] = {}
        """Pairs of target and id in `taken`, oldest first over all targets."""

    def count_published(self, change: int) -> None:
        """Add `change` to the number of events by name that are kept."""
        self.published += change
