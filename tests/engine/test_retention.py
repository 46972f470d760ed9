"""Results are kept as long as was said, and then are gone with everything below them; the file is compacted and copied."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import (
    Config,
    LockKey,
    NotAllowed,
    Procedure,
    RetryPolicy,
    Status,
    UnknownProcedure,
    procedure,
)
from actorproc.store.lmdb.store import LmdbReader

ROOT = Path(__file__).parents[2]
QUICK = 0.02
"""Seconds between two sweeps in tests."""


@procedure
def double(ctx, number: int) -> int:
    return 2 * number


@dataclass
class Family(Procedure):
    children: int
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        if self.at == 1:
            return Status.suspended(double(number) for number in range(self.children))
        return Status.done(sum(outcome.output for outcome in ctx.children.values()))


@dataclass
class CannotUndo(Procedure):
    key: str
    rollback_retry = RetryPolicy(max_attempts=1)

    def lock_keys(self):
        return [LockKey.write(self.key)]

    def execute(self, ctx):
        raise RuntimeError("broken")

    def rollback(self, ctx):
        raise RuntimeError("cannot be undone")


@dataclass
class WaitForIt(Procedure):
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        if self.at == 1:
            return Status.wait("go")
        return Status.done(ctx.event)


def test_finished_trees_leave_after_their_time_and_the_unfinished_stay(open_manager, until):
    manager = open_manager(config=Config(retain_for=0.2, sweep_interval=QUICK))
    waiting = manager.submit(WaitForIt(), id="waiting")
    waiting.add_done_callback(lambda _: None)  # from now on the handle is told of the end, however short that is kept
    manager.submit(Family(5), id="family")

    until(lambda: [info.id for info in manager.list()] == ["waiting"])

    with pytest.raises(UnknownProcedure):
        manager.get("family")
    with pytest.raises(UnknownProcedure):
        manager.info("family")
    assert manager.signal("waiting", "now") is True
    assert waiting.result(30) == "now"


def test_an_id_whose_result_is_gone_can_be_submitted_anew(open_manager, until):
    manager = open_manager(config=Config(retain_for=None))
    first = manager.submit(double(4), id="mine")
    assert first.result(30) == 8
    assert manager.submit(double(4), id="mine").result(30) == 8
    assert manager.delete("mine", "tidy up") is True

    with pytest.raises(UnknownProcedure):
        manager.get("mine")
    assert manager.submit(double(5), id="mine").result(30) == 10
    assert manager.delete("nobody") is False


def test_a_handle_of_what_was_removed_says_that_it_is_unknown(open_manager):
    manager = open_manager()
    manager.run(double(1), id="a")
    handle = manager.get("a")
    assert manager.delete("a")

    for ask in (handle.result, handle.info, handle.done):
        with pytest.raises(UnknownProcedure):
            ask()


def test_only_the_newest_are_kept_when_their_number_is_limited(open_manager, until):
    manager = open_manager(config=Config(retain_for=None, retain_count=3, sweep_interval=QUICK))
    for number in range(8):
        manager.run(double(number), id=f"p{number}")

    until(lambda: len(manager.list()) == 3)

    assert [info.id for info in manager.list()] == ["p5", "p6", "p7"]


def test_an_acknowledged_result_leaves_early_and_the_others_stay_also_across_a_restart(open_manager, until):
    manager = open_manager(config=Config(retain_for=3600, retain_acknowledged=3600, sweep_interval=QUICK))
    manager.run(double(1), id="taken")
    manager.run(double(2), id="kept")
    assert manager.acknowledge("taken") is True
    assert manager.acknowledge("nobody") is False
    manager.stop()

    manager = open_manager(config=Config(retain_for=3600, retain_acknowledged=0, sweep_interval=QUICK))

    until(lambda: [info.id for info in manager.list()] == ["kept"])
    assert manager.get("kept").result(30) == 4


def test_what_has_not_finished_or_is_a_child_is_neither_deleted_nor_acknowledged(open_manager, until):
    manager = open_manager()
    manager.submit(WaitForIt(), id="waiting")
    manager.run(Family(1), id="family")
    child = next(info.id for info in manager.list(root="family") if info.id != "family")

    for verb in (manager.delete, manager.acknowledge):
        with pytest.raises(NotAllowed, match="finished"):
            verb("waiting")
        with pytest.raises(NotAllowed, match="family"):
            verb(child)
    assert manager.delete("family")
    assert [info.id for info in manager.list()] == ["waiting"]


def test_a_failure_that_left_poison_stays_until_an_operator_has_dealt_with_it(open_manager, until):
    manager = open_manager(config=Config(retain_for=0, sweep_interval=QUICK))
    assert manager.submit(CannotUndo("table"), id="bad").exception(30).state == "FAILED"
    manager.submit(double(1), id="good")
    until(lambda: [info.id for info in manager.list()] == ["bad"])

    with pytest.raises(NotAllowed, match="table"):
        manager.delete("bad")
    assert manager.clear_poison("table", "looked at it") is True
    assert manager.delete("bad", "repaired") is True
    assert manager.list() == []


def test_a_failure_can_be_given_a_time_of_its_own(open_manager, until):
    manager = open_manager(config=Config(retain_for=None, retain_failed_for=0, sweep_interval=QUICK))
    manager.submit(CannotUndo("table"), id="bad").wait(30)
    manager.run(double(1), id="good")

    until(lambda: [info.id for info in manager.list()] == ["good"])

    assert [poison.path for poison in manager.poisons()] == ["table"]


def test_a_compaction_under_load_loses_nothing_and_shrinks_the_file(open_manager, until):
    manager = open_manager(config=Config(retain_for=3600, retain_acknowledged=0, sweep_interval=QUICK))
    old = manager.submit_many([double(number) for number in range(300)])
    assert [handle.result(60) for handle in old] == [2 * number for number in range(300)]
    assert all(manager.acknowledge(handle.id) for handle in old)
    until(lambda: not manager.list())
    handles = manager.submit_many([Family(20) for _ in range(3)])

    report = manager.compact()

    assert report.after < report.before
    assert [handle.result(60) for handle in handles] == [380] * 3
    assert manager.run(double(21)) == 42
    assert manager.health().status == "running"


def test_a_backup_goes_on_with_what_had_not_finished_while_the_original_does_too(open_manager, tmp_path):
    manager = open_manager()
    waiting = manager.submit(WaitForIt(), id="waiting")
    manager.run(double(2), id="done")

    report = manager.backup(tmp_path / "backups" / "monday")
    copy = open_manager(tmp_path / "backups" / "monday", procedures=[WaitForIt])

    assert copy.get("done").result(30) == 4
    assert copy.signal("waiting", "in the copy")
    assert copy.get("waiting").result(30) == "in the copy"
    assert manager.signal("waiting", "here")
    assert waiting.result(30) == "here"
    assert report.store_id != report.copied_from
    with pytest.raises(NotAllowed, match="already"):
        manager.backup(tmp_path / "backups" / "monday")


HOST = """
import sys, time
sys.path[:0] = [sys.argv[1], sys.argv[2]]
from test_retention import Config, Family, double
from actorproc import ProcedureManager
retain = None if sys.argv[4] == "keep" else 0
with ProcedureManager(sys.argv[3], workers=2, config=Config(retain_for=retain, sweep_interval=0.01, spares=0)) as manager:
    if sys.argv[4] == "keep":
        manager.submit(Family(700), id="huge").result()
        manager.submit_many([Family(3) for _ in range(60)])[-1].result()
        while any(str(info.state) != "SUCCESS" for info in manager.list()): time.sleep(0.01)
    else:
        print("started", flush=True)
        while manager.list() or manager._running().store.load().removals: time.sleep(0.01)
        print("empty", flush=True)
"""


def host(path: Path, what: str) -> subprocess.Popen[str]:
    arguments = [str(ROOT), str(Path(__file__).parent), str(path), what]
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOST), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
    )


def test_a_host_killed_in_a_sweep_leaves_whole_trees_and_the_next_one_goes_on(tmp_path, until):
    path = tmp_path / "state"
    with host(path, "keep") as filling:
        assert filling.wait(120) == 0
    with LmdbReader(path) as reader:
        left = total = len(list(reader.scan()))
    assert total == 701 + 60 * 4

    for _ in range(4):
        if not left:
            break
        with host(path, "sweep") as sweeping:
            assert sweeping.stdout.readline() == "started\n"
            with LmdbReader(path) as reader:
                before = left
                until(lambda seen=reader, at=before: len(list(seen.scan())) < at or sweeping.poll() is not None, 60)
            sweeping.send_signal(signal.SIGKILL)
        with LmdbReader(path) as reader:
            heads = list(reader.scan())
            assert reader.load().damage == []
            children = {head.id: sum(other.parent == head.id for other in heads) for head in heads}
            assert all(children[head.id] == head.children for head in heads), "half a tree is seen"
            left = len(heads)
        assert left < before
    with host(path, "sweep") as sweeping:
        assert sweeping.stdout.read() == "started\nempty\n"
    with LmdbReader(path) as reader:
        assert list(reader.scan()) == reader.finished() == reader.load().removals == []
        assert reader.steps("huge") == []
