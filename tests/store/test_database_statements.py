"""Statements on a store in a database: which there are, how they are planned, and how they fail."""

from __future__ import annotations

import msgspec
import psycopg
import pytest

from actorproc.errors import EngineError, StorageUnavailable
from actorproc.model.rows.writes import PutStep
from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.reader import DatabaseReader
from actorproc.store.postgres.sessions import NUMBER, Session, Statement, number
from actorproc.store.postgres.store import DatabaseStore
from tests.kit.waiting import wait_until

KINDS = ("commit", "lock", "load", "look")


@pytest.fixture
def database(database_url):
    """An owned store in a database."""
    store = DatabaseStore(database_url)
    assert store.own() == 1
    yield store
    store.close()


@pytest.fixture
def said(monkeypatch):
    """All statements that are sent."""
    found: list[bytes] = []
    send = Session.send

    def listen(self, questions, until):
        found.extend(statement.sql for statement, _ in questions)
        send(self, questions, until)

    monkeypatch.setattr(Session, "send", listen)
    return found


def values(session: Session, *names: str) -> list[str]:
    asked = ", ".join(f"current_setting('{name}')::text::bytea" for name in names)
    (answer,) = session.ask([(Statement(f"SELECT {asked}".encode(), once=True), ())], 5.0)
    return [answer.get_value(0, column).decode() for column in range(len(names))]


def test_no_key_is_a_text_whose_order_a_new_libc_could_change(database, database_url):
    """glibc upgrades have corrupted indexes of texts: their order is that of the collation."""
    schema = place_of(database_url).schema
    asked = (
        "SELECT c.relname, a.attname, t.typname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "JOIN pg_attribute a ON a.attrelid = c.oid JOIN pg_type t ON t.oid = a.atttypid "
        "JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = %s AND t.typcollation <> 0"
    )
    with psycopg.connect(place_of(database_url).url) as connection:
        assert connection.execute(asked, (schema.strip('"'),)).fetchall() == []
        every = asked.replace(" AND t.typcollation <> 0", "")
        assert len(connection.execute(every, (schema.strip('"'),)).fetchall()) > 20


def test_nothing_is_notified_or_listened_to(said, database_url, make):
    """A NOTIFY takes one lock of the whole server at each commit, and may get lost. Candidates look at the lock."""
    store = DatabaseStore(database_url)
    store.own()
    store.commit([make.new("a", 1)], 1, 1)
    store.close()
    assert len(said) > 10
    assert [sql for sql in said if b"NOTIFY" in sql.upper() or b"LISTEN" in sql.upper()] == []


@pytest.mark.parametrize("kind", KINDS)
def test_plans_are_made_once_and_by_key(database_url, kind):
    session = connect(place_of(database_url), kind, "a test")
    names = ("plan_cache_mode", "enable_seqscan", "enable_bitmapscan", "jit", "default_transaction_isolation")
    assert values(session, *names) == ["force_generic_plan", "off", "off", "off", "read committed"]
    session.close()


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_session_has_its_own_timeouts(database_url, kind):
    session = connect(place_of(database_url), kind, "a test")
    idle, statement, in_transaction, lock = values(
        session, "idle_session_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "lock_timeout"
    )
    assert (idle == "0") == (kind != "look")
    assert (statement == "0") == (kind in {"commit", "load"})
    assert (in_transaction == "0") == (kind in {"commit", "lock"})
    assert lock != "0"
    session.close()


def test_a_reader_whose_statements_are_gone_prepares_them_again(database, database_url, make):
    """As behind a pooler, or after another program has used the session."""
    database.commit([make.new("a", 1)], 1, 1)
    with DatabaseReader(place_of(database_url)) as reader:
        assert reader.procedure("a") is not None
        (session,) = reader._pool._free
        session.ask([(Statement(b"DEALLOCATE ALL", once=True), ())], 5.0)
        assert reader.procedure("a") is not None


def test_an_owner_whose_statements_are_gone_has_an_outage_and_goes_on(database, make):
    database.commit([make.new("a", 1)], 1, 1)
    database._session.ask([(Statement(b"DEALLOCATE ALL", once=True), ())], 5.0)
    with pytest.raises(StorageUnavailable):
        database.commit([make.new("b", 2)], 1, 2)
    database.reopen()
    database.commit([make.new("b", 2)], 1, 2)
    assert database.procedure("b") is not None


def test_a_head_does_not_carry_the_state(database, make):
    """So that a step writes a long state once, under a key of its own."""
    state = bytes(1 << 20)
    first = msgspec.structs.replace(make.step("a", 1).record, state=state)
    database.commit([make.new("a", 1), PutStep(first)], 1, 1)
    begun = written(database)
    record = database.procedure("a")
    for batch in range(2, 12):
        change, record = make.change(record, priority=batch)
        database.commit([change], 1, batch)
    assert written(database) - begun < len(state) / 2


def written(store: DatabaseStore) -> int:
    """Bytes of the write-ahead log up to now."""
    asked = Statement(b"SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint", once=True)
    (answer,) = store._session.ask([(asked, ())], 5.0)
    return int.from_bytes(answer.get_value(0, 0))


def test_the_lock_is_taken_once_however_often_the_lease_is_renewed(database_url):
    """Session locks stack: of one that is taken at each renewal a single unlock frees nothing."""
    store = DatabaseStore(database_url, lease=0.15)
    store.own()
    renewals: set[float] = set()
    wait_until(lambda: renewals.add(store.leadership._renewed) or len(renewals) > 20)
    asked = Statement(
        b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = $1", (NUMBER,), once=True
    )
    (answer,) = store._session.ask([(asked, (number(store.leadership.lock.session.pid),))], 5.0)
    assert int.from_bytes(answer.get_value(0, 0)) == 1
    store.close()
    other = DatabaseStore(database_url)
    assert other.own() == 2
    other.close()


@pytest.mark.parametrize(
    ("version", "is_taken"), [("3.1.18", False), ("3.2.3", False), ("3.2.4", True), ("3.10.0", True)]
)
def test_a_driver_that_loses_what_it_is_told_is_refused(database_url, monkeypatch, version, is_taken):
    monkeypatch.setattr(psycopg, "__version__", version)
    store = DatabaseStore(database_url)
    if is_taken:
        store.own()
    else:
        with pytest.raises(EngineError, match=rf"psycopg {version} is too old, 3\.2\.4 is needed: pip install"):
            store.own()
    store.close()
