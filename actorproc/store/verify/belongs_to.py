"""Owner of a damaged row, certain or possible: by its key, by the rest of its contents, or by the rows beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from actorproc.errors import StoreDamaged
from actorproc.model.rows.records import ProcedureRecord
from actorproc.store.rows import codec
from actorproc.store.rows.keys import head_key, owner_of
from actorproc.store.rows.step_log import in_pages, read_log
from actorproc.store.rows.tables import Rows, Table

__all__ = ["BELONGS", "exists", "names_in", "neighbours_of", "owners_of", "with_gaps"]

BELONGS = {
    Table.STEPS: "procedure",
    Table.CHILDREN: "parent",
    Table.UNDO: "root",
    Table.LOCKS: "root",
    Table.EVENTS: "target",
    Table.NOTES: "procedure",
}
"""Tables of what a procedure cannot go on without, and the field that says whose it is."""


def owners_of(table: Table, key: bytes, value: bytes) -> Iterator[str]:
    """Owners of a damaged row: by its key and, if its body can be read, by that."""
    if table not in BELONGS:
        return
    yield owner_of(table, key).decode("utf-8", "backslashreplace")
    yield from names_in(table, value, (BELONGS[table], "holder"))


def exists(rows: Rows, name: str) -> bool:
    """True if there is a head under this name, sound or not."""
    return rows.get(Table.PROCEDURES, head_key(name)) is not None


def neighbours_of(rows: Rows, table: Table, key: bytes, gaps: Callable[[], list[str]]) -> list[str]:
    """Possible owners of a row of which neither key nor contents are readable: keys are in order.

    All of them stand still, rather than one of them going on without its undo unit or its note.
    """
    if table is Table.STEPS:
        return gaps()
    if table not in BELONGS or table in {Table.LOCKS, Table.EVENTS}:
        return []
    before = next(rows.scan(table, after=key, reverse=True), (b"", b""))[0].partition(b"\0")[0]
    behind = next(rows.scan(table, after=key), (b"\xff", b""))[0].partition(b"\0")[0]
    found = []
    for id_, _ in rows.scan(Table.PROCEDURES, after=before or None):
        if id_ > behind:
            break
        found.append(id_)
    names = [before, *found] if before else found
    return [name for name in (id_.decode("utf-8", "backslashreplace") for id_ in names) if exists(rows, name)]


def with_gaps(rows: Rows) -> list[str]:
    """Procedures in whose step logs a record is missing or damaged."""
    found = []
    for key, value in rows.scan(Table.PROCEDURES):
        head = codec.unchecked(Table.PROCEDURES, value)
        if isinstance(head, ProcedureRecord) and head_key(head.id) == key:
            try:
                for _ in read_log(
                    in_pages(partial(rows.get_many, Table.STEPS), head.id), head.id, head.records, head.trimmed
                ):
                    pass
            except StoreDamaged:
                found.append(head.id)
    return found


def names_in(table: Table, value: bytes, fields: tuple[str, ...]) -> Iterator[str]:
    """Names in these fields of a record, whether or not its checksum is right."""
    body = codec.unchecked(table, value)
    for field in fields:
        name = getattr(body, field, None)
        if isinstance(name, str) and name:
            yield name
