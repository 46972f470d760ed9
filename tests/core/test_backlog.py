"""What only waits for a worker at a start: not in memory before its turn, and nobody can tell."""

from __future__ import annotations

import random

import pytest
from msgspec.structs import replace

from actorproc.core import restoring
from actorproc.core.coordinator import Coordinator
from actorproc.core.queueing import wake
from actorproc.model.events import (
    AbortRequested,
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
from actorproc.model.ids import WorkerId
from actorproc.model.outcomes import Advanced, Finished
from actorproc.model.policies import LockKey, LockMode, Scheduling, TypeMeta
from actorproc.model.records import NewProcedure
from actorproc.model.snapshot import FinishedTree
from actorproc.model.states import ProcedureState
from actorproc.model.writes import PutProcedure
from tests.core.stage import Stage, difference, image_of, restarted

T = TypeMeta(type_name="T")


def _restarted(stage: Stage, *types: TypeMeta, **options: object) -> Stage:
    return restarted(stage, *(types or (T,)), after=1.0, **options)


def _with_queued(*names: str, **fields: object) -> Stage:
    stage = Stage(0)
    for name in names:
        stage.submit(stage.new(name, **fields))
    return stage


def _hire(stage: Stage, slot: int = 0) -> None:
    stage.now += 1
    stage.handle(WorkerReady(WorkerId(slot, 2)))


def _ask(stage: Stage, event: Event) -> None:
    """As the ring does: what the event names is in memory first, and nothing of it has to be read."""
    stage.now += 1
    assert stage.core.missing(event, stage.now) == ()
    stage.handle(event)


def _run_dry(stage: Stage) -> list[str]:
    """Answer all that is handed out as done; who was handed out so far, in order."""
    while stage.inbox:
        stage.now += 1
        stage.answer(next(iter(stage.inbox)), Finished(output=b""))
        assert difference(stage) is None
    return [name for name, _, _ in stage.order]


def _waiting_outside(stage: Stage) -> list[str]:
    book = stage.core._book
    return [name for name in book.backlog if name not in book.procs]


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
    book = again.core._book
    assert not book.backlog
    assert book.open_roots == 0


def _mixed(seed: int) -> Stage:
    """Procedures of several priorities, some with a deadline, some that have begun."""
    dice = random.Random(seed)
    stage = Stage(2)
    stage.register("U")
    for number in range(30):
        stage.now += dice.random()
        priority = dice.choice((0, 0, 0, 1, -1))
        deadline = dice.choice((None, None, 1e6))
        type_name = dice.choice("TU")
        stage.submit(stage.new(f"p-{number:02}", type_name, priority=priority, deadline=deadline))
        if stage.inbox and dice.random() < 0.5:
            stage.answer(dice.choice(sorted(stage.inbox)), Advanced(state=b"1"))
    return stage


def _play(stage: Stage, dice: random.Random) -> tuple[list[tuple[str, int, str]], list[object]]:
    """The same moves on any memory that decides the same; newcomers and long waits are among them."""
    _hire(stage, 0)
    life = 2
    for move in range(120):
        stage.now += dice.choice((0.001, 1.0, 40.0))
        kind = dice.random()
        if kind < 0.1:
            stage.submit(stage.new(f"new-{move}", priority=dice.choice((0, 1))))
        elif kind < 0.15:
            name = f"p-{dice.randrange(30):02}"
            _ask(stage, AbortRequested(name, 1))
        elif kind < 0.2:
            _ask(stage, PauseRequested(f"p-{dice.randrange(30):02}", "look", 1))
        elif kind < 0.25:
            _ask(stage, ResumeRequested(f"p-{dice.randrange(30):02}", None, 1))
        elif kind < 0.3 and stage.inbox:
            stage.handle(StepReturned(stage.inbox.pop(min(stage.inbox)).token))
        elif kind < 0.34:
            stage.kill(0, life)
            stage.inbox.clear()
            life += 1
            stage.now += 0.01
            stage.handle(WorkerReady(WorkerId(0, life)))
        elif stage.inbox:
            done = Finished(output=b"") if dice.random() < 0.6 else Advanced(state=b"2")
            stage.answer(min(stage.inbox), done)
        assert difference(stage) is None
    return stage.order, list(stage.writes)


@pytest.mark.parametrize("seed", range(20))
def test_nobody_can_tell_it_from_memory_that_holds_all(seed, monkeypatch) -> None:
    stage = _mixed(seed)
    left = _restarted(stage, T, TypeMeta(type_name="U"))
    assert _waiting_outside(left)
    with monkeypatch.context() as patched:
        patched.setattr(restoring, "_needs_only_a_worker", lambda record: False)
        whole = _restarted(stage, T, TypeMeta(type_name="U"))
    assert not whole.core._book.backlog

    assert _play(left, random.Random(seed)) == _play(whole, random.Random(seed))


def test_a_submit_that_is_repeated_finds_it_and_takes_no_place_from_anybody() -> None:
    stage = _with_queued("a", "b", "c")
    again = _restarted(stage)

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

    assert "b" in again.core._book.procs
    assert difference(again) is None
    assert again.core.queued == 2


def test_a_class_that_wants_workers_of_its_own_after_all_gets_them() -> None:
    again = _restarted(_with_queued("a", "b", "c"))

    again.handle(TypeRegistered(TypeMeta(type_name="T", dedicated=True)))
    _hire(again)

    assert not again.core._book.backlog
    assert difference(again) is None
    assert list(again.core._book.hired) == ["a", "b", "c"]


def test_nothing_leaves_it_while_the_manager_is_paused() -> None:
    stage = _with_queued("a", "b")
    stage.handle(PauseRequested(None, "night", 1))
    again = _restarted(stage)
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

    assert not again.core._book.backlog
    assert sorted(again.core._book.procs) == ["a", "b"]


def test_a_worker_that_lived_through_a_failed_commit_keeps_its_step() -> None:
    stage = Stage(1)
    stage.submit(stage.new("a"), stage.new("b"))
    token = stage.inbox["a"].token

    core, _ = Coordinator.restore(
        image_of(stage).snapshot(), stage.now, types=(T,), workers=((WorkerReady(WorkerId(0, 1)), (token,)),)
    )

    assert core.in_hand == 1
    assert not core._book.backlog


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
    assert again.core._book.backlog._order == []
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
    stage = _with_queued("root", "other")
    snapshot = image_of(stage).snapshot()
    root = snapshot.procedures[0]
    child = replace(root, id="child", parent="root", seq=9, depth=1)
    snapshot.procedures.append(child)

    core, _ = Coordinator.restore(snapshot, 0.0, types=(T,))

    assert "root" in core.damage_of("root").reason
    assert core.queued == 1


def test_what_a_dead_worker_had_goes_before_those_of_its_lane() -> None:
    stage = _with_queued("a", "b", "c", "d")
    begun = [replace(head, step=2, attempt=1) for head in image_of(stage).snapshot().procedures]
    stage.writes += [PutProcedure(head, None) for head in begun]
    again = _restarted(stage)
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
    book = again.core._book
    book.make_resident(book.backlog["c"])

    wake(book, book.procs["c"])

    assert again.core.queued == 3
    assert "c" not in book.ready
