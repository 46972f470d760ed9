"""An empty store filled with rows that come from elsewhere, byte for byte, in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from actorproc.store.postgres.failures import DatabaseFailure, unavailable
from actorproc.store.postgres.sessions import NUMBER, Question, Statement, array_of, number
from actorproc.store.postgres.store import DatabaseStore
from actorproc.store.rows.layout import BATCH, EPOCH, meta_of
from actorproc.store.rows.tables import Table

__all__ = ["fill"]

_MOST_ROWS = 10_000
_MOST_BYTES = 4 << 20
_WITHIN = 600.0
"""Seconds for one part."""


def fill(store: DatabaseStore, rows_of: Callable[[Table], Iterator[tuple[bytes, bytes]]], keys: bytes) -> None:
    """Put all rows and keys into a store that was just made, and give it the epoch that they name.

    Args:
        store: The store, owned; it is to be closed afterwards, as its epoch is another one.
        rows_of: The rows of a table, in key order.
        keys: Signing keys; empty: there are none.

    Raises:
        StorageUnavailable: The database refuses; nothing was stored.
    """
    session = store._opened()
    schema = store.place.schema
    numbers = {EPOCH: 0, BATCH: 0}

    def ask(*questions: Question) -> None:
        session.ask(questions, _WITHIN)

    try:
        ask((Statement(b"BEGIN", once=True), ()), (Statement(f"DELETE FROM {schema}.meta".encode(), once=True), ()))
        for table in Table:
            put = store._statements.tables[table].put
            for keys_, values in _parts(table, rows_of(table), numbers):
                ask((put, (array_of(keys_), array_of(values))))
        if keys:
            ask((store._statements.keep_keys, (keys,)))
        epoch, batch = number(numbers[EPOCH]), number(numbers[BATCH])
        update = Statement(
            f"UPDATE {schema}.leader SET epoch = $1, owner = NULL, expires = '-infinity'".encode(), (NUMBER,), once=True
        )
        forget = Statement(f"DELETE FROM {schema}.batch".encode(), once=True)
        insert = Statement(
            f"INSERT INTO {schema}.batch (epoch, n) VALUES ($1, $2)".encode(), (NUMBER, NUMBER), once=True
        )
        ask((update, (epoch,)), (forget, ()), (insert, (epoch, batch)), (Statement(b"COMMIT", once=True), ()))
        if store._known is not None:
            store._known.reset()  # these rows came in no commit of the store
        # Without statistics the planner chooses badly until autovacuum comes by.
        ask(*((Statement(f'ANALYZE {schema}."{table.label}"'.encode(), once=True), ()) for table in Table))
    except DatabaseFailure as failure:
        session.close()
        raise unavailable(failure, f"filling the store {store.place.words}") from failure


def _parts(
    table: Table, rows: Iterator[tuple[bytes, bytes]], numbers: dict[bytes, int]
) -> Iterator[tuple[list[bytes], list[bytes]]]:
    """Rows by the statement, without those of `meta` that stand elsewhere, whose values are noted in `numbers`."""
    keys: list[bytes] = []
    values: list[bytes] = []
    size = 0
    for key, value in rows:
        if table is Table.META and key in numbers:
            numbers[key] = int(meta_of(key, value))
            continue
        if keys and (len(keys) == _MOST_ROWS or size + len(value) > _MOST_BYTES):
            yield keys, values
            keys, values, size = [], [], 0
        keys.append(key)
        values.append(value)
        size += len(key) + len(value)
    if keys:
        yield keys, values
