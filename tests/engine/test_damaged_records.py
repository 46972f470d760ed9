"""Records that turn out to be damaged: their callers are told, and the manager goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from actorproc import Procedure, Status
from actorproc.errors import StoreDamaged
from actorproc.store.memory import MemoryStore

pytestmark = pytest.mark.processes


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
