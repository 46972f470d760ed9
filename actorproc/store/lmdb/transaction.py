"""Changes of rows inside one LMDB transaction."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import lmdb

from actorproc.errors import EngineError, StoreDamaged, StoreFormat
from actorproc.store.directory import DATA_FILE
from actorproc.store.lmdb.environment import Databases, check_names
from actorproc.store.rows import codec
from actorproc.store.rows.layout import FORMAT, FORMAT_KEY, Row, Until, WholeLog, meta_of
from actorproc.store.rows.step_log import keys_of_log
from actorproc.store.rows.tables import Table

LOGGED = FORMAT + 1
"""Format of a store while it has a log. One that was closed in good order has none, and is of format `FORMAT`."""

__all__ = ["LOGGED", "Txn", "apply_rows", "check_format", "check_made", "number_in", "put_rows", "read_meta"]

Txn: TypeAlias = "lmdb.Transaction[bytes]"

_MANY = 512
"""Rows from which on those of a table are put in one call, which takes two thirds of the time when many are new."""


def check_made(txn: Txn, path: Path) -> None:
    """Raise `EngineError` while the first owner of a store is making it, or when it was killed at that."""
    if not txn.stat()["entries"]:
        raise EngineError(f"there is no store at {path} yet: its first owner has not made it")


def check_format(env: lmdb.Environment, txn: Txn, path: Path) -> bool:
    """True if the store has a log. Raises `StoreFormat` for one of a format not known here, or `StoreDamaged`."""
    try:
        meta = env.open_db(Table.META.label.encode(), txn=txn, create=False)
        value = txn.get(FORMAT_KEY, db=meta)
    except (lmdb.NotFoundError, lmdb.IncompatibleError):
        value = None
    if value is None:
        raise StoreFormat(
            f"{path / DATA_FILE} is an LMDB file, but no actorproc store; it was not changed. Give another directory"
        )
    found = codec.decode(Table.META, FORMAT_KEY, value)
    if found not in (FORMAT, LOGGED):
        raise StoreFormat(
            f"the store {path} has format {found} and this actorproc knows format {LOGGED}; it was not changed. "
            "Open it with the actorproc that wrote it"
            + (", or a later one" if found > LOGGED else "; it can export it")
        )
    check_names(txn, path)
    return bool(found == LOGGED)


def read_meta(txn: Txn, databases: Databases, key: bytes) -> int | str:
    """One row about the store itself; raises `StoreDamaged` when it is missing."""
    value = txn.get(key, db=databases[Table.META])
    if value is None:
        raise codec.damaged(Table.META, key, "the row is missing")
    return meta_of(key, value)


def number_in(txn: Txn, databases: Databases, key: bytes) -> int | None:
    """A number of the store; None when it is damaged, or missing."""
    try:
        return int(read_meta(txn, databases, key))
    except StoreDamaged:
        return None


def apply_rows(txn: Txn, databases: Databases, rows: Sequence[Row]) -> None:
    """Change rows in the order given: bytes are put, None deletes, a number raises, the others clear many."""
    if len(rows) >= _MANY and (tables := _only_put(rows)) is not None:
        for table, items in tables.items():
            with txn.cursor(databases[table]) as cursor:
                cursor.putmulti(items)
        return
    cursors: dict[Table, lmdb.Cursor[Any]] = {}
    for table, key, value in rows:
        db = databases[table]
        if type(value) is bytes or type(value) is bytearray:
            txn.put(key, value, db=db)
        elif value is None:
            txn.delete(key, db=db)
        elif isinstance(value, int):
            raised = codec.raised(table, key, txn.get(key, db=db), value)
            if raised is not None:
                txn.put(key, raised, db=db)
        elif isinstance(value, WholeLog):
            for step in keys_of_log(partial(txn.get, db=db), value.id, value.last, value.trimmed):
                txn.delete(step, db=db)
        else:
            if table not in cursors:
                cursors[table] = txn.cursor(db)
            _sweep(cursors[table], key, value.key if isinstance(value, Until) else None)
    for cursor in cursors.values():
        cursor.close()


def put_rows(txn: Txn, database: lmdb._Database, rows: Mapping[bytes, bytes | None]) -> None:
    """Put the rows of a table in order of their keys, and delete those that have no value."""
    keys = sorted(rows)
    for start in range(0, len(keys), _MANY):
        some = [(key, rows[key]) for key in keys[start : start + _MANY]]
        with txn.cursor(database) as cursor:
            cursor.putmulti([(key, value) for key, value in some if value is not None])
        for key, value in some:
            if value is None:
                txn.delete(key, db=database)


def _only_put(rows: Sequence[Row]) -> dict[Table, list[tuple[bytes, bytes]]] | None:
    """The rows of each table, in order; None when something else than puts is among them."""
    tables: defaultdict[Table, list[tuple[bytes, bytes]]] = defaultdict(list)
    for table, key, value in rows:
        if type(value) is not bytes:
            return None
        tables[table].append((key, value))
    return tables


def _sweep(cursor: lmdb.Cursor[Any], first: bytes, end: bytes | None) -> None:
    """Delete the keys from `first` on that are less than `end`; without an end all that begin with `first`."""
    found = cursor.set_range(first)
    while found and (cursor.key() < end if end is not None else cursor.key().startswith(first)):
        found = cursor.delete()
