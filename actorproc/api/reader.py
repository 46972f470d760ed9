"""Looking into a store from another process than its manager's, while that one runs or when none does."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, Self

import msgspec

from actorproc.api.queries import StoredQueries
from actorproc.api.stored_source import StoredSource
from actorproc.api.verbs.read import ReadVerbs
from actorproc.model.plain import plain_dict
from actorproc.model.reports import BackupReport, Looked
from actorproc.model.states import ProcedureState
from actorproc.report.info import ProcedureInfo
from actorproc.report.listing import ListFilter
from actorproc.store.home import home_of
from actorproc.support.durations import moment
from actorproc.workers.protocol.log_entry import LogEntry

if TYPE_CHECKING:
    from actorproc.report.why import EngineFacts

__all__ = ["OwnerInfo", "StoreReader", "StoreStats"]

_PAGE = 256
"""Heads that are read together."""

_List = list
"""`StoreReader.list` hides the builtin inside the class."""


class OwnerInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The process whose manager has the store open."""

    pid: int
    host: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class StoreStats(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a store; sizes in bytes."""

    path: str
    store_id: str
    epoch: int
    """Number of managers that have owned it, one after the other."""
    owner: OwnerInfo | None
    """None: no manager runs on it."""
    states: dict[str, int]
    """Procedures by state; states without any are left out."""
    procedures: int
    steps: int
    """Records in all step logs."""
    locks: int
    poisons: int
    signals: int
    """Signals and events that no procedure has taken."""
    file_bytes: int
    used_bytes: int
    """Bytes of the file that rows take; the rest is used again before it grows."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in the order of the fields."""
        return plain_dict(self)


class StoreReader(ReadVerbs):
    """The looking methods of a `ProcedureManager` without a manager, read from its directory. A context manager.

    It needs no owner lock, starts nothing, writes nothing, and gives each snapshot back before it returns. A manager
    may run, start, stop and compact meanwhile. May be used from any thread, in the manager's own process too.

    Facts that only a running manager knows are concluded from the store. A step that was handed out counts as running
    while a manager lives, and as queued when none does. Obstacles are named by key. Progress, and types that are not
    registered, are not seen.

    Args:
        path: The directory of the store.
        allow_any_filesystem: Read also on a file system of other machines; see `Config.allow_any_filesystem`. Default:
            False.

    Raises:
        StoreFormat: The store is of a newer format.
        StoreDamaged: The store cannot be read.
        EngineError: The store is missing, belongs to another user, or others may write to it; the message says what to
            do.
        ValueError: The path is empty.
        UsageError: The path is a URL.
    """

    _engine_stays_here = "belongs to its process: pass on its path, and read there with a StoreReader of its own"

    def __init__(self, path: str | os.PathLike[str], *, allow_any_filesystem: bool = False) -> None:
        self._home = home_of(path)
        self._clock = self._home.clock()
        self._store = self._home.reader(allow_any_filesystem=allow_any_filesystem)
        self._lock = threading.Lock()

    @property
    def path(self) -> str:
        """The directory."""
        return os.fspath(self._store.path)

    def __repr__(self) -> str:
        return f"<StoreReader {self.path!r}>"

    def __reduce__(self) -> NoReturn:
        msg = f"a StoreReader {self._engine_stays_here}"
        raise TypeError(msg)

    def owner(self) -> OwnerInfo | None:
        """The process whose manager has the store open; None when there is none."""
        found = self._store.owner()
        return OwnerInfo(pid=found.pid, host=found.host) if found is not None else None

    def matching(self, wanted: ListFilter, looked: Looked | None = None) -> _List[ProcedureInfo]:
        """Procedures that a checked filter matches; `list` with the filter made beforehand.

        Args:
            wanted: The filter.
            looked: Bounds the heads that are read, and tells afterwards where the look was cut off. Default: no bound.

        Returns:
            One `ProcedureInfo` for each, in the order the filter asks for.

        Raises:
            UnknownProcedure: The filter goes on after a procedure that does not exist.
        """
        with self._asking() as queries:
            return queries.listed(wanted, looked)

    def finished_roots(self, before: datetime | float) -> _List[tuple[str, ProcedureState]]:
        """Roots that finished before a moment, the longest finished first.

        Args:
            before: A datetime with a time zone, or seconds since 1970.

        Returns:
            Id and final state of each.

        Raises:
            TypeError: ``before`` is no time.
            ValueError: ``before`` is a naive datetime, or makes no sense.
        """
        at = moment(before, "finished_roots(before)")
        with self._lock:
            names = [name for name, _ in self._store.finished(before=at)]
            pages = (names[start : start + _PAGE] for start in range(0, len(names), _PAGE))
            return [(head.id, head.state) for page in pages for head in self._store.procedures(page)]

    def logs(self, id: str) -> _List[LogEntry]:
        """Prints and log records of a procedure, oldest first, as far as the files beside the store keep them.

        Args:
            id: The procedure.

        Returns:
            One `LogEntry` for each line or record: at most 256 KiB, of `Config.log_file_bytes` for all procedures.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        with self._asking() as queries:
            return queries.spooled_logs(id, self._home.spool)

    def ids(self, start: str = "", *, limit: int | None = None) -> _List[str]:
        """Ids that begin with a text.

        Args:
            start: The text. Default: "", all ids.
            limit: Greatest number of ids. Default: None, all.

        Returns:
            The ids, in order of ids.
        """
        with self._lock:
            return self._store.ids(start, limit)

    def types(self) -> _List[str]:
        """Names of the types of stored procedures, in order."""
        with self._lock:
            return sorted(self._store.types())

    def stats(self) -> StoreStats:
        """Contents of the store, and its owner."""
        with self._lock:
            store = self._store
            size = store.size()
            return StoreStats(
                path=self.path,
                store_id=store.store_id,
                epoch=store.epoch,
                owner=self.owner(),
                states={str(state): count for state, count in store.count_states().items()},
                procedures=size.procedures,
                steps=size.steps,
                locks=len(store.locks()),
                poisons=len(store.poisons()),
                signals=len(store.kept_signals()),
                file_bytes=size.file,
                used_bytes=size.used,
            )

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy the store into a new directory; see `ProcedureManager.backup`.

        Args:
            path: Directory that does not exist yet.

        Returns:
            A `BackupReport`.

        Raises:
            NotAllowed: Something is at ``path`` already.
            UsageError: ``path`` is a URL.
            EngineError: The copy cannot be written.
        """
        with self._lock:
            return self._store.backup(path)

    def close(self) -> None:
        """Stop reading. Idempotent."""
        with self._lock:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _asking(self) -> Iterator[StoredQueries]:
        # One call at a time: the store is opened again when its owner compacts it.
        with self._lock:
            yield StoredQueries(StoredSource(self._store, is_owned=self._store.owner() is not None))

    def _now(self) -> float:
        return self._clock.wall()

    def _engine_facts(self) -> EngineFacts:
        from actorproc.report.why import EngineFacts  # noqa: PLC0415 - a list need not wait for it

        with self._lock:
            owner, paused = self._store.owner(), self._store.paused
        if owner is None:
            return EngineFacts(running=False, paused=paused)
        suspended = self._home.is_suspended(owner)
        return EngineFacts(running=True, pid=owner.pid, suspended=suspended, paused=paused)
