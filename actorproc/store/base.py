"""The store protocol: rows that survive, and nothing about their order of work."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from typing import Protocol

from actorproc.model.reports import BackupReport, CompactionReport, KeptSignal, Looked, StoreSize
from actorproc.model.rows.enqueued import EnqueuedRecord
from actorproc.model.rows.records import (
    EventRecord,
    LockRecord,
    PoisonRecord,
    ProcedureRecord,
)
from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import Write
from actorproc.model.states import ProcedureState
from actorproc.store.procedure_reads import ProcedureReads

__all__ = ["ProcedureStore", "RecordStore"]


class RecordStore(ProcedureReads, Protocol):
    """The reading half: rows for recovery and queries, from any thread, as of the last commit.

    Every method verifies checksums and raises `StoreDamaged` naming the record. Times are epoch seconds.
    """

    def load(self, *, whole: bool = True) -> RecoverySnapshot:
        """Everything recovery needs. Damaged records are listed, not raised.

        Args:
            whole: False permits to leave out trees in which all that has not ended waits for a time, an event or
                children. `RecoverySnapshot.cold` has the facts about these, and `tree` reads one that is needed. When
                anything is damaged nothing is left out. Default: True.

        Returns:
            The rows, read in one transaction.
        """
        ...

    def locks(self) -> list[LockRecord]:
        """All granted locks."""
        ...

    def poisons(self) -> list[PoisonRecord]:
        """All poisoned keys."""
        ...

    def schedules(self) -> tuple[int, list[ScheduleRecord]]:
        """The epoch of the store, and all schedules by id."""
        ...

    def schedule(self, id: str) -> tuple[int, ScheduleRecord | None]:
        """One schedule.

        Args:
            id: The schedule.

        Returns:
            The epoch of the store, and the schedule; None: there is none of this id.

        Raises:
            StoreDamaged: The record cannot be trusted.
        """
        ...

    def enqueued(
        self, *, refused: bool = False, after: bytes | None = None, limit: int | None = None
    ) -> list[EnqueuedRecord]:
        """Procedures that applications enqueued in their transactions, about in that order.

        Args:
            refused: Those that could not be created, in place of those that wait. Default: False.
            after: The key of the last row seen. Default: None.
            limit: Greatest number of rows. Default: None, all.

        Returns:
            The rows; one that cannot be read has the reason.
        """
        ...

    def events(self, target: str) -> list[EventRecord]:
        """Signals of a target, with notes of those that were taken.

        Args:
            target: The id of a procedure, or `event_target` of the name of an event.

        Returns:
            The records, oldest first.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    def kept_signals(self, target: str | None = None) -> list[KeptSignal]:
        """Signals and events that no procedure has taken, without their payloads.

        Args:
            target: The id of a procedure, or `event_target` of the name of an event. Default: None, all.

        Returns:
            One `KeptSignal` for each.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    @property
    def store_id(self) -> str:
        """The name that the store was given when it was made, a UUID. A backup has one of its own."""
        ...

    @property
    def epoch(self) -> int:
        """Number of owners that the store has had."""
        ...

    @property
    def paused(self) -> str | None:
        """Reason for which an operator paused the whole manager; None: it is not paused."""
        ...

    @property
    def copied_from(self) -> str | None:
        """The `store_id` of the store of which this one began as a backup; None when it did not."""
        ...

    def ids(self, start: str, limit: int | None = None) -> list[str]:
        """Ids that begin with a text.

        Args:
            start: The text; "": all ids.
            limit: Greatest number of them. Default: None, no limit.

        Returns:
            The ids, in order of ids.
        """
        ...

    def count_states(self) -> dict[ProcedureState, int]:
        """Number of procedures by state; states without any are left out."""
        ...

    def size(self) -> StoreSize:
        """Size of the store."""
        ...

    def types(self) -> list[str]:
        """Names of the types of stored procedures, each once."""
        ...

    def scan(
        self,
        *,
        state: ProcedureState | Collection[ProcedureState] | None = None,
        type_name: str | None = None,
        root: str | None = None,
        tag: str | Collection[str] | None = None,
        where: Collection[str] = (),
        after: str | None = None,
        reverse: bool = False,
        skip_damaged: bool = False,
        looked: Looked | None = None,
    ) -> Iterator[ProcedureRecord]:
        """Heads in submit order that match all given filters.

        Read in chunks, each from one snapshot: none comes twice, and one that changed comes as its chunk has it.

        Args:
            state: Only heads in this state, or in one of several. Default: None.
            type_name: Only heads of this type. Default: None.
            root: Only heads of this tree. Default: None.
            tag: Only heads with this tag, or with all of several. Default: None.
            where: Only heads with all these texts of searchable fields. Default: none.
            after: The id of the last head seen; go on behind it. Default: None.
            reverse: Newest first. Default: False.
            skip_damaged: Leave damaged heads out. Default: False, they are raised.
            looked: Bound of this look. Default: None, all are read.

        Returns:
            An iterator of heads.

        Raises:
            UnknownProcedure: ``after`` is unknown.
            StoreDamaged: A head is damaged, and ``skip_damaged`` is False.
        """
        ...


class ProcedureStore(RecordStore, Protocol):
    """Applies batches of writes atomically and reads the rows for recovery and queries.

    One owner at a time. `own`, `commit`, `reopen` and `close` are called from one thread only, because LMDB binds a
    write transaction to its thread. The reading methods may be called from any thread.

    A store that can learn between two commits that another owner has taken it over has a method ``when_deposed(told)``
    as well. ``told`` takes the `Deposed` and may be called from any thread. A store whose rows are dated by another
    clock than the system's has it as ``clock`` (`MeasuredClock`); it counts from `own` on.
    """

    def own(self) -> int:
        """Become the owner: raise the epoch by one, durably.

        Returns:
            The new epoch.

        Raises:
            StoreInUse: Another process owns the store.
            StoreFormat: The store is of a newer format, or is none.
            StorageUnavailable: The disk refuses.
            EngineError: A path cannot be used; the message says which permission is missing.
        """
        ...

    def commit(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        """Apply all writes or none, durably, if the epoch is still the stored one.

        A full map is grown inside and is no error.

        Args:
            writes: The writes, in order.
            epoch: The epoch that `own` returned.
            batch: Number of the commit of this owner, upwards from 1, stored with the writes. After a failure
                `load().batch` says whether it was applied. Default: 0, not numbered.

        Raises:
            StorageUnavailable: The disk refuses; the outcome is then unknown until `reopen`.
            Deposed: A newer epoch owns the store: nothing was applied, and nothing will be for this owner.
        """
        ...

    def reopen(self) -> None:
        """After a failed commit: close, open again, and make one synced empty commit. The epoch stays.

        Raises:
            StorageUnavailable: The disk still refuses.
            Deposed: A newer epoch owns the store.
        """
        ...

    def close(self) -> None:
        """Give the store up. Idempotent."""
        ...

    def compact(self) -> CompactionReport:
        """Give unused space back to the file system; on the thread of `commit`, which waits meanwhile.

        Readers go on. Interrupted at any point, the store is as it was or compact, with all that was committed.

        Returns:
            Sizes before and after, in bytes.

        Raises:
            NotAllowed: A backup is being made.
            StorageUnavailable: There is no room for the copy.
        """
        ...

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy the last commit into a new directory, a store of its own; commits and reads go on. From any thread.

        Args:
            path: Directory that does not exist yet.

        Returns:
            A `BackupReport`.

        Raises:
            UsageError: ``path`` is a URL.
            NotAllowed: Something is at ``path`` already, or the store has no files.
            EngineError: The copy cannot be written; nothing is left of it then.
        """
        ...
