"""Real power cuts: an ext4 file system in a file, whose kernel forgets all that it was not made to keep."""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import shutil
import struct
import subprocess
import sys
import threading

import pytest

from actorproc.store.lmdb import LmdbStore
from tests.kit.waiting import wait_until

CUTS = int(os.environ.get("ACTORPROC_POWER_CUTS", "12"))
"""How many cuts are made; the nightly run makes more."""
PER_STORE = 100
SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN; with 2 nothing is flushed, not even the journal."""
NO_FLUSH = struct.pack("I", 2)

WRITER = """
import sys
from actorproc.model.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.writes import PutProcedure, PutStep
from actorproc.store.lmdb import LmdbStore

store = LmdbStore(sys.argv[1], map_size=1 << 24)
epoch = store.own()
seq = store.load().next_seq
print("ready", flush=True)
while True:
    head = ProcedureRecord(id=f"p{seq}", type_name="T", version=1, root=f"p{seq}", parent=None, seq=seq)
    step = StepRecord(procedure=head.id, number=1, kind=StepKind.STEP, at=1.0, state=b"%d " % seq * 200)
    store.commit([PutProcedure(head, None), PutStep(step)], epoch)
    print(seq, flush=True)  # this is the acknowledgement, and it goes to another file system
    seq += 1
"""


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@pytest.fixture
def disk(tmp_path):
    """A directory on a file system of its own, and a function that cuts its power."""
    image, place = tmp_path / "disk.img", tmp_path / "disk"
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or not os.access("/dev/loop-control", os.W_OK):
        pytest.skip("power cuts need root, loop devices and mkfs.ext4")
    with image.open("wb") as file:
        file.truncate(48 << 20)
    place.mkdir()
    mount = ("mount", "-o", "loop", image, place)
    if run("mkfs.ext4", "-q", "-F", image).returncode or run(*mount).returncode:
        pytest.skip("this machine does not let a test mount a file system")

    def cut():
        descriptor = os.open(place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, NO_FLUSH)
        except OSError as error:
            pytest.skip(f"this kernel has no shutdown of ext4: {error}")
        finally:
            os.close(descriptor)

    def restart():
        wait_until(lambda: run("umount", place).returncode == 0)
        # A mount namespace that somebody made meanwhile has this mount as well, and keeps the system that was shut down.
        wait_until(lambda: not run("losetup", "--associated", image).stdout.strip())
        assert run(*mount).returncode == 0

    try:
        yield place, cut, restart
    finally:
        with contextlib.suppress(subprocess.TimeoutExpired):
            run("umount", place)


def write_until(path, acknowledged, enough):
    """Start a writer; every number it acknowledges is appended. Returns the process, the thread, and an event."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    reached = threading.Event()

    def listen():
        count = 0
        for line in process.stdout:
            if line.strip().isdigit():
                acknowledged.append(int(line))
                count += 1
            if count >= enough:
                reached.set()
        reached.set()

    thread = threading.Thread(target=listen)
    thread.start()
    return process, thread, reached


@pytest.mark.timeout(180 + 10 * CUTS)
def test_no_acknowledged_commit_is_lost_when_the_power_is_cut(disk):
    place, cut, restart = disk
    path = place / "store"
    chance = random.Random(1)
    acknowledged: list[int] = []
    for number in range(CUTS):
        if number % PER_STORE == 0 and number:
            # All of a store is read after each cut: one that grew for ever would take longer and longer.
            shutil.rmtree(path)
            acknowledged.clear()
        process, thread, reached = write_until(path, acknowledged, chance.randint(1, 60))
        assert reached.wait(60)
        before = len(acknowledged)
        cut()
        process.kill()
        process.wait(30)
        thread.join(30)
        process.stdout.close()
        restart()

        assert before > 0
        store = LmdbStore(path, map_size=1 << 24)
        store.own()
        try:
            snapshot = store.load()
            assert snapshot.damage == [], f"cut {number}"
            stored = [head.seq for head in snapshot.procedures]
            # All that was acknowledged, and at most the one commit that was under way.
            assert stored == list(range(1, len(stored) + 1)), f"cut {number}"
            assert len(stored) - max(acknowledged) in (0, 1), f"cut {number}"
            assert all(store.step(f"p{seq}", 1).state == b"%d " % seq * 200 for seq in stored)
        finally:
            store.close()


def test_the_same_cuts_are_noticed_by_a_store_that_does_not_wait_for_the_disk(disk):
    """The tool can see a loss: with durability "process" the last commits are gone, as is documented."""
    place, cut, restart = disk
    path = place / "store"
    acknowledged: list[int] = []
    weak = WRITER.replace("map_size=1 << 24", 'map_size=1 << 24, durability="process"')
    process = subprocess.Popen(
        [sys.executable, "-c", weak, path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    for line in process.stdout:
        if line.strip().isdigit():
            acknowledged.append(int(line))
        if len(acknowledged) == 50:
            break
    cut()
    process.kill()
    process.stdout.close()
    process.wait(30)
    restart()

    store = LmdbStore(path, map_size=1 << 24)
    try:
        store.own()
        found = len(store.load().procedures)
    except Exception:  # noqa: BLE001 - whatever is left of it
        found = 0
    finally:
        store.close()
    assert found < 50
