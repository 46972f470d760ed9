"""The SQL of the roles of a store: of managers, of hosts, of those who only look, and of those who enqueue."""

from __future__ import annotations

from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.schema.statements import OWN_TABLES
from actorproc.store.rows.tables import Table

__all__ = ["grants"]

_SHOWN = ("epoch", "one", "owner", "pids", "address", "certificate", "code", "timeline", "since", "expires")
"""Columns of the leader's row without its secret."""


def grants(place: DatabasePlace, *, owner: str, host: str, looker: str, enqueuer: str) -> list[str]:
    """Statements that an administrator runs, with comments between them.

    Args:
        place: The store.
        owner: Role of all managers; it may end sessions of its own, and no others.
        host: Role that may read who leads, and no more.
        looker: Role that may read all but the signing keys and the secret of the leader.
        enqueuer: Role of applications that enqueue in transactions of their own; it reads and changes nothing else.

    Returns:
        The lines. They may be run again.
    """
    schema = place.schema
    looked_at = (*(table.label for table in Table), *(name for name in OWN_TABLES if name not in ("leader", "keys")))
    tables = ", ".join(f'{schema}."{name}"' for name in looked_at)
    shown = ", ".join(_SHOWN)
    names = [_quoted(name) for name in (owner, host, looker, enqueuer)]
    own, far, look, put = names
    return [
        f"-- Roles of the store {place.store}. Run this in its database as a superuser, or as a role that may create",
        "-- roles and schemas; and again after an upgrade. Passwords are given with \\password, or elsewhere.",
        *(
            f"DO $grants$ BEGIN CREATE ROLE {name} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $grants$;"
            for name in names
        ),
        "",
        "-- Managers: all of one store log in as this role, which makes the tables at the first start.",
        f"CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION {own};",
        f"REVOKE ALL ON SCHEMA {schema} FROM PUBLIC;",
        "-- With this one `doctor` and health also see the snapshots that sessions of other roles hold:",
        f"-- GRANT pg_read_all_stats TO {own};",
        "",
        "DO $grants$ BEGIN",
        f"  IF to_regclass('{schema}.leader') IS NULL THEN",
        "    RAISE NOTICE 'the tables are made at the first start of a manager: run this again then, for the others';",
        "    RETURN;",
        "  END IF;",
        f"  GRANT USAGE ON SCHEMA {schema} TO {far}, {look}, {put};",
        "  -- Hosts: who leads, and where.",
        f"  GRANT SELECT ON {schema}.leader TO {far};",
        "  -- Lookers: all but the signing keys and the leader's secret.",
        f"  GRANT SELECT ON {tables} TO {look};",
        f"  GRANT SELECT ({shown}) ON {schema}.leader TO {look};",
        "  -- Applications that enqueue in transactions of their own. To be granted to a role of theirs: GRANT … TO …;",
        f"  GRANT INSERT ON {schema}.enqueued TO {put};",
        "END $grants$;",
        f"ALTER ROLE {look} SET idle_in_transaction_session_timeout = '60s';",
    ]


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
