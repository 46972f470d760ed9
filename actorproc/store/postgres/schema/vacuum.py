"""The vacuum of a store's tables: when it was last there, and the snapshot that keeps it from its work.

A role sees the snapshots of its own sessions alone, unless it is a member of ``pg_read_all_stats``. Sessions of other
roles are counted, so that it is known when there may be an older one.
"""

from __future__ import annotations

from typing import NamedTuple

from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.sessions import BYTES, Session, Statement, numbered

__all__ = ["OLD_SNAPSHOT", "VacuumReport", "look_at_vacuum"]

OLD_SNAPSHOT = 1_000_000
"""Transactions since the oldest snapshot, from which on vacuum is held back noticeably."""
_WITHIN = 10.0
_LOOK = Statement(
    b"WITH held AS ("
    b"SELECT age(backend_xmin)::bigint AS age, format('process %s (%s) of the role %s, in a transaction of %s s', pid, "
    b"coalesce(nullif(application_name, ''), backend_type), usename, "
    b"extract(epoch FROM clock_timestamp() - xact_start)::bigint) AS holder "
    b"FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND pid <> pg_backend_pid() "
    b"UNION ALL SELECT greatest(age(xmin), age(catalog_xmin)), format('the replication slot %s', slot_name) "
    b"FROM pg_replication_slots WHERE xmin IS NOT NULL OR catalog_xmin IS NOT NULL "
    b"UNION ALL SELECT age(transaction), format('the prepared transaction %s', gid) FROM pg_prepared_xacts), "
    b"oldest AS (SELECT age, holder FROM held ORDER BY age DESC LIMIT 1), "
    b"worst AS (SELECT relname, n_dead_tup, greatest(last_vacuum, last_autovacuum) AS vacuumed FROM pg_stat_all_tables "
    b"WHERE schemaname = convert_from($1, 'UTF8') ORDER BY n_dead_tup DESC LIMIT 1) "
    b"SELECT (SELECT age FROM oldest)::bigint, (SELECT holder FROM oldest)::text::bytea, "
    b"(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND backend_start IS NULL), "
    b"(SELECT relname FROM worst)::text::bytea, (SELECT n_dead_tup FROM worst)::bigint, "
    b"(SELECT extract(epoch FROM clock_timestamp() - vacuumed) FROM worst)::bigint",
    (BYTES,),
)


class VacuumReport(NamedTuple):
    """State of vacuum for one store."""

    snapshot_age: int
    """Transactions since the oldest snapshot that can be seen; 0: there is none."""
    holder: str
    """The session, slot or prepared transaction that holds it, in words."""
    hidden: int
    """Sessions of other roles, whose snapshots cannot be seen."""
    table: str
    """The table with the most dead rows."""
    dead: int
    """Its dead rows."""
    vacuumed: int | None
    """Seconds since it was vacuumed last; None: it never was."""

    @property
    def is_held_back(self) -> bool:
        """A snapshot is so old that dead rows pile up."""
        return self.snapshot_age > OLD_SNAPSHOT

    def in_words(self) -> str:
        """One sentence about the oldest snapshot and the last vacuum."""
        last = "was never vacuumed" if self.vacuumed is None else f"was vacuumed {self.vacuumed:,} s ago"
        return (
            f"a snapshot of {self.snapshot_age:,} transactions ago keeps vacuum from removing old rows: that of "
            f"{self.holder}; the table {self.table} has {self.dead:,} dead rows and {last}"
        )


def look_at_vacuum(session: Session, place: DatabasePlace) -> VacuumReport:
    """The state of vacuum.

    Args:
        session: A session.
        place: The store.

    Returns:
        The facts.

    Raises:
        DatabaseFailure: The database refuses.
    """
    (answer,) = session.ask([(_LOOK, (place.store.encode(),))], _WITHIN)
    age, holder, hidden, table, dead, vacuumed = (answer.get_value(0, column) for column in range(6))
    return VacuumReport(
        numbered(age),
        (holder or b"").decode(errors="replace"),
        numbered(hidden),
        (table or b"").decode(errors="replace"),
        numbered(dead),
        None if vacuumed is None else numbered(vacuumed),
    )
