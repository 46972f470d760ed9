"""The store protocol: what survives, and nothing about who runs next."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import Protocol

from actorproc.model.records import (
    AuditRecord,
    ChildRecord,
    EventRecord,
    LockRecord,
    NoteRecord,
    PoisonRecord,
    ProcedureRecord,
    StepRecord,
    UndoRecord,
)
from actorproc.model.reports import BackupReport, CompactionReport, KeptSignal, StoreSize
from actorproc.model.snapshot import FinishedTree, Snapshot
from actorproc.model.states import ProcedureState
from actorproc.model.writes import Write

__all__ = ["ProcedureStore", "RecordStore"]


class RecordStore(Protocol):
    """The reading half: what recovery and queries need, from any thread, as of the last commit.

    Every method verifies checksums and raises `StoreDamaged` naming the record.
    """

    def load(self, *, whole: bool = True) -> Snapshot:
        """Everything recovery needs. Damaged records are listed, not raised.

        Without `whole` trees in which all that has not ended waits for a time, an event or children may be left out:
        `Snapshot.cold` says what must be known of them, and `tree` reads one that is needed. When anything is
        damaged nothing is left out.
        """
        ...

    def procedure(self, id: str, *, removed: bool = False) -> ProcedureRecord | None:
        """One head, None when unknown; with `removed` also one whose tree is half removed."""
        ...

    def procedures(self, ids: Sequence[str]) -> list[ProcedureRecord]:
        """The heads of those of these that are known."""
        ...

    def tree(self, root: str) -> tuple[list[ProcedureRecord], list[UndoRecord]]:
        """All heads of a tree in submit order (root first) and its undo units, oldest first."""
        ...

    def step(self, id: str, number: int) -> StepRecord | None:
        """One record of the step log."""
        ...

    def ending(self, id: str) -> tuple[ProcedureRecord, StepRecord | None] | None:
        """The head and the closing record of a procedure that has ended; None when it has not, or is unknown."""
        ...

    def steps(self, id: str) -> list[StepRecord]:
        """The step log of a procedure in order of number."""
        ...

    def children(self, parent: str, step: int | None = None) -> list[ChildRecord]:
        """Links to children in order of (step, index); of one step when given."""
        ...

    def notes(self, id: str, step: int | None = None) -> list[NoteRecord]:
        """Write-ahead notes of a procedure; of one step when given."""
        ...

    def audit(self, target: str) -> list[AuditRecord]:
        """Requests of operators, for a procedure or (empty target) the manager, in order."""
        ...

    def locks(self) -> list[LockRecord]:
        """All granted locks."""
        ...

    def poisons(self) -> list[PoisonRecord]:
        """All poisoned keys."""
        ...

    def events(self, target: str) -> list[EventRecord]:
        """Signals of a target, oldest first, with notes of those that were taken."""
        ...

    def kept_signals(self, target: str | None = None) -> list[KeptSignal]:
        """Signals and events that no procedure has taken, of one target when given; without their payloads."""
        ...

    def finished(
        self,
        *,
        before: float | None = None,
        limit: int | None = None,
        after: tuple[str, float] | None = None,
        reverse: bool = False,
    ) -> list[tuple[str, float]]:
        """Finished roots and when they finished (epoch seconds), the longest finished first, or last with `reverse`.

        `before` leaves out what finished at that time or later, `after` all up to this root in that order. This is
        what retention looks at. Trees that are half removed are not listed.
        """
        ...

    def finished_tree(self, root: str, limit: int) -> FinishedTree | None:
        """A tree as its removal needs it, with at most `limit` members; None when there is no such root."""
        ...

    def removed_members(self, root: str, limit: int | None) -> tuple[list[ProcedureRecord], bool]:
        """Remaining members of a half removed tree: the latest ones, at most `limit`, and whether there are more."""
        ...

    has_files: bool
    """Long fields of the step log may stand in files, of which `place_of` tells."""

    def place_of(self, id: str, number: int) -> str | None:
        """The file that holds the long field of a record of the step log, from its beginning; None: there is none.

        Another process of this user may map it as long as the record is there.
        """
        ...

    @property
    def copied_from(self) -> str | None:
        """The `store_id` of the store of which this one began as a backup; None when it did not."""
        ...

    def ids(self, start: str) -> list[str]:
        """Ids that begin with this text, in order of ids."""
        ...

    def count_states(self) -> dict[ProcedureState, int]:
        """Number of procedures by state; states without any are left out."""
        ...

    def size(self) -> StoreSize:
        """Size of the store."""
        ...

    def scan(
        self,
        *,
        state: ProcedureState | None = None,
        type_name: str | None = None,
        root: str | None = None,
        tag: str | None = None,
        after: str | None = None,
        reverse: bool = False,
        skip_damaged: bool = False,
    ) -> Iterator[ProcedureRecord]:
        """Heads in submit order that match all given filters; newest first with `reverse`.

        Read in chunks while the caller iterates, each from one snapshot: none comes twice, and one that changed
        meanwhile comes as it is when its chunk is read. `after` is the id of the last one seen. Raises
        `UnknownProcedure` when `after` is unknown; a damaged head raises `StoreDamaged` unless `skip_damaged`.
        """
        ...


class ProcedureStore(RecordStore, Protocol):
    """Applies batches of writes atomically and reads what recovery and queries need.

    One owner at a time. `own`, `commit`, `reopen` and `close` are called from one thread only (LMDB
    binds a write transaction to its thread); the reading methods may be called from any thread and see
    the last commit. Every reading method verifies checksums and raises `StoreDamaged` naming the record.
    """

    def own(self) -> int:
        """Become the owner: raise the epoch by one, durably, and return it.

        Raises `StoreInUse`, `StoreFormat`, `StorageUnavailable`, or `OSError`-based `EngineError`s that
        say which path and permission is missing.
        """
        ...

    def commit(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        """Apply all writes or none, durably, if `epoch` is still the stored one.

        `batch` numbers the commits of one owner, upwards from 1, and is stored with the writes: after a failure
        `load().batch` says whether this one was applied. 0: not numbered.

        Raises `StorageUnavailable` when the disk refuses (the outcome is then unknown until `reopen`), and
        `StoreInUse` when a newer epoch owns the store. A full map is grown inside and is no error.
        """
        ...

    def reopen(self) -> None:
        """After a failed commit: close, open again, and make one synced empty commit. Same epoch."""
        ...

    def close(self) -> None:
        """Give the store up. Idempotent."""
        ...

    def compact(self) -> CompactionReport:
        """Give unused space back to the file system; on the thread of `commit`, which waits meanwhile.

        Readers go on. Interrupted at any point, the store is as it was or compact, with all that was committed.
        Raises `NotAllowed` while a backup is being made, `StorageUnavailable` when there is no room for the copy.
        """
        ...

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy the last commit into a new directory, which is a store of its own; from any thread.

        Commits and reads go on meanwhile. Raises `NotAllowed` when something is at `path` already, or for a store
        that has no files; `EngineError`s when the copy cannot be written, and then leaves nothing.
        """
        ...
