"""Move of a store between a directory and a database: its rows, byte for byte, and the keys.

Both ends are owned meanwhile. Name (`store_id`) and epoch stay, so procedures go on as after a restart. The source is
marked at the end, and no manager starts on it until the mark is taken off. Rows that applications enqueued are moved
too; `enqueue` is refused from the copy on.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from actorproc.errors import EngineError, NotAllowed, StoreDamaged, UsageError
from actorproc.store.home import Home
from actorproc.store.rows import codec
from actorproc.store.rows.layout import EPOCH, FORMAT, FORMAT_KEY
from actorproc.store.rows.tables import Rows, Table
from actorproc.store.verify.cross_check import cross_check

if TYPE_CHECKING:
    from actorproc.store.lmdb.store import LmdbStore
    from actorproc.store.postgres.store import DatabaseStore

__all__ = ["MoveReport", "move", "take_mark_off"]


class MoveReport(NamedTuple):
    """Result of a move."""

    source: str
    target: str
    procedures: int
    rows: int
    seconds: float


def move(source: Home, target: Home) -> MoveReport:
    """Copy a store that no manager runs on to a new place, and close the old one to managers.

    Args:
        source: The store; there must be one.
        target: A directory or a schema in which there is none yet.

    Returns:
        A `MoveReport`.

    Raises:
        UsageError: Both are directories.
        NotAllowed: There is something at the target.
        StoreInUse: A manager runs on one of them.
        StoreDamaged: The copy is not what was read; the source is as it was.
        EngineError: One of them cannot be opened, read or written.
    """
    if source.is_near and target.is_near:
        raise UsageError("a move has a database on one side; to copy a directory there is `actorproc backup`")
    source.reader().close()  # says what is wrong where there is no store; an owner would make one
    begun = time.monotonic()
    store = cast("LmdbStore | DatabaseStore", source.store(role="command"))
    store.own()
    try:
        if not source.is_near:
            cast("DatabaseStore", store).close_inbox()
        keys = b"".join(source.keys())
        with store._view() as rows:
            written = _Copy(rows)
            if target.is_near:
                _into_directory(target, written, keys)
            else:
                _into_database(target, written, keys)
            _compare(rows, target)
            procedures = rows.count(Table.PROCEDURES)
        store.mark_moved(target.words)
    except BaseException:
        if not source.is_near:
            with contextlib.suppress(EngineError):
                store.mark_moved(None)  # lets applications enqueue again
        raise
    finally:
        store.close()
    return MoveReport(source.words, target.words, procedures, written.count, time.monotonic() - begun)


def take_mark_off(source: Home) -> None:
    """Let managers start again on a store that was moved.

    Args:
        source: The store.

    Raises:
        StoreInUse: It has an owner.
        EngineError: It cannot be opened.
    """
    source.reader().close()
    store = cast("LmdbStore | DatabaseStore", source.store(role="command"))
    store.takes_moved = True
    store.own()
    try:
        store.mark_moved(None)
    finally:
        store.close()


class _Copy:
    """The rows of a snapshot as they are written elsewhere."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self.count = 0

    def of(self, table: Table) -> Iterator[tuple[bytes, bytes]]:
        """The rows of a table, in key order."""
        for key, value in self._rows.scan(table):
            self.count += 1
            if (table, key) == (Table.META, FORMAT_KEY):
                yield key, codec.encode(table, key, FORMAT)  # a copy has no log
                continue
            # A long value stands in a file beside the store; elsewhere it stands in its row.
            yield key, _whole(table, key, value) if isinstance(value, codec.Outside) else value


def _whole(table: Table, key: bytes, value: bytes) -> bytes:
    return bytes(codec.encode_long(table, key, codec.decode(table, key, value)))


def _into_directory(target: Home, written: _Copy, keys: bytes) -> None:
    from actorproc.store.lmdb.upkeep.filling import make_filled  # noqa: PLC0415 - only one of the two is needed

    make_filled(Path(target.words), written.of, keys, doing=f"moving the store to {target.words}")


def _into_database(target: Home, written: _Copy, keys: bytes) -> None:
    from actorproc.store.postgres.filling import fill  # noqa: PLC0415 - as above

    if target.exists():
        raise NotAllowed(f"there is a store at {target.words} already; it is not overwritten, give another ?store=NAME")
    store = cast("DatabaseStore", target.store(role="command"))
    store.own()
    try:
        fill(store, written.of, keys)
    finally:
        store.close()


def _compare(rows: Rows, target: Home) -> None:
    """Raise `StoreDamaged` unless the copy has all rows, and they fit each other."""
    with target.reader(even_damaged=True) as copy, cast("Any", copy.rows()) as found:
        for table in Table:
            expected, there = rows.count(table), found.count(table)
            if expected != there:
                raise StoreDamaged(
                    f"the copy at {target.words} has {there} rows in {table.label}, and the store {expected}; the "
                    "store was not changed. Remove the copy, and try again",
                    reason="rows are missing",
                )
        if found.get(Table.META, EPOCH) != rows.get(Table.META, EPOCH):
            raise StoreDamaged(f"the copy at {target.words} has another epoch", reason="the epoch differs")
        findings = cross_check(found)
        if findings.damage and not cross_check(rows).damage:
            raise StoreDamaged(
                f"the copy at {target.words} is damaged: {next(iter(findings.damage))}", reason="damaged"
            )
