"""A client's connection: how long its calls wait for one, and what an odd manager behind it may do."""

from __future__ import annotations

import contextlib
import fcntl
import os
import socket
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import wait
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from actorproc.control import channel
from actorproc.control.channel import ControlChannel
from actorproc.control.engine import way_to
from actorproc.control.wire import (
    HEADER,
    PROTOCOL,
    SOCKET_FILE,
    CallAnswer,
    ClientHello,
    RemoteCall,
    Torn,
    decode_as,
    encode,
    framed,
    read_frame,
)
from actorproc.errors import EngineError, ManagerStopped, NotAllowed
from actorproc.store.home import home_of
from tests.kit.waiting import BOUND, wait_until

Reply = Callable[[RemoteCall], CallAnswer | None]


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
        hello = ClientHello(PROTOCOL, os.getpid(), 1, 1 << 20, 1 << 20, "none")
        sock.sendall(framed(CallAnswer(0, "hello", msgspec.Raw(encode(hello)))))
        try:
            while True:
                call = decode_as(read_frame(sock, 1 << 20), RemoteCall)
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
def open_channel(tmp_path: Path) -> Iterator[Callable[..., ControlChannel]]:
    opened: list[ControlChannel] = []

    def make(patience: float = BOUND) -> ControlChannel:
        opened.append(ControlChannel(way_to(home_of(tmp_path)), patience=patience, max_frame=1 << 20))
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


def _ask(made: ControlChannel, name: str = "metrics") -> Any:
    return made.call("call", name, encode(()), Any).future


def _arrived(sock: socket.socket) -> int:
    """Bytes that nobody has read yet."""
    return int.from_bytes(fcntl.ioctl(sock, termios.FIONREAD, bytes(4)), sys.byteorder)


def _ok(call: RemoteCall) -> CallAnswer:
    return CallAnswer(call.number, "ok", msgspec.Raw(encode(call.name)))


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


def test_answers_to_others_do_not_keep_a_call_for_which_the_manager_hangs_up(open_channel, manager, clock):
    def later() -> None:
        clock.now += 1.0

    stands = manager(lambda call: _ok(call) if call.name == "learn" else None)
    stands.on_knock = later
    made = open_channel(patience=5)
    made.greet("call", "learn", encode("a class"))

    assert isinstance(_ask(made).exception(BOUND), ManagerStopped)
    assert len(stands.heard) <= 8


def test_who_sends_to_a_manager_that_does_not_read_is_let_go_when_the_connection_is_given_up(open_channel, manager):
    def odd(call: RemoteCall) -> CallAnswer | None:
        if len(stands.heard) > 1:
            return _ok(call)
        sending.wait(BOUND)
        stands._guest.sendall(HEADER.pack(3) + b"\xc1\xc1\xc1")
        let_go.wait(BOUND)
        return None

    sending, let_go = threading.Event(), threading.Event()
    stands = manager(odd)
    made = open_channel()
    first = _ask(made)
    wait_until(lambda: stands.heard and stands.heard[0])
    big = threading.Thread(target=lambda: made.call("call", "big", encode(bytes(1 << 19)), Any), daemon=True)
    big.start()
    wait_until(lambda: _arrived(stands._guest) > 1 << 16)  # more does not go in: it waits in the middle of its frame

    sending.set()
    big.join(BOUND)

    assert not big.is_alive()
    let_go.set()
    assert first.result(BOUND) == "metrics"


def test_a_lost_connection_gives_those_that_wait_their_patience_anew(open_channel, manager, clock):
    def answer(call: RemoteCall) -> CallAnswer | None:
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


@pytest.mark.parametrize(
    ("kind", "body"),
    [("error", 17), ("error", ("OSError", "", {"__traceback__": 1})), ("change", "none"), ("ok", b"no text")],
)
def test_an_answer_that_cannot_be_read_fails_its_call(open_channel, manager, kind, body):
    def odd(call: RemoteCall) -> CallAnswer:
        return CallAnswer(call.number, kind, msgspec.Raw(encode(body))) if call.name == "odd" else _ok(call)

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


@pytest.mark.parametrize("inside", ["framed", "_connect_soon"], ids=["while it sends", "with the lock"])
@pytest.mark.parametrize("is_caught", [True, False], ids=["caught", "passed on"])
def test_a_signal_handler_in_the_middle_of_its_threads_call_is_refused(
    open_channel, manager, monkeypatch, inside, is_caught
):
    def interrupted(*given: Any) -> Any:
        monkeypatch.undo()
        try:
            _ask(made, "of the handler")
        except NotAllowed:
            if not is_caught:
                raise
        return as_usual(*given)

    stands = manager(_ok)
    made = open_channel()
    if inside == "framed":
        _ask(made, "first").result(BOUND)
    where = channel if inside == "framed" else made
    as_usual = getattr(where, inside)
    monkeypatch.setattr(where, inside, interrupted)

    if is_caught:
        assert _ask(made, "second").result(BOUND) == "second"
    else:
        with pytest.raises(NotAllowed, match="in a signal handler"):
            _ask(made, "second")
    assert _ask(made, "third").result(BOUND) == "third"
    expected = [["first"] * (inside == "framed") + ["second"] * is_caught + ["third"]]
    assert stands.heard == expected  # what failed is not done later


def test_a_call_that_ctrl_c_interrupts_is_not_made_by_the_next_connection(open_channel, manager, monkeypatch):
    def interrupted(*_: Any) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    stands = manager(_ok)
    made = open_channel()
    _ask(made, "first").result(BOUND)
    monkeypatch.setattr(channel, "framed", interrupted)
    with pytest.raises(KeyboardInterrupt):
        _ask(made, "second")
    stands._guest.shutdown(socket.SHUT_RDWR)

    assert _ask(made, "third").result(BOUND) == "third"
    assert [name for names in stands.heard for name in names] == ["first", "third"]


def test_an_answer_comes_though_the_thread_that_waits_for_it_is_interrupted_with_the_lock_of_its_future(
    open_channel, manager
):
    release = threading.Event()
    manager(lambda call: _ok(call) if call.name == "second" or release.wait(BOUND) else None)
    made = open_channel()
    first = _ask(made, "first")

    with first._condition:  # as in the moment before it waits
        release.set()
        assert _ask(made, "second").result(BOUND) == "second"
    assert first.result(BOUND) == "first"
