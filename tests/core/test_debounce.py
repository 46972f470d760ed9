"""Debounced submits: which root waits for a key, what takes its place, when it begins, and what counts once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actorproc.core.coordinator import Coordinator
from actorproc.core.lifecycle import debounce
from actorproc.core.queues.worker_table import BULKY
from actorproc.errors import DuplicateProcedure, KeyPoisoned, ManagerBusy, UnknownType
from actorproc.model.ids import WorkerId, debounce_name
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import (
    AbortRequested,
    BypassRequested,
    PauseRequested,
    RestartRequested,
    ResumeRequested,
    RetryRequested,
    Signalled,
    Submitted,
    Tick,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Finished, Renewed, Slept, Waited
from actorproc.model.policies import LockKey, Scheduling, StepLimits, TypeMeta
from actorproc.model.rows.record_parts import DebounceTerms
from actorproc.model.rows.records import IdReuse, NewProcedure, ProcedureRecord
from actorproc.model.rows.writes import PutProcedure, PutStep
from actorproc.model.states import Phase, ProcedureState
from tests.core.harness import CoreHarness, boom, difference, image_of, restarted

_numbers = iter(range(1, 10**6))
WITHIN = 5.0


def debounced(
    harness: CoreHarness,
    state: bytes = b"0",
    *,
    key: str = "k",
    within: float = WITHIN,
    at_most: float = 0.0,
    type_name: str = "T",
    **fields: object,
) -> NewProcedure:
    number = next(_numbers)
    terms = DebounceTerms(key, within, at_most, number.to_bytes(8, "big"))
    new = harness.new(f"{key}:{number}", type_name, debounce=terms, **fields)
    return replace(new, state=state)


def submit(harness: CoreHarness, new: NewProcedure) -> Reply:
    """Submit as the commit pipeline does, which first has loaded what the decision needs."""
    assert new.debounce is not None
    key = new.debounce.key
    missing = harness.core.missing(Submitted((new,), 1), harness.now)
    assert set(missing) <= {debounce_name(key), new.id}
    if debounce_name(key) in missing:
        stored = sorted(image_of(harness).heads.values(), key=lambda record: record.seq)
        for record in stored:
            if record.past is not None and record.past.debounce is not None and record.past.debounce.key == key:
                harness.core.note_debounced(key, record.id)
    return harness.submit(new)


def submitted(harness: CoreHarness, state: bytes = b"0", **options: object) -> str:
    reply = submit(harness, debounced(harness, state, **options))  # type: ignore[arg-type]
    assert reply.error is None
    (name,) = reply.value
    return str(name)


def pass_time(harness: CoreHarness, seconds: float) -> None:
    harness.now += seconds
    harness.handle(Tick())


def head(harness: CoreHarness, id: str) -> ProcedureRecord:
    record = harness.core.view(id)
    assert record is not None
    return record


def first_state(harness: CoreHarness, id: str) -> bytes:
    return [
        write.record.state for write in harness.writes if isinstance(write, PutStep) and write.record.procedure == id
    ][-1]


# ---------------------------------------------------------------------- the wait
def test_of_many_submits_the_last_one_runs_once_none_has_come_for_the_time() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1")
    for state in (b"2", b"3"):
        pass_time(harness, WITHIN - 1)
        assert submitted(harness, state) == name
        assert difference(harness) is None
    pass_time(harness, WITHIN - 0.5)
    assert name not in harness.inbox

    pass_time(harness, 0.5)

    assert harness.inbox[name].token.procedure == name
    assert first_state(harness, name) == b"3"
    assert len([write for write in harness.writes if isinstance(write, PutProcedure) and write.was is None]) == 1
    assert difference(harness) is None


def test_it_starts_when_the_longest_wait_is_over_however_many_come() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1", at_most=12.0)
    for state in (b"2", b"3", b"4"):
        pass_time(harness, 3.0)
        assert submitted(harness, state, at_most=12.0) == name
    assert head(harness, name).due_at == 12.0

    pass_time(harness, 3.0)

    assert name in harness.inbox
    assert first_state(harness, name) == b"4"


def test_a_submit_that_comes_when_the_longest_wait_is_over_begins_it_at_once() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1")
    harness.now += WITHIN - 1

    assert submitted(harness, b"2", at_most=2.0, within=1.0) == name

    assert name in harness.inbox
    assert difference(harness) is None


@pytest.mark.parametrize("course", ["begun", "slept", "ended", "failed", "aborted", "bypassed", "renewed", "queued"])
def test_once_its_wait_is_over_the_next_submit_begins_another_one(course: str) -> None:
    harness = CoreHarness(0 if course == "queued" else 1)
    name = submitted(harness, b"1")
    if course not in {"aborted", "bypassed"}:
        pass_time(harness, WITHIN)
    match course:
        case "slept":
            harness.answer(name, Slept(state=b"s", seconds=100.0))
        case "ended":
            harness.answer(name, Finished(state=b"e"))
        case "failed":
            harness.answer(name, boom())
        case "renewed":
            harness.answer(name, Renewed(state=b"r", fresh=b"r"))
        case "aborted":
            harness.handle(AbortRequested(name, 7))
        case "bypassed":
            harness.handle(BypassRequested(name, 7))

    other = submitted(harness, b"2")

    assert other != name
    assert head(harness, other).due_at == harness.now + WITHIN
    assert difference(harness) is None
    assert submitted(harness, b"3") == other


def test_keys_have_nothing_to_do_with_each_other() -> None:
    harness = CoreHarness(2)
    names = {key: submitted(harness, key.encode(), key=key) for key in ("a", "b")}
    pass_time(harness, WITHIN - 1)
    submitted(harness, b"x", key="a")
    pass_time(harness, 1.0)

    assert names["b"] in harness.inbox
    assert names["a"] not in harness.inbox


# ---------------------------------------------------------------------- what is replaced, what stays
def test_the_later_submit_replaces_state_and_options_and_keeps_the_place() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1", tags=("old", "both"), priority=3, owner="ann", deadline=90.0, limit_keys=("g",))
    first = head(harness, name)
    seq, created = first.seq, first.created_at
    pass_time(harness, 1.0)
    options = {
        "tags": ("both", "new"),
        "priority": 1,
        "owner": None,
        "deadline": 60.0,
        "locks": (LockKey.write("a"),),
        "poisons": ("p",),
        "unit": "u",
        "step_name": "pay",
        "version": 2,
        "limits": StepLimits(wall_time=9.0),
    }

    submitted(harness, b"2", **options)

    record = head(harness, name)
    assert {field: getattr(record, field) for field in options} == options
    assert (record.limit_keys, record.locked, record.seq, record.created_at) == ((), False, seq, created)
    was = [write.was for write in harness.writes if isinstance(write, PutProcedure)][-1]
    assert was is not None
    assert was.tags == ("old", "both")
    assert difference(harness) is None
    submitted(harness, b"3", **options)
    was = [write.was for write in harness.writes if isinstance(write, PutProcedure)][-1]
    assert was is not None
    assert was.tags == options["tags"]


def test_the_deadline_of_the_submit_before_says_nothing_any_more() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1", deadline=4.0)
    submitted(harness, b"2", deadline=50.0)

    pass_time(harness, 4.0)
    assert harness.state(name) is ProcedureState.RUNNABLE
    pass_time(harness, 1.0)

    assert name in harness.inbox


def test_signals_and_a_pause_stay_with_the_root() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1")
    harness.handle(Signalled(name, b"payload", 7))
    harness.handle(PauseRequested(name, 8, "look at it"))

    assert submitted(harness, b"2") == name

    assert head(harness, name).paused == "look at it"
    harness.handle(ResumeRequested(name, 9))
    pass_time(harness, WITHIN)
    harness.answer(name, Waited(state=b"w", event="e"))
    assert difference(harness) is None


def test_the_size_of_a_long_state_is_that_of_the_last_submit() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1" * BULKY)
    sizes = harness.core._state.workers.table._bulky
    assert sizes[name] == BULKY
    submitted(harness, b"2")
    assert name not in sizes
    submitted(harness, b"3" * (BULKY + 1))
    assert sizes[name] == BULKY + 1


# ---------------------------------------------------------------------- refused
def test_another_type_cannot_take_the_place_and_may_wait_later() -> None:
    harness = CoreHarness()
    harness.register("U")
    name = submitted(harness, b"1")

    reply = submit(harness, debounced(harness, b"2", type_name="U"))

    assert isinstance(reply.error, DuplicateProcedure)
    assert "is a T; a U cannot take its place" in str(reply.error)
    assert first_state(harness, name) == b"1"
    pass_time(harness, WITHIN)
    assert submitted(harness, b"2", type_name="U") != name


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("what", ["type", "poison", "busy"])
def test_what_cannot_run_is_refused_and_leaves_the_one_that_waits(what: str, is_first: bool) -> None:
    harness = CoreHarness()
    if what == "busy":
        harness.core, _ = Coordinator.restore(
            image_of(harness).snapshot(), 0.0, scheduling=Scheduling(max_queued=1), types=[TypeMeta(type_name="T")]
        )
    name = "" if is_first else submitted(harness, b"1")
    if what == "poison":
        harness.submit(harness.new("q", locks=(LockKey.write("a"),), poisons=("a",)))
        harness.answer("q", boom())
    if what == "busy" and is_first:
        submitted(harness, b"0", key="other")
    options = {"type_name": "Unknown"} if what == "type" else {"locks": (LockKey.write("a"),)}
    new = debounced(harness, b"2", **({} if what == "busy" else options))  # type: ignore[arg-type]

    error = submit(harness, new).error

    if what == "busy" and not is_first:
        assert error is None  # it is not one more
        return
    assert isinstance(
        error, {"type": UnknownType | DuplicateProcedure, "poison": KeyPoisoned, "busy": ManagerBusy}[what]
    )
    if name:
        assert first_state(harness, name) == b"1"
        assert head(harness, name).due_at == WITHIN


# ---------------------------------------------------------------------- once
@pytest.mark.parametrize("passed", ["nothing", "another", "begun", "ended", "next run", "restart"])
def test_a_submit_that_comes_again_changes_nothing(passed: str) -> None:
    harness = CoreHarness(2)
    submitted(harness, b"0")
    new = debounced(harness, b"1")
    assert submit(harness, new).error is None
    (name,) = submit(harness, new).value
    latest = b"1"
    if passed == "another":
        harness.now += 1.0
        submitted(harness, latest := b"2")
    elif passed != "nothing":
        pass_time(harness, WITHIN)
    if passed in {"ended", "restart"}:
        harness.answer(name, Finished(state=b"e"))
    if passed == "next run":
        assert submitted(harness, b"2") != name
    if passed == "restart":
        again = replace(harness.new(name, reuse=IdReuse("restart", b"restart!")), fresh=False)
        harness.handle(RestartRequested(name, 7, again, 1))
    before = [*harness.writes]

    reply = submit(harness, new)

    assert reply.value == (name,)
    assert harness.writes == before
    if passed in {"nothing", "another"}:
        assert first_state(harness, name) == latest
    assert difference(harness) is None


def test_only_the_newest_submits_are_known_again() -> None:
    harness = CoreHarness()
    news = [debounced(harness, b"%d" % number) for number in range(debounce.KEPT + 1)]
    for new in news:
        submit(harness, new)
    record = head(harness, news[0].id)
    assert record.past is not None
    assert record.past.debounce is not None
    ((_, tokens),) = record.past.debounce.runs
    assert len(tokens) == debounce.KEPT * 8
    submit(harness, news[1])
    assert first_state(harness, news[0].id) == news[-1].state
    submit(harness, news[0])
    assert first_state(harness, news[0].id) == news[0].state


def test_a_root_knows_the_submits_of_the_few_runs_before_it() -> None:
    harness = CoreHarness(debounce.RUNS + 1)
    news = []
    for number in range(debounce.RUNS + 1):
        news.append(debounced(harness, b"%d" % number))
        submit(harness, news[-1])
        pass_time(harness, WITHIN)
    for new in news[1:]:
        assert submit(harness, new).value == (new.id,)
    assert submit(harness, replace(news[0], id="k:x")).value == ("k:x",)


def test_an_id_that_exists_is_taken_by_no_debounced_submit() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("k:1"))
    new = replace(debounced(harness), id="k:1", fresh=False)

    assert isinstance(submit(harness, new).error, DuplicateProcedure)


# ---------------------------------------------------------------------- pauses, restarts, clocks
@pytest.mark.parametrize("held", ["manager", "root"])
def test_while_it_is_paused_it_waits_for_further_submits(held: str) -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1")
    target = None if held == "manager" else name
    harness.handle(PauseRequested(target, 7))
    pass_time(harness, WITHIN + 100)
    assert difference(harness) is None
    assert harness.core.next_deadline() is None

    assert submitted(harness, b"2") == name
    assert harness.core.next_deadline() == harness.now + WITHIN
    pass_time(harness, WITHIN)
    assert harness.core.next_deadline() is None
    assert name not in harness.inbox
    assert difference(harness) is None
    harness.handle(ResumeRequested(target, 8))

    assert first_state(harness, name) == b"2"
    assert name in harness.inbox
    assert difference(harness) is None
    assert submitted(harness, b"3") != name


def test_a_gate_that_opens_ends_the_waits_that_are_over() -> None:
    harness = CoreHarness()
    harness.core.gated = True
    name = submitted(harness, b"1")
    pass_time(harness, WITHIN)
    assert submitted(harness, b"2") == name
    pass_time(harness, WITHIN)
    harness.core.gated = False

    harness.handle(Tick())

    assert name in harness.inbox


def test_an_abort_of_one_that_waits_over_its_time_ends_it() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1")
    harness.handle(PauseRequested(None, 7))
    pass_time(harness, WITHIN)
    harness.handle(AbortRequested(name, 8))
    harness.handle(ResumeRequested(None, 9))

    assert harness.state(name) in {ProcedureState.FAILED, ProcedureState.ROLLEDBACK}
    assert difference(harness) is None


@pytest.mark.parametrize("after", [0.0, WITHIN - 1, WITHIN + 1])
def test_it_waits_over_a_restart_and_begins_when_its_time_is_over(after: float) -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1")
    again = restarted(harness, TypeMeta(type_name="T"), after=after)
    again.handle(WorkerReady(WorkerId(0, 1)))
    assert again.core.missing(Submitted((debounced(again),), 1), again.now) == ()

    assert submitted(again, b"2") == name
    pass_time(again, WITHIN)

    assert first_state(again, name) == b"2"
    assert name in again.inbox


def test_one_that_had_begun_is_looked_up_after_a_restart() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1")
    pass_time(harness, WITHIN)
    new = debounced(harness, b"2")
    again = restarted(harness, TypeMeta(type_name="T"))

    assert again.core.missing(Submitted((new,), 1), again.now) == ("debounce k",)
    again.core.note_debounced("k", name)
    assert again.core.missing(Submitted((new,), 1), again.now) == ()
    assert submitted(again, b"2") != name


def test_one_that_waits_for_a_worker_outside_of_memory_after_a_restart_is_known_again() -> None:
    harness = CoreHarness(0)
    new = debounced(harness, b"1")
    submit(harness, new)
    pass_time(harness, WITHIN)
    again = restarted(harness, TypeMeta(type_name="T"))
    assert new.id in again.core._state.queues.run_queue.cold

    assert submit(again, new).value == (new.id,)
    assert submitted(again, b"2") != new.id


def test_one_that_left_memory_is_looked_up() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1")
    pass_time(harness, WITHIN)
    harness.answer(name, Finished(state=b"e"))
    assert harness.core.missing(Submitted((debounced(harness),), 1), harness.now) == ()

    harness.core.settle(harness.core.seal())

    assert harness.core.view(name) is None
    assert harness.core.missing(Submitted((debounced(harness),), 1), harness.now) == ("debounce k",)


@pytest.mark.parametrize("is_restart", [False, True])
def test_a_clock_set_back_makes_no_wait_longer(is_restart: bool) -> None:
    harness = CoreHarness()
    harness.now = 5000.0
    name = submitted(harness, b"1")
    if is_restart:
        harness = restarted(harness, TypeMeta(type_name="T"), after=-4000.0)
        harness.handle(WorkerReady(WorkerId(0, 1)))
    else:
        harness.now = 1000.0
        assert harness.core.was_set_back(harness.now)
    harness.handle(Tick())

    assert head(harness, name).due_at == 1000.0 + WITHIN
    pass_time(harness, WITHIN)
    assert name in harness.inbox


@pytest.mark.parametrize("held", ["manager", "root"])
@pytest.mark.parametrize("back", [0.5, 3.0, 500.0])
def test_one_that_is_overdue_has_its_timer_again_when_the_clock_is_set_back(held: str, back: float) -> None:
    harness = CoreHarness()
    harness.now = 1000.0
    name = submitted(harness, b"1")
    target = None if held == "manager" else name
    harness.handle(PauseRequested(target, 7))
    pass_time(harness, WITHIN)
    pass_time(harness, -back)

    assert difference(harness) is None
    assert harness.core.next_deadline() == head(harness, name).due_at
    harness.handle(ResumeRequested(target, 8))
    assert name not in harness.inbox
    pass_time(harness, WITHIN)
    assert name in harness.inbox
    assert difference(harness) is None


def test_a_retry_of_an_aborted_one_goes_on_and_is_no_wait() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1")
    harness.handle(AbortRequested(name, 7))
    harness.handle(RetryRequested(name, 8))

    other = submitted(harness, b"2")

    assert other != name
    assert difference(harness) is None


# ---------------------------------------------------------------------- seen
def test_its_phase_is_queued_and_its_head_names_the_key() -> None:
    harness = CoreHarness()
    name = submitted(harness, b"1")
    phase, _ = harness.core.phase(head(harness, name))

    assert phase is Phase.QUEUED
    assert debounce.newest(harness.core._state.residents, "k") is head(harness, name)
