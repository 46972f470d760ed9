"""Base of a store's owner and of a mere reader: snapshots of a database."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from actorproc.errors import EngineError
from actorproc.model.ids import new_id
from actorproc.model.reports import BackupReport, StoreSize
from actorproc.model.states import ProcedureState
from actorproc.store.directory import refuse_url
from actorproc.store.memory import MemoryRows
from actorproc.store.postgres.known_keys import KnownKeys
from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.rows import DatabaseView, SessionPool, bound_of
from actorproc.store.postgres.schema.statements import statements_of
from actorproc.store.postgres.sessions import Answer, Session, array_of, number, numbered
from actorproc.store.rows import codec
from actorproc.store.rows.keys import head_key, prefix
from actorproc.store.rows.layout import COPIED_FROM, STORE_ID, meta_of
from actorproc.store.rows.reading import RecordReader
from actorproc.store.rows.tables import Table

__all__ = ["OpenDatabase"]

_MOST = 4
"""Sessions for reading at once; others wait."""
_KEPT = 1
"""So that a leader has three sessions: for commits, for its lock, and this one."""
_ALL = 1 << 40
"""More than a tree has."""


class OpenDatabase(RecordReader):
    """Base of the owner and of a mere reader: views of the tables."""

    def __init__(self, place: DatabasePlace, connect: Callable[[], Session], within: float) -> None:
        self.place = place
        self._statements = statements_of(place.schema)
        self._within = within
        self._pid = os.getpid()
        self._pool = SessionPool(connect, _MOST, _KEPT)
        self._known: KnownKeys | None = None
        """Keys that the owner knows; None: others write."""

    def _view(self) -> DatabaseView:
        self._refuse_fork()
        return DatabaseView(self._pool, self._statements, self.place.words, self._within, self._known)

    @contextlib.contextmanager
    def _trees(self, roots: Sequence[str], limit: int | None) -> Iterator[MemoryRows]:
        """The rows of these trees alone, read in one round trip."""
        keys = [head_key(root) for root in roots]
        low = [prefix(root) for root in roots]
        ranges = array_of(low), array_of([bound_of(start) for start in low])
        members = number(_ALL if limit is None else limit + 1)
        units = number(_ALL if limit is None else 1)  # who removes a tree asks only whether there is one
        of = self._statements
        found = MemoryRows()
        with self._view() as rows:
            heads, undo, removed = rows.ask(
                (of.members, (*ranges, members)),
                (of.units, (*ranges, units)),
                (of.tables[Table.REMOVALS].get_many, (array_of(keys),)),
            )
        for row in range(heads.ntuples):
            key, id_, head = (heads.get_value(row, column) for column in range(3))
            found.put(Table.MEMBERS, key or b"", id_ or b"")
            if head is not None:
                found.put(Table.PROCEDURES, id_ or b"", head)
        for table, answer in ((Table.UNDO, undo), (Table.REMOVALS, removed)):
            for row in range(answer.ntuples):
                found.put(table, answer.get_value(row, 0) or b"", answer.get_value(row, 1) or b"")
        yield found

    def count_states(self) -> dict[ProcedureState, int]:
        """Number of procedures by state; counted by the database."""
        with self._view() as rows:
            (answer,) = rows.ask((self._statements.states, ()))
        counts: dict[str, int] = {}
        for row in range(answer.ntuples):
            name, count = (answer.get_value(row, 0) or b"").decode("utf-8", "replace"), _at(answer, row, 1)
            counts[name] = count
        return {state: counts[state.value] for state in ProcedureState if counts.get(state.value)}

    def size(self) -> StoreSize:
        """Size of the tables with their indexes, and of their rows alone."""
        with self._view() as rows:
            (answer,) = rows.ask((self._statements.size, ()))
        return StoreSize(*(_at(answer, 0, column) for column in range(5)))

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy the last commit into a new directory of this machine, a store of its own. See `ProcedureStore.backup`.

        Commits go on meanwhile. The database keeps all versions of rows as long as that takes.
        """
        from actorproc.store.lmdb.upkeep.filling import make_filled  # noqa: PLC0415 - LMDB is loaded for this alone

        refuse_url(path, "a backup is a directory of this machine")
        destination, begun = Path(path).absolute(), time.monotonic()
        store_id = new_id()
        with self._view() as rows:
            copied_from = str(meta_of(STORE_ID, rows.get(Table.META, STORE_ID) or b""))
            changed = {
                key: codec.encode(Table.META, key, value)
                for key, value in ((STORE_ID, store_id), (COPIED_FROM, copied_from))
            }

            def rows_of(table: Table) -> Iterator[tuple[bytes, bytes]]:
                if table is Table.META:
                    return iter(sorted({**dict(rows.scan(table)), **changed}.items()))
                return rows.scan(table)

            doing = f"backing the store {self.place.words} up to {destination}"
            size = make_filled(destination, rows_of, rows.signing_keys(), doing=doing)
        return BackupReport(str(destination), size, time.monotonic() - begun, store_id, copied_from)

    def signing_keys(self) -> bytes:
        """The keys that sign pickled states, one after the other, the newest first; empty: there are none."""
        with self._view() as rows:
            return rows.signing_keys()

    def _refuse_fork(self) -> None:
        if os.getpid() != self._pid:
            raise EngineError(
                f"the store {self.place.words} was opened by process {self._pid}, and this is its forked child "
                f"{os.getpid()}: a session of a database does not survive a fork; open it after forking"
            )


def _at(answer: Answer, row: int, column: int) -> int:
    return numbered(answer.get_value(row, column))
