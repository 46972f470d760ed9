"""Time limits as the manager keeps them: per running step, and fair after the host stood still."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.pipeline.step_reports import StepReports
from actorproc.engine.workers.sampled_steps import SampledSteps
from actorproc.engine.workers.timer_service import TimerService
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import StepReported, WorkerReady
from actorproc.model.policies import StepLimits
from actorproc.workers.base import WorkerExceeded

WORKER = WorkerId(0, 1)


def run_of(
    name: str, wall_time: float | None, limits: StepLimits | None = None, heartbeat: float | None = None
) -> RunStep:
    token = StepToken(1, WORKER, name, 1, 1)
    times = {"wall_time": wall_time, "heartbeat": heartbeat}
    return RunStep(token, "T", False, name, None, False, False, None, 0, limits=limits, **times)


def a_ledger() -> InFlightTable:
    in_flight = InFlightTable()
    in_flight.join(WorkerReady(WORKER))
    return in_flight


def test_time_in_which_the_host_stood_still_counts_for_no_limit():
    in_flight = a_ledger()
    in_flight.hand_out(run_of("a", 10.0), now=100.0)

    assert in_flight.next_limit() == 110.0
    in_flight.forgive(3600.0)

    assert in_flight.overdue(3600.0 + 109.0) == []
    assert [command.token.procedure for _, command, _ in in_flight.overdue(3600.0 + 110.0)] == ["a"]


def test_a_step_whose_state_its_worker_lacks_keeps_only_those_waiting_who_wait_for_the_store():
    in_flight = a_ledger()
    lacks = run_of("a", None)
    in_flight.hand_out(lacks, now=0.0)
    in_flight.lacks(lacks.token, 1.0)

    assert in_flight.busy()
    assert not in_flight.busy(lacking=False)
    in_flight.hand_out(run_of("b", None), now=2.0)
    assert in_flight.busy(lacking=False)


def test_steps_that_run_at_once_have_their_own_times():
    in_flight = a_ledger()
    beside = StepLimits(threads=2)
    for name, limit in (("a", 10.0), ("b", 3.0)):
        in_flight.hand_out(run_of(name, limit, beside), now=100.0)
    entry = in_flight.entries[WORKER]
    entry.begun = {run.token: (number, 100.0 + number) for number, run in enumerate(entry.queue.values())}

    assert in_flight.next_limit() == 104.0
    assert [command.token.procedure for _, command, _ in in_flight.overdue(105.0)] == ["b"]
    assert [token.procedure for token in in_flight.running()] == ["a", "b"]
    in_flight.answered(run_of("b", 3.0).token, 105.0)
    assert in_flight.next_limit() == 110.0


def test_only_the_first_of_steps_that_wait_for_each_other_is_sampled():
    in_flight = a_ledger()
    in_flight.hand_out(run_of("a", None), now=0.0)
    in_flight.hand_out(run_of("b", None, StepLimits(cpu_time=1.0)), now=0.0)
    assert in_flight.sampled() == []

    in_flight.answered(run_of("a", None).token, 1.0)

    assert [command.token.procedure for _, command in in_flight.sampled()] == ["b"]
    in_flight.die(WORKER)
    assert in_flight.sampled() == []


def test_after_a_failed_commit_a_worker_that_was_told_to_retire_counts_as_one_that_leaves():
    in_flight = a_ledger()
    in_flight.committed([WorkerReady(WORKER)])
    in_flight.entries[WORKER].retired = True

    [(ready, tokens)] = in_flight.handed_out()

    assert (ready.worker, ready.leaving, tokens) == (WORKER, True, ())


def test_after_a_failed_commit_it_is_known_which_steps_run_beside_each_other():
    in_flight = a_ledger()
    in_flight.committed([WorkerReady(WORKER)])
    beside = [run_of(name, None, StepLimits(threads=4)) for name in ("a", "b")]
    for run in beside:
        in_flight.hand_out(run, now=0.0)

    [(ready, tokens)] = in_flight.handed_out()

    assert (ready.threads, tokens) == (4, tuple(run.token for run in beside))


def test_a_step_that_waits_for_its_state_has_no_time_until_it_is_sent_again():
    in_flight = a_ledger()
    first, second = run_of("a", 10.0), run_of("b", None, StepLimits(cpu_time=1.0))
    in_flight.hand_out(first, now=0.0)
    in_flight.hand_out(second, now=0.0)

    in_flight.lacks(first.token, 5.0)

    assert in_flight.next_limit() is None
    assert in_flight.running() == (second.token,)
    assert [command for _, command in in_flight.sampled()] == [second]
    in_flight.answered(second.token, 6.0)
    assert (in_flight.running(), in_flight.busy()) == ((), True)
    assert in_flight.delayed(first.token, 50.0) is first
    assert in_flight.next_limit() == 60.0
    in_flight.lacks(first.token, 51.0)
    in_flight.die(WORKER)
    assert (in_flight.next_limit(), in_flight.busy(), in_flight.sampled()) == (None, False, [])


def test_the_step_that_runs_keeps_its_time_when_the_one_before_it_gets_its_state():
    in_flight = a_ledger()
    first, second = run_of("a", 10.0), run_of("b", 10.0)
    for run in (first, second):
        in_flight.hand_out(run, now=0.0)

    in_flight.lacks(first.token, 5.0)
    in_flight.delayed(first.token, 12.0)

    assert in_flight.next_limit() == 15.0
    assert [command.token.procedure for _, command, _ in in_flight.overdue(15.0)] == ["b"]


def test_a_step_that_has_to_be_sent_again_has_its_time_when_those_behind_it_had_theirs():
    in_flight = a_ledger()
    in_flight.committed([WorkerReady(WORKER)])
    first, second = run_of("a", 10.0), run_of("b", 10.0)
    for run in (first, second):
        in_flight.hand_out(run, now=0.0)

    assert in_flight.delayed(first.token, 5.0) is first

    assert [command.token.procedure for _, command, _ in in_flight.overdue(15.0)] == ["b"]
    assert in_flight.handed_out()[0][1] == (second.token, first.token)
    in_flight.answered(second.token, 15.0)
    assert in_flight.next_limit() == 25.0
    in_flight.answered(first.token, 16.0)
    assert in_flight.delayed(first.token, 17.0) is None


@pytest.mark.parametrize(
    ("wall_time", "heard", "limit", "is_silent"),
    [
        (None, None, 165.0, True),
        (None, 100.0, 105.0, True),
        (None, 103.0, 108.0, True),
        (20.0, 103.0, 108.0, True),
        (6.0, 103.0, 106.0, False),
        (5.0, None, 105.0, False),
    ],
)
def test_the_first_of_both_limits_of_time_ends_a_step_and_silence_counts_from_its_begin_or_the_last_heartbeat(
    wall_time, heard, limit, is_silent
):
    in_flight = a_ledger()
    run = run_of("a", wall_time, heartbeat=5.0)
    in_flight.hand_out(run, now=100.0)
    if heard is not None:
        in_flight.entries[WORKER].heard[run.token] = heard

    assert in_flight.next_limit() == limit
    assert in_flight.overdue(limit - 0.01) == []
    assert in_flight.overdue(limit)[0][1:] == (run, is_silent)
    in_flight.forgive(50.0)
    assert in_flight.next_limit() == limit + 50.0
    in_flight.answered(run.token, 200.0)
    assert in_flight.next_limit() is None
    assert in_flight.entries[WORKER].heard == {}


def test_a_step_that_waits_behind_another_is_not_silent_before_its_begin():
    in_flight = a_ledger()
    first, second = run_of("a", None), run_of("b", None, heartbeat=5.0)
    in_flight.hand_out(first, now=0.0)
    in_flight.hand_out(second, now=0.0)

    assert in_flight.overdue(1000.0) == []
    in_flight.answered(first.token, 1000.0)
    in_flight.entries[WORKER].heard[second.token] = 1001.0
    assert in_flight.next_limit() == 1006.0


# ---------------------------------------------------------------- reports that wait for their commit
def a_reporter():
    now, told = [0.0], []
    pipeline, clock = SimpleNamespace(handle=told.append), SimpleNamespace(monotonic=lambda: now[0])
    return StepReports(pipeline, clock), now, told


def test_reports_of_all_steps_are_stored_together_and_at_most_once_a_second():
    reports, now, told = a_reporter()
    one, other = run_of("a", None).token, run_of("b", None).token
    for turn in range(100):
        now[0] = turn / 20
        reports.expose(one, "turn", b"%d" % turn)
        reports.heartbeat(other, b"%d" % turn, "beat", 1)
        reports.look(now[0])

    assert len(told) == 2 * 5
    assert told[-2:] == [
        StepReported(one, (("turn", b"82"),)),
        StepReported(other, (), b"82", "beat", 1),
    ]


def test_reports_of_a_step_that_ends_wait_for_nothing_and_come_once():
    reports, _now, told = a_reporter()
    token = run_of("a", None).token
    reports.expose(token, "key", b"1")

    assert reports.due_at is not None
    assert reports.take(token) == StepReported(token, (("key", b"1"),))
    assert reports.take(token) is None
    assert reports.due_at is None
    reports.look(100.0)
    assert told == []


def test_reports_wait_while_the_store_refuses_writes():
    reports, _now, told = a_reporter()
    reports.expose(run_of("a", None).token, "key", b"1")

    reports.look(5.0, in_trouble=True)
    assert (told, reports.due_at) == ([], 6.0)
    reports.look(6.0)
    assert len(told) == 1


def test_the_pool_is_told_once_of_each_limited_step_that_begins():
    in_flight, watched = a_ledger(), []
    pool = SimpleNamespace(watch=lambda *what: watched.append(what))
    sampled = SampledSteps(pool, in_flight)
    limits = StepLimits(cpu_time=1.0)
    for name in ("a", "b"):
        in_flight.hand_out(run_of(name, None, limits), now=0.0)

    sampled.follow()
    sampled.follow()
    assert watched == [(WORKER, run_of("a", None).token, limits)]

    in_flight.lacks(run_of("a", None).token, 1.0)  # its worker goes on with what is behind it
    sampled.follow()
    in_flight.answered(run_of("b", None).token, 2.0)
    sampled.follow()
    in_flight.delayed(run_of("a", None).token, 3.0)
    sampled.follow()
    assert [token.procedure for _, token, _ in watched] == ["a", "b", "a"]


def a_timer_service(in_flight, kills):
    pool = SimpleNamespace(kill=lambda worker, **how: kills.append((worker, how["blamed"], how["kind"], how["grace"])))
    alarm = SimpleNamespace(when_clock_is_set=lambda call: None)
    others = ("clock", "pipeline", "sampled", "dedicated", "parked_waits", "digests", "reports", "on_alarm")
    others += ("absent",)
    return TimerService(in_flight=in_flight, pool=pool, alarm=alarm, **dict.fromkeys(others))


def test_who_uses_too_much_is_killed_once_and_only_while_the_step_runs():
    in_flight, kills = a_ledger(), []
    time = a_timer_service(in_flight, kills)
    run = run_of("a", None, StepLimits(memory_hard=1, grace=3.0))
    told = WorkerExceeded(WORKER, run.token, "memory-limit", "it held too much")

    time.exceeded(told)  # it was answered before this came
    in_flight.hand_out(run, now=0.0)
    time.exceeded(msgspec.structs.replace(told, worker=WorkerId(9, 1)))
    assert kills == []

    time.exceeded(told)
    time.exceeded(told)
    assert kills == [(WORKER, run.token, "memory-limit", 0.05)]
    assert (in_flight.entries[WORKER].kind, in_flight.entries[WORKER].why) == ("memory-limit", "it held too much")


def test_a_worker_that_has_died_is_not_killed_for_what_it_used():
    in_flight, kills = a_ledger(), []
    run = run_of("a", None, StepLimits(cpu_time=1.0))
    in_flight.hand_out(run, now=0.0)
    in_flight.die(WORKER)

    a_timer_service(in_flight, kills).exceeded(WorkerExceeded(WORKER, run.token, "cpu-limit", "it took too long"))

    assert kills == []
