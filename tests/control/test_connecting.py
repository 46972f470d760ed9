"""A client's connection: how long its calls wait for one, and what an odd manager behind it may do."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from actorproc.control import channel
from actorproc.control.channel import Channel
from actorproc.control.wire import (
    PROTOCOL,
    SOCKET_FILE,
    Answer,
    Call,
    Hello,
    Torn,
    decode_as,
    encode,
    framed,
    read_frame,
)
from actorproc.errors import EngineError, ManagerStopped
from tests.kit.waiting import BOUND, wait_until

Reply = Callable[[Call], Answer | None]


class Manager:
    """What answers behind the socket: it greets, and gives each call what `reply` says; None hangs up."""

    def __init__(self, path: Path, reply: Reply) -> None:
        self._reply = reply
        self._door = socket.socket(socket.AF_UNIX)
        self._door.bind(os.fspath(path / SOCKET_FILE))
        self._door.listen()
        self._guest = self._door
        self.heard: list[list[str]] = []
        """Names of the calls, of one connection after another."""
        self.on_knock: Callable[[], object] = int
        self._thread = threading.Thread(target=self._open, daemon=True)
        self._thread.start()

    def close(self) -> None:
        for sock in (self._door, self._guest):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        self._thread.join(BOUND)
        self._door.close()

    def _open(self) -> None:
        while True:
            try:
                self._guest, _ = self._door.accept()
            except OSError:
                return
            self.on_knock()
            with self._guest:
                self._serve(self._guest)

    def _serve(self, sock: socket.socket) -> None:
        self.heard.append([])
        hello = Hello(PROTOCOL, os.getpid(), 1, 1 << 20, 1 << 20, "none")
        sock.sendall(framed(Answer(0, "hello", msgspec.Raw(encode(hello)))))
        try:
            while True:
                call = decode_as(read_frame(sock, 1 << 20), Call)
                self.heard[-1].append(call.name)
                if (answer := self._reply(call)) is None:
                    return
                sock.sendall(framed(answer))
        except (Torn, OSError):
            return


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The time of clients, which stands still."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(channel, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


@pytest.fixture
def open_channel(tmp_path: Path) -> Iterator[Callable[..., Channel]]:
    opened: list[Channel] = []

    def make(patience: float = BOUND) -> Channel:
        opened.append(Channel(tmp_path, patience=patience, max_frame=1 << 20))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Callable[[Reply], Manager]]:
    opened: list[Manager] = []

    def make(reply: Reply) -> Manager:
        opened.append(Manager(tmp_path, reply))
        return opened[-1]

    yield make
    for one in opened:
        one.close()


def _ask(made: Channel, name: str = "metrics") -> Any:
    return made.call("call", name, encode(()), Any).future


def _ok(call: Call) -> Answer:
    return Answer(call.number, "ok", msgspec.Raw(encode(call.name)))


def test_each_call_has_a_patience_of_its_own(open_channel, clock):
    made = open_channel(patience=100)
    early = _ask(made)
    clock.now = 99.0
    late = _ask(made)

    clock.now = 101.0
    assert "no manager answers" in str(early.exception(BOUND))
    clock.now = 198.0
    assert not wait([late], 1.0).done  # longer than the pause between two tries
    clock.now = 199.5
    assert isinstance(late.exception(BOUND), ManagerStopped)


def test_a_manager_that_always_hangs_up_does_not_keep_a_call_for_ever(open_channel, manager, clock):
    def later() -> None:
        clock.now += 1.0

    stands = manager(lambda call: None)
    stands.on_knock = later

    failed = _ask(open_channel(patience=5)).exception(BOUND)

    assert isinstance(failed, ManagerStopped)
    assert "always closed again" in str(failed)
    assert 2 <= len(stands.heard) <= 8


def test_a_lost_connection_gives_those_that_wait_their_patience_anew(open_channel, manager, clock):
    def answer(call: Call) -> Answer | None:
        clock.now += 60.0
        return _ok(call) if clock.now > 150.0 else None

    manager(answer)

    assert _ask(open_channel(patience=100)).result(BOUND) == "metrics"


def test_ctrl_c_while_the_reading_thread_starts_leaves_one_of_them(open_channel, manager, monkeypatch):
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        start(thread)
        raise KeyboardInterrupt

    release = threading.Event()
    stands = manager(lambda call: _ok(call) if release.wait(BOUND) else None)
    made = open_channel()
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _ask(made)
    answer = _ask(made)

    wait_until(lambda: sum(thread.name == "actorproc-client" for thread in threading.enumerate()) == 1)
    release.set()
    assert answer.result(BOUND) == "metrics"
    assert len(stands.heard) == 1


@pytest.mark.parametrize(("kind", "body"), [("error", 17), ("change", "none"), ("ok", b"no text")])
def test_an_answer_that_cannot_be_read_fails_its_call(open_channel, manager, kind, body):
    def odd(call: Call) -> Answer:
        return Answer(call.number, kind, msgspec.Raw(encode(body))) if call.name == "odd" else _ok(call)

    manager(odd)
    made = open_channel()

    pending = made.call("call", "odd", encode(()), str, on_change=lambda raw: decode_as(raw, int))

    with pytest.raises(EngineError, match="the manager's answer cannot be read"):
        pending.future.result(BOUND)
    assert _ask(made).result(BOUND) == "metrics"


def test_a_class_that_is_registered_again_is_told_once(open_channel, manager):
    stands = manager(lambda call: None if call.name == "leave" and len(stands.heard) == 1 else _ok(call))
    made = open_channel()
    for _ in range(3):
        made.greet("call", "learn", encode("a class"))

    assert _ask(made, "leave").result(BOUND) == "leave"
    assert stands.heard[1] == ["learn", "leave"]
