"""What every worker pool promises: the local one of processes and the fake one of threads."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pool_listener import Listener
from steps_under_test import Count, Do

from actorproc.errors import UsageError
from actorproc.model.ids import WorkerId
from actorproc.model.messages.outcomes import Finished
from actorproc.testing.fake_pool import FakePool
from actorproc.workers.base import WorkerMessages
from actorproc.workers.pool.local_pool import LocalPool
from actorproc.workers.protocol.frames import Ask, Ended, Returned, StepAnswer, TakeBackSteps


@pytest.fixture(params=[LocalPool, FakePool], ids=["processes", "threads"])
def host(request: pytest.FixtureRequest) -> Iterator[Listener]:
    made = Listener(pool=request.param())
    yield made
    made.pool.close(1.0)


def test_a_launched_worker_boots_and_runs_steps(host: Listener) -> None:
    worker = host.boot()

    assert host.finish(worker, Count(1)) == 1
    assert host.pool.facts()[worker].slot == 0


def test_each_worker_runs_its_steps_in_the_order_they_were_sent(host: Listener) -> None:
    worker = host.boot()
    names = [f"p{number}" for number in range(20)]

    for name in names:
        host.start(worker, Do("nothing"), name=name)

    assert [host.next_message(Ended, worker).token.procedure for _ in names] == names


def test_a_step_that_has_not_begun_can_be_taken_back(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    first = host.start(worker, Do("wait_for", str(tmp_path / "go")), name="first")
    host.heartbeat(worker)
    second = host.start(worker, Do("nothing"), name="second")

    host.pool.send(worker, [TakeBackSteps((first.token, second.token))])

    assert host.next_message(Returned, worker).token == second.token
    (tmp_path / "go").touch()
    assert host.next_message(Ended, worker).token == first.token


def test_requests_are_answered_while_the_step_runs(host: Listener) -> None:
    worker = host.boot()
    host.start(worker, Do("remember", "key"))

    host.pool.send(worker, [StepAnswer(host.next_message(Ask, worker).request)])

    assert isinstance(host.next_message(Ended, worker).outcome, Finished)


def test_a_killed_worker_is_told_dead_with_the_reason_and_never_heard_again(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    run = host.start(worker, Do("wait_for", str(tmp_path / "go")))
    host.heartbeat(worker)

    host.pool.kill(worker, blamed=run.token, reason="too slow")

    report = host.died(worker).report
    assert report.kind == "timeout"
    assert "too slow" in report.message
    (tmp_path / "go").touch()
    host.boot(0, 2)
    assert not [event for event in host.heard if isinstance(event, WorkerMessages) and event.worker == worker]
    assert not host.inbox[worker]


def test_a_stopped_worker_answers_what_runs_and_returns_what_waits(host: Listener, tmp_path: Path) -> None:
    worker = host.boot()
    first = host.start(worker, Do("wait_for", str(tmp_path / "go")), name="first")
    host.heartbeat(worker)
    second = host.start(worker, Do("nothing"), name="second")

    host.pool.stop(worker)
    assert host.next_message(Returned, worker).token == second.token
    (tmp_path / "go").touch()

    assert host.died(worker).report.kind == "stopped"
    assert host.next_message(Ended, worker).token == first.token


def test_messages_to_workers_that_do_not_live_are_dropped(host: Listener) -> None:
    worker = host.boot()
    host.pool.kill(worker)
    host.died(worker)

    host.start(worker, Count(1))
    host.pool.stop(worker)
    host.pool.kill(WorkerId(9, 9))

    assert host.pool.facts() == {}


def test_closing_ends_every_worker_and_may_be_repeated(host: Listener) -> None:
    workers = [host.boot(slot) for slot in range(3)]

    host.pool.close(5.0)
    host.pool.close(5.0)

    assert {host.died(worker).report.kind for worker in workers} == {"stopped"}
    assert host.pool.facts() == {}


def test_a_fake_pool_can_fail_to_boot() -> None:
    host = Listener(pool=FakePool(boot_failures=1))
    host.pool.launch(WorkerId(0, 1))

    assert not host.died(WorkerId(0, 1)).booted
    host.boot(0, 2)
    host.pool.close(1.0)


def test_a_worker_that_is_launched_when_the_pool_has_closed_does_not_live(host: Listener) -> None:
    host.boot()
    host.pool.close(5.0)
    with contextlib.suppress(UsageError):
        host.pool.launch(WorkerId(1, 1))

    assert host.pool.facts() == {}
    assert not [thread.name for thread in threading.enumerate() if thread.name == "fake-worker-1"]
