"""Snapshots of the tables as `Rows`.

A transaction begins with the first question of a view, in the same round trip, and its end is sent without waiting
for an answer. So a view with one question costs one round trip, and one without any costs nothing.
"""

from __future__ import annotations

import random
import threading
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Self

from actorproc.errors import StorageUnavailable
from actorproc.store.postgres.failures import DatabaseFailure, is_temporary, unavailable
from actorproc.store.postgres.known_keys import MOST_KEYS, TABLES, KnownKeys
from actorproc.store.postgres.schema.statements import Statements
from actorproc.store.postgres.sessions import Answer, Question, Session, Statement, array_of, number, numbered
from actorproc.store.rows import codec
from actorproc.store.rows.layout import BATCH, EPOCH
from actorproc.store.rows.tables import Table

__all__ = ["DatabaseView", "SessionPool", "bound_of"]

_BEGIN = Statement(b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
_END = Statement(b"COMMIT")
_PAGES = (64, 512, 4096, 10_000)
"""Rows of the first pages of a scan; the last number goes on. Most scans end in the first."""
_LAST_KEY = b"\xff" * 1024
_Row = tuple[bytes, bytes]
_META, _REMOVALS = Table.META, Table.REMOVALS
_OWN_META = (BATCH, EPOCH)
"""Rows that are shown in `meta`, and stand elsewhere."""
_PATIENCE = 30.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds to wait for a session while all are in use."""
_LOOKED_UP = frozenset({Table.PROCEDURES, Table.MEMBERS, Table.FINISHED, Table.REMOVALS})
"""Tables with whose rows it is asked next whether their tree is half removed."""


def bound_of(prefix: bytes) -> bytes:
    """A key behind all keys that begin with this, and before all others."""
    stem = prefix.rstrip(b"\xff")
    return stem[:-1] + bytes([stem[-1] + 1]) if stem else _LAST_KEY


class SessionPool:
    """Sessions for reading, lent to one view at a time; from any thread.

    Args:
        connect: Opens a session.
        most: Sessions at once.
        kept: Sessions that are kept while no view uses them.
    """

    def __init__(self, connect: Callable[[], Session], most: int, kept: int) -> None:
        self._connect = connect
        self.patience = 0.0
        """Seconds for which a view waits for a database that takes no session at the moment."""
        self._free: list[Session] = []
        self._kept = kept
        self._room = threading.BoundedSemaphore(most)
        self._lock = threading.Lock()
        self._closed = False

    def borrow(self) -> Session:
        """A session; the one given back last, or a new one. Raises `DatabaseFailure`, `StorageUnavailable`."""
        if not self._room.acquire(timeout=_PATIENCE):
            raise StorageUnavailable(f"all sessions for reading were in use for {_PATIENCE:g} s; try again later")
        try:
            return self._kept_one() or self._new()
        except BaseException:
            self._room.release()
            raise

    def _kept_one(self) -> Session | None:
        """The session given back last. One that the server may end at any moment, or has ended, is of no use."""
        with self._lock:
            while self._free:
                session = self._free.pop()
                if not session.may_be_ended:
                    return session
                session.close()
        return None

    def _new(self) -> Session:
        until, pause = time.monotonic() + self.patience, _FIRST_PAUSE
        while True:
            try:
                return self._connect()
            except DatabaseFailure as failure:
                if self._closed or not is_temporary(failure) or time.monotonic() >= until:
                    raise
            # Full jitter: all that read a database lose it at the same moment.
            time.sleep(random.uniform(0.0, pause))  # noqa: S311
            pause = min(2 * pause, _LONGEST_PAUSE)

    def give_back(self, session: Session) -> None:
        """Let others use it, unless it has failed."""
        session.idle_since = time.monotonic()
        with self._lock:
            keep = not session.is_broken and not self._closed and len(self._free) < self._kept
            if keep:
                self._free.append(session)
        if not keep:
            session.close()
        self._room.release()

    def close(self, *, for_good: bool = True) -> None:
        """End the sessions that are not in use; with `for_good` the others as they are given back."""
        with self._lock:
            self._closed = self._closed or for_good
            free, self._free = self._free, []
        for session in free:
            session.close()

    def open(self) -> None:
        """Lend sessions again after `close`."""
        self._closed = False


class DatabaseView:
    """All rows as of one moment; a context manager for one thread. The owner's knows what the owner knows."""

    def __init__(
        self, pool: SessionPool, statements: Statements, words: str, within: float, known: KnownKeys | None = None
    ) -> None:
        self._pool = pool
        self._statements = statements
        self._words = words
        self._within = within
        self._known = known
        self._seen: int | None = None
        """Number of this snapshot for `known`; None before a scan."""
        self._session: Session | None = None
        self._counts: list[int] | None = None
        self._has_removals: bool | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if self._seen is not None and self._known is not None:
            self._known.leave()
        if session is not None:
            try:
                if not session.is_broken:
                    session.tell([(_END, ())], self._within)
            except DatabaseFailure:
                pass  # all answers have been read
            finally:
                self._pool.give_back(session)
        if isinstance(error, DatabaseFailure):
            raise unavailable(error, f"reading the store {self._words}") from error

    def ask(self, *questions: Question) -> list[Answer]:
        """Answers from this snapshot. Raises `DatabaseFailure`, which leaving the view turns into an outage."""
        if self._session is not None:
            return self._asked(self._session, questions)
        if self._known is not None:
            self._entered(self._known)
        until = time.monotonic() + self._pool.patience
        is_first = True
        while True:
            session = self._session = self._pool.borrow()
            try:
                return self._asked(session, [(_BEGIN, ()), *questions])[1:]
            except DatabaseFailure as failure:
                if not failure.state.startswith(("08", "57P0")) and failure.state not in {"0A000", "26000"}:
                    raise
                if not is_first and time.monotonic() >= until:
                    raise
            # The session broke since it was used last, or its statements are of other tables than before.
            is_first = False
            self._session = None
            self._pool.give_back(session)
            self._pool.close(for_good=False)

    def _asked(self, session: Session, questions: Sequence[Question]) -> list[Answer]:
        try:
            return session.ask(questions, self._within)
        except DatabaseFailure:
            session.close()  # its transaction has failed
            raise

    def get(self, table: Table, key: bytes) -> bytes | None:
        if table is _META and key in _OWN_META:
            return self._own_meta().get(key)
        (answer,) = self._looked_up(table, (self._statements.tables[table].get, (key,)))
        return answer.get_value(0, 0) if answer.ntuples else None

    def get_many(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        if not keys:
            return {}
        if len(keys) == 1:
            value = self.get(table, keys[0])
            return {} if value is None else {keys[0]: value}
        (answer,) = self._looked_up(table, (self._statements.tables[table].get_many, (array_of(keys),)))
        get = answer.get_value
        found = {get(row, 0) or b"": get(row, 1) or b"" for row in range(answer.ntuples)}
        if table is _META:
            found |= {key: value for key, value in self._own_meta().items() if key in keys}
        return found

    def is_empty(self, table: Table) -> bool:
        if table is not _REMOVALS:
            return next(self.scan(table), None) is None
        if not self._knows_removals():
            (answer,) = self.ask((self._statements.some_removals, ()))
            self._note_removals(answer)
        return not self._has_removals

    def count(self, table: Table) -> int:
        if self._counts is None:
            (answer,) = self.ask((self._statements.counts, ()))
            self._counts = [numbered(answer.get_value(0, column)) for column in range(answer.nfields)]
            self._counts[_META] += len(_OWN_META)
        return self._counts[table]

    def scan(
        self, table: Table, prefix: bytes = b"", *, after: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        low, high = prefix, bound_of(prefix)
        if after is not None:
            low, high = (low, min(high, after)) if reverse else (max(low, after + b"\0"), high)
        if self._known is not None and table in TABLES:
            return self._beside_known(self._known, table, prefix, low, high, reverse=reverse)
        rows = (row for page, _ in self._pages(table, low, high, reverse=reverse) for row in page)
        return rows if table is not _META else self._with_own_meta(rows, low, high, reverse=reverse)

    def heads_of(self, table: Table, prefix: bytes) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        statement = self._statements.heads[table]
        low, high = prefix, bound_of(prefix)
        while True:
            limit = _PAGES[-1]
            (answer,) = self.ask((statement, (low, high, number(limit))))
            get = answer.get_value
            for row in range(answer.ntuples):
                yield get(row, 0) or b"", get(row, 1) or b"", get(row, 2)
            if answer.ntuples < limit:
                return
            low = (get(answer.ntuples - 1, 0) or b"") + b"\0"

    def signing_keys(self) -> bytes:
        """The keys that sign pickled states, one after the other."""
        (answer,) = self.ask((self._statements.keys, ()))
        return (answer.get_value(0, 0) or b"") if answer.ntuples else b""

    def _pages(self, table: Table, low: bytes, high: bytes, *, reverse: bool) -> Iterator[tuple[list[_Row], bool]]:
        """Rows of a range by the page, and whether it is the last one."""
        statements = self._statements.tables[table]
        statement = statements.page_back if reverse else statements.page
        page = 0
        while low < high:
            limit = _PAGES[min(page, len(_PAGES) - 1)]
            page += 1
            (answer,) = self._looked_up(table, (statement, (low, high, number(limit))))
            rows: list[_Row] = []
            for row in range(answer.ntuples):
                value = answer.get_value(row, 1)
                if value is None:
                    break
                rows.append((answer.get_value(row, 0) or b"", value))
            is_last = len(rows) == answer.ntuples < limit
            if rows:
                low, high = (low, rows[-1][0]) if reverse else (rows[-1][0] + b"\0", high)
            yield rows, is_last
            if is_last:
                return

    def _beside_known(
        self, own: KnownKeys, table: Table, prefix: bytes, low: bytes, high: bytes, *, reverse: bool
    ) -> Iterator[_Row]:
        """A scan that looks up the keys that the owner knows, and walks over the rest of the index alone."""
        seen = self._entered(own)
        keys, end = own.known(table, prefix, seen) or ((), prefix)
        chosen = keys[bisect_left(keys, low) : bisect_left(keys, high)]
        learns = low == prefix and (not reverse or high == bound_of(prefix))
        met: list[bytes] = []
        if reverse:
            for rows, _ in self._pages(table, max(low, end), high, reverse=True):
                learns = learns and len(met) <= MOST_KEYS
                met += [key for key, _ in rows] if learns else ()
                yield from rows
        for start in range(0, len(chosen), _PAGES[1]):
            part = chosen[max(0, len(chosen) - start - _PAGES[1]) : len(chosen) - start] if reverse else chosen[start:]
            found = self.get_many(table, part[: _PAGES[1]])
            met += found
            yield from ((key, found[key]) for key in sorted(found, reverse=reverse))
        if learns and (reverse or len(met) < len(keys)):
            own.learn(table, prefix, met, high if reverse else end, seen)
        if reverse:
            return
        for rows, is_last in self._pages(table, max(low, end), high, reverse=False):
            if learns:
                met += [key for key, _ in rows]
                learns = own.learn(table, prefix, met, high if is_last else met[-1] + b"\0", seen)
            yield from rows

    def _entered(self, own: KnownKeys) -> int:
        """Number of this snapshot, which is asked for before it is taken."""
        if self._seen is None:
            self._seen = own.enter()
        return self._seen

    def _looked_up(self, table: Table, question: Question) -> list[Answer]:
        """The answer; with those about heads it is learned whether any tree is half removed, which is asked next."""
        if table not in _LOOKED_UP or self._knows_removals():
            return self.ask(question)
        answer, some = self.ask(question, (self._statements.some_removals, ()))
        self._note_removals(some)
        return [answer]

    def _knows_removals(self) -> bool:
        """True if it is known whether any tree is half removed."""
        if self._has_removals is None and self._known is not None:
            known = self._known.known(_REMOVALS, b"", self._entered(self._known))
            if known == ([], _LAST_KEY):
                self._has_removals = False
        return self._has_removals is not None

    def _note_removals(self, some: Answer) -> None:
        self._has_removals = bool(numbered(some.get_value(0, 0)))
        if not self._has_removals and self._known is not None:
            self._known.learn(_REMOVALS, b"", (), _LAST_KEY, self._entered(self._known))

    def _own_meta(self) -> dict[bytes, bytes]:
        (answer,) = self.ask((self._statements.numbers, ()))
        if not answer.ntuples:
            return {}
        values = {EPOCH: numbered(answer.get_value(0, 0)), BATCH: numbered(answer.get_value(0, 1))}
        if not values[EPOCH]:
            del values[BATCH]  # as in a store that had no owner yet
        return {key: codec.encode(_META, key, value) for key, value in values.items()}

    def _with_own_meta(
        self, rows: Iterator[tuple[bytes, bytes]], low: bytes, high: bytes, *, reverse: bool
    ) -> Iterator[tuple[bytes, bytes]]:
        own = [(key, value) for key, value in self._own_meta().items() if low <= key < high]
        return iter(sorted([*rows, *own], reverse=reverse))
