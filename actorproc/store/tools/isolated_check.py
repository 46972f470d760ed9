"""Walking every row of a store, to say what is damaged and what hangs on it. Reads only.

Findings are reported one by one: a file that lost pages kills the process that reads it (SIGBUS). A caller that must
survive that runs this in another process and listens.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from functools import cached_property, partial
from typing import Any

from actorproc.errors import StoreDamaged
from actorproc.model.rows.records import ProcedureRecord
from actorproc.store.home import home_of
from actorproc.store.reading import ReadingStore
from actorproc.store.rows import codec
from actorproc.store.rows.keys import head_key, owner_of
from actorproc.store.rows.tables import Rows, Table
from actorproc.store.verify.child_counts import miscounted
from actorproc.store.verify.cross_check import cross_check

__all__ = ["examine"]

_RECORDS = (
    Table.PROCEDURES,
    Table.STEPS,
    Table.CHILDREN,
    Table.UNDO,
    Table.LOCKS,
    Table.POISON,
    Table.EVENTS,
    Table.NOTES,
    Table.ATTEMPTS,
    Table.EXPOSED,
    Table.REPLIES,
    Table.STARTS,
    Table.AUDIT,
    Table.ACKNOWLEDGED,
    Table.REMOVALS,
    Table.SCHEDULES,
    Table.ENQUEUED,
)
_OWNED = frozenset(
    {
        Table.STEPS,
        Table.CHILDREN,
        Table.NOTES,
        Table.ATTEMPTS,
        Table.EXPOSED,
        Table.REPLIES,
        Table.AUDIT,
        Table.UNDO,
    }
)
"""Tables whose keys name the procedure they belong to."""


def examine(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """Facts, then each table as it is begun, each damaged row, and "done". Raises what opening the store raises."""
    with home_of(path).reader(allow_any_filesystem=True, even_damaged=True) as store:
        yield {"what": "facts"} | store.facts()
        told: set[tuple[str, str]] = set()
        yield {"what": "table", "table": "meta"}
        for name in ("store_id", "epoch", "paused"):
            try:
                getattr(store, name)
            except StoreDamaged as error:
                told.add((error.table, error.key))
                yield _found(error)
        with store.rows() as rows:
            for table in _RECORDS:
                yield {"what": "table", "table": table.label, "rows": rows.count(table)}
                for found, is_present in _records(rows, table, store):
                    told.add((found["table"], found["key"]))
                    if is_present:
                        yield found
            yield {"what": "table", "table": "indexes"}
            yield from _together(rows, told)
            if not told:  # else children that cannot be read are missing in the count
                yield from ({"what": "miscounted", "says": one.in_words()} for one in miscounted(partial(_heads, rows)))
    yield {"what": "done"}


def _records(rows: Rows, table: Table, store: ReadingStore) -> Iterator[tuple[dict[str, Any], bool]]:
    """Damaged rows, and whether each is there now: the file of a long value goes with its row, before the snapshot."""
    hanging = _Hanging(rows)
    for key, value in rows.scan(table):
        try:
            codec.decode(table, key, value)
        except StoreDamaged as error:
            found = _found(error)
            if table is Table.PROCEDURES:
                name = key.decode("utf-8", "backslashreplace")
                found |= {"procedure": name, "hangs": hanging.on(key)}
            elif table in _OWNED:
                name = owner_of(table, key).decode("utf-8", "backslashreplace")
                found |= {"procedure": name, "hangs": [f"procedure {name}"] if name else []}
            elif table is Table.LOCKS:
                name = owner_of(table, key).decode("utf-8", "backslashreplace")
                found |= {"procedure": name, "hangs": [f"the lock of {name}"]}
            yield found, not isinstance(value, codec.Outside) or _is_present(store, table, key, value)


def _is_present(store: ReadingStore, table: Table, key: bytes, value: bytes) -> bool:
    with store.rows() as now:
        return bool(now.get(table, key) == value)


def _together(rows: Rows, told: set[tuple[str, str]]) -> Iterator[dict[str, Any]]:
    """Errors of rows that are sound by themselves: misplaced ones, and gaps."""
    found = cross_check(rows)
    for damage in found.damage.values():
        found.gaps.append(StoreDamaged("", table=damage.table, key=damage.key, reason=damage.reason))
    for words in found.lost:
        found.gaps.append(StoreDamaged("", table="", key=words, reason="it is there, and a search does not find it"))
    for error in found.gaps:
        if (error.table, error.key) not in told:
            yield _found(error)


def _heads(rows: Rows) -> Iterator[ProcedureRecord]:
    """All heads, but those of trees that are being removed."""
    gone = {bytes(key) for key, _ in rows.scan(Table.REMOVALS)}
    for key, value in rows.scan(Table.PROCEDURES):
        head: ProcedureRecord = codec.decode(Table.PROCEDURES, key, value)
        if head_key(head.root) not in gone:
            yield head


class _Hanging:
    """Rows that cannot be used without a damaged head; counted together, when the first is asked for."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    @cached_property
    def _of_all(self) -> tuple[Counter[bytes], Counter[bytes]]:
        """Records of the step log and locks by damaged head: their keys do not begin with its id."""
        heads = {key for key, value in self._rows.scan(Table.PROCEDURES) if _is_damaged(key, value)}
        steps, locks = (
            Counter(owner for key, _ in self._rows.scan(table) if (owner := owner_of(table, key)) in heads)
            for table in (Table.STEPS, Table.LOCKS)
        )
        return steps, locks

    def on(self, id_: bytes) -> list[str]:
        """In words, for the head with this key."""
        steps, locks = self._of_all
        own = id_ + b"\0"
        numbers = {
            "records of its step log": steps[id_],
            "links to children": sum(1 for _ in self._rows.scan(Table.CHILDREN, own)),
            "descendants": sum(1 for _, member in self._rows.scan(Table.MEMBERS, own) if member != id_),
            "locks": locks[id_],
        }
        return [f"{number} {what}" for what, number in numbers.items() if number]


def _is_damaged(key: bytes, value: bytes) -> bool:
    try:
        codec.decode(Table.PROCEDURES, key, value)
    except StoreDamaged:
        return True
    return False


def _found(error: StoreDamaged) -> dict[str, Any]:
    return {
        "what": "damaged",
        "table": error.table,
        "key": error.key,
        "reason": error.reason,
        "procedure": None,
        "hangs": [],
    }
