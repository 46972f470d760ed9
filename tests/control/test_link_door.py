"""The door over links: what a client of the socket can do, one on another machine can do as well, and no stranger."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

import actorproc.api.client as client_module
import actorproc.api.manager as manager_module
from actorproc import Config, EngineError, ManagerStopped, ProcedureClient, ProcedureManager, UnknownProcedure
from actorproc.control import link_door
from actorproc.control.link_door import LinkEntrance
from actorproc.store.home import DirectoryHome
from actorproc.store.shared import Leader
from actorproc.testing.torture.cluster.proxy import Proxy
from actorproc.workers.link.addresses import published_address
from actorproc.workers.link.certificates import LinkCertificate, made_credentials
from actorproc.workers.link.handshake import LinkRole
from actorproc.workers.link.listener import LinkListener
from tests.kit.procedures import Add
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes

SILENCE = 1.0


class Row:
    """A leader's row, held by the test."""

    def __init__(self) -> None:
        self.leader: Leader | None = None
        self.error: Exception | None = None
        self.newer: list[int] = []

    def publish(self, **changes) -> None:
        import msgspec

        self.leader = msgspec.structs.replace(self.leader, **changes)


class LinkedHome(DirectoryHome):
    """A directory whose manager is found through a row."""

    row: Row

    def leader(self) -> Leader | None:
        if self.row.error is not None:
            raise self.row.error
        return self.row.leader


@pytest.fixture
def row(monkeypatch, tmp_path) -> Iterator[Row]:
    row = Row()
    credentials = made_credentials("here")

    def home_of(path) -> LinkedHome:
        home = LinkedHome(str(path))
        home.row = row
        home.door = None
        return home

    def entrance(self) -> LinkEntrance:
        listener = row.listener = LinkListener(
            "127.0.0.1", 0, certificate=LinkCertificate(credentials), secret=bytes(32), silence=SILENCE
        )
        row.leader = Leader(
            1,
            "process 1 on here",
            published_address("127.0.0.1", listener.port),
            credentials.pin,
            bytes(32),
            0.0,
            1.0,
            leads=True,
        )
        return LinkEntrance(listener, row.newer.append)

    monkeypatch.setattr(manager_module, "home_of", home_of)
    monkeypatch.setattr(client_module, "home_of", home_of)
    monkeypatch.setattr(ProcedureManager, "_entrance", entrance)
    return row


@pytest.fixture
def manager(row, tmp_path):
    with ProcedureManager(tmp_path / "state", workers=1, config=Config(spares=0), procedures=[Add]) as manager:
        yield manager


@pytest.fixture
def client(row, manager, tmp_path):
    with ProcedureClient(tmp_path / "state", patience=BOUND) as client:
        yield client


def test_a_client_submits_waits_watches_and_steers_through_a_link(client, manager):
    assert client.run(Add(2, 3)) == 5
    handle = client.submit(Add(4, 5), id="kept")
    assert handle.result(BOUND) == 9
    assert client.info("kept").state == "SUCCESS"
    with pytest.raises(UnknownProcedure):
        client.abort("none")
    assert client.health().status == "running"
    assert len(client.workers()) == 1


def test_an_answer_longer_than_a_record_of_tls_arrives(client, manager):
    handles = client.submit_many([Add(number, number) for number in range(2000)])
    assert [handle.result(BOUND) for handle in handles] == [2 * number for number in range(2000)]


def test_a_silent_client_and_a_silent_manager_stay_connected(client, manager):
    assert client.run(Add(1, 1)) == 2
    before = client._engine._channel._stream
    time.sleep(2.5 * SILENCE)  # signs of life are what this is about
    assert client.run(Add(1, 2)) == 3
    assert client._engine._channel._stream is before


def test_a_cut_connection_is_made_again_and_what_waits_goes_on(row, manager, tmp_path):
    with Proxy("127.0.0.1", row.listener.port) as proxy:
        row.publish(address=published_address("127.0.0.1", proxy.port))
        with ProcedureClient(tmp_path / "state", patience=BOUND) as client:
            handle = client.submit(Add(1, 2), id="x", delay=1.0)
            proxy.cut()
            assert handle.result(BOUND) == 3
            assert proxy.connections == 2


def test_a_manager_that_falls_silent_is_left_after_the_seconds_it_named(row, manager, tmp_path):
    with Proxy("127.0.0.1", row.listener.port) as proxy, ProcedureClient(tmp_path / "state", patience=BOUND) as client:
        row.publish(address=published_address("127.0.0.1", proxy.port))
        handle = client.submit(Add(1, 2), id="x", delay=0.5)
        proxy.hold("down")  # nothing of it arrives any more
        row.publish(address=published_address("127.0.0.1", row.listener.port))  # the next leader
        assert handle.result(BOUND) == 3
        assert proxy.connections == 1


def test_a_change_of_certificate_or_secret_is_found_in_the_row(row, manager, tmp_path):
    right = row.leader
    row.publish(pin=bytes(32))
    with ProcedureClient(tmp_path / "state", patience=BOUND) as client:
        thread = threading.Timer(0.3, lambda: setattr(row, "leader", right))
        thread.start()
        assert client.run(Add(1, 2)) == 3
        thread.join()


@pytest.mark.parametrize("wrong", ["secret", "pin"])
def test_a_wrong_secret_or_certificate_is_an_error_that_names_the_address(row, manager, tmp_path, wrong):
    row.publish(**{wrong: b"x" * 32})
    with (
        ProcedureClient(tmp_path / "state", patience=0.3) as client,
        pytest.raises(ManagerStopped, match=f"127.0.0.1:{row.listener.port}"),
    ):
        client.submit(Add(1, 2))
    assert manager.run(Add(1, 2)) == 3  # nothing happened to the manager
    if wrong == "secret":
        wait_until(lambda: sum(row.listener.refused.values()))


def test_a_loopback_address_of_another_machine_is_an_error_that_names_both_options(row, manager, tmp_path):
    row.publish(address=f"127.0.0.1:{row.listener.port}@{'0' * 32}")
    with (
        ProcedureClient(tmp_path / "state", patience=BOUND) as client,
        pytest.raises(EngineError, match=r"Config\(listen=.*Config\(advertise="),
    ):
        client.submit(Add(1, 2))


@pytest.mark.parametrize(
    ("there", "said"),
    [
        ("none", "no manager leads"),
        ("gone", "no manager leads"),
        ("no-door", "lets no process in"),
        ("no-row", "cannot be looked up.*is away"),
    ],
)
def test_no_leader_is_told_in_words_after_the_patience(row, manager, tmp_path, there, said):
    if there == "none":
        row.leader = None
    elif there == "gone":
        row.publish(leads=False)
    elif there == "no-door":
        row.publish(address="")
    else:
        row.error = EngineError("the database is away")
    with (
        ProcedureClient(tmp_path / "state", patience=0.2) as client,
        pytest.raises(EngineError if there == "no-door" else ManagerStopped, match=said),
    ):
        client._engine.reach()


def test_a_manager_hears_of_the_highest_epoch_that_its_clients_have_seen(row, manager, client):
    client.run(Add(1, 2))
    assert row.newer == [manager._tree.epoch]
    client._engine._channel._way.highest = 77
    client._engine._channel._stream.hang_up()
    client.run(Add(1, 3))
    assert row.newer[-1] == 77


def test_strangers_at_the_door_take_no_place_for_long_and_delay_no_client(row, manager, tmp_path, monkeypatch):
    monkeypatch.setattr("actorproc.workers.link.handshake.HANDSHAKE", 0.3)
    with contextlib.ExitStack() as strangers:
        for _ in range(300):  # more than may be connected
            strangers.enter_context(socket.create_connection(("127.0.0.1", row.listener.port)))
        with ProcedureClient(tmp_path / "state", patience=BOUND) as client:
            assert client.run(Add(1, 2)) == 3
    assert sum(row.listener.refused.values()) >= 256


def test_a_stopped_manager_closes_its_links_and_a_client_waits_for_the_next_one(row, tmp_path):
    config = Config(spares=0)
    with ProcedureClient(tmp_path / "state", patience=BOUND) as client:
        with ProcedureManager(tmp_path / "state", workers=1, config=config):
            handle = client.submit(Add(3, 4), id="x", delay=0.5)
        with ProcedureManager(tmp_path / "state", workers=1, config=config, procedures=[Add]):
            assert handle.result(BOUND) == 7


@pytest.mark.parametrize("role", [LinkRole.HOST, LinkRole.CLIENT])
def test_a_host_alone_comes_back_to_a_leader_that_has_no_successor(role, monkeypatch):
    row, dialled = Row(), []
    home = LinkedHome("nowhere")
    home.row = row
    row.leader = Leader(1, "process 1 on here", "127.0.0.1:1", b"pin", b"secret", 0.0, 5.0, True)
    monkeypatch.setattr(link_door, "dial", lambda host, port, **_: dialled.append(port))
    way = link_door.LinkWay(home, role)

    def is_reached() -> bool:
        before = len(dialled)
        with contextlib.suppress(ConnectionError):
            way.connect(1.0)
        return len(dialled) > before

    assert is_reached()
    comes_back = role is LinkRole.HOST
    row.publish(leads=False)
    assert is_reached() is comes_back, "it could not renew its lease"
    row.error = EngineError("the database is away")
    assert is_reached() is comes_back
    row.error = None
    row.publish(leads=True, epoch=2, address="127.0.0.1:2")
    assert is_reached()
    assert dialled[-1] == 2, "the next leader"
    row.publish(leads=False, address="")
    assert not is_reached(), "it has given the lead back"
    assert not link_door.LinkWay(home, role)._last
