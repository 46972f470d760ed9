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
