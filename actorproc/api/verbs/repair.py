"""Repairs by hand: an operator's verbs for a procedure that stands still, has failed, or must not run now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from actorproc.api.handle import ProcedureHandle
from actorproc.api.verbs.restart_fork import RestartVerbs
from actorproc.engine.arguments import check_flag, checked_by, checked_reason
from actorproc.errors import UnknownProcedure
from actorproc.model.ids import check_id
from actorproc.model.messages.events import (
    BypassRequested,
    EnqueuedRemoved,
    PauseRequested,
    ResumeRequested,
    RetryRequested,
    RollbackRequested,
)

if TYPE_CHECKING:
    from actorproc.core.operator.verbs import Verb

__all__ = ["RepairVerbs"]


class RepairVerbs(RestartVerbs):
    """`restart`, `fork`, `remove_enqueued`, `retry`, `bypass`, `rollback`, `pause`, `resume`, `open`.

    Each is durable when it returns, survives a crash, and is kept with its reason: see `audit`. All raise
    `ManagerStopped` when no manager runs.
    """

    def _ask_for(self, verb: Verb, id: str, reason: str | None = None, by: str | None = None, **options: Any) -> bool:
        """Ask for a verb of the table that has no method of its own."""
        name, why, who = check_id(id), checked_reason(reason), checked_by(by)
        done: bool = self._running().request(
            lambda reply: verb.event(id=name, reply=reply, reason=why, by=who, **options)
        )
        return done

    def retry(self, id: str, reason: str | None = None, *, by: str | None = None) -> ProcedureHandle:
        """Open a new run of a root that ended ``FAILED``.

        A rollback that gave up goes on at the same place with a fresh budget. When it is complete, the keys that its
        failure had poisoned are free. Where nothing was undone, the failed step runs again, and the members of its tree
        go on with it. Locks are taken again before anything runs; keys the tree poisoned itself are no obstacle.
        Handles that have their outcome keep it. A deadline that has passed no longer counts.

        Args:
            id: The root.
            reason: An operator's reason, for `audit`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            A handle that waits for the end of this run.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            NotAllowed: It is a child, or has not failed. Or a part was undone and the rest cannot be: there is never a
                way forward after an undo.
            KeyPoisoned: It needs a key that another tree poisoned.
        """
        name, why, who = check_id(id), checked_reason(reason), checked_by(by)
        self._running().request(lambda reply: RetryRequested(name, reply, why, who))
        return ProcedureHandle(name, self)

    def remove_enqueued(self, id: str, reason: str | None = None, *, by: str | None = None) -> int:
        """Remove what an application enqueued under an id and was refused; recorded (`audit`).

        Args:
            id: The id, or the key of a row that cannot be read; as `enqueued` shows it.
            reason: An operator's reason, for `audit`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            Number of rows removed.

        Raises:
            UnknownProcedure: Nothing that was refused has this id.
        """
        name, why, who = check_id(id), checked_reason(reason), checked_by(by)
        with self._asking() as queries:
            keys = tuple(
                bytes.fromhex(row.key) for row in queries.enqueued() if row.id == id and row.state == "refused"
            )
        if not keys:
            msg = f"no enqueued procedure was refused under the id {name!r}"
            raise UnknownProcedure(msg)
        self._running().request(lambda reply: EnqueuedRemoved(keys, name, reply, why, who))
        return len(keys)

    def bypass(
        self,
        id: str,
        children: bool = False,
        ancestors: bool = False,
        force: bool = False,
        reason: str | None = None,
        *,
        by: str | None = None,
    ) -> bool:
        """End a procedure as if it had succeeded: it neither runs on nor is undone, and its output is None.

        The last resort, for what can be repaired in no other way (HBase's HBCK2 has one of this name). An operator has
        to see to what it left half done. Its parent goes on as if it had succeeded. A ``FAILED`` root can be bypassed
        too, in a new run; all keys its tree poisoned are free then.

        Args:
            id: The procedure.
            children: Bypass all its descendants too; without it they must have ended. Default: False.
            ancestors: Bypass its ancestors too, each as soon as its other children have ended. Default: False.
            force: Kill its running step; the procedure then ends a moment after this call. Default: False.
            reason: An operator's reason, for `audit`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            False when the procedure has ended otherwise than ``FAILED``.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            NotAllowed: A step runs or descendants have not ended, and the flag for that is not given.
            TypeError: A flag is neither True nor False.
        """
        name, why, who = check_id(id), checked_reason(reason), checked_by(by)
        for flag, value in (("children", children), ("ancestors", ancestors), ("force", force)):
            check_flag(value, flag)
        accepted: bool = self._running().request(
            lambda reply: BypassRequested(name, reply, children, ancestors, force, why, who)
        )
        return accepted

    def rollback(self, id: str, reason: str | None = None, *, by: str | None = None) -> bool:
        """Undo an unfinished root, as if it had failed; unlike with `abort` the procedure is not asked.

        Running steps end first.

        Args:
            id: The root.
            reason: An operator's reason, for `audit`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            False when it has been undone already.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            NotAllowed: It is a child, is past the point of no return, has no rollback, or has failed. Or it has
                succeeded: how to undo that is not kept.
        """
        name, why, who = check_id(id), checked_reason(reason), checked_by(by)
        accepted: bool = self._running().request(lambda reply: RollbackRequested(name, reply, why, who))
        return accepted

    def pause(self, id: str | None = None, reason: str | None = None, *, by: str | None = None) -> bool:
        """Hand out no more steps of a procedure and its descendants, or without an id of any, until `resume`.

        Running steps end, and count. Nothing else runs, rollbacks included. Held locks are kept, time goes on, and
        submits are accepted. The pause survives a restart.

        Args:
            id: The procedure; None: the whole manager. Default: None.
            reason: An operator's reason, for `audit`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            False when the procedure has ended.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        name = check_id(id) if id is not None else None
        why, who = checked_reason(reason), checked_by(by)
        paused: bool = self._running().request(lambda reply: PauseRequested(name, reply, why, who))
        return paused

    def resume(self, id: str | None = None, reason: str | None = None, *, by: str | None = None) -> bool:
        """Lift the pause of a procedure, or without an id that of the whole manager.

        Each pause is lifted by itself: that of an ancestor, or of the whole manager, stays.

        Args:
            id: The procedure; None: the whole manager. Default: None.
            reason: An operator's reason, for `audit`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            False when there was no pause.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        name = check_id(id) if id is not None else None
        why, who = checked_reason(reason), checked_by(by)
        was_paused: bool = self._running().request(lambda reply: ResumeRequested(name, reply, why, who))
        return was_paused

    def open(self) -> None:
        """Let the steps run after ``start(gated=True)``; without effect when the gate is open."""
        self._running().open_gate()
