"""Real power cuts: an ext4 file system in a file, whose kernel forgets all that it was not made to keep."""

from __future__ import annotations

import pytest

from actorproc.store.lmdb.store import LmdbStore
from tests.simulator.disk import power_cuts
from tests.simulator.disk.power_cuts import MAP_SIZE, SKIPPED, Disk, NoPowerCuts, Writer, cut_power, main


@pytest.fixture
def disk(tmp_path):
    """A file system whose power can be cut; where that cannot be done, the test is skipped with the reason."""
    try:
        with Disk(tmp_path) as disk:
            disk.cut()
            disk.restart()
            yield disk
    except NoPowerCuts as error:
        pytest.skip(str(error))


def test_no_acknowledged_commit_is_lost_when_the_power_is_cut(disk, monkeypatch):
    monkeypatch.setattr(power_cuts, "_PER_STORE", 10)

    report = cut_power(disk, 12, seed=1)

    assert report.problems == []
    assert report.cuts == 12
    assert report.acknowledged >= 12


def test_the_same_cuts_are_noticed_by_a_store_that_does_not_wait_for_the_disk(disk):
    """The tool can see a loss: with durability "process" the last commits are gone, as is documented."""
    path = disk.place / "store"
    acknowledged: list[int] = []
    writer = Writer(path, acknowledged, durability="process")
    assert writer.wait_for(50)
    disk.cut()
    writer.kill()
    disk.restart()

    store = LmdbStore(path, map_size=MAP_SIZE)
    try:
        store.own()
        found = len(store.load().procedures)
    except Exception:  # noqa: BLE001 - whatever is left of it
        found = 0
    finally:
        store.close()
    assert found < 50


def test_a_campaign_ends_at_its_first_loss(disk, monkeypatch, capsys):
    weak = power_cuts._PROGRAM.replace("durability=sys.argv[3]", 'durability="process"')
    monkeypatch.setattr(power_cuts, "_PROGRAM", weak)

    report = cut_power(disk, 5, seed=2)

    assert len(report.problems) == 1
    assert f"cut {report.cuts - 1} of seed 2: " in report.problems[0]


def test_a_campaign_notices_a_log_that_does_not_wait_for_the_disk(disk, monkeypatch):
    without = "import os\nos.fdatasync = lambda fd: None\n"
    monkeypatch.setattr(power_cuts, "_PROGRAM", without + power_cuts._PROGRAM)

    report = cut_power(disk, 40, seed=5)

    assert len(report.problems) == 1


def test_where_power_cannot_be_cut_it_is_said(monkeypatch, capsys):
    monkeypatch.setattr(power_cuts.shutil, "which", lambda name: None)

    assert main(["--cuts", "3"]) == SKIPPED
    assert capsys.readouterr().out == "skipped: power cuts need root, loop devices and mkfs.ext4\n"
