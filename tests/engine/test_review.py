"""What a reader of the engine tried to break, with real worker processes."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actorproc import Procedure, Status
from actorproc.config import Config
from actorproc.errors import ProcedureFailed, StorageUnavailable, StoreDamaged, UsageError
from actorproc.model.rows.writes import PutEvent, PutProcedure
from actorproc.store.memory import MemoryStore

pytestmark = pytest.mark.processes

FAST = Config(commit_backoff=0.01, commit_backoff_cap=0.05)


@dataclass
class Quick(Procedure):
    answer: int = 1

    def execute(self, ctx):
        return Status.done(self.answer)


@dataclass
class TwoWaits(Procedure):
    seen: list = field(default_factory=list)

    def execute(self, ctx):
        if ctx.event is not None:
            self.seen.append(ctx.event)
        if len(self.seen) == 2:
            return Status.done(self.seen)
        return Status.wait("go")


@dataclass
class Asks(Procedure):
    name: str = ""

    def execute(self, ctx):
        return Status.done(ctx.query(self.name))


@dataclass
class Picky(Procedure):
    gate: str = ""

    @classmethod
    def load(cls, data):
        loaded = super().load(data)
        if not Path(loaded.gate).exists():
            raise ValueError("not yet")
        return loaded

    def execute(self, ctx):
        return Status.done("loaded")


@dataclass
class Wide(Procedure):
    size: int

    def execute(self, ctx):
        return Status.done(b"x" * self.size)


@dataclass
class Gathers(Procedure):
    width: int
    size: int
    uses = (Wide,)

    def execute(self, ctx):
        if ctx.children:
            return Status.done([len(child.output) for child in ctx.children.values()])
        return Status.suspended(Wide(self.size) for _ in range(self.width))


class LateStore(MemoryStore):
    """Applies the next commit that `strikes` finds, and then says that it failed."""

    def __init__(self):
        super().__init__()
        self.strikes = lambda _writes: False
        self.struck = 0

    def commit(self, writes, epoch, *rest, **named):
        super().commit(writes, epoch, *rest, **named)
        if self.strikes(writes):
            self.strikes = lambda _writes: False
            self.struck += 1
            raise StorageUnavailable("the disk did not say whether it took it")


class DamagedStore(MemoryStore):
    """Some heads, or the step records of some procedures, cannot be read."""

    def __init__(self):
        super().__init__()
        self.heads = set()
        self.logs = set()

    def procedure(self, id, **options):
        if id in self.heads:
            raise StoreDamaged(f"head {id}", table="procedures", key=id, reason="checksum")
        return super().procedure(id, **options)

    def step(self, id, number):
        if id in self.logs:
            raise StoreDamaged(f"step {id}/{number}", table="steps", key=id, reason="checksum")
        return super().step(id, number)

    def ending(self, id):
        head = self.procedure(id)
        ended = head is not None and head.finished_at is not None
        return (head, self.step(id, head.records)) if ended else None


def _ends(id):
    def strikes(writes):
        heads = [write.record for write in writes if type(write) is PutProcedure]
        return any(head.id == id and head.finished_at is not None for head in heads)

    return strikes


def test_an_end_in_a_commit_that_was_applied_and_reported_as_failed_resolves_the_handle(open_manager):
    store = LateStore()
    manager = open_manager(store=store, config=FAST)
    store.strikes = _ends("one")

    assert manager.submit(Quick(7), "one").result(20) == 7
    assert store.struck == 1


def test_a_signal_in_a_commit_that_was_applied_and_reported_as_failed_is_delivered_once(open_manager, until):
    store = LateStore()
    manager = open_manager(store=store, config=FAST)
    handle = manager.submit(TwoWaits(), "waits")
    until(lambda: handle.info().phase == "waiting")

    store.strikes = lambda writes: any(type(write) is PutProcedure and write.record.payload for write in writes)
    assert manager.signal("waits", "first")
    until(lambda: store.struck and handle.info().phase == "waiting")
    assert store.events("waits") == []

    assert manager.signal("waits", "second")
    assert handle.result(20) == ["first", "second"]


def test_a_kept_signal_in_a_commit_that_was_applied_and_reported_as_failed_is_kept_once(open_manager):
    store = LateStore()
    manager = open_manager(store=store, config=FAST)
    store.strikes = lambda writes: any(type(write) is PutEvent for write in writes)

    manager.publish("go", "first")

    assert store.struck == 1
    assert len(store.events("event go")) == 1


def test_an_abort_in_a_commit_that_was_applied_and_reported_as_failed_says_that_it_was_accepted(open_manager):
    store = LateStore()
    manager = open_manager(store=store, config=FAST)
    manager.submit(Quick(), "later", delay=1000)
    store.strikes = _ends("later")

    assert manager.abort("later") is True
    assert store.struck == 1


def test_a_damaged_record_fails_its_caller_and_not_the_manager(open_manager):
    store = DamagedStore()
    manager = open_manager(store=store)
    done = manager.submit(Quick(3), "done")
    assert done.result(20) == 3
    fresh = manager.get("done")

    store.logs.add("done")
    with pytest.raises(StoreDamaged):
        fresh.result(20)
    store.heads.update({"done", "never"})
    for call in (
        lambda: manager.abort("done"),
        lambda: manager.signal("done"),
        lambda: manager.submit(Quick(), "never"),
        lambda: manager.info("done"),
    ):
        with pytest.raises(StoreDamaged):
            call()

    assert manager.run(Quick(4)) == 4
    health = manager.health()
    assert health.status == "degraded"
    assert any("done" in problem for problem in health.problems)


def test_who_waits_for_what_turns_out_to_be_damaged_is_told_at_once(open_manager, until):
    store = DamagedStore()
    manager = open_manager(store=store)
    handle = manager.submit(TwoWaits(), "waits")
    until(lambda: handle.info().phase == "waiting")
    assert handle.wait(0) is False  # who waits from now on shares this question
    manager.run(Quick())  # a commit after the one that told of the wait: "waits" has left memory

    store.heads.add("waits")
    with pytest.raises(StoreDamaged):
        manager.signal("waits", "first")

    with pytest.raises(StoreDamaged, match="waits"):
        handle.result(60)
    store.heads.clear()
    with pytest.raises(StoreDamaged, match="stands still"):
        manager.get("waits").result(60)


def test_a_handle_asks_again_when_a_damaged_store_was_repaired(open_manager, until):
    store = DamagedStore()
    manager = open_manager(store=store)
    handle = manager.submit(TwoWaits(), "waits")
    until(lambda: handle.info().phase == "waiting")
    manager.run(Quick())  # a commit after the one that told of the wait: "waits" has left memory
    store.heads.add("waits")
    with pytest.raises(StoreDamaged):
        handle.result(60)

    store.heads.clear()
    manager.signal("waits", "first")
    until(lambda: handle.info().step == 3)
    manager.signal("waits", "second")
    assert handle.result(60) == ["first", "second"]


@pytest.mark.parametrize(
    "name", ["", "x" * 5000, "a\0b", "é" * 300, "../../etc"], ids=["empty", "long", "nul", "wide", "path"]
)
def test_an_odd_name_is_refused_or_unknown_for_steps_and_callers_alike(open_manager, name):
    manager = open_manager(workers=1)

    with pytest.raises(ProcedureFailed, match="not valid"):
        manager.run(Asks(name))
    for ask in (manager.get, manager.info, manager.steps, manager.abort):
        with pytest.raises(UsageError):
            ask(name)
    assert manager.run(Quick()) == 1


def test_polling_with_new_handles_does_not_pile_up_futures(open_manager):
    manager = open_manager(workers=1)
    manager.submit(TwoWaits(), "waits")

    for _ in range(200):
        assert manager.get("waits").wait(0.001) is False

    assert len(manager._tree._replies._waiting) < 10


def test_outputs_that_fill_more_than_a_frame_together_are_fetched_one_by_one(open_manager):
    manager = open_manager(config=Config(max_frame=256 * 1024, max_state=64 * 1024))

    assert manager.run(Gathers(40, 20_000)) == [20_000] * 40


def test_registering_a_class_again_tries_what_it_refused_before(open_manager, until, tmp_path):
    gate = tmp_path / "gate"
    manager = open_manager(workers=1)
    handle = manager.submit(Picky(str(gate)))
    until(lambda: handle.info().phase == "parked")

    gate.touch()
    manager.register(Picky)

    assert handle.result(20) == "loaded"
