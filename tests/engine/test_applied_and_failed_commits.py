"""Commits that were applied and reported as failed: answers are given once, and none is lost."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from actorproc import Procedure, Status
from actorproc.config import Config
from actorproc.errors import StorageUnavailable
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
