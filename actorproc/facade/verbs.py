"""Verbs on procedures that exist already, for operators and other parts of the program."""

from __future__ import annotations

import logging

from actorproc.arguments import check_flag
from actorproc.facade.base import Facade
from actorproc.facade.repairing import checked_reason
from actorproc.model.events import AbortRequested, PoisonCleared
from actorproc.model.ids import check_id
from actorproc.model.policies import LockKey
from actorproc.queries import Queries

__all__ = ["Verbs"]

logger = logging.getLogger("actorproc")


class Verbs(Facade):
    """`abort`, `clear_poison`."""

    def abort(self, id: str, force: bool = False, reason: str | None = None) -> bool:
        """Ask a procedure to abort and roll back; False when it has ended already. Durable when it returns.

        Its running step is told (`Context.aborting`), and those below it once its undo is decided; they are killed
        after their `Limits.abort_grace`. One that refuses is asked again whenever a step of it ends. ``force`` does not
        ask: it kills the running forward steps of the procedure and of those below it, also when the undo is decided
        already. An undo is never killed. Past the point of no return the wish is recorded and changes nothing.
        """
        name, why = check_id(id), checked_reason(reason)
        check_flag(force, "force")
        accepted: bool = self._running().request(lambda reply: AbortRequested(name, reply, force=force, reason=why))
        return accepted

    def clear_poison(self, path: str, reason: str | None = None) -> bool:
        """Give a poisoned key back, once what it stands for is known to be sound; durable when it returns.

        ``path`` is the key as `poisons` lists it; ``reason`` is kept (`audit`) and logged. False when that key is not
        poisoned. Raises `TypeError` or `ValueError` for what can be no key.
        """
        key, why = LockKey.write(path).path, checked_reason(reason)
        tree = self._running()
        known = next((poison for poison in Queries(tree).poisons() if poison.path == key), None)
        cleared: bool = tree.request(lambda reply: PoisonCleared(key, reply, why))
        if cleared:
            by = f"poisoned by {known.by}: {known.reason}" if known is not None else "poisoned a moment ago"
            logger.warning("poison key %r was cleared: %s (it was %s)", key, why or "no reason given", by)
        return cleared
