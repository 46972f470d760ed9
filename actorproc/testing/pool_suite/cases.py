"""Tests of the pool suite."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import pytest

from actorproc.errors import UsageError
from actorproc.model.ids import WorkerId
from actorproc.model.messages.outcomes import Finished
from actorproc.model.policies import StepLimits
from actorproc.testing.pool_suite.listener import PoolListener
from actorproc.testing.pool_suite.steps import Count, Fail, Hold, Nothing
from actorproc.workers.base import HostJoined, WorkerBooted, WorkerDied, WorkerExceeded, WorkerMessages, WorkerPool
from actorproc.workers.protocol.frames import Ask, Ended, Returned, StepAnswer, TakeBackSteps

__all__ = ["MakePool", "PoolSuite"]

MakePool = Callable[[], WorkerPool]
"""Makes a pool that is not open yet."""


class PoolSuite:
    """Every promise of a worker pool. Subclass it, and override the fixture ``make_pool``."""

    bound = 20.0
    """Seconds after which a test gives up what a pool should do soon. A subclass may set its own."""

    first_slot = 0
    """Number of the first worker slot that a test uses. A subclass may set its own."""

    @pytest.fixture
    def make_pool(self) -> MakePool:
        """A function that makes a pool that is not open yet."""
        msg = f"{type(self).__name__} needs a fixture `make_pool`: see actorproc.testing.pool_suite"
        raise NotImplementedError(msg)

    @pytest.fixture
    def host(self, make_pool: MakePool) -> Iterator[PoolListener]:
        """A pool that is open, and a listener that hears it."""
        made = PoolListener(make_pool(), bound=self.bound, first_slot=self.first_slot)
        yield made
        made.pool.close(min(1.0, self.bound))

    def test_a_launched_worker_boots_and_runs_steps(self, host: PoolListener) -> None:
        worker = host.boot()

        assert host.finish(worker, Count(1)) == 1
        assert (host.pool.facts()[worker].slot, host.pool.facts()[worker].incarnation) == (self.first_slot, 1)

    def test_each_worker_runs_its_steps_in_the_order_they_were_sent(self, host: PoolListener) -> None:
        worker = host.boot()
        names = [f"p{number}" for number in range(20)]

        for name in names:
            host.start(worker, Nothing(), name=name)

        assert [host.next_message(Ended, worker).token.procedure for _ in names] == names

    def test_workers_run_their_steps_beside_each_other(self, host: PoolListener) -> None:
        workers = [host.boot(slot) for slot in range(3)]
        runs = [host.start(worker, Hold(), name=f"p{worker.slot}") for worker in workers]
        asks = [host.next_message(Ask, worker) for worker in workers]

        for worker, ask in reversed(list(zip(workers, asks, strict=True))):
            host.pool.send(worker, [StepAnswer(ask.request)])

        assert [host.next_message(Ended, worker).token for worker in workers] == [run.token for run in runs]

    def test_a_step_that_raises_leaves_its_worker_alive(self, host: PoolListener) -> None:
        worker = host.boot()
        run = host.start(worker, Fail(), name="bad")

        ended = host.next_message(Ended, worker)
        assert ended.token == run.token
        assert not isinstance(ended.outcome, Finished)
        assert host.finish(worker, Count(1), name="good") == 1

    def test_a_step_that_has_not_begun_can_be_taken_back(self, host: PoolListener) -> None:
        worker = host.boot()
        first = host.start(worker, Hold(), name="first")
        ask = host.next_message(Ask, worker)
        second = host.start(worker, Nothing(), name="second")

        host.pool.send(worker, [TakeBackSteps((first.token, second.token))])

        assert host.next_message(Returned, worker).token == second.token
        host.pool.send(worker, [StepAnswer(ask.request)])
        assert host.next_message(Ended, worker).token == first.token

    def test_requests_are_answered_while_the_step_runs(self, host: PoolListener) -> None:
        worker = host.boot()
        host.start(worker, Hold())

        host.pool.send(worker, [StepAnswer(host.next_message(Ask, worker).request)])

        assert isinstance(host.next_message(Ended, worker).outcome, Finished)

    def test_the_stack_of_a_running_step_can_be_had(self, host: PoolListener) -> None:
        worker = host.boot()
        run = host.start(worker, Hold())
        ask = host.next_message(Ask, worker)

        assert host.pool.stack(run.token) != ""
        host.pool.send(worker, [StepAnswer(ask.request)])
        host.next_message(Ended, worker)
        assert host.pool.stack(run.token) == ""

    def test_a_killed_worker_is_told_dead_with_the_reason_and_never_heard_again(self, host: PoolListener) -> None:
        worker = host.boot()
        run = host.start(worker, Hold())
        ask = host.next_message(Ask, worker)

        host.pool.kill(worker, blamed=run.token, reason="too slow")

        died = host.died(worker)
        assert (died.report.kind, died.booted) == ("timeout", True)
        assert "too slow" in died.report.message
        host.pool.send(worker, [StepAnswer(ask.request)])
        host.boot(0, 2)
        assert not [event for event in host.heard if isinstance(event, WorkerMessages) and event.worker == worker]
        assert not host.inbox[worker]

    @pytest.mark.parametrize(
        ("is_blamed", "kind", "told"), [(False, "", "stopped"), (True, "", "timeout"), (True, "memory", "memory")]
    )
    def test_the_report_of_a_kill_has_the_kind_that_was_given(
        self, host: PoolListener, is_blamed: bool, kind: str, told: str
    ) -> None:
        worker = host.boot()
        run = host.start(worker, Hold())
        host.next_message(Ask, worker)

        host.pool.kill(worker, blamed=run.token if is_blamed else None, kind=kind)

        assert host.died(worker).report.kind == told

    def test_a_killed_worker_harms_no_other(self, host: PoolListener) -> None:
        doomed, other = host.boot(0), host.boot(1)
        run = host.start(other, Hold())
        ask = host.next_message(Ask, other)

        host.pool.kill(doomed)
        host.died(doomed)

        host.pool.send(other, [StepAnswer(ask.request)])
        assert host.next_message(Ended, other).token == run.token
        assert list(host.pool.facts()) == [other]

    def test_a_stopped_worker_answers_what_runs_and_returns_what_waits(self, host: PoolListener) -> None:
        worker = host.boot()
        first = host.start(worker, Hold(), name="first")
        ask = host.next_message(Ask, worker)
        second = host.start(worker, Nothing(), name="second")

        host.pool.stop(worker)
        assert host.next_message(Returned, worker).token == second.token
        host.pool.send(worker, [StepAnswer(ask.request)])

        assert host.died(worker).report.kind == "stopped"
        assert host.next_message(Ended, worker).token == first.token

    def test_messages_to_workers_that_do_not_live_are_dropped(self, host: PoolListener) -> None:
        worker = host.boot()
        assert list(host.pool.facts()) == [worker]
        host.pool.kill(worker)
        host.died(worker)

        host.start(worker, Count(1))
        host.pool.stop(worker)
        host.pool.kill(WorkerId(9, 9))

        assert host.pool.facts() == {}

    def test_a_slot_is_taken_anew_by_a_worker_of_the_next_incarnation(self, host: PoolListener) -> None:
        worker = host.boot()
        host.pool.kill(worker)
        host.died(worker)

        after = host.boot(0, 2)

        assert host.finish(after, Count(1)) == 1
        assert list(host.pool.facts()) == [after]

    def test_the_first_event_is_the_machine(self, host: PoolListener) -> None:
        joined = host.events.get(timeout=self.bound)

        assert isinstance(joined, HostJoined)
        assert joined.limits in {"cgroup", "rlimit", "none"}
        assert joined.process_limits in {"cgroup", "rlimit", "sampling", "none"}

    def test_facts_of_a_worker_are_numbers_or_unknown(self, host: PoolListener) -> None:
        worker = host.boot()
        host.pool.forget_spares()

        fact = host.pool.facts(self.bound)[worker]

        assert fact.age >= 0.0
        assert fact.cpu is None or fact.cpu >= 0.0
        assert fact.rss is None or fact.rss > 0
        assert host.pool.logs("p", self.bound) == []

    def test_a_step_that_is_watched_is_told_once_when_it_uses_too_much(self, host: PoolListener) -> None:
        worker = host.boot()
        run = host.start(worker, Hold())
        ask = host.next_message(Ask, worker)

        host.pool.watch(worker, run.token, StepLimits(memory_hard=1 << 40, cpu_time=1e6, processes=10_000))
        host.pool.watch(worker, run.token, StepLimits(memory_hard=4096))
        if not host.measures():
            host.pool.send(worker, [StepAnswer(ask.request)])
        else:
            told = host.next_event(WorkerExceeded, worker)
            assert (told.token, told.kind) == (run.token, "memory-limit")
            assert "more than its memory_hard" in told.why
            host.pool.send(worker, [StepAnswer(ask.request)])
        assert host.next_message(Ended, worker).token == run.token
        assert host.finish(worker, Count(1), name="after") == 1
        assert not [event for event in host.heard if isinstance(event, WorkerExceeded)]

    def test_what_does_not_run_is_not_watched(self, host: PoolListener) -> None:
        worker = host.boot()
        run = host.start(worker, Nothing())
        host.next_message(Ended, worker)

        host.pool.watch(worker, run.token, StepLimits(memory_hard=4096))
        host.pool.watch(WorkerId(9, 9), run.token, StepLimits(memory_hard=4096))

        assert host.finish(worker, Count(1), name="after") == 1
        assert not [event for event in host.heard if isinstance(event, WorkerExceeded)]

    def test_closing_ends_every_worker_and_may_be_repeated(self, host: PoolListener) -> None:
        workers = [host.boot(slot) for slot in range(3)]
        assert set(host.pool.facts()) == set(workers)

        host.pool.close(5.0)
        host.pool.close(5.0)

        assert {host.died(worker).report.kind for worker in workers} == {"stopped"}
        assert host.pool.facts() == {}
        assert not [event for event in host.events.queue if isinstance(event, WorkerDied)], "a death is told once"

    def test_closing_ends_a_worker_whose_step_does_not_end(self, host: PoolListener) -> None:
        worker = host.boot()
        host.start(worker, Hold())
        host.next_message(Ask, worker)

        host.pool.close(0.1)

        host.died(worker)
        assert host.pool.facts() == {}

    def test_a_worker_that_is_launched_when_the_pool_has_closed_does_not_live(self, host: PoolListener) -> None:
        host.boot()
        late = WorkerId(self.first_slot + 1, 1)
        host.pool.close(5.0)
        with contextlib.suppress(UsageError):
            host.pool.launch(late)

        assert host.pool.facts() == {}
        heard = [*host.heard, *host.events.queue]
        assert not [
            event
            for event in heard
            if isinstance(event, WorkerBooted) and event.worker == WorkerId(self.first_slot + 1, 1)
        ]
