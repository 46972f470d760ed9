"""Records that another process damages while the engine runs: what they belong to stands still, and all else goes on."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass

import pytest

from actorproc import Procedure, Status
from actorproc.cli.main import main
from actorproc.errors import StoreDamaged, UnknownProcedure
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.tools.isolated_check import examine
from actorproc.testing import VirtualClock
from actorproc.testing.inline import FAST, InlineManager
from tests.kit.waiting import wait_until

DAMAGE = """
import lmdb, sys
from actorproc.store.rows.keys import head_key
from actorproc.store.rows.tables import Table
env = lmdb.open(sys.argv[1], max_dbs=len(Table), map_size=1 << 34)
heads = env.open_db(Table.PROCEDURES.label.encode(), create=False)
with env.begin(write=True, db=heads) as txn:
    for name in sys.argv[2:]:
        row = bytearray(txn.get(head_key(name)))
        row[len(row) // 2] ^= 0xFF
        assert txn.put(head_key(name), bytes(row))
"""
DAMAGED_SCHEDULE = """
import lmdb, sys
from actorproc.store.rows.tables import Table
path, way, name = sys.argv[1], sys.argv[2], sys.argv[3].encode()
env = lmdb.open(path, max_dbs=len(Table), map_size=1 << 34)
schedules = env.open_db(Table.SCHEDULES.label.encode(), create=False)
with env.begin(write=True, db=schedules) as txn:
    row = bytearray(txn.pop(name))
    if way == "flipped":
        row[len(row) // 2] ^= 0xFF
    txn.put(name if way == "flipped" else name[:-1] + sys.argv[4].encode("latin-1"), bytes(row))
"""
HURT = ("told", "asked", "forced", "failed", "parent.child")


@dataclass
class Waits(Procedure):
    def execute(self, ctx):
        return Status.wait(f"go {ctx.id}") if ctx.event is None else Status.done(ctx.event)


@dataclass
class Fails(Procedure):
    def execute(self, ctx):
        raise ValueError("it fails")


@dataclass
class Parent(Procedure):
    def execute(self, ctx):
        return Status.suspended([("parent.child", Waits())]) if ctx.step == 1 else Status.done("whole")


def test_what_is_damaged_behind_a_running_engine_stands_still_and_all_else_goes_on(tmp_path):
    path = tmp_path / "store"
    classes = [Waits, Fails, Parent]
    with InlineManager(classes, config=FAST, store=LmdbStore(path)) as manager:
        handles = {name: manager.submit(Waits(), name) for name in ("told", "asked", "forced", "sound")}
        parent = manager.submit(Parent(), "parent")
        manager.submit(Fails(), "failed").exception(60)
        wait_until(lambda: len(manager.list(phase="waiting")) == 5)
        subprocess.run([sys.executable, "-c", DAMAGE, path, *HURT], check=True, timeout=60)

        for call in (
            lambda: manager.info("told"),
            lambda: manager.steps("told"),
            lambda: manager.signal("told", 1),
            lambda: manager.abort("asked"),
            lambda: manager.abort("forced", force=True),
            lambda: manager.pause("forced"),
            lambda: manager.retry("failed"),
            lambda: manager.delete("failed"),
            lambda: manager.signal("parent.child", 1),
            lambda: manager.abort("parent"),
            lambda: handles["told"].result(60),
            lambda: parent.result(60),
        ):
            with pytest.raises(StoreDamaged, match="checksum"):
                call()
        assert [info.id for info in manager.list()] == ["sound", "parent"]
        assert manager.info("parent").phase == "parked"
        manager.signal("sound", "well")
        assert handles["sound"].result(60) == "well"
        assert manager.health().status == "degraded"
        problems = " ".join(manager.health().problems)
        assert all(f"{name} stands still" in problems for name in (*HURT, "parent"))

    with InlineManager(classes, config=FAST, store=LmdbStore(path)) as manager:
        with pytest.raises(StoreDamaged):
            manager.get("told").result(60)
        assert manager.get("sound").result(60) == "well"
        assert manager.health().status == "degraded"
    assert {row["key"] for row in examine(path) if row["what"] == "damaged"} == set(HURT)


def test_why_of_a_procedure_needs_no_row_of_a_schedule(tmp_path, capsys):
    with InlineManager([Waits], config=FAST, store=LmdbStore(tmp_path / "store")) as manager:
        manager.schedule(60, Waits(), id="nightly")
        manager.submit(Waits(), id="waits")
    damage = [sys.executable, "-c", DAMAGED_SCHEDULE, tmp_path / "store", "flipped", "nightly", "y"]
    subprocess.run(damage, check=True, timeout=60)

    assert main(["--path", str(tmp_path / "store"), "why", "waits"]) == 0
    assert "waits (Waits)" in capsys.readouterr().out
    assert main(["--path", str(tmp_path / "store"), "why", "nightly"]) != 0
    assert "damaged" in capsys.readouterr().err


@pytest.mark.parametrize(("way", "last"), [("flipped", "y"), ("moved", "!"), ("moved", "\xf9"), ("moved", "x")])
def test_a_schedule_whose_row_is_damaged_is_told_and_not_begun_anew_before_it_is_removed(tmp_path, way, last):
    path, clock = tmp_path / "store", VirtualClock()
    with InlineManager([Waits], config=FAST, store=LmdbStore(path), clock=clock) as manager:
        manager.schedule(60, Waits(), id="nightly")
        manager.pause_schedule("nightly", "not before the audit")
        manager.schedule(3600, Waits(), id="sound")
    subprocess.run([sys.executable, "-c", DAMAGED_SCHEDULE, path, way, "nightly", last], check=True, timeout=60)

    with InlineManager([Waits], config=FAST, store=LmdbStore(path), clock=clock) as manager:
        assert any("schedule nightly does not fire: its row is damaged" in one for one in manager.health().problems)
        assert manager.health().status == "degraded"
        with pytest.raises(StoreDamaged, match=r"nightly does not fire.*actorproc schedules nightly --remove"):
            manager.schedule(60, Waits(), id="nightly")
        for call in (
            lambda: manager.resume_schedule("nightly"),
            lambda: manager.pause_schedule("nightly"),
            lambda: manager.reset_schedule("nightly"),
            lambda: manager.schedule_info("nightly"),
            lambda: manager.why("nightly"),
            manager.schedules,
        ):
            with pytest.raises(StoreDamaged, match="nightl"):
                call()
        assert manager.schedule(3600, Waits(), id="sound").state == "active"

        manager.unschedule("nightly", by="ann")
        assert not any("schedule nightly " in one for one in manager.health().problems)
        assert "remove nightly" in [row.detail for row in manager.audit() if row.by == "ann"]
        assert manager.schedule(60, Waits(), id="nightly").state == "active"
        with pytest.raises(UnknownProcedure):
            manager.unschedule("never")

    with InlineManager([Waits], config=FAST, store=LmdbStore(path), clock=clock) as manager:
        assert manager.schedule_info("nightly").state == "active"
        assert manager.schedule(60, Waits(), id="nightly").state == "active"
        if way == "moved":  # the row under the other name stays until that is removed
            manager.unschedule("nightl\\xf9" if last == "\xf9" else f"nightl{last}")
        assert [info.id for info in manager.schedules()] == ["nightly", "sound"]
        assert manager.health().status == "running"
