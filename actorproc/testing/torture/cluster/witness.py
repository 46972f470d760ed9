"""Witness in the database: triggers that write down each head and each commit, in the transaction that stores it.

Their rows are read when the episode is over, in the order of the commits by the server's own word. No process under
torture takes part in that, so one that is frozen cannot tell of a commit too late.
"""

from __future__ import annotations

import time
from typing import cast

from actorproc.model.rows.enqueued import EnqueuedRecord
from actorproc.model.rows.records import ProcedureRecord
from actorproc.store.home import home_of
from actorproc.store.postgres.connecting import connect, new_title
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.sessions import Answer, Statement, numbered
from actorproc.store.postgres.store import DatabaseStore
from actorproc.store.rows import codec
from actorproc.store.rows.tables import Table
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.record import durable_fields

__all__ = ["SETTINGS", "end_sessions", "prepare", "testimony"]

SETTINGS = ("track_commit_timestamp=on",)
"""Settings of the server that the witness needs."""
_WITHIN = 30.0
_TAKEN_OVER = -1
"""Number of a commit that raised the epoch."""
_MADE = """
CREATE SCHEMA torture_witness
CREATE TABLE torture_witness.heads (n bigserial, k bytea, v bytea)
CREATE TABLE torture_witness.commits (n bigserial, epoch bigint, batch bigint)
CREATE TABLE torture_witness.enqueued (n bigserial, k bytea, v bytea)
CREATE TABLE torture_witness.applied (n bigserial, id text PRIMARY KEY)
CREATE FUNCTION torture_witness.head() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'DELETE' THEN INSERT INTO torture_witness.heads (k) VALUES (OLD.k);
  ELSE INSERT INTO torture_witness.heads (k, v) VALUES (NEW.k, NEW.v); END IF; RETURN NULL; END $$
CREATE FUNCTION torture_witness.enqueued() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  IF TG_OP = 'DELETE' THEN INSERT INTO torture_witness.enqueued (k) VALUES (OLD.k);
  ELSE INSERT INTO torture_witness.enqueued (k, v) VALUES (NEW.k, NEW.v); END IF; RETURN NULL; END $$
CREATE FUNCTION torture_witness.commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO torture_witness.commits (epoch, batch) VALUES (NEW.epoch, NEW.n); RETURN NULL; END $$
CREATE FUNCTION torture_witness.takeover() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO torture_witness.commits (epoch, batch) VALUES (NEW.epoch, -1); RETURN NULL; END $$
CREATE TRIGGER torture AFTER INSERT OR UPDATE OR DELETE ON {schema}.procedures
  FOR EACH ROW EXECUTE FUNCTION torture_witness.head()
CREATE TRIGGER torture AFTER INSERT OR UPDATE OR DELETE ON {schema}.enqueued
  FOR EACH ROW EXECUTE FUNCTION torture_witness.enqueued()
CREATE TRIGGER torture AFTER INSERT OR UPDATE ON {schema}.batch FOR EACH ROW EXECUTE FUNCTION torture_witness.commit()
CREATE TRIGGER torture AFTER UPDATE ON {schema}.leader
  FOR EACH ROW WHEN (OLD.epoch <> NEW.epoch) EXECUTE FUNCTION torture_witness.takeover()
"""
_TIME = "(extract(epoch FROM pg_xact_commit_timestamp(xmin)) * 1000000)::bigint"
_COMMITS = f"SELECT {_TIME}, n, xmin::text::bigint, epoch, batch FROM torture_witness.commits ORDER BY 1, 2"  # noqa: S608
_HEADS = f"SELECT {_TIME}, n, xmin::text::bigint, k, v FROM torture_witness.heads ORDER BY 1, 2"  # noqa: S608
_ROWS = f"SELECT {_TIME}, n, k, v FROM torture_witness.enqueued ORDER BY 1, 2"  # noqa: S608
_APPLIED = f"SELECT {_TIME}, id FROM torture_witness.applied"  # noqa: S608
_END = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
)


def prepare(url: str) -> None:
    """Make the store, and the witness beside it."""
    store = cast("DatabaseStore", home_of(url).store(role="command", durability="process"))
    store.own()
    store.close()
    statements = " ".join(_MADE.format(schema=place_of(url).schema).split()).replace(" CREATE ", "\nCREATE ")
    for statement in statements.split("\n"):
        _ask(url, statement)


def end_sessions(url: str) -> None:
    """End all sessions of the server, as an administrator does."""
    _ask(url, _END)


def testimony(url: str) -> list[JournalLine]:
    """All commits in order: ``takeover`` and ``committed`` with their epochs, ``durable`` and ``removed`` heads.

    And those of applications: ``submitted`` for a row of their own, ``row-put`` and ``row-gone`` for what is enqueued.
    """
    epochs: dict[int, int] = {}
    since = time.time_ns() - time.monotonic_ns()
    lines = _of_applications(url, since)
    commits = _ask(url, _COMMITS)
    for row in range(commits.ntuples):
        at, _, transaction, epoch, batch = (numbered(commits.get_value(row, column)) for column in range(5))
        epochs[transaction] = epoch
        kind = "takeover" if batch == _TAKEN_OVER else "committed"
        lines.append(JournalLine(kind=kind, at=at * 1000 - since, pid=0, epoch=epoch, step=max(batch, 0)))
    heads = _ask(url, _HEADS)
    for row in range(heads.ntuples):
        at, _, transaction = (numbered(heads.get_value(row, column)) for column in range(3))
        key, value = heads.get_value(row, 3) or b"", heads.get_value(row, 4)
        if value is None:
            lines.append(JournalLine(kind="removed", at=at * 1000 - since, pid=0, procedure=key.decode()))
            continue
        head: ProcedureRecord = codec.decode(Table.PROCEDURES, key, value)
        fields = durable_fields(head, epochs.get(transaction, 0))
        lines.append(JournalLine(kind="durable", at=at * 1000 - since, pid=0, **fields))
    return sorted(lines, key=lambda line: line.at)


def _of_applications(url: str, since: int) -> list[JournalLine]:
    """Rows of applications, and those that they enqueued. `since`: wall clock at the origin of lines, in ns."""
    lines: list[JournalLine] = []
    applied = _ask(url, _APPLIED)
    for row in range(applied.ntuples):
        at, id = numbered(applied.get_value(row, 0)), (applied.get_value(row, 1) or b"").decode()
        lines.append(JournalLine(kind="submitted", at=at * 1000 - since, pid=0, procedure=id, text="enqueued"))
    rows = _ask(url, _ROWS)
    for row in range(rows.ntuples):
        at, key, value = numbered(rows.get_value(row, 0)), rows.get_value(row, 2) or b"", rows.get_value(row, 3)
        if value is None:
            lines.append(JournalLine(kind="row-gone", at=at * 1000 - since, pid=0, unit=key.hex()))
            continue
        record: EnqueuedRecord = codec.decode(Table.ENQUEUED, key, value)
        id = "" if record.new is None else record.new.id
        lines.append(JournalLine(kind="row-put", at=at * 1000 - since, pid=0, procedure=id, unit=key.hex()))
    return lines


def _ask(url: str, sql: str) -> Answer:
    place = place_of(url)
    session = connect(place, "load", new_title(place, "torture"))
    try:
        (answer,) = session.ask([(Statement(sql.encode(), once=True), ())], _WITHIN)
    finally:
        session.close()
    return answer
