"""Steps on hosts over a change of leaders: those that a host has go on, and those that it has not got run anew."""

from __future__ import annotations

import msgspec
import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.core.results.adoption import absent_worker, absent_workers
from actorproc.core.state.head import LOSSES_OF_HOSTS
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.events import (
    CrashReport,
    HostAdded,
    HostClaimed,
    KillRequested,
    StepEnded,
    Tick,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished, Stopped, Suspended
from actorproc.model.policies import Backoff, TypeMeta
from actorproc.model.slots import MOST_WORKERS, first_slot
from actorproc.model.states import ProcedureState

from .harness import CoreHarness, boom, difference, heads_of, image_of, later

LOST = CrashReport(kind="host-lost", message="host h1 was silent for 10 s")
WORKER = WorkerId(1000, 1)
TYPES = (TypeMeta(type_name="T", rollback_supported=True),)


def with_host(*names: str, workers: int = 1) -> CoreHarness:
    """Procedures whose first steps are in the hands of workers of the host h1."""
    harness = CoreHarness(workers=0, rollback_supported=True)
    harness.handle(HostAdded("h1"))
    for slot in range(workers):
        harness.handle(WorkerReady(WorkerId(1000 + slot, 1), host="h1"))
    for name in names:
        harness.submit(harness.new(name))
    return harness


def next_leader(before: CoreHarness) -> CoreHarness:
    """A leader that starts on what this one has stored, and waits for its hosts."""
    after = CoreHarness(0)
    snapshot = msgspec.structs.replace(image_of(before).snapshot(), epoch=2)
    absent = absent_workers(snapshot.procedures)
    after.core, decision = Coordinator.restore(snapshot, before.now, types=TYPES, workers=absent)
    after.now = before.now
    after.writes = [*before.writes]
    after._noted(decision)
    return after


def come(leader: CoreHarness, *held: tuple, slots: int = 8) -> list:
    """The host h1 joins, and names what it holds; which of it counts."""
    found = leader.core.claimable(1, slots, held)
    workers = tuple(
        (msgspec.structs.replace(ready, host="h1"), tuple(one.token for one in commands)) for ready, commands in found
    )
    leader.handle(HostClaimed(1, workers))
    leader.handle(HostAdded("h1"))
    return [(ready.worker, tokens) for ready, tokens in workers]


def test_a_step_that_its_host_has_goes_on_under_its_attempt():
    before = with_host("p")
    token = before.inbox["p"].token
    after = next_leader(before)
    after.handle(WorkerReady(WorkerId(0, 1)))
    assert after.inbox == {}, "it is not handed out while its host may have it"

    assert come(after, (WORKER, 7, (token,), ())) == [(WORKER, (token,))]
    after.handle(StepEnded(token, Finished(output=b"x")))

    assert after.state("p") is ProcedureState.SUCCESS
    assert after.inbox == {}


def test_an_answer_that_the_leader_before_did_not_store_counts():
    before = with_host("p")
    token = before.inbox["p"].token
    after = next_leader(before)

    assert come(after, (WORKER, 7, (), (token,))) == [(WORKER, (token,))]
    after.handle(StepEnded(token, Advanced(state=b"1")))

    assert after.inbox["p"].token.step == 2
    assert after.inbox["p"].token.worker == WORKER


def test_an_answer_that_was_stored_does_not_count_again():
    before = with_host("p")
    token = before.inbox["p"].token
    before.answer("p", Advanced(state=b"1"))
    second = before.inbox["p"].token
    after = next_leader(before)

    assert come(after, (WORKER, 7, (second,), (token,))) == [(WORKER, (second,))]


@pytest.mark.parametrize("held", [(), ((WORKER, 7, (), ()),)])
def test_a_step_that_its_host_has_not_got_runs_anew_when_the_host_says_so(held):
    after = next_leader(with_host("p"))
    after.handle(WorkerReady(WorkerId(0, 1)))

    come(after, *held)

    token = after.inbox["p"].token
    assert (token.step, token.attempt, token.epoch) == (1, 2, 2), (
        "it may have begun, and been killed when no leader was heard"
    )


def test_a_host_that_does_not_come_loses_its_steps_and_none_is_charged():
    after = next_leader(with_host("p"))
    after.handle(WorkerReady(WorkerId(0, 1)))

    after.handle(WorkerLost(absent_worker(1), LOST, crashed=False))

    assert after.inbox["p"].token.attempt == 2
    head = heads_of(after)["p"]
    assert (head.errors, head.crashes, head.host_losses) == (0, 0, 0)


def test_steps_on_the_machine_of_the_leader_before_do_not_wait():
    before = CoreHarness(workers=1, rollback_supported=True)
    before.submit(before.new("p"))
    after = next_leader(before)

    after.handle(WorkerReady(WorkerId(0, 1)))

    assert after.inbox["p"].token.attempt == 2


def test_what_ran_on_a_host_before_and_runs_here_now_is_not_the_hosts():
    before = with_host("p")
    before.handle(WorkerReady(WorkerId(0, 1)))
    before.handle(WorkerLost(WORKER, LOST))
    assert before.inbox["p"].token.worker == WorkerId(0, 1)

    assert absent_workers(image_of(before).snapshot().procedures) == []


@pytest.mark.parametrize(
    "outcome",
    [
        later(after=0.0),
        later(after=5.0),
        Stopped(report=CrashReport(kind="timeout", message="too long")),
        Stopped(report=CrashReport(kind="killed", message="killed by operator")),
    ],
    ids=["failed", "failed-with-a-pause", "cancelled-for-a-limit", "cancelled-by-an-operator"],
)
@pytest.mark.parametrize("undoes", [False, True], ids=["forward", "undo"])
def test_an_attempt_that_ended_on_a_host_is_not_the_hosts_while_the_next_one_waits_for_a_worker(outcome, undoes):
    before = with_host()
    before.register("T", tasks=10, rollback_supported=True, retries_overtime=True, rollback_retry=Backoff(base=0.0))
    before.submit(before.new("p", unit=""))
    if undoes:
        before.answer("p", boom())
    before.handle(KillRequested("p", 2))
    before.core.dispatching = False

    before.answer("p", outcome)
    before.now += 10.0
    before.handle(Tick())

    assert before.core.view("p").due_at is None
    assert absent_workers(image_of(before).snapshot().procedures) == []
    assert difference(before) is None


def test_tokens_of_others_do_not_count():
    before = with_host("p", "q", workers=2)
    p, q = before.inbox["p"].token, before.inbox["q"].token
    after = next_leader(before)
    wrong = [
        msgspec.structs.replace(p, attempt=2),
        msgspec.structs.replace(p, step=2),
        msgspec.structs.replace(p, mode=Mode.ROLLBACK),
        msgspec.structs.replace(p, procedure="gone"),
    ]

    assert come(after, (WORKER, 7, tuple(wrong), ()), (WorkerId(2000, 1), 8, (q,), ())) == [(WORKER, ())]
    assert after.core.claimable(2, 8, [(WorkerId(2000, 1), 8, (q,), ())]) == [
        (WorkerReady(WorkerId(2000, 1), pid=8), ())
    ]


def test_workers_beyond_what_the_host_offers_now_do_not_live_on():
    before = with_host("p")
    token = before.inbox["p"].token
    after = next_leader(before)

    assert come(after, (WORKER, 7, (token,), ()), (WorkerId(1005, 1), 8, (), ()), slots=4) == [(WORKER, (token,))]


def test_a_host_with_as_many_workers_as_it_may_have_leaves_room_for_its_absent_one():
    after = next_leader(with_host("p"))
    last = WorkerId(first_slot(1) + MOST_WORKERS - 1, 1)

    assert come(after, (last, 7, (), ()), slots=MOST_WORKERS) == [(last, ())]

    assert after.inbox["p"].token.attempt == 2, "its host has not got it, so it runs anew"


def test_a_host_that_asks_twice_is_told_the_same():
    before = with_host("p")
    token = before.inbox["p"].token
    after = next_leader(before)

    first = come(after, (WORKER, 7, (token,), ()))

    assert come(after, (WORKER, 7, (token,), ())) == first
    after.handle(StepEnded(token, Finished(output=b"x")))
    assert after.state("p") is ProcedureState.SUCCESS


def test_an_adopted_worker_that_dies_costs_what_any_other_costs():
    before = with_host("p")
    token = before.inbox["p"].token
    after = next_leader(before)
    come(after, (WORKER, 7, (token,), ()))
    after.handle(WorkerReady(WorkerId(0, 1)))

    after.handle(WorkerLost(WORKER, CrashReport(kind="signal", message="killed", signal="SIGKILL"), first=token))

    assert after.inbox["p"].token.attempt == 2
    assert heads_of(after)["p"].crashes == 1


# ---------------------------------------------------------------------- losses
def lose(harness: CoreHarness, name: str) -> None:
    """The host of a step is lost, and comes again."""
    worker = harness.inbox.pop(name).token.worker
    harness.handle(WorkerLost(worker, LOST))
    harness.handle(WorkerReady(WorkerId(worker.slot, worker.incarnation + 1), host="h1"))


def test_a_loss_of_a_host_is_neither_an_error_nor_a_crash_but_is_counted():
    harness = with_host("p")
    for count in range(1, LOSSES_OF_HOSTS + 1):
        lose(harness, "p")
        head = heads_of(harness)["p"]
        assert (head.errors, head.crashes, head.host_losses) == (0, 0, count)
        assert harness.inbox["p"].token.attempt == count + 1

    harness.answer("p", Advanced(state=b"1"))

    assert heads_of(harness)["p"].host_losses == 0, "the next step begins with none"


def test_a_step_that_is_lost_with_one_host_after_the_other_fails_in_words():
    harness = with_host("p")
    for _ in range(LOSSES_OF_HOSTS + 1):
        lose(harness, "p")

    harness.undo_all()

    error = heads_of(harness)["p"].error
    assert error is not None
    assert "its host was lost for the 4th time in a row in step 1" in error.message
    assert error.crash is not None
    assert error.crash.kind == "host-lost"
    assert harness.state("p") in {ProcedureState.ROLLEDBACK, ProcedureState.FAILED}


def test_losses_survive_a_change_of_leaders():
    harness = with_host("p")
    lose(harness, "p")

    assert next(iter(image_of(harness).snapshot().procedures)).host_losses == 1


@pytest.mark.parametrize("held", ["running", "answered"])
def test_a_step_of_a_class_that_the_leader_does_not_know_is_not_taken_over_and_runs_when_it_does(held):
    """By what policy its error would be tried again is not known, and an answer of it stopped the manager."""
    before = with_host("p")
    token = before.inbox["p"].token
    after = CoreHarness(0)
    snapshot = msgspec.structs.replace(image_of(before).snapshot(), epoch=2)
    after.core, decision = Coordinator.restore(
        snapshot, before.now, types=(), workers=absent_workers(snapshot.procedures)
    )
    after.now, after.writes = before.now, [*before.writes]
    after._noted(decision)

    assert come(after, (WORKER, 7, *(((token,), ()) if held == "running" else ((), (token,))))) == [(WORKER, ())]
    after.handle(StepEnded(token, Advanced(state=b"1")))
    assert after.core.phase(after.core.view("p"))[0] == "parked"
    after.register("T", rollback_supported=True)

    again = after.inbox["p"].token
    assert (again.step, again.worker) == (1, WORKER)
    after.answer("p", Finished(output=b"x"))
    assert after.state("p") is ProcedureState.SUCCESS


@pytest.mark.parametrize(("wait", "answered"), [("any", 1), ("each", 1), ("each", 2)])
def test_a_parent_that_went_on_before_all_its_children_had_ended_is_taken_over_as_well(wait, answered):
    before = with_host("p", workers=4)
    children = tuple(before.new(name) for name in "abc")
    before.answer("p", Suspended(state=b"1", children=children, wait=wait))
    for name in "abc"[:answered]:
        before.answer(name, Finished(output=b"x"))
    token = before.inbox["p"].token
    assert (token.step, heads_of(before)["p"].pending) == (2, 3 - answered)
    after = next_leader(before)
    after.handle(WorkerReady(WorkerId(0, 1)))
    assert "p" not in after.inbox, "it is not handed out while its host may have it"

    assert (token.worker, (token,)) in come(after, (token.worker, 7, (token,), ()))
    after.handle(StepEnded(token, Finished(output=b"x")))

    assert heads_of(after)["p"].records > heads_of(before)["p"].records
