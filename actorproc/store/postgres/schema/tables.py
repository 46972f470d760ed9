"""The tables of a store: made where there are none, and of a format that is known."""

from __future__ import annotations

from actorproc.errors import StoreDamaged, StoreFormat
from actorproc.model.ids import new_id
from actorproc.store.postgres.failures import LATER_TABLES, DatabaseFailure
from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.schema.statements import create, statements_of, table_of
from actorproc.store.postgres.sessions import BYTES, Question, Session, Statement, array_of, numbered
from actorproc.store.rows import codec
from actorproc.store.rows.layout import FORMAT, FORMAT_KEY, STORE_ID
from actorproc.store.rows.tables import Table

__all__ = ["check_format", "is_made", "make_tables", "missing_tables", "one_row"]

_WITHIN = 10.0


def one_row(key: bytes, value: bytes) -> tuple[bytes, bytes]:
    """Parameters that put one row."""
    return array_of([key]), array_of([value])


def is_made(session: Session, place: DatabasePlace) -> bool:
    """True if the tables of the store are there."""
    return _is_there(session, f"{place.schema}.leader")


def _is_there(session: Session, table: str) -> bool:
    name = table.replace("'", "''")
    is_there = Statement(f"SELECT (to_regclass('{name}') IS NOT NULL)::int::bigint".encode(), once=True)
    (answer,) = session.ask([(is_there, ())], _WITHIN)
    return bool(numbered(answer.get_value(0, 0)))


def missing_tables(session: Session, place: DatabasePlace) -> list[Table]:
    """Tables that the earlier version which made the store did not know."""
    later = (table for table in Table if table.label in LATER_TABLES)
    return [table for table in later if not _is_there(session, f'{place.schema}."{table.label}"')]


def make_tables(session: Session, place: DatabasePlace) -> None:
    """Make the tables that are not there, and check the format; under the lock of the store.

    Args:
        session: A session that may write.
        place: The store.

    Raises:
        StoreFormat: The schema is no store, or one of another format.
        StoreDamaged: The store does not say its format.
        DatabaseFailure: The database refuses.
    """
    if not is_made(session, place):
        _make(session, place)
    check_format(session, place)
    for table in missing_tables(session, place):
        session.ask([(Statement(text.encode(), once=True), ()) for text in table_of(place, table)], _WITHIN)


def _make(session: Session, place: DatabasePlace) -> None:
    made = create(place)
    if _has_schema(session, place):  # whose owner may lack the permission to make schemas
        made = made[1:]
    questions: list[Question] = [(Statement(statement.encode(), once=True), ()) for statement in made]
    put = statements_of(place.schema).tables[Table.META].put
    for key, value in ((FORMAT_KEY, FORMAT), (STORE_ID, new_id())):
        questions.append((put, one_row(key, codec.encode(Table.META, key, value))))
    try:
        session.ask(questions, _WITHIN)
    except DatabaseFailure as failure:
        if failure.state in {"42P07", "42710"}:
            raise StoreFormat(
                f"the schema {place.store!r} of {place.words} has tables of another program in it ({failure.text}); "
                "it was not changed. Give another ?store=NAME"
            ) from failure
        raise


def _has_schema(session: Session, place: DatabasePlace) -> bool:
    is_there = Statement(b"SELECT count(*) FROM pg_namespace WHERE nspname = convert_from($1, 'UTF8')", (BYTES,), True)
    (answer,) = session.ask([(is_there, (place.store.encode(),))], _WITHIN)
    return bool(numbered(answer.get_value(0, 0)))


def check_format(session: Session, place: DatabasePlace) -> None:
    """Raise `StoreFormat` unless the tables are a store of the format known here, or `StoreDamaged`."""
    try:
        (answer,) = session.ask([(statements_of(place.schema).tables[Table.META].get, (FORMAT_KEY,))], _WITHIN)
    except DatabaseFailure as failure:
        if failure.state in {"42P01", "42703"}:
            raise StoreFormat(
                f"the schema {place.store!r} of {place.words} is no actorproc store ({failure.text}); it was not "
                "changed. Give another ?store=NAME"
            ) from failure
        raise
    value = answer.get_value(0, 0) if answer.ntuples else None
    if value is None:
        raise StoreDamaged(f"the store {place.words} does not say its format; restore a backup", reason="no format")
    found = codec.decode(Table.META, FORMAT_KEY, value)
    if found != FORMAT:
        raise StoreFormat(
            f"the store {place.words} has format {found} and this actorproc knows format {FORMAT}; it was not changed. "
            "Open it with the actorproc that wrote it"
            + (", or a later one" if found > FORMAT else "; it can export it")
        )
