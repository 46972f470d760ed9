"""Rows of the catalogue about counters, listings and the path view of the step log."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from actorproc import LockKey, Phase, Procedure, RetryPolicy, Status
from actorproc.store.memory import MemoryStore
from tests.catalogue.kit import crash_at_every_commit, ending_of, on_threads
from tests.kit.waiting import wait_until


@dataclass
class Part(Procedure):
    rollback_supported = True

    def execute(self, ctx):
        return Status.done()

    def rollback(self, ctx):
        return None


@dataclass
class Whole(Procedure):
    """Yields, suspends for two children, sleeps, then ends well or is undone."""

    rollback_supported = True
    uses = (Part,)
    fails: bool = False
    stage: int = 0

    def execute(self, ctx):
        self.stage += 1
        if self.stage == 1:
            return Status.executing(yield_=True)
        if self.stage == 2:
            return Status.suspended([Part(), Part()])
        if self.stage == 3:
            return Status.sleep(0.001)
        if self.fails:
            raise ValueError("it broke")
        return Status.done()

    def rollback(self, ctx):
        return None


@dataclass
class Holds(Procedure):
    key: str

    def lock_keys(self):
        return [LockKey.write(self.key)]

    def execute(self, ctx):
        return Status.wait("word") if ctx.event is None else Status.done()


@dataclass
class Breaks(Procedure):
    retry = RetryPolicy(max_attempts=1)

    def execute(self, ctx):
        raise ValueError("it broke")


def short(counts):
    return {name.rpartition(".")[2]: count for name, count in counts.items()}


def test_hbase_44_submitted_and_ended_are_counted_once_with_yields_children_and_failures():
    with on_threads(MemoryStore(), (Whole, Part, Breaks)) as manager:
        for number in range(3):
            manager.submit(Whole(), f"good-{number}").result(20)
        manager.submit(Whole(fails=True), "bad").wait(20)
        manager.submit(Breaks(), "ugly").wait(20)
        metrics = manager.metrics()

    procedures, steps = short(metrics.procedures), short(metrics.steps)
    whole, part, breaks = procedures["Whole"], procedures["Part"], procedures["Breaks"]
    assert (whole.submitted, whole.succeeded, whole.failed, whole.rolledback) == (4, 3, 0, 1)
    assert (part.submitted, part.succeeded) == (8, 8)
    assert (breaks.submitted, breaks.failed) == (1, 1)
    # Four steps each, one of them with an error, and one undo.
    assert (steps["Whole"].run, steps["Whole"].failed) == (17, 1)
    assert steps["Whole"].seconds.count == 17
    assert steps["Part"].run == 8 + 2


def test_hbase_52_the_lock_listing_names_the_waiters_of_each_lock_only():
    with on_threads(MemoryStore(), (Holds,)) as manager:
        for key in ("a", "b"):
            manager.submit(Holds(key), f"{key}-holder")
        wait_until(lambda: len(manager.list(phase=Phase.WAITING)) == 2)
        for key in ("a", "b", "a"):
            manager.submit(Holds(key), f"{key}-waiter-{len(manager.list())}")

        shown = {lock.path: [waiter.procedure for waiter in lock.waiters] for lock in manager.locks()}
        waiting = manager.list(phase=Phase.LOCKED_OUT)

    assert shown == {"a": ["a-waiter-2", "a-waiter-4"], "b": ["b-waiter-3"]}
    assert {info.id: info.reason for info in waiting}["b-waiter-3"] == "waits for write of 'b' held by b-holder"


def test_hbase_58_after_a_failover_lists_and_trees_are_complete():
    store = MemoryStore()
    with on_threads(store, (Whole, Holds)) as manager:
        manager.submit(Whole(), "whole").result(20)
        manager.submit(Holds("a"), "holder")
        wait_until(lambda: manager.info("holder").phase is Phase.WAITING)
        before = [info.to_dict() for info in manager.list()], manager.tree("whole").to_dict(), manager.steps("whole")

    with on_threads(store.clone(), (Whole, Holds)) as manager:
        after = [info.to_dict() for info in manager.list()], manager.tree("whole").to_dict(), manager.steps("whole")

    assert after == before


def test_accumulo_74_print_and_summary_by_state_type_and_locks_held_and_waited_for():
    with on_threads(MemoryStore(), (Holds, Part)) as manager:
        manager.submit(Part(), "part").result(20)
        manager.submit(Holds("a"), "holder")
        wait_until(lambda: manager.info("holder").phase is Phase.WAITING)
        manager.submit(Holds("a/b"), "waiter")

        assert [info.id for info in manager.list(state="SUCCESS")] == ["part"]
        assert [info.id for info in manager.list(type_name=manager.info("holder").type_name)] == ["holder", "waiter"]
        assert [info.id for info in manager.list(id_prefix="hold")] == ["holder"]
        assert [info.id for info in manager.list(phase="locked-out")] == ["waiter"]
        assert manager.info("waiter").locks == (LockKey.write("a/b"),)


PATHS = {
    False: ["000001.step", "000002.step", "000003.step", "000004.step", "000005.commit"],
    True: ["000001.step", "000002.step", "000003.step", "000004.step", "000005.rollback", "000006.rollback"],
}


def paths_of(manager, id):
    return [row.path for row in manager.steps(id)]


@pytest.mark.parametrize("fails", [False, True])
def test_greptime_79_the_path_view_has_exactly_the_keys_of_each_outcome(fails):
    with on_threads(MemoryStore(), (Whole, Part)) as manager:
        manager.submit(Whole(fails), "root").wait(20)
        rows = manager.steps("root")

    assert [row.path for row in rows] == [f"/procedures/root/{name}" for name in PATHS[fails]]
    said = ["submitted", "executing", "suspended", "sleep"]
    assert [row.outcome for row in rows] == said + (["undone", "rolledback"] if fails else ["done"])


@pytest.mark.parametrize("fails", [False, True])
def test_greptime_79_the_path_view_is_the_same_whatever_commit_a_crash_came_before(folder, fails):
    def judge(manager, handle):
        ended = ending_of(handle)
        rows = [(row.path, row.outcome, row.label) for row in manager.steps("root")]
        (last,) = list(manager.watch("root"))
        return ended, rows, str(last.state), manager.tree("root").size

    assert crash_at_every_commit(Whole(fails), folder, judge) >= 6
