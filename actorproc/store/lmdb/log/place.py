"""The row that says which log belongs to a data file, and how far the file has it.

It stands in a database of its own, `log`, under `place`: three numbers with blanks between. They are the epoch of the
owner, the number of the log, and the place of the last record whose rows are in the data file.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import lmdb

from actorproc.errors import StoreDamaged
from actorproc.store.lmdb.environment import LOG_DATABASE
from actorproc.store.rows import codec
from actorproc.store.rows.tables import Table

if TYPE_CHECKING:
    from actorproc.store.lmdb.transaction import Txn

__all__ = ["LogPlace", "open_place", "place_in", "place_of", "put_place"]

_KEY = b"place"


class LogPlace(NamedTuple):
    """A place in the logs of a store."""

    epoch: int
    """Of the owner of the log."""
    number: int
    """Number of the log: one more for each owner, and each time that an owner opens its store again."""
    place: int
    """Of the last record that the data file has."""


NONE = LogPlace(0, 0, 0)


def open_place(env: lmdb.Environment, txn: Txn | None, *, create: bool) -> lmdb._Database | None:
    """The database; None when the store never had a log."""
    try:
        return env.open_db(LOG_DATABASE, txn=txn, create=create)
    except lmdb.NotFoundError:
        return None


def place_in(txn: Txn, database: lmdb._Database | None) -> LogPlace:
    """The place that the data file is at. Raises `StoreDamaged`."""
    value = None if database is None else txn.get(_KEY, db=database)
    return NONE if value is None else place_of(value)


def place_of(value: bytes) -> LogPlace:
    """The place in a row. Raises `StoreDamaged`."""
    text = str(codec.decode(Table.META, _KEY, value))
    parts = text.split(" ")
    if len(parts) != len(NONE) or not all(map(str.isdecimal, parts)):
        raise StoreDamaged(
            f"the store is damaged: its place in the log cannot be {text!r:.60}", reason="place in the log"
        )
    return LogPlace(*map(int, parts))


def put_place(txn: Txn, database: lmdb._Database | None, place: LogPlace) -> None:
    """Store it."""
    assert database is not None, "an owner makes the database"
    txn.put(_KEY, codec.encode(Table.META, _KEY, " ".join(map(str, place))), db=database)
