"""What only waits for a worker at a start: not in memory before its turn, and nobody can tell."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from actorproc.core import recovery
from actorproc.core.coordinator import Coordinator
from actorproc.core.lifecycle import submit
from actorproc.core.queues import worker_table
from actorproc.core.queues.run_queue import RunQueue
from actorproc.core.scheduler.schedule import wake
from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import (
    AbortRequested,
    DeleteRequested,
    Event,
    PauseRequested,
    ResumeRequested,
    Signalled,
    StepReturned,
    Submitted,
    Tick,
    TreesExpired,
    TypeRegistered,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished
from actorproc.model.policies import LockKey, LockMode, Scheduling, StepLimits, TypeMeta
from actorproc.model.rows.records import NewProcedure
from actorproc.model.rows.snapshot import FinishedTree
from actorproc.model.rows.writes import PutProcedure
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, difference, image_of, restarted

T = TypeMeta(type_name="T")


def _restarted(harness: CoreHarness, *types: TypeMeta, **options: object) -> CoreHarness:
    return restarted(harness, *(types or (T,)), after=1.0, **options)


def _with_queued(*names: str, **fields: object) -> CoreHarness:
    harness = CoreHarness(0)
    for name in names:
        harness.submit(harness.new(name, **fields))
    return harness


def _hire(harness: CoreHarness, slot: int = 0) -> None:
    harness.now += 1
    harness.handle(WorkerReady(WorkerId(slot, 2)))


def _ask(harness: CoreHarness, event: Event) -> None:
    """As the commit pipeline does: what the event names is in memory first, and nothing of it has to be read."""
    harness.now += 1
    assert harness.core.missing(event, harness.now) == ()
    harness.handle(event)


def _run_dry(harness: CoreHarness) -> list[str]:
    """Answer all that is handed out as done; who was handed out so far, in order."""
    while harness.inbox:
        harness.now += 1
        harness.answer(next(iter(harness.inbox)), Finished(output=b""))
        assert difference(harness) is None
    return [name for name, _, _ in harness.order]


def _waiting_outside(harness: CoreHarness) -> list[str]:
    state = harness.core._state
    return [name for name in state.queues.run_queue.cold if name not in state.residents.procs]


def test_only_what_is_handed_out_is_in_memory() -> None:
    again = _restarted(_with_queued("a", "b", "c", "d"))
    assert _waiting_outside(again) == ["b", "c", "d"], "the first one stands in the queue"
    assert again.core.queued == 4
    assert difference(again) is None

    _hire(again)

    assert list(again.inbox) == ["a"]
    assert _waiting_outside(again) == ["c", "d"], "the next one does"
    assert again.core.queued == 3
    assert difference(again) is None


def test_all_of_it_runs_to_its_end() -> None:
    again = _restarted(_with_queued(*(f"p-{number}" for number in range(20))))
    _hire(again, 0)
    _hire(again, 1)

    assert _run_dry(again) == [f"p-{number}" for number in range(20)]
    assert len(again.resolved()) == 20
    state = again.core._state
    assert not state.queues.run_queue.cold
    assert state.residents.open_roots == 0


def _mixed(seed: int) -> CoreHarness:
    """Procedures of several priorities, some with a deadline, some that have begun."""
    dice = random.Random(seed)
    harness = CoreHarness(2)
    harness.register("U")
    for number in range(30):
        harness.now += dice.random()
        priority = dice.choice((0, 0, 0, 1, -1))
        deadline = dice.choice((None, None, 1e6))
        type_name = dice.choice("TU")
        harness.submit(harness.new(f"p-{number:02}", type_name, priority=priority, deadline=deadline))
        if harness.inbox and dice.random() < 0.5:
            harness.answer(dice.choice(sorted(harness.inbox)), Advanced(state=b"1"))
    return harness


def _play(harness: CoreHarness, dice: random.Random) -> tuple[list[tuple[str, int, str]], list[object]]:
    """The same moves on any memory that decides the same; newcomers and long waits are among them."""
    _hire(harness, 0)
    life = 2
    for move in range(120):
        harness.now += dice.choice((0.001, 1.0, 40.0))
        kind = dice.random()
        if kind < 0.1:
            harness.submit(harness.new(f"new-{move}", priority=dice.choice((0, 1))))
        elif kind < 0.15:
            name = f"p-{dice.randrange(30):02}"
            _ask(harness, AbortRequested(name, 1))
        elif kind < 0.2:
            _ask(harness, PauseRequested(f"p-{dice.randrange(30):02}", "look", 1))
        elif kind < 0.25:
            _ask(harness, ResumeRequested(f"p-{dice.randrange(30):02}", None, 1))
        elif kind < 0.3 and harness.inbox:
            harness.handle(StepReturned(harness.inbox.pop(min(harness.inbox)).token))
        elif kind < 0.34:
            harness.kill(0, life)
            harness.inbox.clear()
            life += 1
            harness.now += 0.01
            harness.handle(WorkerReady(WorkerId(0, life)))
        elif harness.inbox:
            done = Finished(output=b"") if dice.random() < 0.6 else Advanced(state=b"2")
            harness.answer(min(harness.inbox), done)
        assert difference(harness) is None
    return harness.order, list(harness.writes)


@pytest.mark.parametrize("seed", range(20))
def test_nobody_can_tell_it_from_memory_that_holds_all(seed, monkeypatch) -> None:
    harness = _mixed(seed)
    left = _restarted(harness, T, TypeMeta(type_name="U"))
    assert _waiting_outside(left)
    with monkeypatch.context() as patched:
        patched.setattr(recovery, "_needs_only_a_worker", lambda record: False)
        whole = _restarted(harness, T, TypeMeta(type_name="U"))
    assert not whole.core._state.queues.run_queue.cold

    assert _play(left, random.Random(seed)) == _play(whole, random.Random(seed))


def test_a_submit_that_is_repeated_finds_it_and_takes_no_place_from_anybody() -> None:
    harness = _with_queued("a", "b", "c")
    again = _restarted(harness)

    for name in ("c", "b"):
        _ask(again, Submitted((NewProcedure(id=name, type_name="T", state=b"0", digest=b"d"),), reply=1))
    assert _waiting_outside(again) == []
    assert again.core.queued == 3
    assert difference(again) is None

    _hire(again)
    assert _run_dry(again) == ["a", "b", "c"]


def test_one_that_is_aborted_before_its_turn_does_not_run() -> None:
    again = _restarted(_with_queued("a", "b", "c"))

    _ask(again, AbortRequested("b", 1))
    assert again.resolved() == {"b": ProcedureState.ROLLEDBACK}
    assert difference(again) is None
    _hire(again)

    assert _run_dry(again) == ["a", "c"]


def test_one_that_is_paused_waits_and_goes_on_when_it_may() -> None:
    again = _restarted(_with_queued("a", "b"))

    _ask(again, PauseRequested("a", "look at it", 1))
    _hire(again)
    assert list(again.inbox) == ["b"]
    assert difference(again) is None
    again.answer("b", Finished(output=b""))
    assert not again.inbox

    _ask(again, ResumeRequested("a", None, 1))
    assert list(again.inbox) == ["a"]


def test_a_signal_for_it_is_kept_until_it_listens() -> None:
    again = _restarted(_with_queued("a", "b"))

    _ask(again, Signalled("b", b"go", None, 1))

    assert "b" in again.core._state.residents.procs
    assert difference(again) is None
    assert again.core.queued == 2


def test_a_class_that_wants_workers_of_its_own_after_all_gets_them() -> None:
    again = _restarted(_with_queued("a", "b", "c"))

    again.handle(TypeRegistered(TypeMeta(type_name="T", dedicated=True)))
    _hire(again)

    assert not again.core._state.queues.run_queue.cold
    assert difference(again) is None
    assert list(again.core._state.workers.hired) == ["a", "b", "c"]


def test_nothing_leaves_it_while_the_manager_is_paused() -> None:
    harness = _with_queued("a", "b")
    harness.handle(PauseRequested(None, "night", 1))
    again = _restarted(harness)
    _hire(again)
    assert not again.inbox
    assert _waiting_outside(again) == ["a", "b"]

    _ask(again, ResumeRequested(None, None, 1))

    assert list(again.inbox) == ["a"]


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"locks": (LockKey("disk", LockMode.WRITE),)}, {}),
        ({"limit_keys": ("tenant",)}, {}),
        ({"due_at": 50.0}, {}),
        ({"deadline": 1e6}, {}),
        ({}, {"scheduling": Scheduling(max_running=1)}),
        ({}, {"scheduling": Scheduling(shares={"default": 1.0, "heavy": 1.0})}),
    ],
    ids=["locks", "limits", "delay", "deadline", "max_running", "shares"],
)
def test_who_waits_for_more_than_a_worker_is_in_memory(fields, options) -> None:
    again = _restarted(_with_queued("a", "b", **fields), **options)

    assert not again.core._state.queues.run_queue.cold
    assert sorted(again.core._state.residents.procs) == ["a", "b"]


def test_a_worker_that_lived_through_a_failed_commit_keeps_its_step() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("a"), harness.new("b"))
    token = harness.inbox["a"].token

    core, _ = Coordinator.restore(
        image_of(harness).snapshot(), harness.now, types=(T,), workers=((WorkerReady(WorkerId(0, 1)), (token,)),)
    )

    assert core.in_hand == 1
    assert not core._state.queues.run_queue.cold


def test_the_place_in_the_queue_counts_from_the_start_of_the_manager() -> None:
    again = _restarted(_with_queued("a", "b"))
    again.now += 10
    again.submit(again.new("newcomer"))
    again.submit(again.new("urgent", priority=1))
    again.handle(Tick())

    _hire(again)

    assert _run_dry(again) == ["urgent", "a", "b", "newcomer"]


def test_a_class_of_another_class_of_work_keeps_its_procedures_in_their_order() -> None:
    again = _restarted(_with_queued("a", "b", "c"))
    again.now += 1
    again.submit(again.new("newcomer"))

    again.handle(TypeRegistered(TypeMeta(type_name="T", work_class="heavy")))
    assert not any(lane.cold for lane in again.core._state.queues.run_queue._lanes.values())
    _hire(again)

    assert _run_dry(again) == ["a", "b", "c", "newcomer"]


def test_retention_that_looked_a_while_ago_leaves_alone_what_runs_again() -> None:
    again = _restarted(_with_queued("a", "b"))
    head = again.core.view("b")
    assert head is not None
    ended = replace(head, state=ProcedureState.SUCCESS, finished_at=0.0)

    written = again.handle(TreesExpired((FinishedTree((ended,), surplus=True),), again.now)).writes

    assert not written
    assert again.core.queued == 2


def test_a_root_with_anything_else_in_the_store_is_no_plain_one() -> None:
    harness = _with_queued("root", "other")
    snapshot = image_of(harness).snapshot()
    root = snapshot.procedures[0]
    child = replace(root, id="child", parent="root", seq=9, depth=1)
    snapshot.procedures.append(child)

    core, _ = Coordinator.restore(snapshot, 0.0, types=(T,))

    assert "root" in core.damage_of("root").reason
    assert core.queued == 1


def test_what_a_dead_worker_had_goes_before_those_of_its_lane() -> None:
    harness = _with_queued("a", "b", "c", "d")
    begun = [replace(head, step=2, attempt=1) for head in image_of(harness).snapshot().procedures]
    harness.writes += [PutProcedure(head, None) for head in begun]
    again = _restarted(harness)
    _hire(again)
    again.submit(again.new("urgent", priority=9))
    _ask(again, PauseRequested("b", "so that nobody of the lane is in the queue", 1))
    assert _waiting_outside(again) == ["c", "d"]

    again.kill(0, 2)
    again.inbox.clear()
    again.handle(WorkerReady(WorkerId(0, 3)))

    assert _run_dry(again) == ["a", "urgent", "a", "c", "d"]


def test_to_wake_one_that_is_named_leaves_it_in_its_place() -> None:
    again = _restarted(_with_queued("a", "b", "c"))
    state = again.core._state
    state.residents.make_resident(state.queues.run_queue.cold["c"])

    wake(state, state.residents.procs["c"])

    assert again.core.queued == 3
    assert "c" not in state.queues.run_queue.live


def _busy(limit: int, monkeypatch: pytest.MonkeyPatch, workers: int = 1) -> CoreHarness:
    """Workers that take `limit` steps at most, and have them."""
    monkeypatch.setattr(worker_table, "PREFETCH_LIMIT", limit)
    harness = CoreHarness(workers)
    harness.submit(*(harness.new(f"busy-{number}") for number in range(limit * workers)))
    return harness


def test_new_ones_wait_outside_when_no_worker_has_room_for_them(monkeypatch) -> None:
    harness = _busy(1, monkeypatch)

    harness.submit(harness.new("a"), harness.new("b"), harness.new("c"))

    assert _waiting_outside(harness) == ["b", "c"], "the first one stands in the queue"
    assert harness.core.queued == 3
    assert harness.core._state.residents.open_roots == 4
    assert difference(harness) is None
    assert _run_dry(harness) == ["busy-0", "a", "b", "c"]


def test_as_many_new_ones_as_may_be_handed_out_at_once_never_wait_outside(monkeypatch) -> None:
    monkeypatch.setattr(worker_table, "PREFETCH_LIMIT", 2)
    harness = CoreHarness(2)

    harness.submit(*(harness.new(f"p-{number}") for number in range(7)))

    assert _waiting_outside(harness) == ["p-4", "p-5", "p-6"]
    heads = [write.record.id for write in harness.writes if type(write) is PutProcedure]
    assert sorted(heads) == [f"p-{number}" for number in range(7)], "one head in a decision"
    assert _run_dry(harness)[-3:] == ["p-4", "p-5", "p-6"]


@pytest.mark.parametrize(
    "fields",
    [
        {"locks": (LockKey("disk", LockMode.WRITE),)},
        {"limit_keys": ("tenant",)},
        {"due_at": 50.0},
        {"deadline": 1e6},
        {"limits": StepLimits(threads=2)},
    ],
    ids=["locks", "limits", "delay", "deadline", "own limits"],
)
def test_a_new_one_that_waits_for_more_than_a_worker_is_in_memory(fields, monkeypatch) -> None:
    harness = _busy(1, monkeypatch)

    harness.submit(harness.new("a", **fields), harness.new("b"))

    assert "a" in harness.core._state.residents.procs
    assert "a" not in harness.core._state.queues.run_queue.cold
    assert difference(harness) is None


def test_a_head_that_waits_to_be_stored_is_not_changed_when_its_turn_comes(monkeypatch) -> None:
    harness = _busy(1, monkeypatch)
    harness.submit(harness.new("a"))
    stored = [write for write in harness.writes if type(write) is PutProcedure and write.record.id == "a"]

    _run_dry(harness)

    assert [(write.record.state, write.record.attempt) for write in stored] == [(ProcedureState.RUNNABLE, 0)]


def test_groups_of_new_ones_go_by_their_age_and_priority_with_those_in_the_queue(monkeypatch) -> None:
    harness = _busy(1, monkeypatch)
    for name, priority in (("a", 0), ("b", 1), ("c", 0), ("d", 1)):
        harness.now += 1
        fields = {"priority": priority, "deadline": 1e6 if name in "ad" else None}
        harness.submit(harness.new(f"{name}-1", **fields), harness.new(f"{name}-2", **fields))
    harness.now += Scheduling().priority_ageing
    harness.submit(harness.new("late", priority=1))

    ended = _run_dry(harness)

    assert ended == ["busy-0", "b-1", "b-2", "d-1", "d-2", "a-1", "a-2", "c-1", "c-2", "late"]


def test_one_that_is_put_back_goes_before_all_of_its_lane_and_keeps_the_lane_in_order() -> None:
    ready = RunQueue(60.0, place_of=int)
    for name, now in (("old", 1.0), ("newer", 2.0)):
        ready.push(name, root=name, priority=0, is_new_root=True, now=now)

    ready.put_back("lost", root="lost", priority=0, is_new_root=True, now=5.0)

    (lane,) = ready._lanes.values()
    assert [(name, turn[0]) for name, turn in lane.turns.items()] == [("lost", 1.0), ("old", 1.0), ("newer", 2.0)]


def _leave(harness: CoreHarness, name: str) -> None:
    """It is aborted, and removed at once."""
    _ask(harness, AbortRequested(name, 1))
    harness.core.settle(harness.core.seal())
    harness.handle(DeleteRequested(name, 1, False, None, FinishedTree((image_of(harness).heads[name],))))
    harness.core.settle(harness.core.seal())


@pytest.mark.parametrize("priority", [0, -5])
def test_an_id_that_comes_again_takes_a_new_place(priority, monkeypatch) -> None:
    harness = _busy(1, monkeypatch)
    harness.submit(*(harness.new(name, priority=priority + 1) for name in ("first", "again", "other")))
    harness.now += 1
    harness.submit(harness.new("later"))
    _leave(harness, "again")

    harness.submit(harness.new("again", priority=priority))

    assert difference(harness) is None
    assert _run_dry(harness)[-1] == "again"


@pytest.mark.parametrize("stays", [0, 3])
def test_those_that_leave_before_their_turn_are_forgotten_also_while_nobody_is_handed_out(stays, monkeypatch) -> None:
    harness = _busy(1, monkeypatch)
    harness.handle(PauseRequested(None, "night", 1))
    for priority in (0, 5):
        harness.submit(*(harness.new(f"stays-{priority}-{number}", priority=priority) for number in range(stays)))

    for number in range(500):
        harness.submit(harness.new(f"goes-{number}", priority=number % 2 * 5))
        _ask(harness, AbortRequested(f"goes-{number}", 1))

    run_queue = harness.core._state.queues.run_queue
    assert len(run_queue.cold) == 2 * stays
    assert sum(len(group) for lane in run_queue._lanes.values() for _, group in lane.cold) < 200
    assert len(run_queue._lanes) <= 4


def _newcomers(harness: CoreHarness, dice: random.Random, move: int) -> list[NewProcedure]:
    fields = {"priority": dice.choice((0, 0, 0, 1, -1)), "type_name": dice.choice("TU")}
    odd: list[dict[str, object]] = [{"deadline": 1e6}, {"due_at": harness.now + 3}, {"unit": "", "tags": ("x",)}]
    plain = [{}] * 5
    return [
        harness.new(f"n-{move}-{number}", **fields, **dice.choice([*plain, *odd]))
        for number in range(dice.randrange(1, 6))
    ]


def _play_newcomers(seed: int) -> tuple[list[tuple[str, int, str]], list[str]]:
    """The same moves on any memory that decides the same, most of them submits to workers that have enough to do."""
    dice, harness = random.Random(seed), CoreHarness(2)
    harness.register("U")
    lives = {0: 1, 1: 1}
    names: list[str] = []
    for move in range(150):
        harness.now += dice.choice((0.001, 1.0, 40.0)) * dice.random()  # those of one moment go in submit order
        kind = dice.random()
        if kind < 0.3:
            news = _newcomers(harness, dice, move)
            names += [new.id for new in news]
            harness.submit(*news)
        elif kind < 0.45 and names:
            name = dice.choice(names)
            verbs = (AbortRequested(name, 1), PauseRequested(name, "look", 1), ResumeRequested(name, None, 1))
            event = dice.choice((*verbs, *verbs[1:], Signalled(name, b"", None, 1)))
            _ask(harness, event)
        elif kind < 0.5 and harness.inbox:
            harness.handle(StepReturned(harness.inbox.pop(min(harness.inbox)).token))
        elif kind < 0.54:
            slot = dice.randrange(2)
            for name in [name for name, run in harness.inbox.items() if run.token.worker.slot == slot]:
                del harness.inbox[name]
            harness.kill(slot, lives[slot])
            lives[slot] += 1
            harness.handle(WorkerReady(WorkerId(slot, lives[slot])))
        elif kind < 0.58:
            harness.handle(Tick())
        elif harness.inbox:
            done = Finished(output=b"") if dice.random() < 0.6 else Advanced(state=b"2")
            harness.answer(min(harness.inbox), done)
        assert difference(harness) is None
    return harness.order, sorted(map(repr, harness.writes))


@pytest.mark.parametrize("seed", range(30))
def test_nobody_can_tell_whether_new_ones_wait_outside(seed, monkeypatch) -> None:
    monkeypatch.setattr(worker_table, "PREFETCH_LIMIT", 2)
    left = _play_newcomers(seed)
    monkeypatch.setattr(submit, "_needs_only_a_worker", lambda state, new: False)

    assert _play_newcomers(seed) == left
