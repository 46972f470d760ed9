"""Power cuts in the middle of a commit, rebuilt sector by sector."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import pytest

SCRIPT = """
import sys
from pathlib import Path
from tests.simulator.disk.torn_writes import record_writes
record_writes(Path(sys.argv[1]), 1, 3)
"""


def torn_writes(*options: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a state that LMDB cannot bear would take this one along."""
    return subprocess.run(
        [sys.executable, "-m", "tests.simulator.disk.torn_writes", *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("seed", [*range(4), *(pytest.param(seed, marks=pytest.mark.nightly) for seed in range(4, 8))])
def test_whatever_sectors_a_power_cut_leaves_the_store_reads_as_before_or_after_the_commit(seed):
    said = torn_writes("--states", "2500", "--seed", str(seed))

    assert said.returncode == 0, said.stdout + said.stderr
    old, new = map(int, re.search(r"(\d+) read as before the commit, (\d+) as after", said.stdout).groups())
    assert old > 500
    assert new > 500
    assert old + new == 2500


def test_the_same_tool_finds_the_states_of_a_disk_that_is_not_waited_for():
    said = torn_writes("--states", "300", "--weak")

    assert said.returncode == 1
    assert int(re.search(r"(\d+) wrong", said.stdout).group(1)) > 10


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_commit_waits_for_its_record_and_a_checkpoint_for_its_pages_and_then_for_its_meta_page(tmp_path):
    """The order of system calls on which the states above rest."""
    log = tmp_path / "calls"
    calls = "lseek,pwrite64,writev,write,fdatasync,fsync,msync"
    subprocess.run(
        ["strace", "-f", "-y", "-e", f"trace={calls}", "-o", log, sys.executable, "-c", SCRIPT, tmp_path / "store"],
        check=True,
        timeout=120,
    )

    kinds, position = "", 0
    for line in log.read_text().splitlines():
        found = re.search(r" (\w+)\(\d+<[^>]*/store/(data\.mdb|log-\d+-\d)>(?:.*, (\w+))?\) += \d+", line)
        if found is None:
            continue
        name, file, last = found.groups()
        if name == "lseek":
            position = int(line.rpartition("= ")[2])
        elif file != "data.mdb":
            kinds += "S" if name in {"fdatasync", "fsync"} else "r"
        elif name in {"fdatasync", "fsync"}:
            kinds += "s"
        else:
            kinds += "d" if (int(last) if name == "pwrite64" else position) >= 8192 else "m"
    # Both files of the log are made before the first transaction; a record that needs more room has two writes. The
    # write of a meta page waits by itself (O_DSYNC).
    assert re.fullmatch("m*rSrS(?:d+s+m)(?:r{1,2}S|d+s+m)+", kinds), kinds
    assert re.search("rSr{1,2}S", kinds)
