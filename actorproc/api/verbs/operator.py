"""Verbs on procedures that exist already, for operators and other parts of the program."""

from __future__ import annotations

import logging

from actorproc.api.queries import Queries
from actorproc.api.verbs.base import EngineVerbs
from actorproc.engine.arguments import check_flag, checked_by, checked_reason
from actorproc.model.ids import check_id
from actorproc.model.messages.events import AbortRequested, KillRequested, PoisonCleared
from actorproc.model.policies import LockKey

__all__ = ["OperatorVerbs"]

logger = logging.getLogger("actorproc")


class OperatorVerbs(EngineVerbs):
    """`abort`, `kill`, `clear_poison`."""

    def abort(self, id: str, force: bool = False, reason: str | None = None, *, by: str | None = None) -> bool:
        """Ask a procedure to abort and roll back; durable when it returns.

        Its running step is notified (`Context.aborting`), and those of its descendants once its undo is decided. Each
        is killed after its `Limits.abort_grace`. A procedure that refuses is asked again whenever one of its steps
        ends. An undo is never killed. Past the point of no return the wish is recorded and changes nothing.

        Args:
            id: The procedure.
            force: Do not ask. Kill the running forward steps of the procedure and of its descendants, also when the
                undo is decided already. Default: False.
            reason: An operator's reason, for `audit`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            False when the procedure has ended already.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            ManagerStopped: No manager runs.
        """
        name, why, who = check_id(id), checked_reason(reason), checked_by(by)
        check_flag(force, "force")
        accepted: bool = self._running().request(lambda reply: AbortRequested(name, reply, force, why, who))
        return accepted

    def kill(self, id: str, reason: str | None = None, *, by: str | None = None) -> bool:
        """End the running attempt of a procedure's step: its worker gets SIGKILL, and the step runs again.

        It is counted neither as an error nor as a crash, and nothing is undone; `attempts` and `audit` list it. A step
        that waits in a worker behind another is taken back instead. An answer that comes before the kill counts.

        Args:
            id: The procedure.
            reason: An operator's reason, for `audit`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            False when no worker has a step of it.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            ManagerStopped: No manager runs.
        """
        name, why, who = check_id(id), checked_reason(reason), checked_by(by)
        killed: bool = self._running().request(lambda reply: KillRequested(name, reply, why, who))
        return killed

    def clear_poison(self, path: str, reason: str | None = None, *, by: str | None = None) -> bool:
        """Give a poisoned key back, once what it stands for is known to be sound; durable when it returns.

        Args:
            path: The key, as `poisons` lists it.
            reason: An operator's reason, for the log and `audit`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            False when that key is not poisoned.

        Raises:
            TypeError: ``path`` is no text.
            ValueError: ``path`` can be no key.
            ManagerStopped: No manager runs.
        """
        key, why, who = LockKey.write(path).path, checked_reason(reason), checked_by(by)
        tree = self._running()
        known = next((poison for poison in Queries(tree).poisons() if poison.path == key), None)
        cleared: bool = tree.request(lambda reply: PoisonCleared(key, reply, why, who))
        if cleared:
            by = f"poisoned by {known.by}: {known.reason}" if known is not None else "poisoned a moment ago"
            logger.warning("poison key %r was cleared: %s (it was %s)", key, why or "no reason given", by)
        return cleared
