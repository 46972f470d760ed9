"""What a procedure is doing, as its head says it and as the engine knows it."""

from __future__ import annotations

import pytest

from actorproc.core.state.phases import is_interrupted, is_waiting_for_locks, phase_of, reason_of
from actorproc.model.ids import Mode
from actorproc.model.messages.events import Published, Tick
from actorproc.model.messages.outcomes import Advanced, Finished, Slept, Suspended, Waited
from actorproc.model.policies import Backoff, LockKey
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import Phase, ProcedureState
from tests.core.harness import CoreHarness, boom, later


def head(**fields):
    return ProcedureRecord(id="p", type_name="T", version=1, root="p", parent=None, seq=1, **fields)


@pytest.mark.parametrize(
    ("record", "facts", "phase"),
    [
        (head(), {}, Phase.QUEUED),
        (head(), {"running": True}, Phase.RUNNING),
        (head(errors=1), {"running": True}, Phase.RUNNING),
        (head(), {"waits_for_locks": True}, Phase.LOCKED_OUT),
        (head(errors=1), {}, Phase.RETRYING),
        (head(crashes=1), {}, Phase.RETRYING),
        (head(errors=1, stuck=1), {}, Phase.STUCK),
        (head(errors=1, stuck=1, step=2), {}, Phase.RETRYING),
        (head(state=ProcedureState.WAITING), {}, Phase.SUSPENDED),
        (head(state=ProcedureState.WAITING, event="e"), {}, Phase.WAITING),
        (head(state=ProcedureState.WAITING_TIMEOUT, event="e"), {}, Phase.WAITING),
        (head(state=ProcedureState.WAITING_TIMEOUT), {}, Phase.SLEEPING),
        (head(rolling=True), {"running": True}, Phase.ROLLING_BACK),
        (head(parked="no class"), {}, Phase.PARKED),
        (head(), {"stands_still": True}, Phase.PARKED),
        (head(state=ProcedureState.SUCCESS), {"stands_still": True}, Phase.DONE),
        (head(state=ProcedureState.SUCCESS, undoing=3), {}, Phase.ROLLING_BACK),
    ],
)
def test_the_phase_follows_from_the_head_and_a_few_facts(record, facts, phase):
    assert phase_of(record, **{"running": False, "waits_for_locks": False, **facts}) is phase


def test_the_reason_is_what_the_head_says():
    assert reason_of(head(parked="no class"), Phase.PARKED) == "no class"
    assert reason_of(head(event="word"), Phase.WAITING) == "for the event 'word'"
    assert reason_of(head(pending=3), Phase.SUSPENDED) == "for 3 of its children"
    assert reason_of(head(), Phase.QUEUED) is None


def heads_of(harness):
    return [harness.core.view(name) for name in ("a", "b", "c", "kid") if harness.core.view(name) is not None]


def assert_heads_say_what_the_engine_knows(harness):
    for record in heads_of(harness):
        stored = phase_of(record, running=is_interrupted(record), waits_for_locks=is_waiting_for_locks(record))
        assert stored is harness.core.phase(record)[0], record.id


def test_what_the_heads_say_is_what_the_engine_knows_all_along():
    harness = CoreHarness(workers=2, retry=Backoff(max_attempts=3, base=5.0, jitter=0.0), rollback_supported=True)
    key = (LockKey.write("k"),)

    def then(_):
        assert_heads_say_what_the_engine_knows(harness)

    then(harness.submit(harness.new("a", locks=key, unit="")))
    then(harness.submit(harness.new("b", locks=key)))
    then(harness.submit(harness.new("c")))
    then(harness.answer("c", later()))
    assert harness.core.phase(harness.core.view("c"))[0] is Phase.RETRYING
    assert harness.core.phase(harness.core.view("b"))[0] is Phase.LOCKED_OUT
    then(harness.answer("a", Suspended(state=b"1", children=(harness.new("kid"),))))
    then(harness.answer("kid", Advanced(state=b"1")))
    then(harness.answer("kid", Finished(state=b"2")))
    then(harness.answer("a", Waited(state=b"2", event="word")))
    harness.kill(1)
    then(None)
    harness.now = 6.0
    then(harness.handle(Tick()))
    then(harness.handle(Published("word", b"", 2)))
    then(harness.answer("a", Slept(state=b"3", seconds=3.0)))
    harness.now = 10.0
    then(harness.handle(Tick()))
    then(harness.answer("a", boom()))
    assert harness.core.phase(harness.core.view("a"))[0] is Phase.ROLLING_BACK
    while any(run.token.mode is Mode.ROLLBACK for run in harness.inbox.values()):
        harness.undo_all()
        then(None)


def test_a_fatal_error_behind_the_point_of_no_return_is_stuck_and_stays_so_over_a_restart():
    harness = CoreHarness(retry=Backoff(max_attempts=1, base=5.0, jitter=0.0))
    harness.submit(harness.new("a", no_return=True))

    harness.answer("a", boom("the bridge is burnt"))

    record = harness.core.view("a")
    assert harness.core.phase(record) == (Phase.STUCK, "the bridge is burnt")
    assert (record.stuck, record.step) == (1, 1)
    assert phase_of(record, running=False, waits_for_locks=False) is Phase.STUCK
