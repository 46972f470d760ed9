"""Sessions of a link: what is put arrives once and in order while the connections under it are cut, held and crumbled."""

from __future__ import annotations

import itertools
import random
import threading
import time

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc.testing.torture.cluster.proxy import Proxy
from actorproc.workers.link.certificates import LinkCertificate, made_credentials
from actorproc.workers.link.handshake import LinkRole
from actorproc.workers.link.listener import LinkListener, dial
from actorproc.workers.link.resume import CHUNK, LinkFault
from actorproc.workers.link.session import LinkSession, hear_first, say_first
from tests.kit.waiting import BOUND, wait_until

SECRET = bytes(range(32))
HOSTS = frozenset({LinkRole.HOST})


@pytest.fixture(scope="module")
def certificate():
    return LinkCertificate(made_credentials("here"))


class End:
    """One end: what it heard, and how often its connection broke."""

    def __init__(self, name: str, silence: float) -> None:
        self.heard: list[bytes] = []
        self.breaks: list[OSError] = []
        self.session = LinkSession(self.hear, self.breaks.append, silence=silence, name=name)

    def hear(self, message: bytes) -> None:
        if message == b"bad":
            raise LinkFault("no message")
        if message == b"bug":
            raise ZeroDivisionError("a bug of the listener")
        self.heard.append(message)


class Pair:
    """Two ends with a proxy between them; the near one dials again whenever its connection is gone."""

    def __init__(self, certificate: LinkCertificate, silence: float = 5.0) -> None:
        self.listener = LinkListener(
            "127.0.0.1", 0, certificate=certificate, secret=SECRET, silence=silence, roles=HOSTS
        )
        self.proxy = Proxy("127.0.0.1", self.listener.port)
        self.pin = certificate.current().pin
        self.near, self.far = End("near", silence), End("far", silence)
        self.closed = False
        self._threads = [threading.Thread(target=job, daemon=True) for job in (self._accept, self._dial)]
        for thread in self._threads:
            thread.start()

    def _accept(self) -> None:
        while not self.closed:
            guest = stream = None
            try:
                guest = self.listener.accept()
                stream = guest.admit()
                received = int(hear_first(stream, time.monotonic() + BOUND, 100))
                say_first(stream, str(self.far.session.detach()).encode())
                self.far.session.attach(stream, received)
            except OSError:
                if stream is not None or guest is not None:
                    (stream or guest).close()

    def _dial(self) -> None:
        while not self.closed:
            if self.near.session.is_connected:
                time.sleep(0.005)
                continue
            stream = None
            try:
                stream = dial(
                    *("127.0.0.1", self.proxy.port),
                    secret=SECRET,
                    pin=self.pin,
                    role=LinkRole.HOST,
                    epoch=1,
                    name="near",
                    within=2,
                )
                say_first(stream, str(self.near.session.detach()).encode())
                self.near.session.attach(stream, int(hear_first(stream, time.monotonic() + 2, 100)))
            except OSError:
                if stream is not None:
                    stream.close()
                time.sleep(0.005)

    def close(self) -> None:
        self.closed = True
        self.near.session.close()
        self.far.session.close()
        self.listener.close()
        self.proxy.close()
        for thread in self._threads:
            thread.join(BOUND)


@pytest.fixture
def pair(certificate):
    pairs = []

    def make(silence: float = 5.0) -> Pair:
        pairs.append(Pair(certificate, silence))
        return pairs[-1]

    yield make
    for made in pairs:
        made.close()


@pytest.mark.parametrize(
    ("size", "piece"),
    [(size, 1 << 16) for size in (1, 16_383, 16_384, 16_385, 65_537, CHUNK + 1)]
    + [(size, 1) for size in (1, 16_383, 16_384, 16_385)],
)
def test_messages_around_the_size_of_a_record_arrive_whole(pair, size, piece):
    ends = pair()
    ends.proxy.piece = piece
    count = 3 if piece == 1 else 30
    sent = [random.Random(n).randbytes(size) for n in range(count)]
    for message in sent:
        ends.near.session.put(1, message)
        ends.far.session.put(1, message)
    wait_until(lambda: len(ends.near.heard) == count and len(ends.far.heard) == count)
    assert ends.near.heard == ends.far.heard == sent
    assert not ends.near.breaks


def test_cuts_at_any_time_lose_and_repeat_nothing(pair):
    ends, chance = pair(), random.Random(7)
    sent = {"near": [], "far": []}

    def talk(name: str, end: End) -> None:
        for number in range(400):
            message = number.to_bytes(4) + bytes(chance.choice((1, 50, 20_000, 300_000)))
            sent[name].append(message)
            end.session.put(1, message)

    talkers = [
        threading.Thread(target=talk, args=(name, end)) for name, end in (("near", ends.near), ("far", ends.far))
    ]
    for talker in talkers:
        talker.start()
    while len(ends.near.heard) < 400 or len(ends.far.heard) < 400:
        before = len(ends.near.heard) + len(ends.far.heard)
        ends.proxy.cut()
        wait_until(lambda before=before: len(ends.near.heard) + len(ends.far.heard) >= min(800, before + 40))
    for talker in talkers:
        talker.join(BOUND)
    assert ends.near.heard == sent["far"]
    assert ends.far.heard == sent["near"]
    assert ends.near.session.resumes > 3
    wait_until(lambda: ends.near.session.outstanding == ends.far.session.outstanding == 0)


def test_a_connection_that_swallows_everything_is_given_up_and_resumed(pair):
    ends = pair(silence=1.5)
    ends.near.session.put(1, b"before")
    wait_until(lambda: ends.far.heard)
    ends.proxy.hold()
    ends.near.session.put(1, b"meanwhile")
    wait_until(lambda: ends.near.breaks)
    assert "silent" in str(ends.near.breaks[0])
    ends.proxy.release()
    wait_until(lambda: len(ends.far.heard) == 2)
    assert ends.far.heard == [b"before", b"meanwhile"]


@pytest.mark.parametrize("silence", [0.5, 0.9, 1.5])
def test_a_quiet_link_says_signs_of_life_in_time_and_does_not_break(pair, silence):
    """The silence of hosts is a part of their patience, which may be one second."""
    ends = pair(silence=silence)
    ends.near.session.put(1, b"first")
    wait_until(lambda: ends.far.heard)
    beats = []

    def has_answered():
        if (last := ends.near.session._end.answered_beat) not in beats:
            beats.append(last)
        return len(beats) > 5  # more than one silence

    wait_until(has_answered)
    gaps = [after - before for before, after in itertools.pairwise(beats)]
    assert min(gaps) <= silence / 2
    assert ends.near.session._beat <= silence / 3


def test_a_short_message_passes_a_long_one_over_a_slow_connection(pair):
    ends = pair()
    ends.near.session.put(1, b"first")
    wait_until(lambda: ends.far.heard)
    ends.proxy.delay = 0.005  # some 12 MB/s
    ends.near.session.put(1, bytes(32 << 20))
    ends.near.session.put(2, b"short")
    wait_until(lambda: len(ends.far.heard) == 2)
    assert ends.far.heard[-1] == b"short"
    ends.proxy.delay = 0.0
    wait_until(lambda: len(ends.far.heard) == 3)


def test_putting_does_not_wait_for_an_end_that_takes_nothing(pair):
    ends = pair(silence=4 * BOUND)
    ends.near.session.put(1, b"first")
    wait_until(lambda: ends.far.heard)
    ends.proxy.hold()
    began = time.monotonic()
    for _ in range(300):
        ends.near.session.put(1, bytes(CHUNK))
    assert ends.near.session.is_full
    assert not ends.near.session.put(2, b"a line", may_drop=True)
    assert time.monotonic() - began < BOUND
    ends.proxy.release()
    wait_until(lambda: len(ends.far.heard) == 301)


class Quiet:
    """A connection that takes everything, and on which nothing comes."""

    def __init__(self):
        self._ended = threading.Event()

    def recv(self, _size):
        self._ended.wait(BOUND)
        return b""

    def send_now(self, _data):
        return True

    def sendall(self, _data):
        pass

    def send_rest(self):
        pass

    def hang_up(self):
        self._ended.set()

    close = hang_up


def test_a_session_that_goes_on_over_another_connection_while_its_second_thread_starts_has_one(monkeypatch):
    start, started, may_start = threading.Thread.start, [], threading.Event()

    def slow(thread):
        if thread.name.endswith("-send"):
            started.append(thread)
            assert may_start.wait(BOUND)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", slow)
    session = LinkSession(print, print, silence=5.0, name="odd")
    first = threading.Thread(target=session.attach, args=(Quiet(), 0))
    first.start()
    wait_until(lambda: started)
    session.detach()
    second = threading.Thread(target=session.attach, args=(Quiet(), 0))
    second.start()
    wait_until(lambda: not second.is_alive() or len(started) > 1)
    may_start.set()
    first.join(BOUND)
    second.join(BOUND)

    assert len(started) == 1
    assert session.resumes == 1
    session.close()
    started[0].join(BOUND)
    assert not started[0].is_alive()


def test_a_session_that_got_no_second_thread_asks_for_one_with_the_next_connection(monkeypatch):
    start, refused = threading.Thread.start, []

    def refuse(thread):
        if thread.name.endswith("-send") and not refused:
            refused.append(thread)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    session = LinkSession(print, print, silence=5.0, name="odd")
    with pytest.raises(RuntimeError, match="new thread"):
        session.attach(Quiet(), 0)
    session.detach()
    session.attach(Quiet(), 0)

    assert refused[0].is_alive()
    session.close()
    refused[0].join(BOUND)


def test_signs_of_life_come_while_nothing_is_said(pair):
    ends = pair()
    wait_until(lambda: ends.near.session.round_trip is not None and ends.far.session.round_trip is not None)
    assert ends.near.session.round_trip < 1
    assert ends.near.session.silent_for < BOUND
    assert not ends.near.breaks


@pytest.mark.parametrize("message", [b"bad", b"bug"])
def test_a_message_that_cannot_be_understood_ends_the_connection_with_a_fault(pair, message):
    ends = pair()
    ends.near.session.put(1, message)
    wait_until(lambda: ends.far.breaks)
    assert isinstance(ends.far.breaks[0], LinkFault)


def test_nothing_is_heard_after_detach(pair):
    ends = pair()
    ends.near.session.put(1, b"one")
    wait_until(lambda: ends.far.heard)
    ends.closed = True
    ends.near.session.detach()
    ends.far.session.detach()
    ends.near.session.put(1, b"two")
    assert not ends.near.session.is_connected
    assert ends.far.heard == [b"one"]
