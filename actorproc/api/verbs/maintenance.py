"""Maintenance verbs: how long results stay, and the file they are in."""

from __future__ import annotations

import logging
import os

from actorproc.api.verbs.base import EngineVerbs
from actorproc.engine.arguments import check_flag, checked_by, checked_reason
from actorproc.model.ids import check_id
from actorproc.model.messages.events import Acknowledged, DeleteRequested
from actorproc.model.reports import BackupReport, CompactionReport

__all__ = ["MaintenanceVerbs"]

logger = logging.getLogger("actorproc")


class MaintenanceVerbs(EngineVerbs):
    """`acknowledge`, `delete`, `compact`, `backup`."""

    def acknowledge(self, id: str, reason: str | None = None, *, by: str | None = None) -> bool:
        """Say that the result of a finished procedure was taken; durable when it returns.

        It then stays for `Config.retain_acknowledged` seconds only (the idea is HBase's ``removeResult``).

        Args:
            id: The root.
            reason: An operator's reason; with it, or with ``by``, the call is recorded (`audit`). Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.

        Returns:
            False when nothing is kept under this id.

        Raises:
            InvalidId: The id is no id.
            NotAllowed: The procedure has not finished, or is a child, which goes with its root.
            ManagerStopped: No manager runs.
        """
        name, why = check_id(id), checked_reason(reason)
        who = None if reason is None and by is None else checked_by(by)
        known: bool = self._running().request(lambda reply: Acknowledged(name, reply, reason=why, by=who))
        return known

    def delete(self, id: str, reason: str | None = None, *, force: bool = False, by: str | None = None) -> bool:
        """Remove a finished root and all that ran below it at once; durable when it returns.

        From then on the id is free: submitting it again begins anew.

        Args:
            id: The root.
            reason: An operator's reason, for the log and `audit`. Default: None.
            by: Name of the one who asks, for `audit`. Default: None, the user of this process.
            force: Remove also an owner of poisoned keys, and leave these poisoned. Default: False.

        Returns:
            False when nothing is kept under this id.

        Raises:
            InvalidId: The id is no id.
            NotAllowed: The procedure has not finished, or is a child, or owns poisoned keys. Its record says what is
                wrong with these keys, so clear them first.
            ManagerStopped: No manager runs.
        """
        name, why, who = check_id(id), checked_reason(reason), checked_by(by)
        check_flag(force, "force")
        gone: bool = self._running().request(lambda reply: DeleteRequested(name, reply, force, why, by=who))
        if gone:
            logger.warning("procedure %s was deleted: %s", name, why or "no reason given")
        return gone

    def compact(self) -> CompactionReport:
        """Give the space of removed procedures back to the file system, while everything runs.

        Not needed to keep the file from growing: freed space is used again. Commits wait until it is done, running
        steps go on. Meanwhile as much free disk space is needed as the result takes. An interruption at any point loses
        nothing.

        Returns:
            A `CompactionReport` with the sizes before and after.

        Raises:
            NotAllowed: A backup is being made.
            StorageUnavailable: There is no room for the copy.
            ManagerStopped: No manager runs.
        """
        return self._running().compact()

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy the store as it is now into a new directory, while everything runs.

        A manager started on the copy goes on with what had not finished, under a store id of its own.

        Args:
            path: Directory that does not exist yet. It appears when the copy is whole and on disk, readable by this
                user only.

        Returns:
            A `BackupReport`.

        Raises:
            NotAllowed: Something is at ``path`` already, or the store has no files.
            UsageError: ``path`` is a URL.
            EngineError: The copy cannot be written.
            ManagerStopped: No manager runs.
        """
        return self._running().store.backup(path)
