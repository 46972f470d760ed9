"""Lists, trees and step logs of a running manager."""

from __future__ import annotations

import copy
import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

import actorproc
from actorproc import LockKey, Phase, Procedure, ProcedureState, RetryLater, RetryPolicy, Status, UnknownProcedure
from tests.kit.procedures import Waits

pytestmark = pytest.mark.processes


@dataclass
class Family(Procedure):
    """A tree of `depth` levels with `width` children each; the leaves wait when `leaves` says so."""

    depth: int
    width: int = 2
    asked: bool = False

    def execute(self, ctx):
        if self.asked or self.depth == 0:
            return Status.done(self.depth)
        self.asked = True
        return Status.suspended([Family(self.depth - 1, self.width) for _ in range(self.width)])


@dataclass
class Stumbles(Procedure):
    """Fails for a long time, retryably or for good."""

    retry = RetryPolicy(max_attempts=1000, base=600.0, cap=600.0, jitter=0.0)
    final: bool = False

    def execute(self, ctx):
        if self.final:
            raise ValueError("for good")
        raise RetryLater


@dataclass
class PastTheWayBack(Procedure):
    retry = RetryPolicy(max_attempts=1, base=600.0, cap=600.0, jitter=0.0)
    crossed: bool = False

    def execute(self, ctx):
        if not self.crossed:
            self.crossed = True
            return Status.executing(no_return=True)
        raise ValueError("the bridge is burnt")


@dataclass
class Wants(Procedure):
    key: str

    def lock_keys(self):
        return [LockKey.write(self.key)]

    def execute(self, ctx):
        return Status.wait("word")


@dataclass
class Counts(Procedure):
    upto: int
    done: int = 0

    def execute(self, ctx):
        self.done += 1
        time.sleep(0.002)
        return Status.done(self.done) if self.done >= self.upto else Status.executing()


def ids(infos):
    return [info.id for info in infos]


@pytest.fixture
def shop(open_manager, until):
    """A few procedures of several kinds, all where they stay."""
    manager = open_manager(workers=1)
    manager.submit(Waits(), "wait-1", owner="ann", tags=["red"])
    manager.submit(Waits(), "wait-2", owner="bob", tags=["red", "blue"])
    manager.submit(Stumbles(), "fall-1")
    manager.submit(PastTheWayBack(), "stuck-1")
    manager.submit(Wants("a/b"), "lock-1")
    manager.submit(Wants("a"), "lock-2")
    manager.submit(Family(1), "family").result(30)
    manager.submit(Counts(1), "late", delay=3600)
    wanted = {"wait-1": "waiting", "wait-2": "waiting", "fall-1": "retrying", "stuck-1": "stuck", "lock-1": "waiting"}
    until(lambda: wanted.items() <= {info.id: str(info.phase) for info in manager.list()}.items())
    return manager


def test_a_list_takes_every_filter(shop):
    assert ids(shop.list(owner="ann")) == ["wait-1"]
    assert ids(shop.list(tag="red")) == ["wait-1", "wait-2"]
    assert ids(shop.list(state=["WAITING", "SUCCESS"], id_prefix="wait")) == ["wait-1", "wait-2"]
    assert ids(shop.list(id_prefix="lock-")) == ["lock-1", "lock-2"]
    assert ids(shop.list(id_prefix="nothing-like-it")) == []
    assert len(shop.list(root="family")) == 3
    assert len(shop.list(parent="family")) == 2
    assert {info.parent_id for info in shop.list(parent="family")} == {"family"}
    assert "family" in ids(shop.list(roots_only=True, state="SUCCESS"))
    assert len(shop.list(roots_only=True)) == 8


def test_a_list_filters_by_phase_also_by_those_that_only_the_engine_knows(shop):
    assert ids(shop.list(phase="retrying")) == ["fall-1"]
    assert ids(shop.list(phase=Phase.STUCK)) == ["stuck-1"]
    assert ids(shop.list(phase="locked-out")) == ["lock-2"]
    assert ids(shop.list(phase=["retrying", "stuck"])) == ["fall-1", "stuck-1"]
    assert ids(shop.list(phase="queued")) == ["late"]
    assert ids(shop.list(troubled=True)) == ["fall-1", "stuck-1"]
    assert shop.info("stuck-1").reason == "the bridge is burnt"


def test_a_list_filters_by_time(shop):
    middle = shop.info("fall-1").created_at

    assert ids(shop.list(created_until=middle)) == ["wait-1", "wait-2"]
    assert "fall-1" in ids(shop.list(created_since=middle))
    since = datetime.fromtimestamp(middle, UTC)
    assert ids(shop.list(created_since=since, id_prefix="wait")) == []
    assert shop.list(updated_since=datetime.now(UTC) + timedelta(hours=1)) == []
    assert len(shop.list(updated_until=time.time() + 60)) == len(shop.list())


@pytest.mark.parametrize("filters", [{}, {"parent": "family"}, {"id_prefix": "wait"}, {"state": "WAITING"}])
@pytest.mark.parametrize("newest_first", [False, True])
def test_pages_put_together_are_the_whole_list(shop, filters, newest_first):
    whole = ids(shop.list(**filters, newest_first=newest_first))
    assert whole == (ids(shop.list(**filters))[::-1] if newest_first else whole)

    pages, after = [], None
    while page := ids(shop.list(**filters, newest_first=newest_first, limit=1, after=after)):
        pages += page
        after = page[-1]

    assert pages == whole


def test_wrong_filters_are_refused_by_name(shop):
    for wrong in ({"phase": "tired"}, {"limit": -1}, {"state": "HAPPY"}):
        with pytest.raises(ValueError, match=next(iter(wrong.values())) if wrong.get("limit") is None else "limit"):
            shop.list(**wrong)
    with pytest.raises(
        ValueError, match=r"list\(state=…\) knows no 'HAPPY'; it is one of 'INITIALIZING', .* 'ROLLEDBACK'"
    ):
        shop.list(state=["SUCCESS", "HAPPY"])
    with pytest.raises(TypeError, match="created_since"):
        shop.list(created_since="yesterday")
    with pytest.raises(TypeError, match="phase"):
        shop.list(phase=3)
    with pytest.raises(UnknownProcedure, match="nobody"):
        shop.list(parent="family", after="nobody")


@pytest.mark.parametrize("signalled", [False, True], ids=["it rests", "it ended"])
def test_a_head_that_was_read_before_its_tree_left_memory_is_shown_as_it_is_now(open_manager, until, signalled):
    manager = open_manager(procedures=[Waits])
    handle = manager.submit(Waits(), id="p")
    tree = manager._running()
    until(lambda: tree.store.procedure("p").event == "word")
    if signalled:
        manager.signal("p", "word")
        handle.result(30)
    before = copy.copy(tree.store.procedure("p"))
    before.state, before.event, before.finished_at = ProcedureState.RUNNABLE, None, None

    until(lambda: tree.describe((before,))[0].phase is (Phase.DONE if signalled else Phase.WAITING))


def test_a_tree_is_nested_in_the_order_of_the_parents(open_manager):
    manager = open_manager()
    manager.submit(Family(2), "top").result(30)

    tree = manager.tree("top")

    assert tree.info.id == "top"
    assert tree.size == 7
    assert tree.omitted_below == 0
    assert [len(child.children) for child in tree.children] == [2, 2]
    assert [child.info.parent_id for child in tree.children] == ["top", "top"]
    assert {grandchild.info.root_id for child in tree.children for grandchild in child.children} == {"top"}
    branch = tree.children[0]
    assert manager.tree(branch.info.id) == branch
    assert json.loads(json.dumps(tree.to_dict()))["children"][0]["info"]["id"] == branch.info.id


def test_a_large_tree_is_cut_level_by_level_and_says_what_is_left_out(open_manager):
    manager = open_manager()
    manager.submit(Family(2, width=3), "top").result(30)

    tree = manager.tree("top", limit=5)

    assert tree.size == 5
    assert len(tree.children) == 3
    assert [len(child.children) for child in tree.children] == [1, 0, 0]
    assert [child.omitted for child in tree.children] == [2, 3, 3]
    assert (tree.omitted, tree.omitted_below) == (0, 8)
    with pytest.raises(UnknownProcedure):
        manager.tree("nobody")
    with pytest.raises(ValueError, match="limit"):
        manager.tree("top", limit=0)


def test_the_step_log_tells_paths_times_workers_and_sizes(open_manager):
    manager = open_manager(workers=1)
    manager.submit(Counts(upto=3), "job").result(30)

    first, *steps, last = manager.steps("job")

    assert [row.path for row in manager.steps("job")] == [
        "/procedures/job/000001.step",
        "/procedures/job/000002.step",
        "/procedures/job/000003.step",
        "/procedures/job/000004.commit",
    ]
    assert (first.started_at, first.elapsed, first.pid, first.outcome) == (None, None, None, "submitted")
    pid = manager.workers()[0].pid
    for row in (*steps, last):
        assert row.pid == pid
        assert (row.slot, row.incarnation, row.attempts) == (0, 1, 1)
        assert row.elapsed >= 0.002
        assert row.finished_at - row.started_at == pytest.approx(row.elapsed, abs=1e-4)
        assert row.state_bytes == len(row.state) > 0
    assert (last.outcome, last.output_bytes) == ("done", len(last.output))
    plain = json.loads(json.dumps(last.to_dict()))
    assert plain["kind"] == "commit"
    assert list(plain)[:4] == ["path", "procedure", "number", "generation"]
    assert "state" not in plain


def test_info_has_a_stable_shape_for_machines(shop):
    info = shop.info("wait-2")

    plain = json.loads(json.dumps(info.to_dict()))

    assert list(plain)[:6] == ["id", "type_name", "version", "state", "phase", "reason"]
    assert plain["tags"] == ["red", "blue"]
    assert plain["phase"] == "waiting"
    assert plain["message"] is None
    assert json.loads(json.dumps(shop.health().to_dict()))["status"] == "running"
    assert json.loads(json.dumps(shop.workers()[0].to_dict()))["slot"] == 0
    assert shop.info("lock-1").to_dict()["locks"] == [{"path": "a/b", "mode": "write"}]
    error = shop.info("stuck-1").to_dict()["error"]
    assert (error["kind"], error["type_name"], error["message"]) == ("error", "ValueError", "the bridge is burnt")


def test_uncovered_ten_thousand_parked_procedures_are_listed_in_under_a_second(tmp_path):
    with actorproc.ProcedureManager(tmp_path / "state", workers=1) as manager:
        for start in range(0, 10_000, 2_500):
            manager.submit_many([(f"p-{number:05}", Waits()) for number in range(start, start + 2_500)])
        manager.pause()
    with actorproc.ProcedureManager(tmp_path / "state", workers=1) as manager:
        manager.list(limit=1)
        # The time of this process and not of the clock: the machine may have other things to do.
        began = time.process_time()
        found = manager.list()
        spent = time.process_time() - began

        assert len(found) == 10_000
        assert {info.phase for info in found} == {Phase.PARKED}
        assert spent < 2.0, f"listing took {spent:.2f} s of CPU"
        assert ids(manager.list(phase="parked", newest_first=True, limit=2)) == ["p-09999", "p-09998"]
