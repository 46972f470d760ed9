"""Tables of a store in a schema of its own, and the statements on them.

Every table of `actorproc.store.rows` is one of two columns, key and value, in the order of bytes. Three more have what
a directory has in files::

    leader   one row: the epoch, its owner, and until when its lease lasts
    batch    numbers of the commits of the present owner, of which the newest counts
    keys     the keys that sign pickled states

`meta` keeps its rows but `epoch` and `batch`, which readers find there all the same.

The row of `leader` is changed by its owner's renewals and by a new owner alone. A row that each commit changed would
become a chain of dead versions under any snapshot that is held, and each commit would walk it.
"""

from __future__ import annotations

import functools
from typing import NamedTuple

from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.sessions import ARRAY, BYTES, NUMBER, Statement
from actorproc.store.rows.tables import Table

__all__ = ["OWN_TABLES", "Statements", "TableStatements", "create", "statements_of", "table_of"]

OWN_TABLES = ("leader", "batch", "keys")
"""Tables beside those of rows."""

_STORAGE = "autovacuum_vacuum_scale_factor = 0.02, autovacuum_analyze_scale_factor = 0.05"
_CHANGING = {Table.PROCEDURES: 70, Table.META: 50}
"""Tables whose rows are changed in place, and how full their pages are made, so that changes stay on them."""
_LONG = frozenset(
    {
        *(Table.STEPS, Table.EVENTS, Table.NOTES, Table.EXPOSED, Table.REPLIES),
        *(Table.ATTEMPTS, Table.AUDIT, Table.CHILDREN, Table.ENQUEUED),
    }
)
"""Tables whose values may be long."""


class TableStatements(NamedTuple):
    """Statements on one table."""

    get: Statement
    get_many: Statement
    page: Statement
    page_back: Statement
    put: Statement
    delete: Statement
    sweep: Statement


class Statements(NamedTuple):
    """Statements on the tables of one store."""

    tables: tuple[TableStatements, ...]
    counts: Statement
    """Number of rows of each table."""
    some_removals: Statement
    heads: dict[Table, Statement]
    """A page of an index of one prefix, with the heads that its rows point to."""
    log: Statement
    """Deletes the step log of a procedure in a range of numbers."""
    fence: Statement
    """Number of a commit, if the epoch is ours; fails at a NULL otherwise. Tells the time in microseconds."""
    forget: Statement
    """Deletes the number of the commit before."""
    numbers: Statement
    """Epoch and number of the newest commit of that epoch."""
    members: Statement
    """Members of several trees, with their heads."""
    units: Statement
    """Undo units of several trees."""
    some_enqueued: Statement
    """Tells whether enqueued procedures wait."""
    leader: Statement
    keys: Statement
    keep_keys: Statement
    """Stores the keys in place of those that are there."""
    add_keys: Statement
    """Stores the keys unless there are some."""
    states: Statement
    size: Statement
    server: Statement
    """Facts about the server, for a diagnosis."""


def table_of(place: DatabasePlace, table: Table) -> list[str]:
    """Statements that make one table of rows."""
    name = f'{place.schema}."{table.label}"'
    fill = f"fillfactor = {_CHANGING[table]}, " if table in _CHANGING else ""
    return [
        f"CREATE TABLE {name} (k bytea PRIMARY KEY, v bytea NOT NULL) WITH ({fill}{_STORAGE})",
        # Compression is tried on every long value, and states hardly shrink.
        f"ALTER TABLE {name} ALTER COLUMN v SET STORAGE EXTERNAL",
    ]


def create(place: DatabasePlace) -> list[str]:
    """Statements that make the tables, for one transaction under the lock of the store."""
    schema = place.schema
    made = [f"CREATE SCHEMA IF NOT EXISTS {schema}"]
    for table in Table:
        made += table_of(place, table)
    return [
        *made,
        # The epoch is the key: a renewal changes no key, so it does not wait for a commit that reads the row, nor the
        # other way round. A new epoch does.
        (
            f"CREATE TABLE {schema}.leader (epoch bigint PRIMARY KEY, one boolean NOT NULL DEFAULT true UNIQUE "
            "CHECK (one), owner bytea, pids bigint[], address text, certificate bytea, secret bytea, code text, "
            "timeline text, since timestamptz, expires timestamptz NOT NULL DEFAULT '-infinity') WITH (fillfactor = 10)"
        ),
        (
            f"CREATE TABLE {schema}.batch (epoch bigint NOT NULL, n bigint NOT NULL, PRIMARY KEY (epoch, n)) "
            "WITH (fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0)"
        ),
        f"CREATE TABLE {schema}.keys (one boolean PRIMARY KEY DEFAULT true CHECK (one), v bytea NOT NULL)",
        f"INSERT INTO {schema}.leader (epoch) VALUES (0)",
        f"INSERT INTO {schema}.batch (epoch, n) VALUES (0, 0)",
    ]


@functools.lru_cache(maxsize=64)
def statements_of(schema: str) -> Statements:
    """All statements on the store of a schema."""

    def made(sql: str, *types: int) -> Statement:
        return Statement(" ".join(sql.split()).encode(), types)

    def of(table: Table) -> TableStatements:
        name = f'{schema}."{table.label}"'
        page = _page(name, backward=False, is_long=table in _LONG)
        page_back = _page(name, backward=True, is_long=table in _LONG)
        return TableStatements(
            get=made(f"SELECT v FROM {name} WHERE k = $1", BYTES),
            get_many=made(f"SELECT k, v FROM {name} WHERE k = ANY($1)", ARRAY),
            page=made(page, BYTES, BYTES, NUMBER),
            page_back=made(page_back, BYTES, BYTES, NUMBER),
            put=made(
                f"INSERT INTO {name} AS t (k, v) SELECT * FROM unnest($1, $2) ON CONFLICT (k) DO UPDATE "
                "SET v = EXCLUDED.v",
                ARRAY,
                ARRAY,
            ),
            delete=made(f"DELETE FROM {name} WHERE k = ANY($1)", ARRAY),
            sweep=made(
                f"DELETE FROM {name} AS t USING unnest($1, $2) AS s (low, high) WHERE t.k >= s.low AND t.k < s.high",
                ARRAY,
                ARRAY,
            ),
        )

    leader, batch = f"{schema}.leader", f"{schema}.batch"
    counts = ", ".join(f'(SELECT count(*) FROM {schema}."{table.label}")' for table in Table)
    indexes = (Table.BY_STATE, Table.FAILED, Table.ROLLED_BACK, Table.MEMBERS, Table.ORDER)
    sizes = ", ".join(f"pg_total_relation_size('{schema}.\"{table.label}\"')" for table in Table)
    rows = ", ".join(f"pg_relation_size('{schema}.\"{table.label}\"')" for table in Table)
    return Statements(
        tables=tuple(of(table) for table in Table),
        counts=made(f"SELECT {counts}"),
        some_removals=made(f"SELECT EXISTS (SELECT FROM {schema}.removals)::int::bigint"),
        heads={
            table: made(
                f'SELECT i.k, i.v, h.v FROM (SELECT k, v FROM {schema}."{table.label}" WHERE k >= $1 AND k < $2 '
                f"ORDER BY k LIMIT $3) AS i LEFT JOIN {schema}.procedures AS h ON h.k = i.v ORDER BY i.k",
                BYTES,
                BYTES,
                NUMBER,
            )
            for table in indexes
        },
        log=made(
            f"DELETE FROM {schema}.steps AS t USING generate_series($1, $2) AS n WHERE t.k = int8send(n) || $3",
            NUMBER,
            NUMBER,
            BYTES,
        ),
        fence=made(
            f"INSERT INTO {batch} (epoch, n) VALUES ((SELECT CASE WHEN epoch = $1 THEN epoch END FROM {leader} "
            "FOR KEY SHARE), $2) ON CONFLICT (epoch, n) DO UPDATE SET n = EXCLUDED.n "
            "RETURNING (extract(epoch FROM clock_timestamp()) * 1000000)::bigint",
            NUMBER,
            NUMBER,
        ),
        forget=made(f"DELETE FROM {batch} WHERE epoch = $1 AND n = $2", NUMBER, NUMBER),
        numbers=made(
            f"SELECT l.epoch, coalesce((SELECT b.n FROM {batch} AS b WHERE b.epoch = l.epoch ORDER BY b.n DESC "
            f"LIMIT 1), 0) FROM {leader} AS l"
        ),
        members=made(
            "SELECT m.k, m.v, h.v FROM unnest($1, $2) AS r (low, high) CROSS JOIN LATERAL (SELECT k, v FROM "
            f"{schema}.members WHERE k >= r.low AND k < r.high ORDER BY k LIMIT $3) AS m "
            f"LEFT JOIN {schema}.procedures AS h ON h.k = m.v",
            ARRAY,
            ARRAY,
            NUMBER,
        ),
        units=made(
            "SELECT u.k, u.v FROM unnest($1, $2) AS r (low, high) CROSS JOIN LATERAL (SELECT k, v FROM "
            f"{schema}.undo WHERE k >= r.low AND k < r.high ORDER BY k LIMIT $3) AS u",
            ARRAY,
            ARRAY,
            NUMBER,
        ),
        some_enqueued=made(
            "SELECT EXISTS "
            f"(SELECT FROM {schema}.enqueued WHERE k >= '\\x77'::bytea AND k < '\\x78'::bytea)::int::bigint"
        ),
        leader=made(
            "SELECT l.epoch, l.owner, CASE WHEN isfinite(l.expires) THEN "
            "(extract(epoch FROM l.expires - clock_timestamp()) * 1000)::bigint END, "
            "CASE WHEN isfinite(l.expires) THEN (extract(epoch FROM l.expires) * 1000000)::bigint END, "
            "EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND database = "
            "(SELECT oid FROM pg_database WHERE datname = current_database()) "
            "AND classid = ($1 >> 32 & 4294967295)::oid AND objid = ($1 & 4294967295)::oid)::int::bigint, "
            "l.address::bytea, l.certificate, l.secret, (extract(epoch FROM l.since) * 1000000)::bigint "
            f"FROM {leader} AS l",
            NUMBER,
        ),
        keys=made(f"SELECT v FROM {schema}.keys"),
        keep_keys=made(
            f"INSERT INTO {schema}.keys (one, v) VALUES (true, $1) ON CONFLICT (one) DO UPDATE SET v = EXCLUDED.v",
            BYTES,
        ),
        add_keys=made(f"INSERT INTO {schema}.keys (one, v) VALUES (true, $1) ON CONFLICT (one) DO NOTHING", BYTES),
        states=made(
            f"SELECT substring(k FROM 1 FOR position('\\x00'::bytea IN k) - 1), count(*) FROM {schema}.by_state "
            f"GROUP BY 1 UNION ALL SELECT 'FAILED'::text::bytea, count(*) FROM {schema}.failed "
            f"UNION ALL SELECT 'ROLLEDBACK'::text::bytea, count(*) FROM {schema}.rolled_back"
        ),
        server=made(
            "SELECT current_setting('server_version_num')::bigint, "
            "(SELECT count(*) FROM pg_stat_activity WHERE datname = current_database()), "
            "current_setting('max_connections')::bigint, "
            "(SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database())::bigint, "
            "(SELECT count(*) FROM pg_prepared_xacts), (SELECT count(*) FROM pg_replication_slots WHERE NOT active), "
            "(current_setting('fsync') = 'on' AND current_setting('synchronous_commit') <> 'off')::int::bigint"
        ),
        size=made(
            f"SELECT ({sizes.replace(', ', ' + ')})::bigint, ({rows.replace(', ', ' + ')})::bigint, "
            f"(SELECT count(*) FROM {schema}.procedures), (SELECT count(*) FROM {schema}.steps), "
            f"(SELECT count(*) FROM {schema}.finished)"
        ),
    )


def _page(name: str, *, backward: bool, is_long: bool) -> str:
    """Rows from a key on that come before another.

    Where values may be long, those beyond the first 4 MiB of a page come as NULL.
    """
    order = "k DESC" if backward else "k"
    page = f"SELECT k, v FROM {name} WHERE k >= $1 AND k < $2 ORDER BY {order} LIMIT $3"
    if not is_long:
        return page
    return (
        f"SELECT k, CASE WHEN sum(octet_length(v)) OVER (ORDER BY {order}) - octet_length(v) < 4194304 THEN v END "
        f"FROM ({page}) AS p ORDER BY {order}"
    )
