"""How many processors a program may use, by its affinity and its control groups."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from actorproc import ProcedureManager
from actorproc.workers.os.processors import usable_processors

ALL = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


@pytest.fixture
def many(monkeypatch):
    """A machine with 64 processors, of which this process may use 48."""
    monkeypatch.setattr(os, "cpu_count", lambda: 64)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _pid: set(range(48)), raising=False)
    monkeypatch.setattr(os, "process_cpu_count", lambda: 48, raising=False)


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        pytest.param("0::/\n", {}, 48, id="no quota"),
        pytest.param("0::/\n", {"cpu.max": "max 100000\n"}, 48, id="an unlimited group"),
        pytest.param("0::/\n", {"cpu.max": "200000 100000\n"}, 2, id="docker --cpus 2"),
        pytest.param("0::/\n", {"cpu.max": "150000 100000\n"}, 2, id="a part is rounded up"),
        pytest.param("0::/\n", {"cpu.max": "5000 100000\n"}, 1, id="less than one"),
        pytest.param("0::/\n", {"cpu.max": "9900000 100000\n"}, 48, id="more than the affinity"),
        pytest.param("0::/a/b\n", {"a/b/cpu.max": "max 100000", "a/cpu.max": "300000 100000"}, 3, id="a group above"),
        pytest.param("0::/a/b\n", {"a/b/cpu.max": "400000 100000", "a/cpu.max": "300000 100000"}, 3, id="the least"),
        pytest.param("0::/a/b\n", {"a/b/cpu.max": "400000 100000"}, 4, id="its own"),
        pytest.param("0::/../../pod/x\n", {"cpu.max": "500000 100000"}, 5, id="a path outside of the namespace"),
        pytest.param("0::/docker/abc\n", {"cpu.max": "500000 100000"}, 5, id="a path as the host sees it"),
        pytest.param(
            "4:cpu,cpuacct:/jobs\n0::/jobs\n",
            {"cpu,cpuacct/jobs/cpu.cfs_quota_us": "700000", "cpu,cpuacct/jobs/cpu.cfs_period_us": "100000"},
            7,
            id="version 1",
        ),
        pytest.param(
            "4:cpu,cpuacct:/docker/abc\n",
            {"cpu/cpu.cfs_quota_us": "700000", "cpu/cpu.cfs_period_us": "100000"},
            7,
            id="version 1 in a container",
        ),
        pytest.param(
            "4:cpu:/\n", {"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 48, id="version 1, no quota"
        ),
        pytest.param("", {"cpu.max": "nonsense"}, 48, id="no groups"),
        pytest.param("0::/\n", {"cpu.max": "nonsense"}, 48, id="a file of another form"),
        pytest.param("0::/\n", {"cpu.max": "0 0"}, 48, id="numbers that mean nothing"),
    ],
)
def test_the_least_of_affinity_and_quotas_counts(tmp_path, many, own, files, expected):
    (tmp_path / "own").write_text(own)
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(text)

    assert usable_processors(tmp_path / "fs", tmp_path / "own") == expected


def test_a_system_without_groups_or_affinity_has_all_its_processors(tmp_path, many, monkeypatch):
    monkeypatch.delattr(os, "sched_getaffinity")
    monkeypatch.delattr(os, "process_cpu_count")

    assert usable_processors(tmp_path / "fs", tmp_path / "none") == 64


def test_the_interpreter_s_option_overrules_both(tmp_path, many, monkeypatch):
    monkeypatch.setattr(os, "process_cpu_count", lambda: 7, raising=False)
    (tmp_path / "own").write_text("0::/\n")
    (tmp_path / "cpu.max").write_text("100000 100000")

    assert usable_processors(tmp_path, tmp_path / "own") == 7


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_managers_and_executors_have_a_worker_for_each_processor(tmp_path):
    code = (
        "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
        "from actorproc import ProcedureExecutor, ProcedureManager\n"
        "print(ProcedureManager('state')._slots, ProcedureExecutor('calls')._max_workers)\n"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert ran.stdout == "1 1\n"
    assert ProcedureManager(tmp_path / "state")._slots <= ALL
