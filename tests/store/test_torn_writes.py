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
from actorproc.testing.torn_writes import record_commits
record_commits(Path(sys.argv[1]), 1, 3)
"""


def torn_writes(*options: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own: a state that LMDB cannot bear would take this one along."""
    return subprocess.run(
        [sys.executable, "-m", "actorproc.testing.torn_writes", *options],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.parametrize("seed", range(4))
def test_whatever_sectors_a_power_cut_leaves_the_store_reads_as_before_or_after_the_commit(seed):
    said = torn_writes("--states", "5000", "--seed", str(seed))

    assert said.returncode == 0, said.stdout + said.stderr
    old, new = map(int, re.search(r"(\d+) read as before the commit, (\d+) as after", said.stdout).groups())
    assert old > 1000
    assert new > 1000
    assert old + new == 5000


def test_the_same_tool_finds_the_states_of_a_disk_that_is_not_waited_for():
    said = torn_writes("--states", "200", "--weak")

    assert said.returncode == 1
    assert int(re.search(r"(\d+) wrong", said.stdout).group(1)) > 10


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_commit_writes_its_pages_waits_for_the_disk_and_then_writes_the_meta_page(tmp_path):
    """The order of system calls on which the states above rest."""
    log = tmp_path / "calls"
    calls = "openat,lseek,pwrite64,writev,write,fdatasync,fsync,msync"
    subprocess.run(
        ["strace", "-f", "-y", "-e", f"trace={calls}", "-o", log, sys.executable, "-c", SCRIPT, tmp_path / "store"],
        check=True,
        timeout=120,
    )

    kinds, position, opened = "", 0, ""
    for line in log.read_text().splitlines():
        if "openat" in line and "O_DSYNC" in line and "/store/data.mdb" in line:
            opened += line
        found = re.search(r" (\w+)\(\d+<[^>]*/store/data\.mdb>(?:.*, (\w+))?\) += \d+", line)
        if found is None:
            continue
        name, last = found.groups()
        if name == "lseek":
            position = int(line.rpartition("= ")[2])
        elif name in {"fdatasync", "fsync"}:
            kinds += "s"
        else:
            kinds += "m" if (int(last) if name == "pwrite64" else position) < 8192 else "d"
    # Nothing but whole commits, after the first pages of the new file; the meta page's descriptor is synchronous.
    assert re.fullmatch("m(?:d+sms?)+", kinds), kinds
    assert kinds.count("dsm") >= 3
    assert opened
