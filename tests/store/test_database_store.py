"""The store in a database: its bytes, its owner, its fence, and what an outage leaves."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from actorproc.errors import Deposed, EngineError, StorageUnavailable, StoreFormat, StoreInUse, UsageError
from actorproc.model.rows.writes import DeleteProcedure, TrimLog
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.postgres import store as store_module
from actorproc.store.postgres.connecting import connect, new_title
from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.sessions import NUMBER, Session, Statement, number, numbered
from actorproc.store.postgres.store import DatabaseStore
from actorproc.store.rows.tables import Table
from actorproc.testing.torture.cluster.proxy import Proxy
from tests.databases import database_or_skip, new_store
from tests.kit.waiting import wait_until

SUCCESS = ProcedureState.SUCCESS
NOTES = (("a", 1, "k"), ("a", 3, "k"), ("ab", 1, "k"))


@pytest.fixture
def database(database_url):
    """An owned store in a database."""
    store = DatabaseStore(database_url)
    assert store.own() == 1
    yield store
    store.close()


@pytest.fixture
def admin(database_url):
    """Run a statement beside the store."""
    session = connect(place_of(database_url), "look", "an administrator")

    def run(sql, *values):
        (answer,) = session.ask([(Statement(sql.encode(), (NUMBER,) * len(values), once=True), values)], 10.0)
        return answer

    yield run
    session.close()


def result_of(call):
    try:
        return [call()]
    except EngineError as error:
        return [error]


def rows_of(store):
    with store._view() as rows:
        return {table.label: list(rows.scan(table)) for table in Table}


def test_the_rows_are_the_bytes_of_lmdb(database, tmp_path, make):
    """All kinds of rows, and every way in which a batch changes them."""
    lmdb = LmdbStore(tmp_path / "store", map_size=1 << 24)
    assert lmdb.own() == 1
    a = make.head("a", 1, records=3, tags=("t", "u"), due_at=8.0)
    b = make.head("b", 2, state=SUCCESS, finished_at=3.0)
    change, _ = make.change(a, state=SUCCESS, finished_at=9.0, due_at=None)
    batches = [
        [make.put(a), make.put(b), *(make.step("a", n) for n in (1, 2, 3)), make.step("b", 1)],
        [make.child("a", 1, 0, "c"), make.undo("a", 1), make.lock("x", "a"), make.poison("y" * 300)],
        [make.event("a", 1), make.attempt("a", 1), *(make.note(*note) for note in NOTES)],
        [TrimLog("a", 2, 2, 3)],
        [change, DeleteProcedure(b)],
        [make.poison("z"), make.step("a", 300), make.new("b", 7)],
    ]
    try:
        for number_, batch in enumerate(batches, 1):
            for store in (lmdb, database):
                store.commit(batch, 1, number_)
            found, expected = rows_of(database), rows_of(lmdb)
            for rows in (found, expected):
                rows["meta"] = [(key, value) for key, value in rows["meta"] if key != b"store_id"]
            assert found == expected
    finally:
        lmdb.close()


def test_a_second_owner_is_refused_and_learns_who_has_the_store(database, database_url):
    other = DatabaseStore(database_url)

    with pytest.raises(StoreInUse, match=r"another manager of this process .*another \?store=NAME") as refused:
        other.own()

    assert refused.value.pid == os.getpid()
    database.commit([], 1, 1)
    database.close()
    assert other.own() == 2
    other.close()


def test_an_owner_that_was_killed_is_followed_at_once(database_url, make):
    program = (
        "import sys, time\n"
        "from actorproc.store.postgres.store import DatabaseStore\n"
        f"store = DatabaseStore({database_url!r}); store.own(); print('owned', flush=True); time.sleep(600)\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert owner.stdout.readline() == b"owned\n"
    store = DatabaseStore(database_url)
    with pytest.raises(StoreInUse) as refused:
        store.own()
    assert refused.value.pid == owner.pid

    owner.kill()
    owner.wait()
    owner.stdout.close()

    assert store.own() == 2
    store.commit([make.new("a", 1)], 2, 1)
    store.close()


def test_of_many_that_start_at_once_on_an_empty_database_one_owns_it():
    for _ in range(3):
        url = new_store()
        owned, refused, other = [], [], []
        together = threading.Barrier(6)

        def begin(url=url, owned=owned, refused=refused, other=other, together=together):
            store = DatabaseStore(url)
            together.wait()
            try:
                owned.append((store.own(), store))
            except StoreInUse:
                refused.append(store)
            except EngineError as error:
                other.append(error)

        threads = [threading.Thread(target=begin) for _ in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert other == []
        assert [epoch for epoch, _ in owned] == [1]
        assert len(refused) == 5
        owned[0][1].close()


def test_an_owner_whose_epoch_is_gone_commits_nothing(database, admin, make):
    database.commit([make.new("a", 1)], 1, 1)
    admin(f"UPDATE {database.place.schema}.leader SET epoch = 2")

    with pytest.raises(StoreInUse, match="epoch 1 is fenced off"):
        database.commit([make.new("b", 2)], 1, 2)
    with pytest.raises(StoreInUse, match="epoch 2"):
        database.reopen()

    assert database.procedure("b") is None


def test_a_new_owner_waits_for_the_commit_that_has_met_its_fence_and_stops_the_one_that_has_not(database, admin):
    """The fence is the last statement: until then a commit holds nothing that a takeover needs."""
    place = database.place
    session = connect(place, "commit", "half sent")
    begin = Statement(b"BEGIN", once=True)
    change = Statement(f"INSERT INTO {place.schema}.poison VALUES ('x', 'y')".encode(), once=True)
    session.ask([(begin, ()), (change, ())], 10.0)

    admin(f"UPDATE {place.schema}.leader SET epoch = 2")  # not kept waiting

    with pytest.raises(DatabaseFailure) as fenced:
        session.ask([(database._statements.fence, (number(1), number(5)))], 10.0)
    assert (fenced.value.state, fenced.value.table) == ("23502", "batch")
    session.close()
    assert admin(f"SELECT count(*) FROM {place.schema}.poison").get_value(0, 0) == number(0)


@contextlib.contextmanager
def stalled_commit(database, admin, make):
    """A commit of `a`'s event that waits in the server for a row, and whose connection broke."""
    database.commit([make.put(make.head("a", 1)), make.poison("key")], 1, 1)
    place = database.place
    holder = connect(place, "commit", "holds a row")
    hold = Statement(f"SELECT k FROM {place.schema}.poison FOR UPDATE".encode(), once=True)
    holder.ask([(Statement(b"BEGIN", once=True), ()), (hold, ())], 10.0)
    stalled = database._session

    def commit():
        with contextlib.suppress(StorageUnavailable):
            database.commit([make.poison("key"), make.event("a", 1)], 1, 2)

    thread = threading.Thread(target=commit)
    thread.start()
    waiting = f"SELECT count(*) FROM pg_stat_activity WHERE pid = {stalled.pid} AND wait_event_type = 'Lock'"
    wait_until(lambda: admin(waiting).get_value(0, 0) == number(1))
    cut(stalled)
    thread.join(10)

    yield
    holder.close()
    wait_until(
        lambda: admin(f"SELECT count(*) FROM pg_stat_activity WHERE pid = {stalled.pid}").get_value(0, 0) == number(0)
    )


def cut(session):
    """Break the connection of a session, as the network does."""
    with socket.socket(fileno=os.dup(session.fileno())) as ended:
        ended.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("later", [0, 1, 3], ids="later commits {}".format)
@pytest.mark.parametrize("lost", [False, True], ids=["lock kept", "lock lost"])
def test_a_commit_that_stalled_in_the_server_is_never_done_after_later_ones(database, admin, make, later, lost):
    """Its connection broke and its number was free again: done late, it would bring back the rows of before."""
    with stalled_commit(database, admin, make):
        if lost:
            cut(database.leadership.lock.session)
        database.reopen()
        for batch in range(2, 2 + later):
            database.commit([make.note("a", batch, "k")], 1, batch)

    assert database.events("a") == []
    assert database.epoch == 1


@pytest.mark.parametrize("failing", ["connect", "end_own_session", "check_format", "fence"])
def test_a_stalled_commit_is_ended_though_the_store_is_opened_again_more_than_once(
    database, admin, make, monkeypatch, failing
):
    real, failures = getattr(store_module, failing), []

    def fails(*given, **named):
        if len(failures) < 2:
            failures.append(failing)
            raise DatabaseFailure("the connection was lost", "08006")
        return real(*given, **named)

    with stalled_commit(database, admin, make):
        monkeypatch.setattr(store_module, failing, fails)
        for _ in range(2):
            with pytest.raises(StorageUnavailable, match="the connection was lost"):
                database.reopen()
        database.reopen()
        database.commit([make.note("a", 2, "k")], 1, 2)

    assert len(failures) == 2
    assert database.events("a") == []


def test_a_lost_lock_session_that_the_server_ends_late_deposes_nothing(database, admin):
    """It is told to end, and has the lock until it does."""
    stop_renewals(database)
    lock = database.leadership.lock
    old = lock.session
    os.kill(old.pid, signal.SIGSTOP)
    asking = (
        "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_terminate_backend%' "
        f"AND application_name LIKE '{database._title.split()[0]}%' AND pid <> {old.pid}"
    )
    try:
        old.close()
        failed = []
        thread = threading.Thread(target=lambda: failed.extend(failure_of(database.leadership.check)))
        thread.start()
        wait_until(lambda: not thread.is_alive() or admin(asking).get_value(0, 0) != number(0))
    finally:
        os.kill(old.pid, signal.SIGCONT)
    thread.join(20)

    assert failed == []
    assert (lock.regained, lock.is_open) == (1, True)
    database.reopen()
    database.commit([], 1, 1)


@pytest.mark.parametrize("end", ["close", "deposed", "broken"])
def test_a_closed_store_can_be_opened_again_in_its_process_before_the_server_saw_its_end(
    database, database_url, admin, end
):
    """The server frees the lock when it sees the end of a session, which may be later."""
    stop_renewals(database)
    lock = database.leadership.lock.session.pid
    if end == "deposed":
        admin(f"UPDATE {database.place.schema}.leader SET epoch = epoch + 1")
    if end == "broken":
        os.kill(lock, signal.SIGSTOP)
        database.leadership.lock.session.close()
    second, opened = DatabaseStore(database_url), []
    asked = database.leadership.lock.session
    try:
        database.close()
        assert asked is None or asked.is_broken
        thread = threading.Thread(target=lambda: opened.extend(result_of(second.own)))
        thread.start()
        if end == "broken":
            candidate = f"application_name LIKE '{second._title.split()[0]} candidate%'"
            tries = f"SELECT count(*) FROM pg_stat_activity WHERE {candidate} AND query LIKE '%leader%'"
            wait_until(lambda: not thread.is_alive() or admin(tries).get_value(0, 0) != number(0))
    finally:
        os.kill(lock, signal.SIGCONT) if end == "broken" else None
    thread.join(20)

    assert [type(epoch) for epoch in opened] == [int]
    second.close()


def test_two_threads_that_find_the_lock_session_lost_take_the_lock_once(database):
    """The keeper of the lease, and a commit that opens the store again."""
    stop_renewals(database)
    lock = database.leadership.lock
    for round_ in range(1, 21):
        lock.session.close()
        begin, failed = threading.Barrier(2), []

        def take(begin=begin, failed=failed):
            begin.wait(10)
            failed.extend(failure_of(database.leadership.check))

        threads = [threading.Thread(target=take) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(20)
        assert failed == []
        assert (lock.regained, lock.is_open) == (round_, True)
    database.reopen()


def stop_renewals(database):
    database.leadership._ending.set()
    database.leadership._keeper.join()


def failure_of(call):
    """The error of a call in a list; an empty one when there is none."""
    try:
        call()
    except (EngineError, DatabaseFailure) as error:
        return [error]
    return []


def test_the_lease_is_renewed_while_a_commit_is_under_way(database, admin):
    """The fence reads the row of the leader, and a renewal changes no key of it: neither waits for the other."""
    place = database.place
    session = connect(place, "commit", "a slow commit")
    session.ask([(Statement(b"BEGIN", once=True), ()), (database._statements.fence, (number(1), number(1)))], 10.0)

    admin(f"UPDATE {place.schema}.leader SET expires = clock_timestamp()")

    session.close()


def test_the_row_of_the_leader_does_not_change_with_commits(database, admin):
    read = f"SELECT (xmin::text || cmin::text)::bytea FROM {database.place.schema}.leader"
    stop_renewals(database)
    before = admin(read).get_value(0, 0)

    for batch in range(1, 20):
        database.commit([], 1, batch)

    assert admin(read).get_value(0, 0) == before
    assert numbered(admin(f"SELECT count(*) FROM {database.place.schema}.batch").get_value(0, 0)) <= 2


def test_sessions_that_an_administrator_ends_are_an_outage_and_no_more(database, admin, make):
    database.commit([make.new("a", 1)], 1, 1)
    kill = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'actorproc-%'"
    admin(kill)

    with pytest.raises(StorageUnavailable, match=r"administrator|connection"):
        database.commit([make.new("b", 2)], 1, 2)
    with pytest.raises(StorageUnavailable, match="opened again"):
        database.commit([make.new("b", 2)], 1, 2)
    database.reopen()

    assert database.load().batch == 1
    database.commit([make.new("b", 2)], 1, 2)
    assert [head.id for head in database.scan()] == ["a", "b"]
    wait_until(lambda: database.leadership.lock.regained == 1)


def test_reads_go_on_after_their_sessions_were_ended(database, admin, make):
    database.commit([make.new("a", 1)], 1, 1)
    assert database.procedure("a") is not None

    admin("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'actorproc-%'")

    assert database.procedure("a") is not None


def test_commits_that_the_database_lost_are_seen_when_it_is_opened_again(database, admin, make, caplog):
    for batch in (1, 2, 3):
        database.commit([make.new(f"p{batch}", batch)], 1, batch)
    admin(f"UPDATE {database.place.schema}.batch SET n = 1 WHERE n = 3")  # as after a failover

    with caplog.at_level(logging.CRITICAL):
        database.reopen()

    assert database.load().batch == 1  # by which the engine tells, and counts, what is missing
    assert caplog.text == ""
    database.commit([make.new("q", 9)], 1, 4)
    assert database.load().batch == 4


def test_an_epoch_that_went_back_is_told_and_ends_the_ownership(database, admin, caplog):
    database.commit([], 1, 1)
    admin(f"UPDATE {database.place.schema}.leader SET epoch = 0")

    with caplog.at_level(logging.CRITICAL), pytest.raises(StoreInUse):
        database.reopen()

    assert "lost the epoch 1 of this owner with its acknowledged commits 1 to 1" in caplog.text


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_epoch_that_went_back_is_told_by_the_commit_that_meets_it(database, admin, caplog, epoch):
    database.close()
    assert database.own() == 2
    database.commit([], 2, 1)
    admin(f"UPDATE {database.place.schema}.leader SET epoch = {epoch}")

    with caplog.at_level(logging.CRITICAL), pytest.raises(Deposed, match="epoch 2 is fenced off"):
        database.commit([], 2, 2)

    assert "lost the epoch 2 of this owner with its acknowledged commits 1 to 1" in caplog.text
    caplog.clear()
    with pytest.raises(Deposed):
        database.reopen()
    assert caplog.text == ""  # once


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ("53100", "no disk space left"),
        ("25006", "read-only"),
        ("55P03", "holds a lock for too long"),
        ("40P01", "deadlock"),
        ("57014", "cancelled"),
        ("XX001", "damaged data"),
        ("58030", "error of its disk"),
    ],
)
def test_an_error_that_may_pass_is_an_outage_in_words(database, admin, make, state, words):
    """As the database would raise it in the middle of a commit."""
    schema = database.place.schema
    admin(
        f"CREATE FUNCTION {schema}.fail() RETURNS trigger LANGUAGE plpgsql AS "
        f"$$ BEGIN RAISE EXCEPTION 'it broke' USING ERRCODE = '{state}'; END $$"
    )
    admin(f"CREATE TRIGGER fail BEFORE INSERT ON {schema}.poison FOR EACH ROW EXECUTE FUNCTION {schema}.fail()")
    try:
        with pytest.raises(StorageUnavailable, match=rf"it broke \[{state}\].*{words}.*nothing acknowledged is lost"):
            database.commit([make.new("a", 1), make.poison("x")], 1, 1)
    finally:
        admin(f"DROP FUNCTION {schema}.fail() CASCADE")
    database.reopen()

    assert database.procedure("a") is None
    database.commit([make.poison("x")], 1, 2)


def test_a_database_that_is_set_to_read_only_is_an_outage_until_it_is_not(database, admin, make):
    """As services do when a disk is nearly full: what they forbid is not done all the same."""
    admin("ALTER ROLE actorproc SET default_transaction_read_only = on")
    try:
        with pytest.raises(StorageUnavailable, match=r"read-only: its disk may be nearly full"):
            database.reopen()
    finally:
        session = connect(database.place, "look", "another administrator")
        writes = Statement(b"BEGIN READ WRITE", once=True)
        reset = Statement(b"ALTER ROLE actorproc RESET default_transaction_read_only", once=True)
        session.ask([(writes, ()), (reset, ()), (Statement(b"COMMIT", once=True), ())], 10.0)
        session.close()
    database.reopen()
    database.commit([make.new("a", 1)], 1, 1)


def test_a_connection_through_which_nothing_comes_any_more_ends_at_the_deadline(database):
    server = database_or_skip()
    with Proxy("127.0.0.1", server.port) as proxy:
        place = place_of(server.url(database.place.store).replace(f":{server.port}", f":{proxy.port}"))
        session = connect(place, "commit", "behind a proxy")
        proxy.hold("down")

        with pytest.raises(DatabaseFailure, match="did not answer in time"):
            session.ask([(Statement(b"SELECT 1", once=True), ())], 0.3)


def test_defaults_of_a_role_do_not_reach_our_sessions(database_url, admin, make):
    names = {"statement_timeout": "1ms", "idle_in_transaction_session_timeout": "1ms", "idle_session_timeout": "1ms"}
    names |= {"default_transaction_isolation": "serializable", "search_path": "nowhere", "lock_timeout": "1ms"}
    for name, value in names.items():
        admin(f"ALTER ROLE actorproc SET {name} = '{value}'")
    try:
        store = DatabaseStore(database_url)
        store.own()
        store.commit([make.new("a", 1)], 1, 1)
        time.sleep(0.05)
        assert store.procedure("a") is not None
        store.commit([make.new("b", 2)], 1, 2)
        store.close()
    finally:
        for name in names:
            admin(f"ALTER ROLE actorproc RESET {name}")


def test_a_session_that_a_transaction_timeout_of_its_role_ends_is_made_anew_without_it(database_url, monkeypatch):
    """PostgreSQL 17 and later have one, and it may be shorter than what the session needs to set its own."""
    from actorproc.store.postgres import connecting

    plain, tried = connecting._connect, []

    def ended(place, kind, title, settings, options):
        tried.append(options)
        if len(tried) == 1:
            raise DatabaseFailure("terminating connection due to transaction timeout", "25P04")
        return plain(place, kind, title, settings, options.replace(" -c transaction_timeout=0", ""))  # 15 has none

    monkeypatch.setattr(connecting, "_connect", ended)
    connect(place_of(database_url), "look", "a test").close()

    assert ["transaction_timeout=0" in options for options in tried] == [False, True]
    tried[:] = ["before"]
    monkeypatch.setattr(connecting, "_connect", lambda *_: (_ for _ in ()).throw(DatabaseFailure("no", "28000")))
    with pytest.raises(DatabaseFailure, match="no"):
        connect(place_of(database_url), "look", "a test")


def test_a_database_that_does_not_sync_is_refused_unless_less_is_asked_for(database_url, monkeypatch):
    monkeypatch.delenv("ACTORPROC_ALLOW_ANY_FILESYSTEM")

    with pytest.raises(EngineError, match=r'fsync=off.*durability="process"'):
        DatabaseStore(database_url).own()

    store = DatabaseStore(database_url, durability="process")
    store.own()
    (answer,) = store._session.ask([(Statement(b"SELECT current_setting('synchronous_commit')"), ())], 5.0)
    assert answer.get_value(0, 0) == b"off"
    store.close()


def test_a_schema_with_tables_of_another_program_is_refused_and_not_changed(admin):
    url = new_store()
    schema = place_of(url).schema
    admin(f"CREATE SCHEMA {schema}")
    admin(f"CREATE TABLE {schema}.events (id int)")

    with pytest.raises(StoreFormat, match="tables of another program"):
        DatabaseStore(url).own()

    assert numbered(admin(f"SELECT count(*) FROM pg_tables WHERE schemaname = '{schema[1:-1]}'").get_value(0, 0)) == 1


def test_a_store_that_was_replaced_or_dropped_meanwhile_is_no_longer_written(admin, make):
    url = new_store()
    store = DatabaseStore(url)
    store.own()
    admin(f"DROP SCHEMA {store.place.schema} CASCADE")

    with pytest.raises(StorageUnavailable, match="table is gone"):
        store.commit([make.new("a", 1)], 1, 1)
    with pytest.raises(StoreFormat, match="no actorproc store"):
        store.reopen()
    store.close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"port": "1"}, "refused"),
        ({"user": "nobody_here"}, "refuses this login|does not exist"),
        ({"path": "/nothing"}, "does not exist"),
    ],
)
def test_a_database_that_cannot_be_reached_is_told_in_words(database_url, change, words):
    url = database_url
    if "port" in change:
        url = url.replace(f":{database_or_skip().port}", ":1")
    url = url.replace("actorproc@", f"{change.get('user', 'actorproc')}@")
    url = url.replace("/postgres?", f"{change.get('path', '/postgres')}?")

    with pytest.raises(EngineError, match=words):
        DatabaseStore(url).own()


def test_a_parameter_that_libpq_does_not_know_is_refused_without_its_value(database_url):
    with pytest.raises(EngineError) as refused:
        DatabaseStore(f"{database_url}&passwd=secret").own()

    assert "secret" not in str(refused.value)


def test_a_url_with_an_unknown_scheme_is_refused():
    with pytest.raises(UsageError):
        DatabaseStore("postgresql://db/app?store=")


def test_a_session_that_is_answered_by_another_process_is_that_of_a_pooler(database_url, monkeypatch):
    from actorproc.store.postgres import connecting

    class Pooled(connecting.Session):
        def __init__(self, connection, kind, pid, version):
            super().__init__(connection, kind, pid + 1, version)

    monkeypatch.setattr(connecting, "Session", Pooled)

    with pytest.raises(EngineError, match="connection pooler"):
        DatabaseStore(database_url).own()


def test_the_name_of_a_session_begins_with_what_is_unique(monkeypatch):
    monkeypatch.setattr("socket.gethostname", lambda: "é" * 100)

    place = place_of("postgresql://db/app")
    one, other = new_title(place, "manager"), new_title(place, "manager")

    assert one[:36] != other[:36]
    assert max(len(one.encode()), len(other.encode())) <= 63


def test_children_of_an_owner_hold_no_socket_of_the_database(database, make):
    """Neither one that was forked, nor one that was started anew, keeps the lock of an owner alive."""
    database.commit([make.new("a", 1)], 1, 1)
    database.procedure("a")
    port = database_or_skip().port
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            held = len(sockets_to(os.getpid(), port))
            try:
                database.procedure("a")
                said = "it read"
            except EngineError as error:
                said = str(error)
            database.close()
            os.write(writer, f"{held} {said}".encode())
            signal.pause()
        finally:
            os._exit(0)
    started = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        said = os.read(reader, 4096).decode()
        assert sockets_to(os.getpid(), port), "the owner itself has some"
        assert said.startswith("0 ")
        assert "forked child" in said
        assert sockets_to(child, port) == sockets_to(started.pid, port) == []
        database.commit([make.new("b", 2)], 1, 2)
        database.close()
        assert database.own() == 2
    finally:
        for pid in (child, started.pid):
            os.kill(pid, signal.SIGKILL)
        os.waitpid(child, 0)
        started.wait()
        os.close(reader)
        os.close(writer)


def sockets_to(pid, port):
    """Descriptors of a process that are sockets to a port of this machine."""
    inodes = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if int(words[2].rpartition(":")[2], 16) == port:
            inodes.add(f"socket:[{words[9]}]")
    found = []
    for place in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            if str(place.readlink()) in inodes:
                found.append(place.name)
    return found


def test_reads_in_the_plural_take_one_round_trip_each(database, make, monkeypatch):
    """The manager's thread waits for them."""
    names = [f"p{n:03d}" for n in range(100)]
    done = {"state": SUCCESS, "finished_at": 1.0, "records": 40}
    database.commit([make.new(name, n + 1, **done) for n, name in enumerate(names)], 1, 1)
    database.commit([make.step(name, n + 1) for name in names for n in range(40)], 1, 2)
    database.commit([make.undo(name, 1) for name in names], 1, 3)
    asked = []
    plain = Session.ask

    def ask(session, questions, within):
        asked.append(len(questions))
        return plain(session, questions, within)

    monkeypatch.setattr(Session, "ask", ask)

    def trips(read):
        asked.clear()
        found = read()
        assert found
        return len(asked)

    assert trips(lambda: database.procedures(names)) == 1
    assert trips(lambda: database.states([(name, 1) for name in names])) == 1
    assert trips(lambda: database.finished_trees(names[:32], 256)) == 1
    assert trips(lambda: database.tree(names[0])) == 1
    assert trips(lambda: database.procedure(names[0])) == 1
    assert trips(lambda: database.step(names[0], 1)) == 1
    assert trips(lambda: database.ending(names[0])) <= 2
    assert trips(lambda: list(database.scan())) <= 4
    assert trips(lambda: database.steps(names[0])) <= 5


def test_a_step_log_of_thousands_of_records_goes_in_one_commit(database, make):
    many = 3000
    head = make.head("a", 1, records=many, state=SUCCESS, finished_at=1.0)
    database.commit([make.put(head), *(make.step("a", n + 1) for n in range(many)), make.step("ab", 7)], 1, 1)

    database.commit([DeleteProcedure(head), make.new("a", 2), make.step("a", 1)], 1, 2)

    assert [record.number for record in database.steps("a")] == [1]
    assert database.step("a", 2) is database.step("a", many) is None
    assert database.step("ab", 7) is not None


def test_long_values_are_scanned_in_parts(database, make):
    content = os.urandom(3 << 20)
    database.commit([make.event(f"p{n}", 1, content) for n in range(5)], 1, 1)

    for reverse in (False, True):
        with database._view() as rows:
            found = [key[:2] for key, _ in rows.scan(Table.EVENTS, reverse=reverse)]
        assert found == sorted((b"p%d" % n for n in range(5)), reverse=reverse)


def test_a_connection_that_no_longer_answers_ends_at_the_deadline(database, admin):
    session = connect(database.place, "commit", "waits")

    with pytest.raises(DatabaseFailure, match="did not answer in time"):
        session.ask([(Statement(b"SELECT pg_sleep(60)"), ())], 0.2)

    assert session.is_broken
