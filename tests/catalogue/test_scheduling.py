"""Catalogue: order of work, workers that are stuck, pools that change their size, limits."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest

from actorproc import Config, ManagerBusy, Procedure, Status
from tests.catalogue.kit import RecordingStore, note, noted
from tests.catalogue.on_threads import OnThreads
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes


@dataclass
class Held(Procedure):
    """Notes that it runs, and ends when the file is there."""

    folder: str
    name: str
    gate: str = "open"

    def execute(self, ctx):
        note(self.folder, "begin", self.name)
        deadline = time.monotonic() + BOUND
        while not Path(self.folder, self.gate).exists() and time.monotonic() < deadline:
            time.sleep(0.002)
        note(self.folder, "end", self.name)
        return Status.done(self.name)


@dataclass
class Steps(Procedure):
    """Notes each of its steps; `ready` says whether it lets others go between them."""

    folder: str
    name: str
    count: int
    ready: bool = True
    at: int = 0

    def execute(self, ctx):
        note(self.folder, self.name, self.at)
        self.at += 1
        if self.at == self.count:
            return Status.done()
        return Status.executing(yield_=not self.ready)


@dataclass
class Slotted(Procedure):
    """Two steps with a slot, and a child that needs the same one."""

    folder: str
    name: str
    depth: int = 1
    at: int = 0
    uses: ClassVar[tuple[type, ...]] = ()

    def limit_keys(self):
        return ["slot"]

    def execute(self, ctx):
        note(self.folder, "step", self.name, self.at)
        self.at += 1
        if self.at == 1:
            return Status.executing()
        if self.at == 2 and self.depth:
            return Status.suspended([Slotted(self.folder, f"{self.name}.child", depth=0)])
        return Status.done(self.name)


def _manager(store, workers=1, max_workers=None, types=(Held, Steps, Slotted), **config):
    config = Config(spares=0, commit_backoff=0.005, **config)
    return OnThreads(
        "unused", workers=workers, max_workers=max_workers or workers, store=store, config=config, procedures=types
    )


def _open(folder, name="open"):
    Path(folder, name).touch()


def test_hbase_35_one_more_worker_when_all_are_stuck_and_it_goes_when_idle(tmp_path):
    folder = str(tmp_path)
    with _manager(RecordingStore(), 2, 3, stuck_after=0.1, extra_worker_idle=0.1) as manager:
        stuck = manager.submit_many([Held(folder, "a"), Held(folder, "b")])
        wait_until(lambda: len(noted(folder)) == 2)
        manager.run(Steps(folder, "free", 3))
        stuck.append(manager.submit(Held(folder, "c")))  # it keeps the extra worker
        wait_until(lambda: "begin c" in noted(folder))
        assert len(manager.workers()) == 3

        _open(folder)
        for handle in stuck:
            handle.result(BOUND)
        wait_until(lambda: len(manager.workers()) == 2)


def test_iotdb_91_a_temporary_worker_is_not_started_while_one_still_answers(tmp_path):
    folder = str(tmp_path)
    with _manager(RecordingStore(), 2, 4, stuck_after=30.0) as manager:
        stuck = manager.submit(Held(folder, "a"))
        wait_until(lambda: noted(folder))
        for number in range(20):
            manager.run(Steps(folder, f"quick{number}", 2))
        assert len(manager.workers()) == 2
        _open(folder)
        stuck.result(BOUND)


def test_hbase_54_an_urgent_procedure_goes_first_when_the_workers_are_flooded(tmp_path):
    folder = str(tmp_path)
    with _manager(RecordingStore()) as manager:
        first = manager.submit(Held(folder, "first"))
        wait_until(lambda: noted(folder))
        flood = manager.submit_many([Steps(folder, f"flood{number}", 1) for number in range(100)])
        urgent = manager.submit(Steps(folder, "urgent", 1), priority=1)
        _open(folder)
        for handle in (first, urgent, *flood):
            handle.result(BOUND)

    assert noted(folder)[2] == "urgent 0"


def test_accumulo_64_more_than_may_run_wait_and_all_run_in_the_end(tmp_path):
    folder = str(tmp_path)
    with _manager(RecordingStore(), 2, max_running=3, concurrency={"slot": 1}) as manager:
        handles = manager.submit_many([Slotted(folder, str(number)) for number in range(100)])
        assert [handle.result(BOUND) for handle in handles] == [str(number) for number in range(100)]


@pytest.mark.parametrize("ready", [False, True], ids=["not ready", "ready"])
def test_accumulo_66_who_is_not_ready_takes_turns_and_who_is_ready_shares_alike(tmp_path, ready):
    folder = str(tmp_path)
    with _manager(RecordingStore()) as manager:
        first = manager.submit(Held(folder, "first"))
        wait_until(lambda: noted(folder))
        handles = manager.submit_many([Steps(folder, name, 4, ready) for name in "abc"])
        _open(folder)
        for handle in (first, *handles):
            handle.result(BOUND)

    # A ready one does not run from start to end as in FATE: begun ones take turns, new ones wait until they are done.
    steps = [line.split()[0] for line in noted(folder)[2:]]
    assert sorted(steps) == sorted("abc" * 4)
    if not ready:
        assert "".join(steps) == "abc" * 4


def test_accumulo_73_the_pool_grows_and_shrinks_live_and_no_step_fails_or_is_repeated(tmp_path):
    folder = str(tmp_path)
    with _manager(RecordingStore(), 1) as manager:
        handles = manager.submit_many([Steps(folder, str(number), 5) for number in range(40)])
        for size in (4, 2, 6, 1):
            manager.resize(size)
            wait_until(lambda size=size: len(manager.workers()) == size)
        for handle in handles:
            handle.result(BOUND)

    assert len(noted(folder)) == len(set(noted(folder))) == 200


def test_accumulo_77_a_small_pool_starves_nobody(tmp_path):
    folder = str(tmp_path)
    with _manager(RecordingStore(), 1, priority_ageing=0.02) as manager:
        low = manager.submit(Steps(folder, "low", 3), priority=-1)
        number = 0
        deadline = time.monotonic() + BOUND
        while not low.done():
            assert time.monotonic() < deadline
            manager.submit_many([Steps(folder, f"high{number}.{place}", 3) for place in range(5)], priority=1)
            number += 1
            time.sleep(0.005)


def test_greptime_88_too_many_procedures_are_refused_and_accepted_again_later(tmp_path):
    folder = str(tmp_path)
    with _manager(RecordingStore(), 2, max_running=2, max_queued=0) as manager:
        running = manager.submit_many([Held(folder, "a"), Held(folder, "b")])
        with pytest.raises(ManagerBusy, match="2 may run"):
            manager.submit(Held(folder, "c"))
        _open(folder)
        for handle in running:
            handle.result(BOUND)
        assert manager.run(Held(folder, "c")) == "c"


def test_uncovered_slots_and_rates_hold_whatever_commit_a_crash_leaves(tmp_path):
    folder = str(tmp_path)
    terms = {"concurrency": {"slot": 1}, "rate": {"slot": (4, 3600.0)}, "max_running": 2}
    store = RecordingStore(folder)
    names = ["a", "b", "c"]
    with _manager(store, 2, **terms) as manager:
        # Two trees of two starts each fit into the rate; the third one must wait, whatever happens.
        manager.submit_many([(name, Slotted(folder, name)) for name in names])
        for name in names[:2]:
            manager.get(name).result(BOUND)
        wait_until(lambda: "rate" in (manager.info("c").reason or ""))
    images, store.images = store.images, None
    images = [image for image, _ in images if image.procedure("c") is not None]

    for image in [*images, store.clone()]:
        with _manager(image, 2, **terms) as manager:
            for name in names[:2]:
                assert manager.get(name).result(BOUND) == name
            wait_until(lambda here=manager: "rate" in (here.info("c").reason or ""))
            assert manager.info("c").state == "RUNNABLE"
    assert len(images) > 5
