"""Waits for anything but a worker: time, locks, events; and the keys that are granted to no procedure (poisoned)."""

from __future__ import annotations

import json

from actorproc.core.listeners import Listeners
from actorproc.core.lock_table import LockTable
from actorproc.core.timers import Timers
from actorproc.model.policies import LockMode
from actorproc.model.records import EventRecord, PoisonRecord

__all__ = ["Obstacles"]


class Obstacles:
    """Part of the `Book`: timers, locks, poisoned keys, signals."""

    def __init__(self) -> None:
        self.timers = Timers()
        self.locks = LockTable()
        self.inherited: dict[str, dict[str, LockMode]] = {}
        """What parents with ``lock_scope = "step"`` hold for their finished children, and keep between steps."""
        self.poisons: dict[str, PoisonRecord] = {}
        self.listeners = Listeners()
        self.buffered: dict[str, list[EventRecord]] = {}
        """Signals and events that none has taken, by target, in the order in which they came."""
        self.published = 0
        """Events by name among them."""
        self.taken: dict[str, dict[str, int]] = {}
        """Target of signals to the ids of those that were taken, oldest first, with the numbers of their rows."""
        self.taken_order: dict[tuple[str, str], None] = {}
        """The same as (target, id), oldest first over all targets."""

    def poison_notice(self, path: str) -> str:
        """Who poisoned a key, why, and how it is cleared: for those who are refused."""
        poison = self.poisons[path]
        call = f"manager.clear_poison({json.dumps(path, ensure_ascii=False)})"
        others = f" (and by {', '.join(name for name, _ in poison.others[:5])})" if poison.others else ""
        return (
            f"{path!r} was poisoned by {poison.by}: {poison.reason}{others}. "
            f"Once the object is known to be sound, clear it with {call}"
        )
