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
from tests.simulator.disk.torn_writes import record_commits
record_commits(Path(sys.argv[1]), 1, 3)
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


@pytest.mark.parametrize("fault", ["--weak", "--no-redo"])
def test_the_same_tool_finds_the_states_of_a_disk_that_is_not_waited_for_and_of_commits_without_a_redo_record(fault):
    said = torn_writes("--states", "300", fault)

    assert said.returncode == 1
    assert int(re.search(r"(\d+) wrong", said.stdout).group(1)) > 10


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_commit_waits_for_its_pages_and_then_for_its_meta_page_or_has_written_a_redo_record(tmp_path):
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
        found = re.search(r" (\w+)\(\d+<[^>]*/store/data\.mdb>(?:.*, (\w+))?\) += \d+", line)
        if found is None:
            continue
        name, last = found.groups()
        if name == "lseek":
            position = int(line.rpartition("= ")[2])
        elif name in {"fdatasync", "fsync"}:
            kinds += "s"
        else:
            place = int(last) if name == "pwrite64" else position
            kinds += "d" if place >= 8192 else "r" if place % 4096 == 512 else "m"
    # Nothing but whole commits, after the first pages of the new file, which are written again when it is opened; one
    # more wait when it is closed.
    assert re.fullmatch("mmm(?:d+sms|rd+sm)+s", kinds), kinds
    assert re.search("rd+sm", kinds)
    assert re.search("md+sms", kinds)
