"""Roles of a store in a database: managers, hosts, and lookers, as `actorproc grants` makes them, on a real server."""

from __future__ import annotations

import json
import subprocess

import pytest

from actorproc import Config, NotAllowed, ProcedureClient, ProcedureManager, Saga, StoreReader, step
from actorproc.cli.main import main
from actorproc.errors import EngineError
from actorproc.postgres import enqueue
from actorproc.store.home import home_of
from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.schema.grants import grants
from actorproc.store.postgres.schema.statements import OWN_TABLES
from actorproc.store.postgres.sessions import Statement
from actorproc.store.rows.tables import Table
from actorproc.testing.database_server import find_server
from tests.databases import database_or_skip, new_store
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes
ROLES = {"owner": "roles_owner", "host": "roles host", "looker": 'the "looker"', "enqueuer": "roles_enqueuer"}


class Waits(Saga):
    @step
    def first(self, ctx):
        return 1


def as_role(url, role):
    return url.replace("actorproc@", f"{role.replace(' ', '%20').replace(chr(34), '%22')}@")


def run_sql(lines):
    """As an administrator does: with psql, which stops at an error."""
    server = database_or_skip()
    command = [str(find_server() / "psql"), "-v", "ON_ERROR_STOP=1", "-qX", server.url()]
    done = subprocess.run(command, input="\n".join(lines), text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The URLs of each role to a store that the managers' role has made."""
    database_or_skip()
    url = new_store()
    sql = grants(place_of(url), **ROLES)
    assert "run this again" in run_sql(sql)
    found = {name: as_role(url, role) for name, role in ROLES.items()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state-home")))
        with ProcedureManager(found["owner"], procedures=[Waits], workers=1) as manager:
            manager.submit(Waits(), id="w", delay=3600)
    for _ in range(2):
        assert "run this again" not in run_sql(sql)
    yield found
    run_sql(
        [
            f'DROP SCHEMA {place_of(url).schema} CASCADE; DROP ROLE "roles_owner", "roles host", "the ""looker""", "roles_enqueuer";'
        ]
    )


@pytest.fixture
def urls(made, tmp_path, monkeypatch):
    """The same, for one test, which changes nothing in the store."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    database_or_skip()
    return made


def is_refused(session, sql):
    try:
        session.ask([(Statement(sql.encode(), once=True), ())], 10.0)
    except DatabaseFailure as failure:
        return failure.state == "42501"
    return False


def test_each_role_reads_what_it_may_and_writes_nothing(urls):
    schema = place_of(urls["owner"]).schema
    sessions = {role: connect(place_of(url), "look", "a test") for role, url in urls.items()}
    every = [f'{schema}."{name}"' for name in (*OWN_TABLES, *(table.label for table in Table))]
    readable = {
        role: {name for name in every if not is_refused(sessions[role], f"SELECT * FROM {name} LIMIT 1")}
        for role in ROLES
    }

    assert readable["owner"] == set(every)
    assert readable["host"] == {f'{schema}."leader"'}
    assert readable["looker"] == set(every) - {f'{schema}."leader"', f'{schema}."keys"'}
    assert readable["enqueuer"] == set()
    assert is_refused(sessions["looker"], f"SELECT secret FROM {schema}.leader")
    assert not is_refused(sessions["looker"], f"SELECT epoch, address, certificate FROM {schema}.leader")
    for role in ("host", "looker", "enqueuer"):
        for name in every:
            assert is_refused(sessions[role], f"DELETE FROM {name}")
    for session in sessions.values():
        session.close()


BEYOND_ENQUEUEING = (
    *("UPDATE {} SET {column} = {column}", "TRUNCATE {}", "DROP TABLE {}", "ALTER TABLE {} DROP COLUMN {column}"),
    *("COPY {} TO STDOUT", "DO $$ BEGIN LOCK TABLE {} IN EXCLUSIVE MODE; END $$", "CREATE INDEX ON {} ({column})"),
    "CREATE RULE r AS ON INSERT TO {} DO INSTEAD NOTHING",
)
"""Statements about a table."""


def test_an_enqueuer_enqueues_and_can_do_nothing_else(urls):
    psycopg = pytest.importorskip("psycopg")
    place = place_of(urls["owner"])
    schema, enqueued = place.schema, f'{place.schema}."enqueued"'
    with psycopg.connect(place_of(urls["enqueuer"]).url) as connection:
        enqueue(connection, Waits(), id="by-the-enqueuer", store=place.store)
        connection.commit()
    owner, enqueuer = (connect(place_of(urls[role]), "look", "a test") for role in ("owner", "enqueuer"))

    allowed = []
    for name in (*OWN_TABLES, *(table.label for table in Table)):
        (answer,) = owner.ask([(Statement(_columns(place.store, name), once=True), ())], 10.0)
        columns = [answer.get_value(row, 0).decode() for row in range(answer.ntuples)]
        tried = [text.replace("{column}", columns[0]).replace("{}", f'{schema}."{name}"') for text in BEYOND_ENQUEUEING]
        if name != "enqueued":
            tried.append(f'INSERT INTO {schema}."{name}" DEFAULT VALUES')
        allowed += [sql for sql in tried if not is_refused(enqueuer, sql)]
    row = f"INSERT INTO {enqueued} (k, v) VALUES ('k', 'v')"
    others = (
        *(f"{row} RETURNING k", f"{row} ON CONFLICT (k) DO UPDATE SET v = 'w'", f"SELECT count(*) FROM {enqueued}"),
        *(f"CREATE TABLE {schema}.own (a int)", f"DROP SCHEMA {schema} CASCADE", f'SET ROLE "{ROLES["owner"]}"'),
    )
    allowed += [sql for sql in others if not is_refused(enqueuer, sql)]

    assert allowed == []
    (answer,) = owner.ask([(Statement(f"SELECT k FROM {enqueued}".encode(), once=True), ())], 10.0)
    assert answer.ntuples == 1
    for session in (owner, enqueuer):
        session.ask([(Statement(b"SELECT 1", once=True), ())], 10.0)
        session.close()
    with ProcedureManager(urls["owner"], procedures=[Waits], workers=1) as manager:
        assert wait_until(lambda: {info.id for info in manager.list()} == {"w", "by-the-enqueuer"})
        manager.get("by-the-enqueuer").result(timeout=30)
        manager.delete("by-the-enqueuer")


def _columns(schema, table):
    columns = "SELECT column_name::text::bytea FROM information_schema.columns WHERE"
    return f"{columns} table_schema = '{schema}' AND table_name = '{table}' ORDER BY ordinal_position".encode()


def test_commands_that_look_work_with_a_lookers_url_and_verbs_are_refused_in_words(urls, capsys):
    looker = urls["looker"]
    with ProcedureManager(urls["owner"], procedures=[Waits], workers=1, config=Config(lease=2.0)):
        for command in ("list", "show w", "steps w", "why w", "tree w", "status", "leader", "doctor", "states w"):
            code = main([*command.split(), "--path", looker])
            told = capsys.readouterr()
            assert (code, "Traceback" in told.err) == (0, False), (command, told)
        main(["why", "w", "--path", looker])
        assert "may only look" in capsys.readouterr().err
        for command in ("abort w", "pause w", "watch", "leader --step-down"):
            assert main([*command.split(), "--path", looker]) != 0
            told = capsys.readouterr()
            assert "this login may only look" in told.out + told.err, command
        with StoreReader(looker) as reader, ProcedureClient(looker) as client:
            assert [info.id for info in reader.list()] == ["w"]
            assert reader.why("w").procedure == "w"
            with pytest.raises(NotAllowed, match="actorproc grants"):
                client.abort("w")
    assert home_of(looker).keys() == ()
    # Nothing runs: what would be done to the stopped store is refused by the database.
    assert main(["abort", "w", "--path", looker]) != 0
    told = capsys.readouterr()
    assert "permission denied" in told.out + told.err
    with pytest.raises(EngineError, match=r"lacks a permission.*actorproc grants"):
        ProcedureManager(looker, procedures=[Waits]).start()


def test_a_host_learns_who_leads_and_nothing_more(urls):
    with ProcedureManager(urls["owner"], procedures=[Waits], workers=1):
        leader = home_of(urls["host"]).leader()

        assert leader.leads
        assert leader.address
        assert len(leader.secret) >= 16
        with pytest.raises(EngineError, match="permission"):
            StoreReader(urls["host"])


def test_the_command_prints_sql_that_runs_and_names_the_roles(urls, capsys):
    place = place_of(urls["owner"])
    assert main(["grants", "--path", urls["owner"], "--owner", "a", "--looker", "c", "-o", "json"]) == 0
    found = json.loads(capsys.readouterr().out)

    assert (found["owner"], found["host"], found["looker"]) == ("a", f"{place.store}_host", "c")
    assert found["sql"].split("\n") == grants(
        place, owner="a", host=f"{place.store}_host", looker="c", enqueuer=f"{place.store}_enqueuer"
    )


def test_a_directory_has_no_roles(tmp_path, capsys):
    assert main(["grants", "--path", str(tmp_path)]) == 2
    assert "Roles are of a database" in capsys.readouterr().err


def test_the_doctor_names_the_session_that_holds_the_oldest_snapshot_and_the_last_vacuum(urls, capsys, monkeypatch):
    monkeypatch.setattr("actorproc.store.postgres.schema.vacuum.OLD_SNAPSHOT", -1)
    holder = connect(place_of(urls["owner"]), "look", "forgotten")
    begin = Statement(b"BEGIN ISOLATION LEVEL REPEATABLE READ", once=True)
    holder.ask([(begin, ()), (Statement(b"SELECT 1", once=True), ())], 10.0)

    assert main(["doctor", "--path", urls["owner"]]) == 0
    shown = capsys.readouterr().out
    assert f"of process {holder.pid} (forgotten) of the role {ROLES['owner']}" in shown
    assert "vacuumed" in shown
    assert "keeps vacuum from removing old rows" in shown

    with ProcedureManager(urls["owner"], procedures=[Waits], workers=1, config=Config(lease=0.9)) as manager:
        wait_until(lambda: any("(forgotten)" in said for said in manager.health().problems))
        assert manager.health().ok
    holder.close()
