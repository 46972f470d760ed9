"""Live events of the page over a real manager and a real server: what browsers are told, and how streams end."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import threading
import time
from dataclasses import dataclass

import pytest
import uvicorn

from actorproc.api.manager import ProcedureManager
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.status import Status
from actorproc.web import create_app
from actorproc.web.live import stream as streams
from tests.web.conftest import TOKEN

pytestmark = pytest.mark.processes
BOUND = 20.0


@dataclass
class Small(Procedure):
    def execute(self, ctx):
        ctx.log.info("small")
        return Status.done()


@contextlib.contextmanager
def served(app, **options):
    """An application behind a real server; gives its port."""
    config = uvicorn.Config(
        app, port=0, log_config=None, access_log=False, timeout_graceful_shutdown=2, lifespan="off", **options
    )
    server = uvicorn.Server(config)
    sock = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [sock]})
    thread.start()
    try:
        until(lambda: server.started)
        yield sock.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(BOUND)
        assert not thread.is_alive(), "the server did not stop"
        sock.close()


def until(holds, within=BOUND):
    end = time.monotonic() + within
    while not (found := holds()):
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.01)
    return found


class Stream:
    """One browser's stream of events."""

    def __init__(self, port, topics, last=None, path="/events", headers=None):
        self._connection = http.client.HTTPConnection("127.0.0.1", port, timeout=BOUND)
        given = {"Authorization": f"Bearer {TOKEN}", **(headers or {})}
        if last is not None:
            given["Last-Event-ID"] = last
        self._connection.request("GET", f"{path}?topics={topics}", headers=given)
        self.answer = self._connection.getresponse()
        self.last = None

    def next(self):
        """Name and data of the next event; None at the end."""
        name, data = None, None
        while line := self.answer.readline():
            text = line.decode().rstrip("\n")
            if text.startswith("id: "):
                self.last = text[4:]
            elif text.startswith("event: "):
                name = text[7:]
            elif text.startswith("data: "):
                data = json.loads(text[6:])
            elif not text and name is not None:
                return name, data
        return None

    def until(self, name, holds=lambda data: True):
        while (found := self.next()) is not None:
            if found[0] == name and holds(found[1]):
                return found[1]
        raise AssertionError(f"the stream ended without {name}")

    def close(self):
        self.answer.close()
        self._connection.close()


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    with ProcedureManager(tmp_path_factory.mktemp("live") / "store", procedures=[Small], workers=2) as found:
        yield found


@pytest.fixture
def app(manager):
    return create_app(manager._path, token=TOKEN)


@pytest.fixture
def port(app):
    with served(app) as found:
        yield found


@contextlib.contextmanager
def open_streams(port, topics, count=1, **options):
    found = [Stream(port, topics, **options) for _ in range(count)]
    try:
        yield found
    finally:
        for stream in found:
            stream.close()


def ids(event):
    return {row["id"] for row in event["rows"]}


def test_a_stream_greets_tells_of_the_manager_and_of_each_change(manager, port):
    with open_streams(port, "procedures,status,log:live-1") as (stream,):
        assert stream.answer.getheader("content-type").startswith("text/event-stream")
        assert stream.answer.getheader("x-accel-buffering") == "no"
        assert "no-transform" in stream.answer.getheader("cache-control")
        assert stream.answer.getheader("connection") is None
        assert stream.until("hello")["manager"] == "up"
        stream.until("status")
        manager.submit(Small(), id="live-1").result(BOUND)

        assert stream.until("dirty", lambda data: "live-1" in ids(data))["rows"][0].keys() >= {"id", "phase", "step"}
        assert stream.until("log")["items"][0]["text"] == "small"


def test_one_watch_serves_all_streams_and_is_closed_with_the_last_one(app, manager, port):
    before = manager.metrics().watchers
    with open_streams(port, "procedures", 8) as found:
        until(lambda: manager.metrics().watchers > before)
        manager.submit(Small(), id="live-2").result(BOUND)
        for stream in found:
            stream.until("dirty", lambda data: "live-2" in ids(data))
        assert manager.metrics().watchers == before + 1
    until(lambda: not app.hub.streams)
    until(lambda: manager.metrics().watchers == before)


def test_a_stream_of_one_procedure_hears_of_it_and_of_what_it_started_alone(manager, port):
    with open_streams(port, "procedure:live-4") as (stream,):
        stream.until("hello")
        for name in ("live-3", "live-4"):
            manager.submit(Small(), id=name).result(BOUND)

        assert ids(stream.until("dirty")) == {"live-4"}


def test_a_stream_goes_on_after_the_event_that_was_seen_last(manager, port):
    with open_streams(port, "procedures", 2) as (stream, other):
        stream.until("hello")
        other.until("hello")
        manager.submit(Small(), id="live-5").result(BOUND)
        stream.until("dirty", lambda data: "live-5" in ids(data))
        seen = stream.last
        stream.close()
        manager.submit(Small(), id="live-6").result(BOUND)
        other.until("dirty", lambda data: "live-6" in ids(data))

        with open_streams(port, "procedures", last=seen) as (again,):
            again.until("hello")
            name, data = again.next()
            assert (name, number(again.last)) == ("dirty", number(seen) + 1)
            while "live-6" not in ids(data):
                name, data = again.next()
                assert name == "dirty"


def number(id):
    return int(id.rpartition("-")[2])


@pytest.mark.parametrize("last", ["00000000-1", "x", "-", "1-2-3", "", "9" * 400, "é-1"])
def test_a_stream_of_another_life_is_told_to_ask_again(port, last):
    with open_streams(port, "procedures", last=last.encode("latin-1", "replace").decode("latin-1") or None) as (
        stream,
    ):
        stream.until("hello")
        if last:
            assert "ask again" in stream.until("reset")["says"]


@pytest.mark.parametrize("topics", ["nonsense", "procedure:", "procedures," + ",".join(f"log:{n}" for n in range(64))])
def test_topics_that_are_none_are_refused(port, topics):
    with open_streams(port, topics) as (refused,):
        assert refused.answer.status == 422


def test_more_streams_than_may_be_are_refused_and_places_come_back(manager):
    app = create_app(manager._path, token=TOKEN, streams=3)
    with served(app) as port:
        with open_streams(port, "status", 3) as found:
            for stream in found:
                stream.until("hello")
            with open_streams(port, "status") as (refused,):
                assert refused.answer.status == 429
        until(lambda: not app.hub.streams)
        with open_streams(port, "status") as (stream,):
            assert stream.answer.status == 200


def test_streams_that_are_cut_at_once_leave_nothing_behind(app, port):
    for _ in range(100):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.sendall(f"GET /events?topics=status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode())
        sock.close()
    until(lambda: not app.hub.streams)
    until(lambda: not app.hub.is_watching)


def test_a_browser_that_takes_nothing_is_cut_and_the_others_hear_on(app, manager, port, monkeypatch):
    monkeypatch.setattr(streams, "_UNREAD", 1.0)
    with open_streams(port, "procedures") as (stream,):
        stream.until("hello")
        stuck = socket.create_connection(("127.0.0.1", port))
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stuck.sendall(
            f"GET /events?topics=status HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
        )
        until(lambda: len(app.hub.streams) == 2)
        (dead,) = [found for found in app.hub.streams if "status" in found.topics.plain]
        flood = streams.event_bytes("status", {"x": "y" * 60_000})
        loop = app.hub._task.get_loop()

        def fill():
            if not dead.is_over:
                loop.call_soon_threadsafe(dead.put, flood)
            return dead not in app.hub.streams

        until(fill)
        manager.submit(Small(), id="live-7").result(BOUND)
        stream.until("dirty", lambda data: "live-7" in ids(data))
        stuck.close()


def test_rows_that_would_take_too_much_are_told_by_number():
    import asyncio

    async def sent():
        stream = streams.EventStream(streams.Topics("procedures"))
        whole, fewer = b"x" * 30_000, b"few"
        for _ in range(20):
            stream.put_rows(whole, fewer)
        return list(stream._waiting)

    found = asyncio.run(sent())
    assert found.count(b"few") == 19
    assert sum(map(len, found)) < 48 << 10


def test_a_server_with_open_streams_stops_and_says_good_bye(app):
    """The host's server waits for its own limit; the page ends its streams first when it is told to."""
    with served(app) as port:
        found = [Stream(port, "status") for _ in range(20)]
        for stream in found:
            stream.until("hello")
        app.hub._task.get_loop().call_soon_threadsafe(app.hub.refuse)
        for stream in found:
            assert "stopped" in stream.until("bye")["says"]
            assert stream.next() is None
    for stream in found:
        stream.close()
