"""Catalogue: what an author may declare, from what any commit leaves when the host dies before it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from enum import Enum

import pytest

from actorproc import LockKey, Procedure, RetryPolicy, Saga, StateMachineProcedure, Status, step
from actorproc.errors import DeadlineExceeded, RetryLater
from actorproc.model.states import Phase, ProcedureState
from actorproc.store.memory import MemoryStore
from actorproc.store.rows.tables import Table
from tests.catalogue.kit import (
    RecordingStore,
    crash_at_every_commit,
    ending_of,
    firsts,
    forget,
    live_through_crashes,
    note,
    noted,
    on_threads,
    refused,
)
from tests.catalogue.test_recovery import damage
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes

ONCE = RetryPolicy(max_attempts=1, retry_on=(Exception, RetryLater))
QUICK = RetryPolicy(max_attempts=2, base=0.001, jitter=0.0, retry_on=(Exception, RetryLater))


class Mark(Enum):
    ONE = 1
    TWO = 2
    THREE = 3


# ---------------------------------------------------------------- rollback modes
class BestEffort(Saga):
    """Three steps; the last fails, and the undo of the second one never works."""

    folder: str
    rollback_mode = "best-effort"
    rollback_retry = QUICK

    @step
    def one(self, ctx):
        note(self.folder, "do", "one")

    @one.undo
    def un_one(self, ctx):
        note(self.folder, "undo", "one")

    @step
    def two(self, ctx):
        note(self.folder, "do", "two")

    @two.undo
    def un_two(self, ctx):
        raise OSError("stays")

    @step
    def three(self, ctx):
        raise ValueError("no")


def _leftovers(manager, handle):
    return ending_of(handle), [str(left) for left in manager.info(handle.id).leftovers], manager.poisons()


def test_uncovered_a_best_effort_rollback_ends_alike_from_what_any_commit_leaves(folder):
    """The undo that gave up is listed once, the others run, and nothing is poisoned."""
    assert crash_at_every_commit(BestEffort(folder), folder, _leftovers) >= 5

    with on_threads(MemoryStore()) as manager:
        ending, leftovers, poisons = _leftovers(manager, manager.submit(BestEffort(folder), "b"))
    assert ending[0] == "ROLLEDBACK"
    assert (leftovers, poisons) == (["b two (OSError: stays)"], [])


# ---------------------------------------------------------------- states that are visited twice
@dataclass
class Rounds(StateMachineProcedure):
    """ONE, TWO, ONE, TWO, THREE; THREE fails, TWO has nothing to undo."""

    folder: str
    round: int = 0
    initial_state = Mark.ONE

    def execute_from_state(self, ctx, state):
        note(self.folder, "do", state.name, self.round)
        if state is Mark.ONE:
            self.round += 1
            return Mark.TWO
        if state is Mark.TWO:
            return Mark.ONE if self.round < 2 else Mark.THREE
        raise ValueError("no")

    def rollback_state(self, ctx, state):
        note(self.folder, "undo", state.name)

    def is_rollback_supported(self, state):
        return state is not Mark.TWO


def test_uncovered_each_visit_of_a_state_is_undone_from_what_any_commit_leaves(folder):
    """Two visits are two undos; a state without rollback is passed over."""
    assert crash_at_every_commit(Rounds(folder), folder, lambda _, handle: ending_of(handle)) >= 6

    with on_threads(MemoryStore()) as manager:
        assert manager.submit(Rounds(folder)).exception(BOUND).state == "ROLLEDBACK"
    assert [line for line in noted(folder) if line.startswith("undo")] == ["undo THREE", "undo ONE", "undo ONE"]


# ---------------------------------------------------------------- the point of no return of a machine
@dataclass
class OneWay(StateMachineProcedure):
    """Fails in the state behind its point of no return, until a file lets it through."""

    folder: str
    initial_state = Mark.ONE
    retry = RetryPolicy(max_attempts=1, base=0.001, cap=0.001, jitter=0.0)

    def execute_from_state(self, ctx, state):
        if state is not Mark.THREE:
            return Mark(state.value + 1)
        if note(self.folder, "tried") < 3:
            raise ValueError("not yet")
        return Status.done("across")

    def rollback_state(self, ctx, state):
        note(self.folder, "undo")

    def is_no_return(self, state):
        return state is Mark.TWO


def test_hbase_58_a_machine_past_its_point_of_no_return_only_goes_forward_whatever_dies(folder):
    """The host dies before each record; no life undoes anything, and the last one gets across."""
    store, lives = live_through_crashes(OneWay(folder))

    assert store.procedure("root").state is ProcedureState.SUCCESS
    assert lives >= 3
    assert firsts(noted(folder)) == ["tried"]


# ---------------------------------------------------------------- hooks
@dataclass
class Hooked(Procedure):
    """Three steps, and a note of every hook that ran."""

    folder: str
    at: int = 0

    def execute(self, ctx):
        note(self.folder, "step", ctx.step, ctx.recovered)
        self.at += 1
        return Status.executing() if self.at < 3 else Status.done(self.at)

    def before_recover(self, ctx):
        note(self.folder, "before", ctx.step)

    def after_recover(self, ctx):
        note(self.folder, "after", ctx.step)

    def on_completed(self, ctx):
        note(self.folder, "clean")


def test_hbase_8_recovery_hooks_run_once_in_each_life_that_finds_work_to_do(folder):
    """From before each commit: the hooks are around the first step of the new life alone; clean-up comes at the end."""
    store = RecordingStore(folder)
    with on_threads(store, [Hooked]) as manager:
        manager.submit(Hooked(folder), "root").result(BOUND)
    assert noted(folder) == ["step 1 False", "step 2 False", "step 3 False", "clean"]
    images, store.images = [image for image, _ in store.images if image.procedure("root") is not None], None

    for image in images:
        forget(folder)
        first = image.procedure("root").step
        with on_threads(image, [Hooked]) as manager:
            assert manager.get("root").result(BOUND) == 3
        rest = [f"step {number} False" for number in range(first + 1, 4)]
        assert noted(folder) == [f"before {first}", f"step {first} True", f"after {first}", *rest, "clean"]
    assert len(images) >= 3

    forget(folder)
    with on_threads(store.clone(), [Hooked]) as manager:
        assert manager.get("root").result(BOUND) == 3
    assert noted(folder) == []


# ---------------------------------------------------------------- poison keys of several
@dataclass
class Risky(Procedure):
    """Poisons a key for its first step; then waits to be told, and ends well or badly."""

    bad: bool
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        if self.at == 1:
            return Status.wait(f"end {ctx.id}")
        if self.bad:
            raise ValueError("unknown outcome")
        return Status.done()

    def poison_keys(self):
        return ["cat/t"]


def test_greptime_84_a_key_of_two_poisoners_is_free_only_when_both_are_known_to_be_clean():
    """Restarted in between: the first success frees nothing while the other is at it, nor when that one fails."""
    store = MemoryStore()
    with on_threads(store, [Risky], workers=2) as manager:
        handles = manager.submit_many([("good", Risky(False)), ("bad", Risky(True)), ("fine", Risky(False))])
        wait_until(lambda: all(handle.info().phase is Phase.WAITING for handle in handles))
        assert [(poison.by, poison.others) for poison in manager.poisons()] == [("good", ("bad", "fine"))]
        image = store.clone()

    with on_threads(image, [Risky]) as manager:
        manager.publish("end good")
        manager.get("good").result(BOUND)
        assert [(poison.by, poison.others) for poison in manager.poisons()] == [("bad", ("fine",))]
        manager.publish("end bad")
        manager.get("bad").wait(BOUND)
        manager.publish("end fine")
        manager.get("fine").result(BOUND)
        assert [(poison.by, poison.others) for poison in manager.poisons()] == [("bad", ())]
        assert manager.clear_poison("cat/t")


# ---------------------------------------------------------------- signals that are sent again
@dataclass
class Collects(Procedure):
    """Takes three signals, one after the other."""

    folder: str
    got: list[int] = field(default_factory=list)

    def execute(self, ctx):
        if ctx.event is not None:
            self.got.append(ctx.event)
        return Status.wait("number") if len(self.got) < 3 else Status.done(self.got)


@pytest.mark.parametrize("target", ["root", "number"])
def test_hbase_21_a_sender_that_repeats_itself_after_a_crash_at_any_commit_is_heard_once(folder, target):
    """The sender does not know what was taken and sends everything again; each id counts once."""

    def send(manager):
        for number in (1, 2, 3):
            if target == "number":
                manager.publish(target, number, dedup=f"id-{number}")
            elif not manager.signal(target, number, dedup=f"id-{number}"):
                return

    store = RecordingStore()
    with on_threads(store, [Collects]) as manager:
        handle = manager.submit(Collects(folder), "root")
        send(manager)
        send(manager)
        assert handle.result(BOUND) == [1, 2, 3]
    images = [image for image, _ in store.images if image.procedure("root") is not None]

    for image in images:
        with on_threads(image, [Collects]) as manager:
            send(manager)
            assert manager.get("root").result(BOUND) == [1, 2, 3]
    assert len(images) >= 4


# ---------------------------------------------------------------- clocks that no restart restarts
@dataclass
class Waits(Procedure):
    """Waits in the way it is told to."""

    how: str

    def execute(self, ctx):
        if self.how == "sleep":
            return Status.sleep(3600)
        if self.how == "after":
            return Status.executing(after=3600)
        if self.how == "retry":
            raise RetryLater(after=3600)
        return Status.wait("never", timeout=3600)


@pytest.mark.parametrize("how", ["sleep", "after", "wait", "retry", "delay"])
def test_uncovered_the_end_of_a_wait_of_any_kind_is_where_it_was_after_a_restart(how):
    """Due time, attempts and deadline are facts of the store; a restart reads them and moves none."""
    store = MemoryStore()
    with on_threads(store, [Waits]) as manager:
        manager.submit(Waits(how), "w", delay=3600 if how == "delay" else 0, deadline=time.time() + 7200)
        wait_until(lambda: store.procedure("w").due_at is not None)
        before = manager.info("w")
        image = store.clone()

    for _ in range(2):
        with on_threads(image, [Waits]) as manager:
            after = manager.info("w")
        image = image.clone()

    assert before.due_at is not None
    for name in ("state", "phase", "due_at", "deadline", "attempt", "errors", "step"):
        assert getattr(after, name) == getattr(before, name)


def test_uncovered_a_deadline_that_passed_while_nobody_ran_fails_at_the_restart(folder):
    """The clock went on without the manager."""
    store = MemoryStore()
    with on_threads(store, [Waits]) as manager:
        deadline = time.time() + 0.3
        manager.submit(Waits("sleep"), "w", deadline=deadline)
        wait_until(lambda: store.procedure("w").state is ProcedureState.WAITING_TIMEOUT)
        image = store.clone()
    wait_until(lambda: time.time() > deadline)

    with on_threads(image, [Waits]) as manager:
        failure = manager.get("w").exception(BOUND)

    assert isinstance(failure.cause, DeadlineExceeded)


# ---------------------------------------------------------------- taking turns with locks
@dataclass
class Turns(Procedure):
    folder: str
    name: str
    left: int = 3
    locks: bool = False

    def execute(self, ctx):
        note(self.folder, self.name, self.left)
        self.left -= 1
        return Status.executing(yield_=True) if self.left else Status.done()

    def lock_keys(self):
        return [LockKey.write("t")] if self.locks else []


def test_hbase_25_who_yields_keeps_its_locks_and_lets_others_run(folder):
    """One worker: the one without locks takes turns with the holder; the one that wants the key comes last."""
    with on_threads(MemoryStore(), [Turns]) as manager:
        manager.pause()
        handles = manager.submit_many(
            [Turns(folder, "holder", locks=True), Turns(folder, "wants", 1, locks=True), Turns(folder, "free")]
        )
        manager.resume()
        for handle in handles:
            handle.result(BOUND)

    lines = noted(folder)
    assert lines.index("free 3") < lines.index("holder 1") < lines.index("wants 1")


# ---------------------------------------------------------------- damaged lock rows
def test_hbase_39_a_damaged_grant_is_never_lost_without_a_word(folder):
    """The tree that held it stands still, the key stays taken, and health() says why."""
    store = RecordingStore()
    with on_threads(store, [Turns]) as manager:
        manager.submit(Turns(folder, "holder", locks=True), "holder").result(BOUND)
    image = next(image for image, _ in store.images if image.locks())
    damage(image, Table.LOCKS, next(iter(image._rows.scan(Table.LOCKS)))[0])

    with on_threads(image, [Turns]) as manager:
        second = manager.submit(Turns(folder, "second", 1, locks=True), "second")
        third = manager.submit(Turns(folder, "third", 1), "third")
        third.result(BOUND)
        assert manager.info("holder").phase is Phase.PARKED
        assert second.info().reason == "waits for write of 't' held by holder"
        health = manager.health()
        assert health.status == "degraded"
        assert any("the lock of 't' held by holder is damaged" in problem for problem in health.problems)
        assert "stands still" in str(refused(lambda: manager.abort("holder")))


# ---------------------------------------------------------------- a wait that ends in vain
class Vain(Saga):
    """The second step would use the answer that never comes."""

    folder: str

    @step
    def ask(self, ctx):
        note(self.folder, "ask")
        return Status.wait("answer", timeout=0.005)

    @ask.undo
    def withdraw(self, ctx):
        note(self.folder, "withdraw")

    @step
    def use(self, ctx):
        note(self.folder, "use")

    @use.undo
    def give_back(self, ctx):
        note(self.folder, "give back")

    def on_timeout(self, ctx):
        note(self.folder, "timeout")


def test_uncovered_a_step_whose_wait_ended_in_vain_was_never_begun_and_is_not_undone(folder):
    """From before each commit: `on_timeout` gives up, and only the step that asked is undone."""
    assert crash_at_every_commit(Vain(folder), folder, lambda _, handle: ending_of(handle)) >= 3

    with on_threads(MemoryStore()) as manager:
        assert ending_of(manager.submit(Vain(folder))) == ("ROLLEDBACK", "WaitTimeout")
    assert noted(folder) == ["ask", "timeout", "withdraw"]
