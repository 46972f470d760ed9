"""Numbers that are allowed and larger than any clock: the engine does what they say, and lives."""

from __future__ import annotations

import logging
import math
import selectors
import socket
from dataclasses import dataclass

import pytest

from actorproc import Config, Procedure, ProcedureFailed, RetryLater, RetryPolicy, Status
from actorproc.core.queues.backoff import delay
from actorproc.core.queues.run_queue import RunQueue
from actorproc.testing import InlineManager
from actorproc.workers.os.timers import PoolTimers
from tests.kit.waiting import BOUND


@dataclass
class Quick(Procedure):
    def execute(self, ctx):
        return Status.done("done")


class Growing(Procedure):
    retry = RetryPolicy(max_attempts=5, base=1e-9, cap=1e-3, factor=1e200)

    def execute(self, ctx):
        raise RetryLater("not yet")


@pytest.mark.parametrize("seconds", [30 * 86400.0, 1e300])
def test_a_call_may_be_due_later_than_the_system_can_count_in_milliseconds(seconds):
    timers = PoolTimers()
    timers.after(seconds, lambda: pytest.fail("it is due in a month"))
    here, there = socket.socketpair()
    with here, there, selectors.DefaultSelector() as selector:
        selector.register(here, selectors.EVENT_READ)
        there.send(b"x")

        assert selector.select(timers.wait())
    timers.run_due()


@pytest.mark.processes
@pytest.mark.parametrize("seconds", [30 * 86400.0, 1e300, math.inf])
def test_a_stop_may_be_given_more_time_than_it_will_ever_need(open_manager, caplog, seconds):
    manager = open_manager(workers=1, config=Config(spares=0, stop_timeout=seconds))

    assert manager.run(Quick(), timeout=BOUND) == "done"
    manager.__exit__(None, None, None)

    assert manager.health().status == "stopped"
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@pytest.mark.processes
def test_a_setting_of_a_manager_may_be_for_ever(open_manager):
    names = ("stop_timeout", "boot_timeout", "restart_period", "parked_for", "commit_backoff", "commit_backoff_cap")
    more = ("priority_ageing", "stuck_after", "extra_worker_idle", "retain_for", "retain_acknowledged", "recycle_age")
    config = Config(**dict.fromkeys(names + more, math.inf))
    manager = open_manager(workers=1, config=config)

    for priority in (0, -3, 3):
        assert manager.submit(Quick(), priority=priority).result(BOUND) == "done"
    manager.__exit__(None, None, None)
    assert manager.health().status == "stopped"


@pytest.mark.parametrize("ageing", [math.inf, 1e308])
def test_without_ageing_the_higher_priority_goes_first_however_long_the_other_waited(ageing):
    queue = RunQueue(ageing, place_of=int)
    for name, priority, is_new_root, now in [("old", 0, True, 0.0), ("begun", 0, False, 1e6), ("high", 1, True, 2e6)]:
        queue.push(name, root=name, priority=priority, is_new_root=is_new_root, now=now)

    order = []
    while (found := queue.peek()) is not None:
        order.append(found[1])
        queue.take(found[1], 3e6)
    assert order == ["high", "begun", "old"]


def test_a_backoff_that_grows_beyond_all_numbers_is_its_cap():
    policy = RetryPolicy(base=1.0, cap=60.0, factor=1e200, jitter=0.0).backoff

    assert [delay(policy, procedure="p", step=1, errors=errors) for errors in (1, 2, 3, 5000)] == [
        1.0,
        60.0,
        60.0,
        60.0,
    ]
    none = RetryPolicy(base=0.0, factor=1e200).backoff
    assert delay(none, procedure="p", step=1, errors=3) == 0.0
    endless = RetryPolicy(base=1.7e308, cap=1.7e308, jitter=1.0).backoff
    assert math.isfinite(delay(endless, procedure="p", step=1, errors=2))


def test_a_backoff_that_grows_beyond_all_numbers_does_not_stop_the_engine():
    with InlineManager() as manager:
        with pytest.raises(ProcedureFailed, match="not yet"):
            manager.submit(Growing()).result(BOUND)
        assert manager.run(Quick()) == "done"
