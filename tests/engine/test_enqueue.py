"""Procedures enqueued in transactions of the application: committed with it, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from actorproc import Config, ProcedureManager, Saga, StoreReader, step
from actorproc.api.verbs import enqueue as enqueueing
from actorproc.cli.main import main
from actorproc.errors import (
    EngineError,
    NotAllowed,
    StateNotEncodable,
    StateTooLarge,
    UnknownProcedure,
    UsageError,
)
from actorproc.postgres import enqueue, enqueue_async
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.store import DatabaseStore
from tests.databases import database_or_skip, emptied, give_back, new_store
from tests.kit.managers import LIGHT
from tests.kit.pooler import pooled
from tests.kit.waiting import wait_until

psycopg = pytest.importorskip("psycopg", reason="needs the extra postgres")

pytestmark = pytest.mark.processes


class Mail(Saga):
    to: str
    text: str = ""

    @step
    def send(self, ctx):
        return f"{self.to}: {self.text}"


class Unknown(Saga):
    """Registered late, or never."""

    to: str = ""

    @step
    def send(self, ctx):
        return "sent"


class Pickled(Saga, codec="pickle"):
    to: Any = None

    @step
    def send(self, ctx):
        return "sent"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    database_or_skip()
    url = new_store()
    ask(url, "DROP TABLE IF EXISTS public.mails", "CREATE TABLE public.mails (id text PRIMARY KEY)")
    yield url
    ask(url, "DROP TABLE public.mails")


@pytest.fixture(scope="module")
def manager(url, tmp_path_factory) -> Iterator[ProcedureManager]:
    """One for all tests that need no other."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        with ProcedureManager(url, procedures=[Mail], workers=1, **LIGHT) as manager:
            yield manager


@pytest.fixture
def store(url) -> str:
    return place_of(url).store


def dsn(url: str) -> str:
    return place_of(url).url


def ask(url: str, *statements: str) -> list[tuple]:
    with psycopg.connect(dsn(url), autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


def output(manager: ProcedureManager, id: str) -> Any:
    """The output of a procedure that is enqueued, and so not there yet."""
    return wait_until(lambda: known(manager, id)).result(timeout=30)


def known(manager: ProcedureManager, id: str) -> Any:
    try:
        return manager.get(id)
    except UnknownProcedure:
        return None


# ---------------------------------------------------------------- connections, each with its own way of a transaction
class Way:
    """A kind of connection: `write` begins, writes a row of the application, enqueues, and ends as it is told."""

    def __init__(self, url: str) -> None:
        self.url = dsn(url)

    def write(self, id: str, store: str, *, commits: bool) -> None:
        raise NotImplementedError


class Psycopg(Way):
    def write(self, id, store, *, commits):
        with psycopg.connect(self.url) as connection:
            connection.execute("INSERT INTO mails VALUES (%s)", (id,))
            assert enqueue(connection, Mail(id), id=id, store=store) == id
            connection.commit() if commits else connection.rollback()


class PsycopgWithRowsOfDicts(Way):
    def write(self, id, store, *, commits):
        from psycopg.rows import dict_row

        with psycopg.connect(self.url, row_factory=dict_row, prepare_threshold=0) as connection:
            connection.execute("INSERT INTO mails VALUES (%s)", (id,))
            enqueue(connection, Mail(id), id=id, store=store)
            connection.commit() if commits else connection.rollback()


class PsycopgInAPipeline(Way):
    def write(self, id, store, *, commits):
        with psycopg.connect(self.url) as connection, connection.pipeline():
            connection.execute("INSERT INTO mails VALUES (%s)", (id,))
            enqueue(connection, Mail(id), id=id, store=store)
            connection.commit() if commits else connection.rollback()


class PsycopgAsync(Way):
    def write(self, id, store, *, commits):
        async def write():
            async with await psycopg.AsyncConnection.connect(self.url) as connection:
                await connection.execute("INSERT INTO mails VALUES (%s)", (id,))
                assert await enqueue_async(connection, Mail(id), id=id, store=store) == id
                await (connection.commit() if commits else connection.rollback())

        asyncio.run(write())


class Psycopg2(Way):
    cursor = "cursor"

    def write(self, id, store, *, commits):
        psycopg2 = pytest.importorskip("psycopg2")
        extras = pytest.importorskip("psycopg2.extras")
        kinds = {"cursor": psycopg2.extensions.cursor, "dicts": extras.RealDictCursor, "names": extras.NamedTupleCursor}
        connection = psycopg2.connect(self.url, cursor_factory=kinds[self.cursor])
        with connection.cursor() as cursor:
            cursor.execute("INSERT INTO mails VALUES (%s)", (id,))
        enqueue(connection, Mail(id), id=id, store=store)
        connection.commit() if commits else connection.rollback()
        connection.close()


class Psycopg2WithRowsOfDicts(Psycopg2):
    cursor = "dicts"


class Psycopg2WithNamedRows(Psycopg2):
    cursor = "names"


class SqlAlchemy(Way):
    driver = "psycopg"

    def write(self, id, store, *, commits):
        sqlalchemy = pytest.importorskip("sqlalchemy")
        engine = sqlalchemy.create_engine(self.url.replace("postgresql:", f"postgresql+{self.driver}:"))
        with engine.connect() as connection:
            enqueue(connection, Mail(id), id=id, store=store)  # begins the transaction
            connection.execute(sqlalchemy.text("INSERT INTO mails VALUES (:id)"), {"id": id})
            connection.commit() if commits else connection.rollback()
        engine.dispose()


class SqlAlchemyOnPsycopg2(SqlAlchemy):
    driver = "psycopg2"


class SqlAlchemySession(Way):
    def write(self, id, store, *, commits):
        sqlalchemy = pytest.importorskip("sqlalchemy")
        from sqlalchemy.orm import Session, scoped_session, sessionmaker

        engine = sqlalchemy.create_engine(self.url.replace("postgresql:", "postgresql+psycopg:"))
        for kind in (Session, lambda engine: scoped_session(sessionmaker(engine))):
            session = kind(engine)
            session.execute(sqlalchemy.text("INSERT INTO mails VALUES (:id) ON CONFLICT DO NOTHING"), {"id": id})
            enqueue(session, Mail(id), id=id, store=store)
            session.commit() if commits else session.rollback()
            session.close()
        engine.dispose()


class SqlAlchemyAsync(Way):
    def write(self, id, store, *, commits):
        sqlalchemy = pytest.importorskip("sqlalchemy")
        pytest.importorskip("greenlet")
        from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

        async def write():
            engine = create_async_engine(self.url.replace("postgresql:", "postgresql+psycopg:"))
            async with AsyncSession(engine) as session:
                await session.execute(sqlalchemy.text("INSERT INTO mails VALUES (:id)"), {"id": id})
                await enqueue_async(session, Mail(id), id=id, store=store)
                await (session.commit() if commits else session.rollback())
            await engine.dispose()

        asyncio.run(write())


class Django(Way):
    def write(self, id, store, *, commits):
        pytest.importorskip("django")
        from django.db import transaction

        connection = django_connection(self.url)
        with transaction.atomic(using="enqueue"):
            with connection.cursor() as cursor:
                cursor.execute("INSERT INTO mails VALUES (%s)", [id])
            enqueue(connection, Mail(id), id=id, store=store)
            transaction.set_rollback(not commits, using="enqueue")
        connection.close()


def django_connection(url: str) -> Any:
    import django
    from django.conf import settings
    from django.db import connections

    if not settings.configured:
        settings.configure(DATABASES={}, INSTALLED_APPS=[])
        django.setup()
    info = psycopg.conninfo.conninfo_to_dict(url)
    parts = {"NAME": info["dbname"], "USER": info["user"], "HOST": info["host"], "PORT": info["port"]}
    if "enqueue" not in connections.databases:
        connections.databases["enqueue"] = connections.configure_settings(
            {"default": {}, "enqueue": {"ENGINE": "django.db.backends.postgresql", **parts}}
        )["enqueue"]
    connections.databases["enqueue"].update(parts)
    return connections["enqueue"]


WAYS = (
    *(Psycopg, PsycopgWithRowsOfDicts, PsycopgInAPipeline, PsycopgAsync),
    *(Psycopg2, Psycopg2WithRowsOfDicts, Psycopg2WithNamedRows),
    *(SqlAlchemy, SqlAlchemyOnPsycopg2, SqlAlchemySession, SqlAlchemyAsync, Django),
)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_procedure_is_committed_with_the_row_of_the_application_or_not_at_all(way, url, store, manager):
    kept, dropped = f"kept-{way.__name__}", f"dropped-{way.__name__}"
    way(url).write(dropped, store, commits=False)
    way(url).write(kept, store, commits=True)

    assert output(manager, kept) == f"{kept}: "
    assert known(manager, dropped) is None
    assert ask(url, f"SELECT id FROM mails WHERE id IN ('{kept}', '{dropped}')") == [(kept,)]
    wait_until(lambda: manager.enqueued() == [])


# ---------------------------------------------------------------- transactions
def test_a_savepoint_that_is_rolled_back_takes_the_procedure_along(url, store, manager):
    with psycopg.connect(dsn(url)) as connection:
        enqueue(connection, Mail("outside"), id="outside", store=store)
        with connection.transaction(force_rollback=True):
            enqueue(connection, Mail("inside"), id="inside", store=store)
    assert output(manager, "outside") == "outside: "
    assert known(manager, "inside") is None


@pytest.mark.parametrize("level", ["READ COMMITTED", "REPEATABLE READ", "SERIALIZABLE"])
def test_every_isolation_level_takes_it_and_two_transactions_at_once_do_not_get_in_each_others_way(
    level, url, store, manager
):
    with psycopg.connect(dsn(url)) as one, psycopg.connect(dsn(url)) as other:
        for number, connection in enumerate((one, other)):
            connection.execute(f"SET TRANSACTION ISOLATION LEVEL {level}")
            enqueue(connection, Mail("x"), id=f"{level[:4]}-{number}", store=store)
        other.commit()
        assert output(manager, f"{level[:4]}-1") == "x: "
        one.commit()  # its row has the earlier place, and comes later
    assert output(manager, f"{level[:4]}-0") == "x: "


def test_a_transaction_that_commits_late_is_not_overlooked_where_later_ones_were_taken(url, store, manager):
    with psycopg.connect(dsn(url)) as late:
        enqueue(late, Mail("late"), id="late", store=store, notify=False)
        for number in range(3):
            with psycopg.connect(dsn(url)) as quick:
                enqueue(quick, Mail("quick"), id=f"quick-{number}", store=store)
            assert output(manager, f"quick-{number}") == "quick: "
        assert known(manager, "late") is None
    assert output(manager, "late") == "late: "


@pytest.mark.parametrize("commits", [True, False], ids=["committed", "rolled back"])
def test_a_row_of_a_prepared_transaction_is_taken_after_its_commit_and_not_before(commits, url, store, manager):
    id = f"two-phases-{commits}"
    with contextlib.closing(psycopg.connect(dsn(url))) as connection:
        connection.tpc_begin(connection.xid(1, id, "branch"))
        connection.execute("INSERT INTO mails VALUES (%s)", (id,))
        enqueue(connection, Mail("two"), id=id, store=store, notify=False)
        connection.tpc_prepare()
    with psycopg.connect(dsn(url)) as quick:  # a pass over all rows that there are
        enqueue(quick, Mail("x"), id=f"beside-{commits}", store=store)
    seen = (output(manager, f"beside-{commits}"), known(manager, id), manager.enqueued())
    with psycopg.connect(dsn(url), autocommit=True) as another:  # the session that prepared it is gone
        (xid,) = another.tpc_recover()
        (another.tpc_commit if commits else another.tpc_rollback)(xid)  # before any assert: it holds locks
    assert seen == ("x: ", None, [])
    if commits:
        assert output(manager, id) == "two: "
    assert ask(url, f"SELECT count(*) FROM mails WHERE id = '{id}'") == [(int(commits),)]
    assert (known(manager, id) is not None) == commits


def test_a_transaction_that_notifies_cannot_be_prepared_and_leaves_nothing(url, store, manager):
    with contextlib.closing(psycopg.connect(dsn(url))) as connection:
        connection.tpc_begin(connection.xid(1, "notifies", "branch"))
        enqueue(connection, Mail("x"), id="notifies", store=store)
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="NOTIFY"):
            connection.tpc_prepare()
    assert ask(url, "SELECT count(*) FROM pg_prepared_xacts") == [(0,)]
    assert (known(manager, "notifies"), manager.enqueued()) == (None, [])


@pytest.mark.parametrize("driver", [Psycopg, Psycopg2, SqlAlchemy, Django], ids=lambda way: way.__name__)
def test_a_pooler_may_stand_between_the_application_and_the_database(driver, url, store, manager):
    with pooled("transaction", sessions=1) as port:
        way = driver(url.replace(f":{database_or_skip().port}/", f":{port}/"))
        for number in range(7):  # of one session of the server, and more than psycopg needs to prepare a statement
            way.write(f"{driver.__name__}-dropped-{number}", store, commits=False)
            way.write(f"{driver.__name__}-pooled-{number}", store, commits=True)
    for number in range(7):
        assert output(manager, f"{driver.__name__}-pooled-{number}") == f"{driver.__name__}-pooled-{number}: "
        assert known(manager, f"{driver.__name__}-dropped-{number}") is None


def test_clients_of_a_pooler_share_one_session_transaction_by_transaction(url, store, manager):
    with pooled("transaction", sessions=1) as port:
        pooler = dsn(url).replace(f":{database_or_skip().port}/", f":{port}/")
        one, other = (psycopg.connect(pooler, prepare_threshold=None) for _ in range(2))
        with one, other:
            for number in range(7):
                for name, connection in (("one", one), ("other", other)):
                    enqueue(connection, Mail("p"), id=f"{name}-{number}", store=store)
                    connection.commit()
    for number in range(7):
        assert output(manager, f"one-{number}") == output(manager, f"other-{number}") == "p: "


def test_a_connection_that_commits_each_statement_enqueues_at_once(url, store, manager):
    with psycopg.connect(dsn(url), autocommit=True) as connection:
        enqueue(connection, Mail("auto"), id="auto", store=store)
        assert output(manager, "auto") == "auto: "


def test_many_of_one_transaction_are_taken_in_pages(url, store, manager):
    with psycopg.connect(dsn(url)) as connection:
        ids = [enqueue(connection, Mail("many"), store=store, tags=["many"], delay=3600) for _ in range(150)]
    wait_until(lambda: len(list(manager.list(tag="many", limit=500))) == 150)
    assert {info.id for info in manager.list(tag="many", limit=500)} == set(ids)
    wait_until(lambda: manager.enqueued() == [])


def test_the_options_of_a_submit_are_those_of_the_procedure_by_the_clock_of_the_database(url, store, manager):
    with psycopg.connect(dsn(url)) as connection:
        enqueue(connection, Mail("o"), "opts", store=store, owner="anna", priority=7, tags=["t"], delay=3600)
    info = wait_until(lambda: known(manager, "opts")).info()
    assert (info.owner, info.priority, info.tags) == ("anna", 7, ("t",))
    assert 3500 < info.due_at - info.created_at < 3700


# ---------------------------------------------------------------- refusals in the application's transaction
def fails(url: str, error: type[Exception], words: str, *arguments: Any, **options: Any) -> None:
    """Check that an enqueue is refused in words, and that the transaction goes on."""
    with psycopg.connect(dsn(url)) as connection:
        connection.execute("CREATE TEMPORARY TABLE own (a int) ON COMMIT DROP")
        with pytest.raises(error, match=words):
            enqueue(connection, *arguments, **options)
        connection.execute("INSERT INTO own VALUES (1)")
        assert connection.execute("SELECT count(*) FROM own").fetchone() == (1,)
        connection.rollback()


REFUSED = {
    "no such store": (EngineError, "no store 'nowhere'.*Start a manager", (Mail("x"),), {"store": "nowhere"}),
    "a state too large": (StateTooLarge, "max_state is 64", (Mail("x" * 100),), {"max_state": 64}),
    "a state that is no data": (StateNotEncodable, "object", (Mail(object()),), {}),
    "a pickle": (UsageError, "pickle.*signed with a key", (Pickled(),), {}),
    "a debounce": (UsageError, "debounced", (Mail("x"),), {"debounce": "k", "within": 1.0}),
    "no procedure": (UsageError, "object", (object(),), {}),
    "a bad id": (UsageError, "not valid", (Mail("x"), "a\nb"), {}),
    "a priority that is none": (TypeError, "priority", (Mail("x"),), {"priority": "high"}),
    "a naive moment": (
        ValueError,
        "time zone",
        (Mail("x"),),
        {"deadline": __import__("datetime").datetime(2030, 1, 1)},
    ),
    "a flag that is none": (TypeError, "notify", (Mail("x"),), {"notify": "no"}),
    "a store that is no name": (TypeError, "name of a store", (Mail("x"),), {"store": 7}),
    "a policy that is none": (ValueError, "on_existing", (Mail("x"), "a"), {"on_existing": "replace"}),
}


@pytest.mark.parametrize(("error", "words", "arguments", "options"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_enqueued_is_refused_in_words_and_does_not_spoil_the_transaction(
    error, words, arguments, options, url, store, manager
):
    fails(url, error, words, *arguments, **{"store": store} | options)


def test_a_read_only_transaction_and_a_store_of_an_earlier_version_are_refused_in_words(url, store, manager):
    with psycopg.connect(dsn(url)) as connection:
        connection.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(EngineError, match="read-only"):
            enqueue(connection, Mail("x"), store=store)
        assert connection.execute("SELECT 1").fetchone() == (1,)
    with psycopg.connect(dsn(url)) as connection:
        connection.execute(f'ALTER TABLE "{store}".enqueued RENAME TO renamed')
        with pytest.raises(EngineError, match=r"earlier version.*when it starts"):
            enqueue(connection, Mail("x"), store=store)
        connection.rollback()


CONNECTIONS = {
    "nothing": (None, "psycopg 3, psycopg2, SQLAlchemy"),
    "a text": ("postgresql://db/app", "psycopg 3, psycopg2, SQLAlchemy"),
    "sqlite": (__import__("sqlite3").connect(":memory:"), "not sqlite3.Connection"),
    "another database of Django": (types.SimpleNamespace(cursor=print, vendor="sqlite"), "PostgreSQL database"),
}


@pytest.mark.parametrize(("connection", "words"), CONNECTIONS.values(), ids=CONNECTIONS)
def test_what_is_no_connection_to_postgresql_is_told(connection, words):
    with pytest.raises(TypeError, match=words):
        enqueue(connection, Mail("x"))


def test_a_connection_whose_methods_are_awaited_and_one_whose_are_not_are_told_apart(url, store, manager):
    async def wrong():
        async with await psycopg.AsyncConnection.connect(dsn(url)) as connection:
            enqueue(connection, Mail("x"), store=store)

    with pytest.raises(TypeError, match="await enqueue_async"):
        asyncio.run(wrong())
    with psycopg.connect(dsn(url)) as connection, pytest.raises(TypeError, match=r"not psycopg\.Connection"):
        asyncio.run(enqueue_async(connection, Mail("x"), store=store))


# ---------------------------------------------------------------- refusals by the leader
def test_what_the_leader_refuses_stays_with_its_reason_is_told_everywhere_and_can_be_removed(
    url, store, manager, capsys
):
    with psycopg.connect(dsn(url)) as connection:
        enqueue(connection, Mail("first"), id="twice", store=store)
        enqueue(connection, Mail("second"), id="twice", store=store)
        enqueue(connection, Mail("first"), id="twice", store=store)
        enqueue(connection, Unknown(), id="of-no-class", store=store)
    rows = wait_until(lambda: len(found := manager.enqueued()) == 2 and found)

    assert output(manager, "twice") == "first: "
    assert {(row.id, row.state, row.error) for row in rows} == {
        ("twice", "refused", "DuplicateProcedure"),
        ("of-no-class", "refused", "UnknownType"),
    }
    assert any("of-no-class" in said and "refused" in said for said in manager.health().problems)
    assert manager.health().ok
    with StoreReader(url) as reader:
        assert "no class is registered" in reader.why("of-no-class").says
    assert main(["enqueued", "--path", url]) == 0
    assert "twice" in capsys.readouterr().out
    assert main(["doctor", "--path", url]) == 0
    assert "enqueued procedures that were refused: 2;" in capsys.readouterr().out
    assert manager.remove_enqueued("twice", "sent twice") == 1
    assert [row.id for row in manager.enqueued()] == ["of-no-class"]
    assert any(note.verb == "enqueued" and note.reason == "sent twice" for note in manager.audit(None))
    with pytest.raises(UnknownProcedure, match="no enqueued procedure was refused"):
        manager.remove_enqueued("twice")

    manager.register(Unknown)
    assert output(manager, "of-no-class") == "sent"
    assert manager.enqueued() == []


def test_rows_that_no_application_of_ours_wrote_are_kept_and_told(url, store, manager):
    ask(url, f"INSERT INTO \"{store}\".enqueued VALUES ('\\x77'::bytea || decode('aa', 'hex'), 'rubbish'::bytea)")
    (row,) = wait_until(lambda: [row for row in manager.enqueued() if row.state == "refused"])
    assert "cannot be read" in row.reason
    assert manager.remove_enqueued(row.id) == 1


def test_a_row_whose_values_make_no_sense_is_refused_by_the_leader(url, store, manager, monkeypatch):
    monkeypatch.setattr(enqueueing, "checked_terms", lambda clock, **_: terms(10**17))
    with psycopg.connect(dsn(url)) as connection:
        enqueue(connection, Mail("x"), id="forged", store=store)
    (row,) = wait_until(lambda: [row for row in manager.enqueued() if row.id == "forged" and row.state == "refused"])
    assert "priority" in row.reason
    assert manager.remove_enqueued("forged") == 1


def terms(priority: int) -> Any:
    from actorproc.api.verbs.submit import SubmitTerms

    return SubmitTerms(None, priority, None, None, (), None, (), None, None)


# ---------------------------------------------------------------- managers that come and go
@pytest.fixture
def own_store(monkeypatch, tmp_path) -> Iterator[str]:
    """The URL of a store of one test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    url = emptied()
    store = DatabaseStore(url)  # makes the tables
    store.own()
    store.close()
    yield url
    give_back(url)


def test_rows_wait_for_a_manager_and_doctor_and_why_say_so(own_store, capsys):
    store = place_of(own_store).store
    with psycopg.connect(dsn(own_store)) as connection:
        enqueue(connection, Mail("waits"), id="waits", store=store)
        enqueue(connection, Mail("another"), id="waits", store=store)
    with StoreReader(own_store) as reader:
        assert [(row.id, row.state) for row in reader.enqueued()] == [("waits", "waiting")] * 2
        cause = reader.why("waits")
        assert "waits for" in cause.says
        assert [below.kind for below in cause.causes] == ["manager"]
    assert main(["doctor", "--path", own_store]) == 0
    assert "enqueued procedures that wait for a manager: 2," in capsys.readouterr().out
    with ProcedureManager(own_store, procedures=[Mail], workers=1, **LIGHT) as manager:
        assert output(manager, "waits") == "waits: "
        wait_until(lambda: [row.state for row in manager.enqueued()] == ["refused"])
    # No manager runs: the request is decided on in the store, as with any verb.
    assert main(["enqueued", "waits", "--remove", "--yes", "--reason", "sent twice", "--path", own_store]) == 0
    with StoreReader(own_store) as reader:
        assert reader.enqueued() == []


def test_too_many_unfinished_procedures_leave_rows_where_they_are_until_there_is_room(own_store):
    store = place_of(own_store).store
    config = Config(max_queued=1, max_running=1, spares=0)
    with ProcedureManager(own_store, procedures=[Mail], workers=1, config=config, preload=LIGHT["preload"]) as manager:
        sleepers = [manager.submit(Mail("sleeps"), id=f"sleeps-{number}", delay=3600) for number in range(2)]
        with psycopg.connect(dsn(own_store)) as connection:
            enqueue(connection, Mail("later"), id="later", store=store)
        wait_until(lambda: any("max_queued" in said for said in manager.health().problems))
        assert [row.state for row in manager.enqueued()] == ["waiting"]
        manager.abort(sleepers[0].id)
        assert output(manager, "later") == "later: "
        assert manager.health().problems == ()


MEMBER = """
import sys
from actorproc import ProcedureManager
from tests.engine.test_enqueue import Mail
with ProcedureManager(sys.argv[1], procedures=[Mail], workers=1) as manager:
    print("leads", flush=True)
    sys.stdin.read()
"""


def are_so_many(url: str, counted: str) -> bool:
    return ask(url, counted) == [(True,)]


def test_leaders_that_are_killed_while_rows_come_lose_none_and_make_none_twice(own_store):
    store, stop, written = place_of(own_store).store, threading.Event(), []

    def write() -> None:
        with psycopg.connect(dsn(own_store)) as connection:
            while not stop.is_set():
                written.append(enqueue(connection, Mail("k"), f"k-{len(written)}", store=store, on_existing="error"))
                connection.commit()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for seen in (5, 60):
            member = subprocess.Popen(
                [sys.executable, "-c", MEMBER, own_store], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            assert member.stdout is not None
            assert member.stdout.readline() == b"leads\n"
            counted = f'SELECT count(*) >= {seen} FROM "{store}".procedures'
            wait_until(partial(are_so_many, own_store, counted))
            os.kill(member.pid, signal.SIGKILL)
            member.communicate()
    finally:
        stop.set()
        writer.join()
    with ProcedureManager(own_store, procedures=[Mail], workers=1, **LIGHT) as manager:
        wait_until(lambda: not [row for row in manager.enqueued() if row.state == "waiting"])
        # on_existing="error": a row that was taken twice would have been refused.
        assert manager.enqueued() == []
        assert {info.id for info in manager.list(limit=100_000)} == set(written)


def test_an_enqueuer_may_add_rows_and_nothing_else(own_store):
    from actorproc.store.postgres.schema.grants import grants

    place = place_of(own_store)
    roles = {"owner": "actorproc", "host": "eh", "looker": "el", "enqueuer": "ee"}
    ask(own_store, "\n".join(grants(place, **roles)))
    inserter = own_store.replace("//actorproc@", "//ee@")
    with psycopg.connect(dsn(inserter)) as connection:
        assert enqueue(connection, Mail("x"), "by-ee", store=place.store) == "by-ee"
        connection.commit()
        for statement in (f"SELECT * FROM {place.schema}.enqueued", f"DELETE FROM {place.schema}.enqueued"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
                connection.execute(statement)
        with pytest.raises(psycopg.errors.InsufficientPrivilege), connection.transaction():
            connection.execute(f"SELECT * FROM {place.schema}.keys")
    fails(own_store.replace("//actorproc@", "//el@"), NotAllowed, "actorproc grants", Mail("x"), store=place.store)
    ask(own_store, f"REVOKE ALL ON SCHEMA {place.schema} FROM eh, el, ee")
    ask(own_store, f"REVOKE ALL ON ALL TABLES IN SCHEMA {place.schema} FROM eh, el, ee", "DROP ROLE eh, el, ee")
