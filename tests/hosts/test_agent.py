"""The agent of a host: a pool over a link, over breaks of the link, and over changes of leaders."""

from __future__ import annotations

import logging
import os
import signal
import time
from pathlib import Path

import msgspec
import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.outcomes import Finished
from actorproc.testing.fake_pool import FakePool
from actorproc.testing.pool_suite import PoolSuite
from actorproc.testing.pool_suite.listener import PoolListener
from actorproc.testing.pool_suite.steps import Count, Hold
from actorproc.workers.base import PoolFailed, WorkerBooted, WorkerDied
from actorproc.workers.hosts.agent import HostRejected
from actorproc.workers.hosts.codec import encode_message
from actorproc.workers.hosts.handshake import HostRefused
from actorproc.workers.hosts.held_work import HeldWork
from actorproc.workers.hosts.messages import (
    BootedOnHost,
    Died,
    DrainHost,
    Draining,
    HostAnswer,
    Left,
    Opened,
    Said,
    lane_of,
    must_arrive,
)
from actorproc.workers.link.resume import CHUNK, LinkEnd
from actorproc.workers.pool.local_pool import LocalPool
from actorproc.workers.protocol.frames import (
    Ask,
    Ended,
    Exposed,
    Heartbeat,
    LogLine,
    NeedState,
    Returned,
    Run,
    StepAnswer,
)
from tests.hosts.plain_leader import Host, PlainLeader
from tests.kit.waiting import BOUND, once_within, wait_until


@pytest.fixture
def started():
    """A function that makes a leader and a host that has joined it."""
    made = []

    def start(make_pool=FakePool, *, stop_timeout=10.0, offer=None, **leader):
        made.append(PlainLeader(**leader))
        made.append(Host(made[-1], make_pool, stop_timeout=stop_timeout, **(offer or {})))
        return made[-2], made[-1]

    start.made = made
    yield start
    for part in reversed(made):
        part.vanish() if isinstance(part, PlainLeader) else part.close()


class TestHostedFakePool(PoolSuite):
    """The conformance suite of pools, with the pool on a host and no processes."""

    @pytest.fixture
    def make_pool(self, started):
        return lambda: started()[0]


class TestHostedLocalPool(PoolSuite):
    """The same with processes."""

    @pytest.fixture
    def make_pool(self, started):
        return lambda: started(lambda: LocalPool(spares=0))[0]


def test_a_cut_link_goes_on_where_it_was(started):
    leader, host = started()
    pool = PoolListener(leader)
    worker = pool.boot()
    pool.start(worker, Hold())
    ask = pool.next_message(Ask, worker)
    host.proxy.cut()
    leader.send(worker, [StepAnswer(ask.request, value=ask.value)])
    pool.next_message(Ended, worker)
    for number in range(5):
        host.proxy.cut()
        wait_until(lambda number=number: len(leader.hellos) > number + 1 and host.agent.is_joined)
    assert pool.finish(pool.boot(slot=1), Count(1), name="another") == 1
    assert len(leader.hellos) > 5
    assert not leader.hellos[0].session
    assert all(hello.session for hello in leader.hellos[1:])
    assert not any(isinstance(message, Died) for message in leader.told)


def keep_all(welcome, hello):
    return msgspec.structs.replace(
        welcome,
        keep=tuple(held.worker for held in hello.held),
        adopted=tuple(token for held in hello.held for token in (*held.running, *held.answered)),
    )


@pytest.mark.parametrize("end", ["farewell", "vanish"])
def test_a_running_step_goes_on_under_the_next_leader(started, end):
    leader, host = started(lambda: LocalPool(spares=0))
    pool = PoolListener(leader)
    worker, idle = pool.boot(), pool.boot(slot=1)
    run = pool.start(worker, Hold("kept"))
    ask = pool.next_message(Ask, worker)
    pid = pool.pool.facts()[worker].pid
    getattr(leader, end)()
    second = PlainLeader(epoch=2, answer=keep_all)
    started.made.append(second)
    host.follow(second)
    after = PoolListener(second)
    hello = second.hellos[0]
    assert hello.epoch == 1
    assert {held.worker: held.running for held in hello.held} == {worker: (run.token,), idle: ()}
    assert hello.instance == leader.hellos[0].instance
    assert hello.number == 1
    # The question of the step to the first leader is asked again.
    again = after.next_message(Ask, worker)
    assert again == ask
    second.send(worker, [StepAnswer(again.request, value=again.value)])
    assert after.next_message(Ended, worker).token == run.token
    assert after.pool.facts()[worker].pid == pid


def test_an_answer_that_the_dead_leader_had_is_given_to_the_next_one(started):
    leader, host = started()
    pool = PoolListener(leader)
    worker = pool.boot()
    run = pool.start(worker, Count(1))
    pool.next_message(Ended, worker)
    leader.vanish()
    second = PlainLeader(epoch=2, answer=keep_all)
    started.made.append(second)
    host.follow(second)
    after = PoolListener(second)
    assert after.next_message(Ended, worker).token == run.token
    assert second.hellos[0].held[0].answered == (run.token,)


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "running"])
def test_what_a_step_shows_and_notes_is_given_to_the_next_leader_before_its_answer(is_answered):
    worker = WorkerId(1000, 1)
    token = StepToken(1, worker, "p", 1, 1, Mode.EXECUTE)
    held = HeldWork()
    held.booted(worker, 7)
    held.given(worker, [Run(token, "t", "p", None, b"", "json", 1)])
    shown, noted = Exposed(token, "at", b"2"), Heartbeat(token, 0.5, None, b"half", "beat", 1)
    answer = Ended(token, Finished(state=b"state"))
    held.heard(worker, [Exposed(token, "at", b"1"), shown, noted, Ask(1, token, "remember", "k", b"v", 1)], 0.0)
    if is_answered:
        held.heard(worker, [answer], 0.0)

    again = held.taken_over(worker, frozenset({token}))

    assert again[:2] == [shown, noted]
    assert again[2:] == [answer] if is_answered else isinstance(again[2], Ask)
    assert held.taken_over(worker, frozenset()) == ([] if is_answered else None)


@pytest.mark.parametrize("is_answered", [True, False], ids=["answered", "running"])
@pytest.mark.parametrize("is_adopted", [True, False], ids=["adopted", "not adopted"])
def test_what_a_worker_said_before_it_died_is_given_to_the_leader_it_was_listed_for(is_answered, is_adopted):
    worker = WorkerId(1000, 1)
    token = StepToken(1, worker, "p", 1, 1, Mode.EXECUTE)
    held = HeldWork()
    held.booted(worker, 7)
    held.given(worker, [Run(token, "t", "p", None, b"", "json", 1)])
    held.begin_list()
    shown, answer = Exposed(token, "at", b"1"), Ended(token, Finished(state=b"state"))
    held.heard(worker, [shown, Ask(1, token, "remember", "k", b"v", 1)], 0.0)
    if is_answered:
        held.heard(worker, [answer], 0.0)
    held.died(worker)

    said = held.last_words(worker, frozenset({token} if is_adopted else ()))

    assert said == ([shown, answer][: 1 + is_answered] if is_adopted else [])
    assert held.last_words(worker, frozenset({token})) == []  # it was told


def test_what_workers_said_that_died_before_the_list_is_forgotten_and_of_others_only_so_much_is_kept():
    held = HeldWork()
    workers = [WorkerId(1000, number) for number in range(1, 1003)]
    tokens = [StepToken(1, worker, "p", 1, 1, Mode.EXECUTE) for worker in workers]
    for worker, token in zip(workers, tokens, strict=True):
        held.booted(worker, 7)
        held.given(worker, [Run(token, "t", "p", None, b"", "json", 1)])
        held.heard(worker, [Ended(token, Finished(state=b""))], 0.0)
        held.died(worker)

    assert held.last_words(workers[0], frozenset(tokens)) == []
    assert len(held.last_words(workers[-2], frozenset(tokens))) == 1
    held.booted(WorkerId(1001, 1), 8)
    late = StepToken(1, WorkerId(1001, 1), "q", 1, 1, Mode.EXECUTE)
    held.given(late.worker, [Run(late, "t", "q", None, b"", "json", 1)])
    held.heard(late.worker, [Ended(late, Finished(state=b""))], 60.0)
    assert held.last_words(workers[-1], frozenset(tokens)) == []  # its answer is too old

    held.died(late.worker)
    held.begin_list()
    assert held.last_words(late.worker, frozenset({late})) == []


@pytest.mark.parametrize("kind", [NeedState, Returned])
def test_a_step_that_was_given_back_while_a_leader_adopted_it_is_given_back_to_that_leader(kind):
    worker, other = WorkerId(1000, 1), WorkerId(1001, 1)
    token, done, given_again = (StepToken(1, worker, "p", step, 1, Mode.EXECUTE) for step in (1, 2, 3))
    held = HeldWork()
    for one in (worker, other):
        held.booted(one, 7)
    run = Run(token, "t", "p", None, b"", "json", 1)
    held.given(worker, [run, msgspec.structs.replace(run, token=done), msgspec.structs.replace(run, token=given_again)])
    adopted = frozenset(held.listed()[0].running)
    held.heard(worker, [kind(token), kind(done), kind(given_again)], 0.0)
    held.given(worker, [msgspec.structs.replace(run, token=given_again)])  # as the former leader still answered

    assert held.taken_over(other, adopted) == []
    assert held.taken_over(worker, adopted - {done}) == [kind(token)]


def test_what_the_next_leader_does_not_count_is_dead_before_it_starts_the_same_worker(started):
    leader, host = started(lambda: LocalPool(spares=0))
    pool = PoolListener(leader)
    worker = pool.boot()
    pool.start(worker, Hold())
    pool.next_message(Ask, worker)
    pid = pool.pool.facts()[worker].pid
    leader.vanish()
    second = PlainLeader(epoch=2)
    started.made.append(second)
    host.follow(second)
    after = PoolListener(second)
    second.launch(worker)  # an id that the former leader gave as well
    after.next_event(WorkerBooted, worker)
    assert not Path(f"/proc/{pid}").exists()
    assert after.finish(worker, Count(1)) == 1
    assert not any(isinstance(message, Died) for message in second.told)


def test_a_kept_worker_with_a_step_that_does_not_count_is_killed_and_told(started):
    leader, host = started()
    pool = PoolListener(leader)
    worker = pool.boot()
    pool.start(worker, Hold())
    pool.next_message(Ask, worker)
    leader.vanish()
    second = PlainLeader(
        epoch=2, answer=lambda welcome, hello: msgspec.structs.replace(welcome, keep=(worker,), adopted=())
    )
    started.made.append(second)
    host.follow(second)
    assert PoolListener(second).died(worker).report.kind == "host-lost"


def test_a_worker_that_died_while_no_leader_was_there_is_told_to_the_one_that_kept_it(started):
    leader, host = started()
    pool = PoolListener(leader)
    worker = pool.boot()

    def answer(welcome, hello):
        host.pools[0].kill(worker, reason="while the hello was on its way", kind="signal")
        wait_until(lambda: worker not in host.agent._workers.held)
        return keep_all(welcome, hello)

    leader.vanish()
    second = PlainLeader(epoch=2, answer=answer)
    started.made.append(second)
    host.follow(second)
    assert PoolListener(second).died(worker).report.kind == "signal"


def test_busy_workers_are_killed_before_the_patience_of_the_leader_ends(started):
    def outlived() -> float:
        nonlocal host, pool, worker, idle
        leader, host = started(patience=2.0)
        pool = PoolListener(leader)
        worker, idle = pool.boot(), pool.boot(slot=1)
        pool.start(worker, Hold())
        pool.next_message(Ask, worker)
        host.proxy.hold()
        began = time.monotonic()
        wait_until(lambda: worker not in host.agent._workers.held)
        return time.monotonic() - began

    host = pool = worker = idle = None
    once_within(2.0, outlived)
    assert idle in host.agent._workers.held
    host.proxy.release()  # the leader has waited longer than it says: it goes on with the session
    assert "no leader had heard its host" in pool.died(worker).report.message


def test_a_link_that_carries_one_direction_only_counts_as_silence(started):
    leader, host = started(patience=2.0)
    pool = PoolListener(leader)
    worker = pool.boot()
    pool.start(worker, Hold())
    pool.next_message(Ask, worker)
    host.proxy.hold("up")  # the signs of life of the leader still arrive
    wait_until(lambda: worker not in host.agent._workers.held)


def test_a_host_drains_when_it_is_told_to_end(started):
    leader, host = started()
    pool = PoolListener(leader)
    worker = pool.boot()
    host.agent.drain("SIGTERM")
    host.joined()
    assert leader.left.is_set()
    assert host.error is None
    assert [type(message) for message in leader.told if isinstance(message, Draining | Left)] == [Draining, Left]
    assert pool.died(worker).report.kind == "stopped"


def test_a_host_drains_when_its_leader_wants_it_to(started):
    leader, host = started()
    wait_until(leader.has_host)
    leader.put(DrainHost("the node goes"))
    host.joined()
    assert leader.left.is_set()
    assert [message.reason for message in leader.told if isinstance(message, Draining)] == ["the node goes"]


def test_a_host_that_has_left_does_not_join_again_when_its_last_message_is_not_acknowledged(started, monkeypatch):
    leader, host = started()
    wait_until(leader.has_host)
    tell = host.agent._tell

    def tell_and_be_cut(message):
        tell(message)
        if isinstance(message, Left):
            session = host.agent._session
            session._end.outstanding += 1  # the acknowledgement that never comes
            host.agent._broke(session, ConnectionResetError("the other end has closed the connection"))

    monkeypatch.setattr(host.agent, "_tell", tell_and_be_cut)
    host.agent.drain("SIGTERM")
    host.joined()
    assert len(leader.hellos) == 1
    assert host.error is None


@pytest.mark.parametrize("has_worker", [False, True])
def test_a_host_without_a_leader_ends_when_it_is_told_to(started, has_worker):
    leader, host = started(stop_timeout=10 * BOUND)
    wait_until(leader.has_host)
    if has_worker:
        PoolListener(leader).boot()
    host.follow(None)
    leader.vanish()
    host.agent.drain("SIGTERM")
    host.joined()
    assert not host.thread.is_alive()


TOKEN = StepToken(1, WorkerId(1000, 1), "p", 1, 1, Mode.EXECUTE)
ENDED = Ended(TOKEN, Finished(state=bytes(2 * CHUNK)))


@pytest.mark.parametrize(
    ("message", "must"),
    [
        (Said(TOKEN.worker, [Ended(TOKEN, Finished(state=b""))]), True),
        (Said(TOKEN.worker, [LogLine(None, 20, "a", "a line"), Heartbeat(TOKEN, 0.5, None, b"half", "beat", 1)]), True),
        (Said(TOKEN.worker, [Exposed(TOKEN, "at", b"1")]), True),
        (Said(TOKEN.worker, [Ask(1, TOKEN, "remember", "k", b"v", 1)]), True),
        (Died(TOKEN.worker, CrashReport(kind="signal", message="9"), True), True),
        (Died(TOKEN.worker, CrashReport(kind="host-lost", message=""), True), False),
        (Said(TOKEN.worker, [LogLine(None, 20, "a", "a line")]), False),
        (BootedOnHost(TOKEN.worker, 1), False),
        (Opened("none", "none"), False),
        (HostAnswer(1), False),
        (Draining("SIGTERM"), False),
    ],
)
def test_answers_notes_values_and_crashes_keep_a_host_without_a_leader(message, must):
    end = LinkEnd()
    end.put(lane_of(message), encode_message(message))
    assert [must_arrive(data) for data in end.unacknowledged()] == [must]
    end.take()
    assert [must_arrive(data) for data in end.unacknowledged()] == [must], "it was sent, and not received"


def test_what_is_left_of_a_long_answer_keeps_a_host_without_a_leader():
    one, other = LinkEnd(), LinkEnd()
    one.put(1, encode_message(Said(TOKEN.worker, [ENDED])))
    other.feed(one.take(1))
    assert [must_arrive(data) for data in one.unacknowledged()] == [True, True]
    other.feed(one.take(1))
    other.beat(0.0)
    one.feed(other.take())
    assert [must_arrive(data) for data in one.unacknowledged()] == [True]


def test_an_answer_that_waits_for_the_leader_is_given_before_a_host_without_a_link_ends(started):
    leader, host = started()
    pool = PoolListener(leader)
    worker = pool.boot()
    run = pool.start(worker, Hold())
    ask = pool.next_message(Ask, worker)
    host.proxy.refuses = True
    host.proxy.cut()
    wait_until(lambda: not host.agent.is_joined)
    host.pools[0].send(worker, [StepAnswer(ask.request, value=ask.value)])
    wait_until(lambda: not host.agent.busy)
    host.agent.drain("SIGTERM")
    assert host.thread.is_alive()
    host.proxy.refuses = False
    assert pool.next_message(Ended, worker).token == run.token
    host.joined()


def test_a_leader_that_forgot_what_it_had_received_gets_a_new_session(started):
    leader, host = started()
    pool = PoolListener(leader)
    pool.boot()
    detach = leader.session.detach
    leader.session.detach = lambda: detach() + 1000
    host.proxy.cut()
    wait_until(lambda: len(leader.hellos) > 2)
    assert [bool(hello.session) for hello in leader.hellos[:3]] == [False, True, False]


def test_a_leader_that_does_not_close_the_host_out_is_not_waited_for_for_ever(started):
    leader, host = started(stop_timeout=-4.5, close_out=False)
    pool = PoolListener(leader)
    worker = pool.boot()
    pool.start(worker, Hold())
    pool.next_message(Ask, worker)
    host.agent.drain("SIGTERM")
    host.joined()
    assert not host.thread.is_alive()


@pytest.mark.parametrize("final", [True, False])
def test_a_refusal_is_told_in_words(started, final, caplog):
    refused = HostRefused("Python 3.10 runs here, and 3.11 at the leader", "python", final=final)
    with caplog.at_level(logging.WARNING, logger="actorproc.host"):
        leader, host = started(answer=lambda welcome, hello: refused)
        wait_until(lambda: len(leader.hellos) >= (1 if final else 3))
    if final:
        host.joined()
        assert isinstance(host.error, HostRejected)
        assert host.error.kind == "python"
    else:
        assert host.thread.is_alive()
    assert "Python 3.10 runs here" in caplog.text


def test_log_lines_alone_are_dropped_where_the_link_takes_nothing(started):
    leader, host = started()
    pool = PoolListener(leader)
    worker = pool.boot()
    session = host.agent._session
    host.proxy.hold()
    for _ in range(70):
        session.put(9, bytes(1 << 20))
    assert session.is_full
    with host.agent._lock:
        host.agent._tell(Said(worker, [LogLine(None, 20, "a", "a line")]))
    assert session.dropped == 1


def test_a_pool_that_fails_is_replaced(started):
    leader, host = started()
    pool = PoolListener(leader)
    pool.boot()
    host.agent._workers._on_event(host.pools[0], PoolFailed(ZeroDivisionError("a bug")))
    wait_until(lambda: len(leader.hellos) == 2)
    assert not leader.hellos[1].session
    wait_until(lambda: len(host.pools) == 2)


def test_workers_outlive_a_signal_to_the_group_of_their_agent(started):
    leader, _ = started(lambda: LocalPool(spares=0))
    pool = PoolListener(leader)
    worker = pool.boot()
    pid = pool.pool.facts()[worker].pid
    assert os.getpgid(pid) != os.getpgid(0)
    os.kill(pid, signal.SIGINT)
    assert pool.finish(worker, Count(1)) == 1
    assert not any(isinstance(event, WorkerDied) for event in pool.heard)
