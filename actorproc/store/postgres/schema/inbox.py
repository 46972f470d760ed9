"""The table of what applications enqueue, closed to them while its store is moved elsewhere and afterwards.

A row that came after the copy was made would wait for ever in a store on which no manager starts. So the table gets a
constraint that no row fulfils. To add it waits for the transactions that have enqueued and are not over yet, and each
later one is refused, by `enqueue` in words.
"""

from __future__ import annotations

from actorproc.store.postgres.place import CLOSED, DatabasePlace
from actorproc.store.postgres.sessions import Question, Session, Statement, numbered

__all__ = ["closed", "is_closed", "opened"]

_WITHIN = 10.0


def closed(place: DatabasePlace) -> list[Question]:
    """Questions that close the table; it is open, or closed already."""
    added = f"ALTER TABLE {place.schema}.enqueued ADD CONSTRAINT {CLOSED} CHECK (false) NOT VALID"
    return [*opened(place), (Statement(added.encode(), once=True), ())]


def opened(place: DatabasePlace) -> list[Question]:
    """Questions that open the table again."""
    dropped = f"ALTER TABLE {place.schema}.enqueued DROP CONSTRAINT IF EXISTS {CLOSED}"
    return [(Statement(dropped.encode(), once=True), ())]


def is_closed(session: Session, place: DatabasePlace) -> bool:
    """True if applications cannot enqueue. Raises `DatabaseFailure`."""
    table = f"{place.schema}.enqueued".replace("'", "''")
    asked = (
        "SELECT count(*) FROM pg_catalog.pg_constraint "
        f"WHERE conrelid = to_regclass('{table}') AND conname = '{CLOSED}'"
    )
    (answer,) = session.ask([(Statement(asked.encode(), once=True), ())], _WITHIN)
    return bool(numbered(answer.get_value(0, 0)))
