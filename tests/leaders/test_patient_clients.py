"""Clients with patience: each refusal of the moment, of the database or of the leader, is waited out."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, EngineError, ManagerStopped, ProcedureClient, ProcedureManager, StorageUnavailable
from actorproc.store.postgres.failures import DatabaseFailure, explained, is_temporary
from actorproc.testing.torture.cluster.proxy import Proxy
from tests.kit.procedures import Add, Nap
from tests.kit.waiting import BOUND, wait_until
from tests.leaders.conftest import through

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]

REFUSALS = {
    "57P03": "the database system is starting up",
    "57P02": "terminating connection because of crash of another server process",
    "57P01": "terminating connection due to administrator command",
    "53300": "sorry, too many clients already",
    "53400": "configured limit exceeded",
    "08006": "connection failure",
    "08004": "the server rejected the connection",
    "25006": "the server is in hot standby mode",
    "58030": "could not read a file",
    "XX000": "cache lookup failed",
}
"""Errors of a database that may pass, by SQLSTATE."""


def refusal(state: str) -> bytes:
    """The answer of a server that takes no connection, as PostgreSQL says it."""
    body = b"SFATAL\0VFATAL\0C" + state.encode() + b"\0M" + REFUSALS[state].encode() + b"\0\0"
    return b"E" + struct.pack(">I", len(body) + 4) + body


def config(lease: float = 30.0, **options) -> Config:
    return Config(
        lease=lease, spares=0, allow_any_filesystem=True, commit_backoff=0.05, commit_backoff_cap=0.2, **options
    )


@pytest.fixture
def open_manager():
    opened = []

    def make(url: str, **options) -> ProcedureManager:
        opened.append(ProcedureManager(url, procedures=[Add, Nap], workers=1, config=config(**options)))
        return opened[-1].start()

    yield make
    for manager in reversed(opened):
        manager.stop(drain=False, timeout=5.0)


def tried(proxy: Proxy, count: int = 3) -> None:
    """Wait until this number of further connections came."""
    before = proxy.connections
    wait_until(lambda: proxy.connections >= before + count)


class Call:
    """A call on a thread of its own."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._found: list[object] = []
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call: Callable[[], object]) -> None:
        try:
            self._found.append(call())
        except Exception as error:  # noqa: BLE001 - it is compared
            self._found.append(error)

    @property
    def is_over(self) -> bool:
        return bool(self._found)

    def outcome(self) -> object:
        self._thread.join(BOUND)
        assert not self._thread.is_alive()
        return self._found[0]


# ---------------------------------------------------------------- the database
FIRST, AGAIN, READING = "first call", "after its link was lost", "reading"


ALL = [(stage, how) for stage in (FIRST, AGAIN, READING) for how in (*REFUSALS, "closed at once", "silent")]
CHOSEN = [
    (FIRST, "57P03"),
    (FIRST, "silent"),
    (AGAIN, "53300"),
    (AGAIN, "25006"),
    (READING, "57P01"),
    (READING, "08004"),
]


@pytest.mark.parametrize(("stage", "how"), ALL if "ACTORPROC_LEADER_FAILURES" in os.environ else CHOSEN)
def test_a_database_that_takes_no_connection_for_a_moment_is_waited_for(shared_leader, proxy, stage, how):
    url, manager = shared_leader
    address = through(url, proxy) + "&sslmode=disable&connect_timeout=1"
    with ProcedureClient(address, patience=BOUND, config=config()) as client:
        if stage != FIRST:
            assert client.run(Add(1, 1)) == 2
        refuse(proxy, how)
        if stage == AGAIN:
            client._engine._channel._stream.hang_up()
        if stage == READING:
            handle = manager.submit(Add(2, 3))
            assert handle.result(BOUND) == 5
            proxy.cut()
            call = Call(lambda: client.info(handle.id).state)
        else:
            call = Call(lambda: client.run(Add(2, 3)))
        tried(proxy, 1 if how == "silent" else 3)
        assert not call.is_over
        proxy.says, proxy.refuses = None, False
        proxy.release()
        assert call.outcome() == ("SUCCESS" if stage == READING else 5)


def refuse(proxy: Proxy, how: str) -> None:
    if how == "silent":
        proxy.hold()
    elif how in REFUSALS:
        proxy.says = refusal(how)
    else:
        proxy.refuses = True


@pytest.fixture(scope="module")
def shared_leader(server):
    from tests.databases import new_store
    from tests.leaders.conftest import ROLE

    url = new_store().replace("//actorproc@", f"//{ROLE}@")
    manager = ProcedureManager(url, procedures=[Add, Nap], workers=1, config=config()).start()
    yield url, manager
    manager.stop(drain=False, timeout=5.0)


@pytest.mark.parametrize("state", ["57P03", "53300"])
def test_when_its_patience_is_over_a_client_says_why(shared_leader, proxy, state):
    url, _ = shared_leader
    proxy.says = refusal(state)
    with ProcedureClient(through(url, proxy) + "&sslmode=disable", patience=0.5, config=config()) as client:
        begun = time.monotonic()
        with pytest.raises(StorageUnavailable, match=REFUSALS[state]):
            client.run(Add(1, 2))
        assert time.monotonic() - begun < 10.0


@pytest.mark.parametrize("url", ["postgresql://nobody_here@{host}/postgres", "postgresql://actorproc@{host}/no_such"])
def test_a_login_or_a_name_that_is_wrong_is_not_waited_for_by_a_read(server, shared_leader, url):
    del shared_leader
    client = ProcedureClient(url.format(host=f"127.0.0.1:{server.port}"), patience=BOUND, config=config())
    begun = time.monotonic()
    with client, pytest.raises(EngineError) as raised:
        client.info("x")
    assert not isinstance(raised.value, StorageUnavailable)
    assert time.monotonic() - begun < BOUND / 3


def test_a_client_that_is_closed_waits_no_longer(shared_leader, proxy):
    url, _ = shared_leader
    proxy.refuses = True
    client = ProcedureClient(through(url, proxy), patience=10 * BOUND, config=config())
    call = Call(lambda: client.info("x"))
    tried(proxy)
    begun = time.monotonic()
    client.close()
    assert isinstance(call.outcome(), (StorageUnavailable, ManagerStopped))
    assert time.monotonic() - begun < 5.0


def test_keys_that_cannot_be_read_for_a_moment_are_not_taken_for_none(shared_leader, proxy):
    url, manager = shared_leader
    with ProcedureClient(through(url, proxy), patience=0.2, config=config()) as client:
        proxy.refuses = True
        with pytest.raises(StorageUnavailable):
            client._types.signing_key  # noqa: B018 - it is read
        proxy.refuses = False
        assert client._types.signing_key == manager._home.keys()


@pytest.mark.parametrize(
    ("state", "text"),
    [*REFUSALS.items(), *(("", text) for text in REFUSALS.values() if "configured" not in text), ("08P01", "odd")],
)
def test_an_error_of_the_moment_is_one_by_its_number_or_by_its_words(state, text):
    assert is_temporary(DatabaseFailure(text, state))
    assert isinstance(explained(DatabaseFailure(text, state), "reading"), StorageUnavailable)


@pytest.mark.parametrize("state", ["28000", "28P01", "3D000", "3F000", "42501", "42P01"])
def test_an_error_that_waiting_does_not_mend_is_told_at_once(state):
    assert not is_temporary(DatabaseFailure("refused", state))
    assert type(explained(DatabaseFailure("refused", state), "reading")) is EngineError


# ---------------------------------------------------------------- the leader
@pytest.mark.parametrize("kind", ["submit", "run", "future", "many", "signal", "pause"])
def test_a_leader_whose_store_is_away_is_asked_again(open_manager, url, proxy, kind):
    leader = open_manager(through(url, proxy))
    with ProcedureClient(url, patience=BOUND, config=config()) as client:
        assert client.run(Add(1, 1)) == 2
        proxy.refuses = True
        proxy.cut()
        first = Call(lambda: client.run(Add(1, 2), id="begins-the-outage"))
        wait_until(lambda: leader.health().status == "storage-trouble")
        calls = {
            "submit": lambda: client.submit(Add(2, 3), id="n").result(BOUND),
            "run": lambda: client.run(Add(2, 3), id="n"),
            "future": lambda: client.submit(Add(2, 3), id="n").future().result(BOUND),
            "many": lambda: client.submit_many([("n", Add(2, 3))])[0].result(BOUND),
            "signal": lambda: client.signal("begins-the-outage", "hello") and 5,
            "pause": lambda: client.pause() and client.resume() and 5,
        }
        call = Call(calls[kind])
        wait_until(lambda: kind in {"signal", "pause"} or refusals(client) > 1)
        proxy.refuses = False
        assert call.outcome() == 5
        assert first.outcome() == 3
        assert len(list(client.list())) == (3 if kind not in {"signal", "pause"} else 2)


def refusals(client: ProcedureClient) -> int:
    return max((one.refusals for one in list(client._engine._channel._pending.values())), default=0)


def test_a_refusal_of_the_leader_is_told_when_the_patience_is_over(open_manager, url, proxy):
    leader = open_manager(through(url, proxy))
    with ProcedureClient(url, patience=1.0, config=config()) as client:
        assert client.run(Add(1, 1)) == 2
        proxy.refuses = True
        proxy.cut()
        first = Call(lambda: leader.run(Add(1, 2), id="begins-the-outage"))
        wait_until(lambda: leader.health().status == "storage-trouble")
        begun = time.monotonic()
        with pytest.raises(StorageUnavailable, match="cannot be used at the moment"):
            client.submit(Add(2, 3))
        assert 0.5 < time.monotonic() - begun < 10.0
        proxy.refuses = False
        assert first.outcome() == 3


@pytest.fixture
def link_proxy():
    """A port to listen on, and a proxy in front of it."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    with Proxy("127.0.0.1", port) as proxy:
        yield port, proxy


def cut_after(proxy: Proxy, direction: str, pieces: int, times: int) -> list[int]:
    """Cut the first connections after this number of pieces in one direction; a list with what is left to cut."""
    left, seen = [times], {}

    def watch(way: str, data: bytes) -> bytes:
        if way == direction and left[0]:
            here = threading.get_ident()
            seen[here] = seen.get(here, 0) + 1
            if seen[here] > pieces:
                left[0] -= 1
                raise ConnectionResetError
        return data

    proxy.watch = watch
    return left


@pytest.mark.parametrize(
    ("direction", "pieces"),
    [("up", 0), ("down", 0), ("up", 1), ("down", 1), ("up", 2), ("down", 2), ("up", 3)],
    ids=str,
)
def test_a_link_that_is_cut_in_its_handshake_or_behind_it_is_made_again(
    open_manager, url, link_proxy, direction, pieces
):
    port, proxy = link_proxy
    open_manager(url, listen=f"127.0.0.1:{port}", advertise=f"127.0.0.1:{proxy.port}")
    left = cut_after(proxy, direction, pieces, 3)
    with ProcedureClient(url, patience=BOUND, config=config()) as client:
        assert client.run(Add(2, 3), id="once") == 5
        assert left == [0]
        assert len(list(client.list())) == 1
        assert len(list(client.steps("once"))) == 2


def test_an_answer_that_was_lost_is_asked_for_with_the_same_id(open_manager, url, link_proxy):
    port, proxy = link_proxy
    leader = open_manager(url, listen=f"127.0.0.1:{port}", advertise=f"127.0.0.1:{proxy.port}")
    with ProcedureClient(url, patience=BOUND, config=config()) as client:
        assert client.run(Add(1, 1)) == 2
        proxy.hold("down")
        call = Call(lambda: client.submit(Add(2, 3)).result(BOUND))
        wait_until(lambda: len(list(leader.list())) == 2)
        proxy.cut()
        proxy.release()
        assert call.outcome() == 5
        assert len(list(client.list())) == 2


def test_a_leader_that_stops_in_an_outage_is_followed_by_the_next_one(open_manager, url, proxy):
    leader = open_manager(through(url, proxy))
    with ProcedureClient(url, patience=BOUND, config=config()) as client:
        assert client.run(Add(1, 1)) == 2
        proxy.refuses = True
        proxy.cut()
        calls = [Call(lambda number=number: client.run(Add(number, 1), id=f"n{number}")) for number in range(3)]
        wait_until(lambda: leader.health().status == "storage-trouble")
        leader.stop(drain=False, timeout=0.0)
        open_manager(url)
        assert [call.outcome() for call in calls] == [1, 2, 3]


def test_without_a_leader_a_client_waits_for_its_patience_and_says_so(open_manager, url):
    leader = open_manager(url)
    with ProcedureClient(url, patience=1.0, config=config()) as client:
        assert client.run(Add(1, 1)) == 2
        leader.stop()
        with pytest.raises(ManagerStopped, match="no manager leads"):
            client.run(Add(1, 2))
