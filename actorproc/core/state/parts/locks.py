"""Locks that are held or waited for, and poisoned keys."""

from __future__ import annotations

import json

from actorproc.core.locks.table import LockTable
from actorproc.model.policies import LockMode
from actorproc.model.rows.records import PoisonRecord

__all__ = ["LockState"]


class LockState:
    """Part of the `EngineState`: locks, inherited locks and poisons by key."""

    def __init__(self) -> None:
        self.table = LockTable()
        self.inherited: dict[str, dict[str, LockMode]] = {}
        """Locks that parents with ``lock_scope = "step"`` hold for their finished children, and keep between steps."""
        self.waiters: dict[int, dict[str, None]] = {}
        """Procedures that wait for locks by priority, own or lent, in the order in which they began to."""
        self.ranks: dict[str, int] = {}
        """The same priorities by procedure."""
        self.is_ranked = False
        """A procedure with a priority has or wants locks: one may be less urgent than those that wait for it."""
        self.poisons: dict[str, PoisonRecord] = {}

    def poison_notice(self, path: str) -> str:
        """Text of a refusal: the procedure that poisoned a key, the reason, and how it is cleared."""
        poison = self.poisons[path]
        call = f"manager.clear_poison({json.dumps(path, ensure_ascii=False)})"
        others = f" (and by {', '.join(name for name, _ in poison.others[:5])})" if poison.others else ""
        return (
            f"{path!r} was poisoned by {poison.by}: {poison.reason}{others}. "
            f"Once the object is known to be sound, clear it with {call}"
        )

    def note_ranked(self) -> None:
        """Note that a procedure with another priority than 0 has or wants locks."""
        self.is_ranked = True

    def note_waiter(self, procedure: str, priority: int) -> None:
        """Note that a procedure waits for locks, or that it has another priority now."""
        self.forget_waiter(procedure)
        self.ranks[procedure] = priority
        self.waiters.setdefault(priority, {})[procedure] = None

    def forget_waiter(self, procedure: str) -> None:
        """Note that it waits no more. Idempotent."""
        priority = self.ranks.pop(procedure, None)
        if priority is None:
            return
        waiting = self.waiters[priority]
        del waiting[procedure]
        if not waiting:
            del self.waiters[priority]
