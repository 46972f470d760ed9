"""The pool of a leader: workers of its own machine and of hosts, and what becomes of those of a host that is lost."""

from __future__ import annotations

import contextlib
import threading
import time

import msgspec
import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc.model.ids import WorkerId
from actorproc.model.slots import FIRST_DEDICATED_SLOT, dedicated_slot, first_slot, host_of
from actorproc.testing.fake_pool import FakePool
from actorproc.testing.pool_suite import PoolListener, PoolSuite
from actorproc.testing.pool_suite.steps import Count, Hold
from actorproc.workers.base import HostDrains, HostJoined, HostLeft, PoolSettings, WorkerBooted, WorkerDied
from actorproc.workers.hosts.codec import encode_message
from actorproc.workers.hosts.handshake import (
    HeldWorker,
    HostHello,
    HostRefused,
    HostWelcome,
    decode_reply,
)
from actorproc.workers.hosts.messages import Send, decode_to_host
from actorproc.workers.hosts.pool import HostedPool
from actorproc.workers.link.session import LinkSession, hear_first, say_first
from actorproc.workers.pool.local_pool import LocalPool
from actorproc.workers.protocol.frames import Ask, Ended, StepAnswer, Stop
from tests.hosts.plain_leader import Host
from tests.kit.host_listener import HostListener
from tests.kit.waiting import BOUND, wait_until


class Leader(HostListener):
    """A hosted pool behind a listener, as the door of a manager that leads has them."""

    def __init__(self, *, epoch=1, patience=5.0, local=FakePool, **more):
        pool = HostedPool(local(), epoch=epoch, settings=PoolSettings(), patience=patience, **more)
        super().__init__(pool, patience)

    def close(self):
        super().close()
        self.pool.close(0.1)


@pytest.fixture
def opened():
    """A function that makes an open leader with hosts that have joined."""
    made = []

    def start(hosts=1, make_pool=FakePool, **more):
        leader = Leader(**more)
        made.append(leader)
        listener = PoolListener(leader.pool, bound=BOUND)
        joined = []
        for count in range(hosts):
            joined.append(Host(leader, make_pool))
            made.append(joined[-1])
            wait_until(lambda count=count: len(leader.pool.hosts) == count + 1 and leader.pool.hosts[-1].is_open)
        return leader, listener, joined

    yield start
    for part in reversed(made):
        part.close()


def next_of(listener, kind):
    """The next event of a kind about a host."""
    deadline = time.monotonic() + BOUND
    while time.monotonic() < deadline:
        event = listener.events.get(timeout=BOUND)
        if isinstance(event, kind) and getattr(event, "host", None) != 0:
            return event
        listener.heard.append(event)
    raise AssertionError(kind)


class _OnAHost(PoolSuite):
    first_slot = first_slot(1)
    pool = FakePool

    @pytest.fixture
    def make_pool(self, hosted):
        return lambda: hosted(self.pool)

    def test_closing_ends_every_worker_and_may_be_repeated(self):
        """Hosts keep their workers for the next leader: see `test_a_leader_that_stops_leaves_the_workers_of_hosts`."""

    def test_closing_ends_a_worker_whose_step_does_not_end(self):
        """Hosts keep such a worker as well."""

    def test_a_worker_that_is_launched_when_the_pool_has_closed_does_not_live(self, host):
        host.boot()
        host.pool.close(5.0)
        host.pool.launch(WorkerId(self.first_slot + 1, 1))
        assert host.died(WorkerId(self.first_slot + 1, 1)).booted is False


class _Waiting(HostedPool):
    """Opens when its one host has joined, so that a test may start workers there at once."""

    leader = None

    def open(self, sink):
        super().open(sink)
        wait_until(lambda: self.hosts and self.hosts[0].is_open)


@pytest.fixture
def hosted():
    made = []

    def start(make_pool):
        leader = Leader()
        leader.pool.__class__ = _Waiting
        made.extend([leader, Host(leader, make_pool)])
        return leader.pool

    yield start
    for part in reversed(made):
        part.close()


class TestFakePoolOnAHost(_OnAHost):
    """The conformance suite, with the workers on a host and no processes."""


class TestLocalPoolOnAHost(_OnAHost):
    """The same with processes."""

    pool = staticmethod(lambda: LocalPool(spares=0))


def test_slots_name_their_hosts():
    assert [host_of(slot) for slot in (0, 999, 1000, 3001, 9_999_999)] == [0, 0, 1, 3, 9999]
    for host in (0, 1, 250):
        for count in (0, 99_999, 100_000, 250_001):
            slot, incarnation = dedicated_slot(host, count)
            assert slot >= FIRST_DEDICATED_SLOT
            assert (host_of(slot), incarnation) == (host, count // 100_000 + 1)


def test_workers_of_all_machines_run_steps_beside_each_other(opened):
    _, listener, _ = opened(hosts=2)
    workers = [listener.boot(slot) for slot in (0, first_slot(1), first_slot(2))]

    for worker in workers:
        assert listener.finish(worker, Count(1), name=f"p{worker.slot}") == 1

    assert sorted(listener.pool.facts()) == sorted(workers)


def test_a_host_tells_what_it_offers(opened):
    leader = Leader()
    listener = PoolListener(leader.pool)
    host = Host(leader, FakePool, labels=("gpu",), resources={"gpu": 2.0})
    joined = next_of(listener, HostJoined)
    assert (joined.host, joined.name, joined.slots) == (1, "h1", 2)
    assert (joined.labels, joined.resources) == (("gpu",), {"gpu": 2.0})
    host.close()
    leader.close()


def test_a_host_that_is_silent_is_lost_and_the_deaths_of_its_workers_come_behind_that(opened):
    leader, listener, [host] = opened(patience=1.0)
    worker = listener.boot(first_slot(1))
    listener.start(worker, Hold())
    listener.next_message(Ask, worker)

    host.proxy.close()

    left = next_of(listener, HostLeft)
    died = listener.died(worker)
    assert (left.host, left.is_lost) == (1, True)
    assert "was silent for 1 s" in left.reason
    assert (died.report.kind, died.report.message, died.booted) == ("host-lost", left.reason, True)
    assert leader.pool.hosts == ()
    listener.pool.launch(WorkerId(worker.slot, 2))
    assert listener.next_event(WorkerDied, WorkerId(worker.slot, 2)).report.message == "its host has left"


def test_a_link_that_breaks_is_resumed_and_nothing_is_lost(opened):
    leader, listener, [host] = opened()
    worker = listener.boot(first_slot(1))
    for number in range(3):
        run = listener.start(worker, Hold(), name=f"p{number}")
        ask = listener.next_message(Ask, worker)
        host.proxy.cut()
        listener.pool.send(worker, [StepAnswer(ask.request, value=ask.value)])
        assert listener.next_message(Ended, worker).token == run.token
    assert len(leader.pool.hosts) == 1
    assert leader.pool.hosts[0].session.resumes >= 2


def test_an_agent_that_is_started_again_is_another_host(opened):
    leader, listener, [host] = opened(patience=3.0)
    listener.boot(first_slot(1))
    host.close()
    second = Host(leader, FakePool)
    joined = next_of(listener, HostJoined)
    assert joined.host == 2
    second.close()


def test_a_host_that_drains_is_closed_out_when_its_last_worker_has_ended(opened):
    leader, listener, [host] = opened()
    worker = listener.boot(first_slot(1))
    host.agent.drain("maintenance")

    assert next_of(listener, HostDrains).reason == "maintenance"
    assert leader.pool.hosts[0].state == "draining"
    leader.pool.stop(worker)

    left = next_of(listener, HostLeft)
    assert (left.is_lost, listener.died(worker).report.kind) == (False, "stopped")
    host.joined()
    assert not host.thread.is_alive()


def test_a_host_that_has_left_does_not_come_again_for_a_moment(opened, monkeypatch):
    """The leader closes the connection as soon as it hears the last word of the host."""
    leader, listener, [host] = opened()
    listener.boot(first_slot(1))
    session = host.agent._session
    flush = session.flush

    def slow_flush(within):
        flushed = flush(within)
        wait_until(lambda: not session.is_connected)
        time.sleep(0.3)  # time to connect again, for an agent that takes this for a break
        return flushed

    monkeypatch.setattr(session, "flush", slow_flush)
    dialled = leader.dial
    calls = []
    monkeypatch.setattr(leader, "dial", lambda port=None: calls.append(port) or dialled(port))
    host.agent.drain("maintenance")
    next_of(listener, HostDrains)
    leader.pool.stop(next(iter(leader.pool.hosts[0].workers)))

    host.joined()

    assert not host.thread.is_alive()
    assert calls == []
    assert leader.pool.hosts == ()


def test_a_leader_has_a_host_drained_by_its_name(opened):
    leader, listener, _ = opened()
    assert not leader.pool.drain("h9", "test")
    assert leader.pool.drain("h1", "test")
    assert next_of(listener, HostDrains).host == 1
    assert next_of(listener, HostLeft).host == 1


def test_a_leader_that_stops_leaves_the_workers_of_hosts(opened):
    leader, listener, [host] = opened()
    worker = listener.boot(first_slot(1))
    listener.start(worker, Hold())
    listener.next_message(Ask, worker)

    leader.pool.close(1.0)

    assert host.agent.busy == 1
    assert leader.pool.facts() == {}


def test_one_slow_host_does_not_hold_up_the_others(opened):
    leader, listener, [slow, _] = opened(hosts=2)
    workers = [listener.boot(first_slot(1)), listener.boot(first_slot(2))]
    slow.proxy.hold()
    began = time.monotonic()
    for number in range(40):  # 80 MB that the first host does not take
        listener.start(workers[0], Hold("x" * 2_000_000), name=f"big{number}")
    assert listener.finish(workers[1], Count(1)) == 1
    assert time.monotonic() - began < BOUND / 2
    assert leader.pool.hosts[0].session.outstanding > 60_000_000


def hello(**change):
    import sys

    from actorproc.workers.hosts.handshake import HOST_PROTOCOL

    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    return msgspec.structs.replace(HostHello(HOST_PROTOCOL, "1", python, "i", "there", 1, 0, 2), **change)


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"protocol": 99}, "protocol", "use the same version of actorproc"),
        ({"python": "2.7"}, "python", "it runs Python 2.7"),
        ({"epoch": 8}, "epoch", "it has seen epoch 8, and this manager leads with 7"),
        ({"workers": 5000}, "workers", "it offers 5000 workers"),
        ({"workers": 1000}, "workers", "0 to 999 are allowed"),
    ],
)
def test_a_host_that_does_not_fit_is_refused_in_words(opened, change, kind, words):
    leader, _, _ = opened(hosts=0, epoch=7)
    newer = []
    leader.pool.newer = newer.append
    stream = leader.dial()

    say_first(stream, encode_message(hello(**change)))
    refused = decode_reply(hear_first(stream, time.monotonic() + BOUND, 1 << 20))

    assert isinstance(refused, HostRefused)
    assert refused.kind == kind
    assert words in refused.why
    assert newer == ([8] if kind == "epoch" else [])
    stream.close()


def test_a_number_that_an_earlier_leader_gave_is_given_again_if_it_is_free(opened):
    leader, _, _ = opened(hosts=0)
    numbers = []
    for instance, number in (("a", 5), ("b", 5), ("c", 0), ("d", 2)):
        stream = leader.dial()
        say_first(stream, encode_message(hello(instance=instance, number=number)))
        welcome = decode_reply(hear_first(stream, time.monotonic() + BOUND, 1 << 20))
        assert isinstance(welcome, HostWelcome)
        numbers.append(welcome.number)
        stream.close()
    assert numbers == [5, 1, 2, 3]


def test_the_number_of_a_host_of_an_earlier_leader_is_given_to_that_host_alone(opened):
    leader, _, _ = opened(hosts=0)
    leader.pool.expect(1)
    numbers = []
    for instance, number in (("a", 0), ("b", 1), ("c", 1)):
        stream = leader.dial()
        say_first(stream, encode_message(hello(instance=instance, number=number)))
        numbers.append(decode_reply(hear_first(stream, time.monotonic() + BOUND, 1 << 20)).number)
        stream.close()
    assert numbers == [2, 1, 3]


def comes(leader, *, held=(), **change):
    """Dial as a host that has these workers in hand; returns the connection and the reply."""
    stream = leader.dial()
    workers = tuple(HeldWorker(worker, 1, True, (), ()) for worker in held)
    try:
        say_first(stream, encode_message(hello(number=1, held=workers, **change)))
        return stream, decode_reply(hear_first(stream, time.monotonic() + BOUND, 1 << 20))
    except OSError:
        stream.close()
        raise


FIRST, SECOND = WorkerId(first_slot(1), 1), WorkerId(first_slot(1) + 1, 1)


def test_a_step_that_is_handed_out_while_its_host_is_being_let_in_reaches_it(opened):
    leader, _, _ = opened(hosts=0)

    def claims(host, slots, held):
        leader.pool.send(FIRST, [Stop()])  # as the manager does at once with workers that it takes over
        leader.pool.send(SECOND, [Stop()])
        return (FIRST,), ()

    leader.pool.claims = claims
    stream, welcome = comes(leader, held=[FIRST, SECOND])

    with heard_of(stream, welcome) as heard:
        wait_until(lambda: Send(FIRST, [Stop()]) in heard)
    assert welcome.keep == (FIRST,)


def keeps(host, slots, held):
    """All counts that a host has."""
    return tuple(worker for worker, *_ in held), ()


@contextlib.contextmanager
def heard_of(stream, welcome):
    """Messages of the leader, as a host hears them that was let in."""
    heard = []
    session = LinkSession(lambda data: heard.append(decode_to_host(data)), print, silence=BOUND, name="leader")
    session.attach(stream, welcome.received)
    yield heard
    session.close()


@pytest.mark.parametrize("knows", [False, True], ids=["the welcome was lost", "the link broke after the welcome"])
def test_a_step_that_was_sent_before_its_host_was_heard_reaches_it_once_over_the_next_connection(opened, knows):
    leader, listener, _ = opened(hosts=0)
    leader.pool.claims = keeps
    stream, welcome = comes(leader, held=[FIRST, SECOND])
    wait_until(lambda: leader.pool.hosts[0].session.is_connected)
    leader.pool.send(FIRST, [Stop()])
    stream.close()
    leader.pool.send(SECOND, [Stop()])

    stream, again = comes(leader, held=[FIRST, SECOND], session=welcome.session if knows else b"")

    assert (again.resumed, again.number) == (knows, 1)
    with heard_of(stream, again) as heard:
        wait_until(lambda: Send(SECOND, [Stop()]) in heard and Send(FIRST, [Stop()]) in heard)
        assert len(heard) == 2
    assert not any(isinstance(event, WorkerDied) for event in listener.heard)


def test_a_host_that_was_heard_and_has_no_session_any_more_is_another_one(opened):
    """It is not known what it took of that which was sent to it."""
    leader, listener, _ = opened(hosts=0)
    leader.pool.claims = keeps
    stream, welcome = comes(leader, held=[FIRST])
    with heard_of(stream, welcome):
        wait_until(lambda: leader.pool.hosts[0].session.received_bytes)

    stream, again = comes(leader, held=[FIRST])

    assert (again.resumed, again.number) == (False, 2)
    assert "began anew" in listener.died(FIRST).report.message
    stream.close()


def test_a_host_that_may_not_come_again_now_is_lost_with_its_workers(opened):
    leader, listener, _ = opened(hosts=0, patience=1.0)
    leader.pool.claims = keeps
    stream, _ = comes(leader, held=[FIRST])
    stream.close()
    leader.pool.is_fit = lambda: False
    stream, reply = comes(leader, held=[FIRST])
    assert isinstance(reply, HostRefused)
    stream.close()

    assert listener.died(FIRST).report.kind == "host-lost"


def test_a_host_that_comes_twice_in_the_same_moment_is_let_in_once(opened, monkeypatch):
    leader, _, _ = opened(hosts=0)
    both, known = threading.Barrier(2), leader.pool._known
    seen = []

    def known_to_both(hello):
        found = known(hello)
        if len(seen) < 2:
            seen.append(found)
            both.wait(BOUND)
        return found

    monkeypatch.setattr(leader.pool, "_known", known_to_both)
    streams = [leader.dial(), leader.dial()]
    for stream in streams:
        say_first(stream, encode_message(hello(number=7)))
    replies = []
    for stream in streams:
        with contextlib.suppress(OSError):
            replies.append(decode_reply(hear_first(stream, time.monotonic() + BOUND, 1 << 20)))
    assert [reply.number for reply in replies] == [7]
    assert [host.number for host in leader.pool.hosts] == [7]
    for stream in streams:
        stream.close()


@pytest.mark.parametrize("failure", ["the claim failed", "the welcome was lost"])
def test_workers_that_died_while_their_host_tried_again_to_come_are_dead_for_the_manager(opened, failure):
    leader, listener, _ = opened(hosts=0)
    tries, told = [], []

    def claims(host, slots, held):
        tries.append((host, held))
        told.append([event.worker for event in (*listener.heard, *listener.events.queue) if type(event) is WorkerDied])
        if failure == "the claim failed" and len(tries) == 1:
            raise TimeoutError("the manager did not answer in time, and did it all the same")
        return tuple(worker for worker, *_ in held), ()

    leader.pool.claims = claims
    stream, reply = comes(leader, held=[FIRST, SECOND])
    assert isinstance(reply, HostRefused) == (failure == "the claim failed")
    stream.close()
    stream, welcome = comes(leader, held=[SECOND])

    assert [host for host, _ in tries] == [1, 1], "it keeps its number, and with it its workers"
    assert welcome.keep == (SECOND,)
    assert told == [[], [FIRST]], "the next worker of its slot is not taken over before that"
    assert listener.died(FIRST).report.kind == "host-lost"
    stream.close()


def test_workers_of_a_number_that_another_host_has_now_are_not_taken_for_those_of_that_host(opened):
    """A host kept the names of its workers over a leader that it did not join, and its number was given away."""
    leader, listener, _ = opened(hosts=0)
    leader.pool.claims = keeps
    other, _ = comes(leader, held=[FIRST], instance="another")
    listener.heard.clear()
    tries = []

    def claims(host, slots, held):
        tries.append(host)
        if len(tries) == 1:
            raise TimeoutError("the manager did not answer in time")
        return (), ()

    leader.pool.claims = claims
    refused, _ = comes(leader, held=[FIRST])
    refused.close()
    stream, welcome = comes(leader, held=[FIRST])

    assert tries == [2, 2]
    assert (welcome.number, welcome.keep) == (2, ())
    wait_until(lambda: leader.pool.hosts[1].session.is_connected)
    assert leader.pool.hosts[0].workers == {FIRST: 1}
    assert not any(isinstance(event, WorkerDied) for event in (*listener.heard, *listener.events.queue))
    for each in (other, stream):
        each.close()


def test_a_host_that_does_not_come_again_after_a_claim_that_failed_is_lost_with_its_workers(opened):
    leader, listener, _ = opened(hosts=0, patience=1.0)

    def claims(host, slots, held):
        raise TimeoutError("too late")

    leader.pool.claims = claims
    stream, _ = comes(leader, held=[FIRST])
    stream.close()

    assert "was silent for 1 s" in listener.died(FIRST).report.message
    assert leader.pool.hosts == ()


def test_a_host_is_let_in_over_one_connection_at_a_time(opened):
    leader, _, _ = opened(hosts=0)
    asked, go = threading.Event(), threading.Event()

    def claims(host, slots, held):
        asked.set()
        assert go.wait(BOUND)
        return (), ()

    leader.pool.claims = claims
    replies = []
    first = threading.Thread(target=lambda: replies.append(comes(leader)))
    first.start()
    assert asked.wait(BOUND)
    assert leader.pool.hosts == ()
    with pytest.raises(OSError, match="before the session began"):
        comes(leader)
    go.set()
    first.join(BOUND)
    assert [type(reply) for _, reply in replies] == [HostWelcome]
    assert len(leader.pool.hosts) == 1
    replies[0][0].close()


def test_a_host_that_speaks_of_the_workers_of_another_is_lost(opened):
    _leader, listener, [one, _] = opened(hosts=2)
    worker = listener.boot(first_slot(1))
    listener.start(worker, Hold())
    ask = listener.next_message(Ask, worker)
    forged = msgspec.structs.replace(ask, token=msgspec.structs.replace(ask.token, worker=WorkerId(first_slot(2), 1)))
    from actorproc.workers.hosts.messages import Said

    with one.agent._lock:
        one.agent._tell(Said(worker, [forged]))

    left = next_of(listener, HostLeft)
    assert left.host == 1
    assert "another worker has" in left.reason
    assert [event for event in listener.heard if isinstance(event, WorkerBooted)] == []


def test_hosts_of_a_leader_that_may_not_lead_any_more_look_who_does_and_no_step_is_lost(opened):
    """The database may be away for all. Then they come back, as their leader may be the next one too."""
    leader, listener, (host,) = opened(patience=4.0)
    worker = listener.boot(first_slot(1))
    run = listener.start(worker, Hold())
    ask = listener.next_message(Ask, worker)
    session = leader.pool.hosts[0].session

    leader.pool.is_fit = lambda: False
    wait_until(lambda: session.resumes >= 3)
    leader.pool.send(worker, [StepAnswer(ask.request, value=ask.value)])
    assert listener.next_message(Ended, worker).token == run.token
    assert not any(isinstance(event, WorkerDied) for event in listener.heard)

    other = Host(leader, FakePool)
    try:
        wait_until(lambda: "has not renewed its lease" in other.agent._refusal)
        assert len(leader.pool.hosts) == 1
        leader.pool.is_fit = lambda: True
        wait_until(lambda: len(leader.pool.hosts) == 2)
    finally:
        other.close()
    assert host.agent.is_joined
