"""Real power cuts: a store on an ext4 file system whose kernel forgets all that it was not made to keep.

    python -m tests.simulator.disk.power_cuts --cuts 1000

The file system lives in a file and is mounted through a loop device. A process writes to a store on it and says of
each commit that it is durable. At some moment the kernel is told to shut the file system down without writing anything
more (``EXT4_IOC_SHUTDOWN``, as xfstests does); it is mounted again, which replays its journal, and the store is read.
All that was acknowledged must be there, and nothing else but the one commit that was under way.

It needs root, loop devices and ``mkfs.ext4``. Where one is missing it says so, with exit code 77.
"""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Self

import msgspec

from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.reading import Durability

__all__ = ["SKIPPED", "CutReport", "Disk", "NoPowerCuts", "Writer", "cut_power", "main"]

SKIPPED = 77
"""The exit code of a test that cannot be made here, as in GNU Automake."""
MAP_SIZE = 1 << 24
_DISK_SIZE = 48 << 20
_PER_STORE = 100
"""Cuts of one store. All of it is read after each cut: one that grew for ever would take longer and longer."""
_MOST_COMMITS = 60
_PATIENCE = 60.0
"""Seconds for what a kernel or another process does at once when all is well."""
_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN."""
_NO_FLUSH = struct.pack("I", 2)
"""Nothing is written any more, not even the journal."""

_PROGRAM = """
import sys, threading, time
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutProcedure, PutStep
from actorproc.store.lmdb.store import LmdbStore

store = LmdbStore(sys.argv[1], map_size=int(sys.argv[2]), durability=sys.argv[3])
epoch = store.own()
seq = store.load().next_seq
batch = 0
while True:
    head = ProcedureRecord(id=f"p{seq}", type_name="T", version=1, root=f"p{seq}", parent=None, seq=seq)
    step = StepRecord(procedure=head.id, number=1, kind=StepKind.STEP, at=1.0, state=b"%d " % seq * 200)
    batch += 1  # without a number it would be no commit of a manager's
    store._log.takes = lambda writes: seq % 17 != 0  # now and then as a large commit, into the data file itself
    if seq % 5 == 0:  # a checkpoint beside the commits, so that files of the log are used again
        threading.Thread(target=store._log.checkpoint, daemon=True).start()
    store.commit([PutProcedure(head, None), PutStep(step)], epoch, batch)
    print(seq, flush=True)  # this is the acknowledgement, and it goes to another file system
    seq += 1
    if seq % 3 == 0:
        time.sleep(0.02)  # so that some cuts come when nothing is under way
"""


class NoPowerCuts(Exception):
    """This machine does not let us cut the power of a file system; the text says what is missing."""


class CutReport(msgspec.Struct):
    """Result of a campaign of power cuts."""

    cuts: int = 0
    acknowledged: int = 0
    """Commits that were said to be durable, all told."""
    problems: list[str] = msgspec.field(default_factory=list)
    """One line for each cut after which the store was not what it must be; empty when all is well."""


class Disk:
    """An ext4 file system of its own below `directory`, mounted while this is entered.

    Raises:
        NoPowerCuts: on entering, or at the first cut, with what is missing here.
    """

    def __init__(self, directory: Path) -> None:
        self.image = directory / "disk.img"
        self.place = directory / "disk"

    def __enter__(self) -> Self:
        if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None or not os.access("/dev/loop-control", os.W_OK):
            raise NoPowerCuts("power cuts need root, loop devices and mkfs.ext4")
        with self.image.open("wb") as file:
            file.truncate(_DISK_SIZE)
        self.place.mkdir()
        if _run("mkfs.ext4", "-q", "-F", self.image).returncode or self._mount():
            raise NoPowerCuts("this machine does not let us mount a file system")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            _run("umount", self.place)

    def cut(self) -> None:
        """From now on nothing reaches the disk; what has not reached it is lost."""
        descriptor = os.open(self.place, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, _SHUTDOWN, _NO_FLUSH)
        except OSError as error:
            raise NoPowerCuts(f"this kernel has no shutdown of ext4: {error}") from error
        finally:
            os.close(descriptor)

    def restart(self) -> None:
        """The power is back: the file system is mounted anew, and replays its journal."""
        _until(lambda: _run("umount", self.place).returncode == 0, "the file system can be unmounted")
        # A mount namespace that was made meanwhile has this mount as well, and keeps what was shut down.
        _until(lambda: not _run("losetup", "--associated", self.image).stdout.strip(), "its loop device is free")
        if self._mount():
            raise RuntimeError(f"{self.image} could not be mounted again after its power was cut")

    def _mount(self) -> int:
        return _run("mount", "-o", "loop", self.image, self.place).returncode


class Writer:
    """A process that commits to the store at `path` for ever; what it acknowledges is added to `acknowledged`."""

    def __init__(self, path: Path, acknowledged: list[int], *, durability: Durability = "power") -> None:
        self._acknowledged = acknowledged
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(path), str(MAP_SIZE), durability],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            encoding="utf-8",
        )
        self._changed = threading.Condition()
        self._is_over = False
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def wait_for(self, count: int) -> bool:
        """Until so many numbers are acknowledged; False when the process ended, or said nothing for a minute."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or len(self._acknowledged) >= count, _PATIENCE)
            return len(self._acknowledged) >= count

    def kill(self) -> None:
        """End it, and hear what it had said by then."""
        self._process.kill()
        self._process.wait(_PATIENCE)
        self._listener.join(_PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.endswith("\n") and line.strip().isdigit():
                with self._changed:
                    self._acknowledged.append(int(line))
                    self._changed.notify_all()
        with self._changed:
            self._is_over = True
            self._changed.notify_all()


def cut_power(disk: Disk, cuts: int, seed: int) -> CutReport:
    """Cut the power so often, each time after a number of commits that is drawn from `seed`.

    Raises:
        NoPowerCuts: the kernel cannot do it.
    """
    report = CutReport()
    path = disk.place / "store"
    chance = Random(seed)
    acknowledged: list[int] = []
    for number in range(cuts):
        if number % _PER_STORE == 0 and number:
            shutil.rmtree(path)
            acknowledged.clear()
        before = len(acknowledged)
        writer = Writer(path, acknowledged)
        try:
            has_written = writer.wait_for(before + chance.randint(1, _MOST_COMMITS))
            disk.cut()
        finally:
            writer.kill()
        disk.restart()
        report.cuts += 1
        report.acknowledged += len(acknowledged) - before
        problem = _problem(path, acknowledged) if has_written else "the writer ended, or stood still"
        if problem is not None:
            report.problems.append(f"cut {number} of seed {seed}: {problem}")
            return report
    return report


def _problem(path: Path, acknowledged: list[int]) -> str | None:
    """Error of the store after a cut; None when it is as it must be."""
    store = LmdbStore(path, map_size=MAP_SIZE)
    try:
        store.own()
        snapshot = store.load()
        if snapshot.damage:
            return f"damaged: {snapshot.damage}"
        stored = [head.seq for head in snapshot.procedures]
        if stored != list(range(1, len(stored) + 1)):
            return f"what was stored one after the other has gaps: {stored}"
        if len(stored) - max(acknowledged) not in (0, 1):
            return f"{max(acknowledged)} commits were acknowledged, {len(stored)} are there"
        for seq in stored:
            step = store.step(f"p{seq}", 1)
            if step is None or step.state != b"%d " % seq * 200:
                return f"the step of p{seq} is another one"
    except Exception as error:  # noqa: BLE001 - a store that cannot be read is what is looked for
        return f"it cannot be read: {type(error).__name__}: {error}"
    finally:
        store.close()
    return None


def _run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, encoding="utf-8", check=False, timeout=_PATIENCE)


def _until(condition: Callable[[], bool], words: str) -> None:
    end = time.monotonic() + _PATIENCE
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(f"waited {_PATIENCE:.0f} s in vain until {words}")
        time.sleep(0.01)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 when nothing was wrong, 1 when something was, 77 when power cannot be cut here."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.simulator.disk.power_cuts",
        description="Cut the power of a file system with a store on it.",
    )
    parser.add_argument("--cuts", type=int, default=100, help="how many (default 100)")
    parser.add_argument("--seed", type=int, default=1, help="another one cuts at other moments (default 1)")
    options = parser.parse_args(arguments)
    begun = time.monotonic()
    try:
        with tempfile.TemporaryDirectory(prefix="actorproc-power-") as name, Disk(Path(name)) as disk:
            report = cut_power(disk, options.cuts, options.seed)
    except NoPowerCuts as error:
        sys.stdout.write(f"skipped: {error}\n")
        return SKIPPED
    seconds = time.monotonic() - begun
    sys.stdout.write(f"{report.cuts} power cuts, {report.acknowledged} acknowledged commits, in {seconds:.0f} s: ")
    sys.stdout.write(f"{len(report.problems)} with a loss\n")
    sys.stdout.write("".join(f"  {problem}\n" for problem in report.problems))
    return 1 if report.problems else 0


if __name__ == "__main__":
    sys.exit(main())
