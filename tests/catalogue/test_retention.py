"""Rows of the catalogue about what is kept of finished procedures, for how long, and how it leaves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

import pytest

from actorproc import Procedure, ProcedureManager, Status, UnknownProcedure, procedure
from actorproc.config import Config
from actorproc.store.memory import MemoryStore
from actorproc.store.rows.tables import Table
from tests.catalogue.kit import FAST, RecordingStore
from tests.catalogue.on_threads import OnThreads
from tests.kit.waiting import BOUND, wait_until

SWEPT = replace(FAST, retain_for=0.0, sweep_interval=0.005)
KEPT = replace(FAST, retain_for=3600.0, retain_acknowledged=3600.0, sweep_interval=0.005)


@procedure
def double(ctx, number: int) -> int:
    return 2 * number


@dataclass
class Parent(Procedure):
    children: int
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        if self.at == 1:
            ctx.remember("began", lambda: 1)
            return Status.suspended(double(number) for number in range(self.children))
        return Status.done(len(ctx.children))


@dataclass
class Waiter(Procedure):
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        return Status.wait("go") if self.at == 1 else Status.done(ctx.event)


TYPES = (Parent, Waiter)


@contextlib.contextmanager
def opened(store: MemoryStore, config: Config) -> Iterator[ProcedureManager]:
    manager = OnThreads("unused", workers=1, store=store, config=config, procedures=TYPES).start()
    try:
        yield manager
    finally:
        manager.stop(drain=False, timeout=5)


def rows(store: MemoryStore) -> dict[str, int]:
    """How many rows each database has, without the one about the store itself."""
    counts = {table.label: store._rows.count(table) for table in Table if table is not Table.META}
    return {name: count for name, count in counts.items() if count}


def nothing_left(store: MemoryStore) -> bool:
    return not list(store.scan()) and not store.load().removals


def test_hbase_41_what_has_finished_is_not_cleaned_by_a_load_but_by_its_age() -> None:
    store = MemoryStore()
    with opened(store, KEPT) as manager:
        assert manager.submit(Parent(2), "tree").result(BOUND) == 2
    with opened(store, KEPT) as manager:
        assert manager.get("tree").result(BOUND) == 2
        assert len(manager.list()) == 3
    with opened(store, SWEPT):
        wait_until(lambda: nothing_left(store))

    assert rows(store) == {}


def test_hbase_41_an_unfinished_procedure_outlives_every_sweep() -> None:
    store = MemoryStore()
    with opened(store, SWEPT) as manager:
        waiting = manager.submit(Waiter(), "waiting")
        waiting.add_done_callback(lambda _: None)
        wait_until(lambda: manager.info("waiting").state == "WAITING")
        for number in range(20):
            manager.submit(double(number), f"short{number}")
        wait_until(lambda: [info.id for info in manager.list()] == ["waiting"])
        manager.signal("waiting", 7)
        assert waiting.result(BOUND) == 7


def test_hbase_28_a_key_means_the_same_procedure_exactly_as_long_as_its_result_is_kept() -> None:
    store = MemoryStore()
    with opened(store, KEPT) as manager:
        assert manager.submit(double(1), "key").result(BOUND) == 2
        first = manager.info("key").created_at
        assert manager.submit(double(1), "key").result(BOUND) == 2
        assert manager.info("key").created_at == first
        assert manager.delete("key")
        assert manager.submit(double(1), "key").result(BOUND) == 2
        assert manager.info("key").created_at > first


def test_accumulo_75_the_age_is_that_of_the_end_and_survives_a_restart_of_the_cleaner() -> None:
    store = MemoryStore()
    with opened(store, KEPT) as manager:
        manager.submit(double(1), "old").result(BOUND)
        ended = manager.info("old").finished_at
    with opened(store, KEPT) as manager:
        manager.submit(double(2), "young").result(BOUND)
        between = (ended + manager.info("young").finished_at) / 2
    assert [name for name, _ in store.finished(before=between)] == ["old"]
    assert [name for name, _ in store.finished()] == ["old", "young"]


def test_accumulo_75_what_runs_again_is_not_aged() -> None:
    store = MemoryStore()
    with opened(store, SWEPT) as manager:
        waiting = manager.submit(Waiter(), "waiting")
        for _ in range(3):
            manager.submit(double(1))
        wait_until(lambda: [info.id for info in manager.list()] == ["waiting"])
        assert not waiting.done()


def test_greptime_80_after_its_time_nothing_at_all_is_left_of_a_tree() -> None:
    store = MemoryStore()
    with opened(store, KEPT) as manager:
        assert manager.submit(Parent(5), "tree").result(BOUND) == 5
        manager.publish("somebody", "an event that none takes")
    before = rows(store)
    assert {"procedures", "steps", "children", "members", "notes", "order", "finished"} <= before.keys()

    with opened(store, SWEPT):
        wait_until(lambda: nothing_left(store))

    assert rows(store) == {"events": 1}


def test_greptime_88_outdated_results_go_and_asking_for_them_says_so() -> None:
    store = MemoryStore()
    with opened(store, KEPT) as manager:
        manager.submit(double(1), "a").result(BOUND)
        assert manager.acknowledge("a")
    with opened(store, replace(KEPT, retain_acknowledged=0.0)) as manager:
        wait_until(lambda: nothing_left(store))
        with pytest.raises(UnknownProcedure):
            manager.get("a")
        assert manager.acknowledge("a") is False


@pytest.mark.parametrize("children", [4, 300])
def test_greptime_89_a_crash_before_any_commit_of_a_removal_leaves_a_whole_tree_or_none(children: int) -> None:
    store = RecordingStore()
    store.images = None
    with opened(store, KEPT) as manager:
        assert manager.submit(Parent(children), "tree").result(BOUND) == children
        manager.submit(double(1), "other").result(BOUND)
    store.images = []
    with opened(store, SWEPT):
        wait_until(lambda: nothing_left(store))
    images, store.images = [image for image, _ in store.images], None

    sizes = set()
    for image in [*images, store.clone()]:
        seen = [head for head in image.scan() if head.root == "tree"]
        sizes.add(len(seen))
        assert image.load().damage == []
        with opened(image.clone(), KEPT) as manager:
            # The id is as it was, or free, whatever of the tree is still hidden in the store.
            assert manager.submit(Parent(children), "tree").result(BOUND) == children
            assert len(manager.list(root="tree")) == children + 1
        with opened(image, SWEPT):
            wait_until(lambda image=image: nothing_left(image))
        assert rows(image) == {}
    assert sizes == {0, children + 1}
