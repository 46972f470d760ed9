"""Databases that behave oddly: settings of a role that hurt, a server that says goodbye twice, a slow line with TLS."""

from __future__ import annotations

import os
import pwd
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, Procedure, ProcedureClient, ProcedureManager, Status
from actorproc.errors import EngineError
from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.sessions import Statement
from actorproc.testing.database_server import DatabaseServer
from actorproc.testing.torture.cluster.proxy import Proxy
from tests.databases import database_or_skip
from tests.kit.procedures import Add, Nap
from tests.kit.waiting import BOUND, wait_until
from tests.leaders.conftest import ask

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]
LEASE = 1.0


def config(**options) -> Config:
    return Config(lease=LEASE, allow_any_filesystem=True, commit_backoff=0.05, commit_backoff_cap=0.2, **options)


def leads(manager: ProcedureManager) -> bool:
    return manager._tree.leads


@pytest.fixture
def open_manager():
    opened = []

    def make(url: str, procedures: tuple = (Add, Nap), **options) -> ProcedureManager:
        made = ProcedureManager(url, procedures=procedures, workers=2, config=config(**{"spares": 0} | options))
        opened.append(made)
        return made.start()

    yield make
    for manager in reversed(opened):
        manager.stop(drain=False, timeout=5.0)


# ---------------------------------------------------------------- settings
HOSTILE = {
    "statement_timeout": "1ms",
    "lock_timeout": "1ms",
    "idle_in_transaction_session_timeout": "1ms",
    "idle_session_timeout": "1ms",
    "transaction_timeout": "1ms",
    "default_transaction_isolation": "serializable",
    "default_transaction_deferrable": "on",
    "search_path": "nowhere",
    "enable_indexscan": "off",
    "plan_cache_mode": "force_custom_plan",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "client_encoding": "LATIN1",
    "DateStyle": "German",
    "IntervalStyle": "iso_8601",
    "TimeZone": "Pacific/Apia",
    "extra_float_digits": "-15",
    "row_security": "off",
    "quote_all_identifiers": "on",
    "check_function_bodies": "off",
    "session_replication_role": "replica",
    "xmloption": "document",
    "work_mem": "64kB",
    "tcp_keepalives_idle": "7200",
    "client_min_messages": "error",
    "vacuum_freeze_min_age": "0",
}


def test_settings_of_a_role_that_hurt_reach_no_session_of_leader_follower_or_client(server, open_manager):
    """Each of them was a default of some service, or of an administrator of one."""
    role = "hostile_user"
    ask(server.url(), f"CREATE ROLE {role} LOGIN", f"GRANT CREATE ON DATABASE postgres TO {role}")
    known = {name for (name,) in ask(server.url(), "SELECT lower(name) FROM pg_settings")}
    given = [name for name in HOSTILE if name.lower() in known]
    assert len(given) >= len(HOSTILE) - 1  # transaction_timeout came with PostgreSQL 17
    ask(server.url(), *(f"ALTER ROLE {role} SET {name} = '{HOSTILE[name]}'" for name in given))
    url = server.url("hostile").replace("//actorproc@", f"//{role}@")
    leader, follower = open_manager(url), open_manager(url)
    wait_until(follower._home.candidates)
    with ProcedureClient(url, patience=BOUND, config=config()) as client:
        assert client.run(Add(1, 2), id="one", tags=["grün é"]) == 3
        handle = client.submit(Nap(2 * LEASE), id="nap")
        begun = time.monotonic()
        wait_until(lambda: time.monotonic() - begun > 2 * LEASE)  # idle sessions, and one that waits for the lock
        assert leads(leader)
        leader._tree.step_down()
        assert handle.result(BOUND) == "rested"
        wait_until(lambda: leads(follower))
        assert list(client.info("one").tags) == ["grün é"]
        assert len(list(client.list())) == 2
        assert len(list(client.steps("nap"))) >= 2


# ---------------------------------------------------------------- children
class Forks(Procedure):
    """A step that forks a child, which outlives it for a while."""

    def execute(self, ctx):
        if os.fork() == 0:
            time.sleep(600)
            os._exit(0)
        return Status.done(os.getpid())


def descendants(pid: int) -> set[int]:
    """Processes below this one."""
    parents: dict[int, list[int]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            words = path.read_text().rpartition(") ")[2].split()
        except OSError:
            continue
        parents.setdefault(int(words[1]), []).append(int(path.parent.name))
    found, new = set(), [pid]
    while new:
        children = parents.get(new.pop(), [])
        found.update(children)
        new += children
    return found


def test_no_child_of_a_leader_holds_a_socket_of_the_database(open_manager, url, server):
    """Workers, spares, keepers, and what steps start, also after a change of leaders and a restart of workers."""
    from tests.store.test_database_store import sockets_to

    first = open_manager(url, (Add, Nap, Forks), spares=1)
    second = open_manager(url, (Add, Nap, Forks), spares=1)
    for round_ in range(2):
        leader = wait_until(lambda: next(filter(leads, (first, second)), None))
        workers = {leader.run(Forks(), id=f"r{round_}-{number}", timeout=BOUND) for number in range(3)}
        os.kill(min(workers), 9)
        leader.run(Add(1, 2), timeout=BOUND)
        assert sockets_to(os.getpid(), server.port)
        below = descendants(os.getpid())
        assert len(below) >= 3
        held = {pid: sockets_to(pid, server.port) for pid in below if Path(f"/proc/{pid}/fd").exists()}
        servers = {pid for pid in held if "postgres" in _name_of(pid)}  # of the tests, which started it
        assert {pid: found for pid, found in held.items() if found and pid not in servers} == {}
        leader._tree.step_down()
        wait_until(lambda leader=leader: not leads(leader) and any(map(leads, (first, second))))


def _name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return "postgres"


# ---------------------------------------------------------------- the line
def fatal(state: str, text: str) -> bytes:
    body = b"SFATAL\0VFATAL\0C" + state.encode() + b"\0M" + text.encode() + b"\0\0"
    return b"E" + struct.pack(">I", len(body) + 4) + body


TWICE = fatal("57P01", "terminating connection due to administrator command") + fatal("08P01", "server conn crashed?")


@pytest.mark.parametrize("then", ["ends", "is silent", "says more"])
def test_two_fatal_errors_in_one_answer_end_the_waiting(server, url, then):
    """As of a dying server, or of a pooler whose server dies: libpq's own loop would go on for ever."""
    with Proxy("127.0.0.1", server.port) as proxy:
        place = place_of(url.replace(f":{server.port}", f":{proxy.port}") + "&sslmode=disable")
        session = connect(place, "commit", "a test")

        def watch(direction: str, data: bytes) -> bytes:
            if direction == "up":
                return data
            if then == "ends":
                threading.Timer(0.1, proxy.cut).start()
            return TWICE + (data if then == "says more" else b"")

        proxy.watch = watch
        asked = [(Statement(f"SELECT {number}::bigint".encode()), ()) for number in range(3)]
        begun = time.monotonic()
        with pytest.raises(DatabaseFailure) as raised:
            session.ask(asked, 1.0)
        assert time.monotonic() - begun < 5.0
        assert raised.value.state in {"57P01", "08006", "08P01"}
        with pytest.raises(DatabaseFailure):
            session.ask(asked, 1.0)
        session.close()


LARGE = """
import os, sys
import msgspec
from psycopg import pq
from actorproc.model.rows.writes import PutStep
from actorproc.store.postgres.store import DatabaseStore
from actorproc.testing.store_suite import Writes
store = DatabaseStore(sys.argv[1], allow_unsynced=True)
epoch = store.own()
assert store._session.is_encrypted
state = os.urandom(1 << 20)
records = [msgspec.structs.replace(Writes.step("a", number).record, state=state) for number in range(1, 65)]
writes = [PutStep(record) for record in records]
store.commit([Writes.new("a", 1, records=64), *writes], epoch, 1)
assert [record.number for record in store.steps("a")] == list(range(1, 65))
assert store.step("a", 64).state == state
store.close()
print(pq.__impl__)
"""


@pytest.fixture(scope="module")
def encrypted():
    """A server that takes connections over TLS alone."""
    database_or_skip()
    from tests.link.test_links import write

    server = DatabaseServer(settings=["ssl=on", "ssl_cert_file=../cert.pem", "ssl_key_file=../key.pem"])
    for path in write(server.directory, "here"):
        Path(path).chmod(0o600)
        if os.geteuid() == 0:
            os.chown(path, pwd.getpwnam("postgres").pw_uid, -1)
    try:
        server.start()
    except EngineError as error:
        server.close()
        if "SSL is not supported by this build" not in str(error):
            raise
        pytest.skip("this PostgreSQL was built without TLS")  # that of the wheel
    yield server
    server.close()


@pytest.mark.parametrize("implementation", ["binary", "python"])
def test_a_commit_of_64_mib_goes_over_a_slow_line_with_tls(encrypted, implementation):
    """In parts, and reading meanwhile: with a pipeline in one piece both ends wait for each other."""
    with Proxy("127.0.0.1", encrypted.port) as proxy:
        proxy.delay = 0.0005
        url = encrypted.url(f"large_{implementation}", sslmode="require")
        url = url.replace(f":{encrypted.port}", f":{proxy.port}")
        environment = os.environ | {"PSYCOPG_IMPL": implementation}
        done = subprocess.run(
            [sys.executable, "-c", LARGE, url],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
            env=environment,
            cwd=Path(__file__).parents[2],
        )
    if "no pq wrapper available" in done.stderr or "couldn't import psycopg" in done.stderr:
        pytest.skip(f"psycopg has no implementation {implementation!r} here")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [implementation]
