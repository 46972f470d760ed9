"""Where the kernel's control groups can be used, and what is written into them."""

from __future__ import annotations

import os
from pathlib import Path

from actorproc.workers.os.cgroups import find_cgroup, find_cgroups
from actorproc.workers.pool.crash_reports import Remains, crash_report


def a_delegated_tree(folder: Path, controllers: str = "cpu memory pids") -> tuple[Path, Path]:
    """The files a unit with delegation sees: its own group, this program in a group below it."""
    unit = folder / "system.slice" / "host.service"
    (unit / "supervisor").mkdir(parents=True)
    (unit / "cgroup.subtree_control").write_text(controllers)
    own = folder / "self"
    own.write_text("0::/system.slice/host.service/supervisor\n")
    return unit, own


def test_groups_for_workers_are_made_beside_the_programs_own(tmp_path: Path) -> None:
    unit, own = a_delegated_tree(tmp_path)

    group = find_cgroup(tmp_path, own)

    assert group is not None
    assert group.folder == unit / f"actorproc-{os.getpid()}"
    group.limit(123, 1_000_000)
    assert (group.folder / "123" / "cgroup.procs").read_text() == "123"
    assert (group.folder / "123" / "memory.max").read_text() == "1000000"
    group.limit(123, None)
    assert (group.folder / "123" / "memory.max").read_text() == "max"
    group.limit(456, None)
    assert not (group.folder / "456").exists()


def test_a_kill_in_a_workers_group_is_seen(tmp_path: Path) -> None:
    _, own = a_delegated_tree(tmp_path)
    group = find_cgroup(tmp_path, own)
    assert group is not None
    group.limit(123, 1)
    events = group.folder / "123" / "memory.events"

    events.write_text("low 0\noom 0\noom_kill 0\n")
    assert not group.was_killed(123)
    events.write_text("low 0\noom 1\noom_kill 1\n")
    assert group.was_killed(123)
    report = crash_report(Remains(status=9, booted=True, group_killed=True))
    assert report.kind == "memory-limit"
    assert "for more memory than the memory_hard of its step" in report.message


def test_without_the_memory_controller_there_is_no_room(tmp_path: Path) -> None:
    _, own = a_delegated_tree(tmp_path, controllers="cpu pids")
    assert find_cgroup(tmp_path, own) is None
    assert find_cgroup(tmp_path, tmp_path / "nothing") is None
    own.write_text("0::/\n")
    assert find_cgroup(tmp_path, own) is None


def test_numbers_of_processes_are_limited_in_the_same_groups_where_the_controller_is_there(tmp_path: Path) -> None:
    unit, own = a_delegated_tree(tmp_path)

    groups = find_cgroups(tmp_path, own)

    assert groups.pids is groups.memory
    assert groups.pids is not None
    assert groups.pids.folder == unit / f"actorproc-{os.getpid()}"
    assert (groups.pids.folder / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_a_controller_of_the_older_kind_limits_them_below_the_programs_own_group(tmp_path: Path) -> None:
    (tmp_path / "pids" / "user").mkdir(parents=True)
    own = tmp_path / "self"
    own.write_text("8:pids:/user\n4:memory:/elsewhere\n0::/\n")

    assert find_cgroups(tmp_path, own).memory is None
    assert find_cgroups(tmp_path / "nothing", own).pids is None


def test_who_is_left_in_a_dead_workers_group_is_killed(tmp_path: Path) -> None:
    _, own = a_delegated_tree(tmp_path)
    groups = find_cgroups(tmp_path, own)
    assert groups.pids is not None
    group = groups.pids.folder / "123"
    group.mkdir()
    (group / "cgroup.procs").write_text("123\n124\n125\n")
    (group / "cgroup.kill").write_text("")

    assert groups.pids.processes(123) == 2
    assert groups.pids.processes(999) is None
    groups.forget(123)

    assert (group / "cgroup.kill").read_text() == "1"


def test_what_a_killed_program_left_is_removed_by_the_next_one(tmp_path: Path) -> None:
    unit, own = a_delegated_tree(tmp_path)
    (unit / "actorproc-4999999" / "7").mkdir(parents=True)  # no system has so high a number
    (unit / "actorproc-1" / "8").mkdir(parents=True)
    (unit / "actorproc-other").mkdir()

    find_cgroups(tmp_path, own)

    assert sorted(folder.name for folder in unit.glob("actorproc-*")) == sorted(
        ["actorproc-1", "actorproc-other", f"actorproc-{os.getpid()}"]
    )
