"""Every system call by which a commit reaches the disk fails once, or is the last one before the process is killed."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from itertools import count

import pytest

from actorproc.store.lmdb.store import LmdbStore

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

COMMITS = 5
WRITER = f"""
import sys
from actorproc.errors import StorageUnavailable
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import PutProcedure
from actorproc.store.lmdb.store import LmdbStore

store = LmdbStore(sys.argv[1], map_size=1 << 24)
for attempt in range(3):
    try:
        epoch = store.own()
        break
    except StorageUnavailable:
        print("refused", flush=True)
for seq in range(1, {COMMITS} + 1):
    head = ProcedureRecord(id=f"p{{seq}}", type_name="T", version=1, root=f"p{{seq}}", parent=None, seq=seq)
    for attempt in range(5):
        try:
            if seq == 3:
                store._log.checkpoint()
            store._log.takes = lambda writes: seq != 4  # a large one goes into the data file itself
            store.commit([PutProcedure(head, None)], epoch, seq)
            break
        except StorageUnavailable:
            print("unknown", seq, flush=True)
            for again in range(5):
                try:
                    store.reopen()
                    break
                except StorageUnavailable:
                    pass
            if store.load().batch == seq:  # it was applied all the same
                break
    print("stored", seq, flush=True)
store.close()
"""
CALLS = {"lseek": 2, "writev": 3, "pwrite64": 2 * COMMITS, "fdatasync": COMMITS + 2, "fsync": 3}
"""The system calls by which a store reaches its disk, data pages by `writev`, and how often each happens at least."""
OTHERS = {"write", "pwritev", "pwritev2", "sendfile", "copy_file_range", "splice", "ftruncate", "truncate", "fallocate"}
OTHERS |= {"msync", "sync", "syncfs", "sync_file_range", "rename", "renameat", "renameat2", "link", "linkat"}
"""Others that could change a file or wait for the disk."""
FAULTS = {
    "EIO": ("error=EIO", tuple(CALLS)),
    "ENOSPC": ("error=ENOSPC", ("writev", "pwrite64", "fdatasync")),
    "half": ("retval=4096", ("writev",)),
}
"""What a call may say, and which: `half` is a write of the first of several pages, as on a disk that has become full."""


def of_files(path):
    """Options of strace for the files of a store: a log for each time that it is opened."""
    logs = [path / f"log-{number}-{which}" for number in range(1, 9) for which in (0, 1)]
    return [option for file in (path, path / "data.mdb", *logs) for option in ("-P", file)]


def traced(path, injection, log):
    command = ["strace", "-f", "-qq", *of_files(path), "-o", log, "-e", f"inject={injection}"]
    return subprocess.run(
        [*command, sys.executable, "-c", WRITER, path], capture_output=True, text=True, check=False, timeout=60
    )


def usable(tmp_path):
    done = traced(tmp_path / "probe", "fsync:error=EIO:when=1000", tmp_path / "log")
    return done.returncode == 0


def judge(path, said):
    """All that was said to be stored is there, in a store that opens; nothing stands twice or half."""
    stored = [int(line.split()[1]) for line in said.splitlines() if line.startswith("stored")]
    store = LmdbStore(path, map_size=1 << 24)
    store.own()
    try:
        snapshot = store.load()
        found = [head.seq for head in snapshot.procedures]
        assert snapshot.damage == []
        assert found == list(range(1, len(found) + 1))
        assert stored == found[: len(stored)]
        assert len(found) - len(stored) <= 1
    finally:
        store.close()
    return stored


def test_these_are_all_the_calls_by_which_a_store_reaches_its_disk(tmp_path):
    if not usable(tmp_path):
        pytest.skip("strace cannot trace here")
    command = [
        "strace",
        "-f",
        "-qq",
        *of_files(tmp_path / "store"),
        "-o",
        tmp_path / "calls",
    ]
    subprocess.run([*command, sys.executable, "-c", WRITER, tmp_path / "store"], check=True, timeout=60)

    called = set(re.findall(r"^\d+ +(\w+)\(", (tmp_path / "calls").read_text(), re.MULTILINE))
    assert called >= CALLS.keys()
    assert called & OTHERS == set()


@pytest.mark.parametrize("fault", FAULTS)
def test_a_system_call_that_fails_once_loses_nothing_and_the_work_goes_on(tmp_path, fault):
    if not usable(tmp_path):
        pytest.skip("strace cannot trace here")
    hits = {}
    injection, calls = FAULTS[fault]
    for call in calls:
        for when in count(1):
            path = tmp_path / f"{call}-{when}"
            done = traced(path, f"{call}:{injection}:when={when}", tmp_path / "log")
            if "INJECTED" not in (tmp_path / "log").read_text():
                break  # there is none that has this number: each was tried
            hits[call] = when

            assert done.returncode == 0, (call, when, done.stderr)
            assert judge(path, done.stdout) == list(range(1, COMMITS + 1)), (call, when)
    print(f"{fault}: {hits}")  # noqa: T201 - shown by -rP
    assert all(hits.get(call, 0) >= CALLS[call] for call in calls)


def test_a_process_that_is_killed_at_any_system_call_of_a_commit_loses_nothing(tmp_path):
    if not usable(tmp_path):
        pytest.skip("strace cannot trace here")
    kills = {}
    for call in CALLS:
        for when in count(1):
            path = tmp_path / f"{call}-{when}"
            done = traced(path, f"{call}:signal=KILL:when={when}", tmp_path / "log")
            if done.returncode == 0:
                break
            kills[call] = when

            judge(path, done.stdout)
    print(f"killed at: {kills}")  # noqa: T201 - shown by -rP
    assert all(kills.get(call, 0) >= times for call, times in CALLS.items())
