"""The store protocol: what survives, and nothing about who runs next."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from actorproc.model.records import (
    ChildRecord,
    EventRecord,
    LockRecord,
    NoteRecord,
    PoisonRecord,
    ProcedureRecord,
    StepRecord,
    UndoRecord,
)
from actorproc.model.snapshot import Snapshot
from actorproc.model.states import ProcedureState
from actorproc.model.writes import Write

__all__ = ["ProcedureStore"]


class ProcedureStore(Protocol):
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

    def load(self) -> Snapshot:
        """Everything recovery needs. Damaged records are listed, not raised."""
        ...

    def procedure(self, id: str) -> ProcedureRecord | None:  # noqa: A002
        """One head, None when unknown."""
        ...

    def tree(self, root: str) -> tuple[list[ProcedureRecord], list[UndoRecord]]:
        """All heads of a tree in submit order (root first) and its undo units, oldest first."""
        ...

    def step(self, id: str, number: int) -> StepRecord | None:  # noqa: A002
        """One record of the step log."""
        ...

    def steps(self, id: str) -> list[StepRecord]:  # noqa: A002
        """The step log of a procedure in order of number."""
        ...

    def children(self, parent: str, step: int | None = None) -> list[ChildRecord]:
        """Links to children in order of (step, index); of one step when given."""
        ...

    def notes(self, id: str, step: int) -> list[NoteRecord]:  # noqa: A002
        """Write-ahead notes of one step."""
        ...

    def locks(self) -> list[LockRecord]:
        """All granted locks."""
        ...

    def poisons(self) -> list[PoisonRecord]:
        """All poisoned keys."""
        ...

    def events(self, target: str) -> list[EventRecord]:
        """Buffered signals of a target, oldest first."""
        ...

    def finished(self, *, before: float | None = None, limit: int | None = None) -> list[tuple[str, float]]:
        """Finished roots and when they finished (epoch seconds), the longest finished first.

        `before` leaves out what finished at that time or later. This is what retention removes.
        """
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
