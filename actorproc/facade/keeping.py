"""Keeping and removing: how long results stay, and the file they are in."""

from __future__ import annotations

import logging
import os

from actorproc.arguments import check_flag
from actorproc.facade.base import Facade
from actorproc.facade.repairing import checked_reason
from actorproc.model.events import Acknowledged, DeleteRequested
from actorproc.model.ids import check_id
from actorproc.model.reports import BackupReport, CompactionReport

__all__ = ["Keeping"]

logger = logging.getLogger("actorproc")


class Keeping(Facade):
    """`acknowledge`, `delete`, `compact`, `backup`."""

    def acknowledge(self, id: str, reason: str | None = None) -> bool:
        """Say that the result of a finished procedure was taken; durable when it returns.

        It then stays for `Config.retain_acknowledged` seconds only (the idea is HBase's ``removeResult``). False when
        nothing is kept under this id. Raises `NotAllowed` for what has not finished, and for a child, which goes
        with its root. ``reason`` is an operator's: with it the call is recorded (`audit`).
        """
        name, why = check_id(id), checked_reason(reason)
        known: bool = self._running().request(lambda reply: Acknowledged(name, reply, reason=why))
        return known

    def delete(self, id: str, reason: str | None = None, *, force: bool = False) -> bool:
        """Remove a finished root and all that ran below it at once; durable when it returns.

        From then on the id is free: submitting it again begins anew. False when nothing is kept under this id. Raises
        `NotAllowed` for what has not finished, for a child, and for one that owns poisoned keys: its record says what
        is wrong with them, so clear them first, or use ``force``, which leaves them poisoned. ``reason`` goes into
        the log and into `audit`.
        """
        name, why = check_id(id), checked_reason(reason)
        check_flag(force, "force")
        gone: bool = self._running().request(lambda reply: DeleteRequested(name, reply, force, why))
        if gone:
            logger.warning("procedure %s was deleted: %s", name, why or "no reason given")
        return gone

    def compact(self) -> CompactionReport:
        """Give the space of removed procedures back to the file system, while everything runs.

        Not needed to keep the file from growing: freed space is used again. Commits wait until it is done, steps that
        run go on. As much free disk space as the result takes is needed for that time. Interrupted at any point,
        nothing is lost. Raises `NotAllowed` while a backup is being made, `StorageUnavailable` when there is no room.
        """
        return self._running().compact()

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy the store as it is now into a new directory, while everything runs.

        ``path`` must not exist; it appears when the copy is whole and on the disk, readable by this user only. A
        manager started on it goes on with what had not finished, under a store id of its own. Raises `NotAllowed`
        when there is something at ``path``, `EngineError`s when it cannot be written.
        """
        return self._running().store.backup(path)
