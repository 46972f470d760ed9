"""After a sync that failed, nothing is acknowledged that is not on the disk.

Linux marks pages as clean when writing them back has failed, so a second sync succeeds without having written them
(Rebello and others, "Can Applications Recover from fsync Failures?", ATC 2020). Here a sync of a writing process fails, and
from the log of its system calls the disk is rebuilt as such a system leaves it: what was waiting for the failed sync is
lost unless it was written once more. At each acknowledgement the power is cut.
"""

from __future__ import annotations

import random
import re
import shutil
import subprocess
import sys

import pytest

from actorproc.store.lmdb.store import LmdbStore
from tests.damage.test_system_calls import COMMITS, WRITER

pytestmark = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

CALLS = "openat,lseek,pwrite64,pwritev,writev,write,fdatasync,fsync,unlink,unlinkat"
KEPT = re.compile(r"data\.mdb|log-\d+-\d")
LINE = re.compile(r"^\d+ +(\w+)\((?:AT_FDCWD<[^>]*>, )?(?:(\d+)<([^>]*)>)?(.*)\) += (-?\d+)(?:<([^>]*)>)?(.*)$")
TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


PAGE = 4096


class Disk:
    """What is on a disk whose system forgets, page by page, that it could not write."""

    def __init__(self):
        self.files = {}
        """By name."""
        self.failed = 0
        self.said = ""
        self.position = {}
        self.at_once = set()
        """Descriptors whose writes wait for the disk (O_DSYNC)."""
        self.cuts = []
        """At each acknowledgement: its number, and of each file what the disk has and the pages that wait."""

    def play(self, line):
        found = LINE.match(line)
        if found is None:
            return
        call, fd, path, rest, result, opened, _ = found.groups()
        path, opened = (bytes.fromhex((name or "").replace("\\x", "")).decode() for name in (path, opened))
        name = path.rpartition("/")[2]
        if call == "openat":
            if KEPT.fullmatch(opened.rpartition("/")[2]):
                self.position[result] = 0
                (self.at_once.add if "O_DSYNC" in rest else self.at_once.discard)(result)
        elif call in ("unlink", "unlinkat"):
            gone = bytes.fromhex("".join(TEXT.findall(rest)).replace("\\x", "")).decode().rpartition("/")[2]
            if result == "0":
                self.files.pop(gone, None)
        elif call == "write" and fd == "1":
            *lines, self.said = (self.said + self.text(rest).decode()).split("\n")
            for words in map(str.split, lines):
                if words[:1] == ["stored"]:
                    self.cuts.append((int(words[1]), {name: file.now() for name, file in self.files.items()}))
        elif KEPT.fullmatch(name):
            self.touch(self.files.setdefault(name, File()), call, fd, rest, int(result))

    @staticmethod
    def text(rest):
        return b"".join(bytes.fromhex(part.replace("\\x", "")) for part in TEXT.findall(rest))

    def touch(self, file, call, fd, rest, result):
        if call == "lseek":
            self.position[fd] = result
        elif call in ("fdatasync", "fsync"):
            if result == 0:
                file.write_back()
            self.failed += result != 0
            file.waiting = set()
        elif result > 0:
            data = self.text(rest)
            assert len(data) == result, (call, len(data), result)
            place = self.position[fd]
            if call in ("pwrite64", "pwritev"):
                place = int(rest.rpartition(", ")[2])
            else:
                self.position[fd] += result
            file.take(place, data, at_once=fd in self.at_once)


class File:
    """One of its files."""

    def __init__(self):
        self.kept = bytearray()
        """What is on the disk."""
        self.cache = bytearray()
        """What whoever reads the file is given."""
        self.waiting = set()
        """Numbers of dirty pages."""

    def take(self, place, data, *, at_once):
        write(self.cache, place, data)
        pages = set(range(place // PAGE, (place + len(data) - 1) // PAGE + 1))
        self.waiting |= pages
        if at_once:
            self.write_back(pages)

    def now(self):
        return bytes(self.kept), [(number, self.page(number)) for number in sorted(self.waiting)]

    def page(self, number):
        return bytes(self.cache[number * PAGE : (number + 1) * PAGE])

    def write_back(self, pages=None):
        for number in self.waiting if pages is None else pages:
            write(self.kept, number * PAGE, self.page(number))
        self.waiting -= self.waiting if pages is None else pages


def write(image, place, data):
    image.extend(bytes(max(0, place - len(image))))
    image[place : place + len(data)] = data


def stored_in(images, place):
    place.mkdir(mode=0o700)
    for name, image in images.items():
        (place / name).touch(0o600)
        (place / name).write_bytes(image)
    store = LmdbStore(place, map_size=1 << 24)
    store.own()
    try:
        snapshot = store.load()
        assert snapshot.damage == []
        return [head.seq for head in snapshot.procedures]
    finally:
        store.close()


def trace(path, log, fault):
    command = ["strace", "-f", "-qq", "-y", "-xx", "-s", "2000000", "-e", f"trace={CALLS}", "-e", f"inject={fault}"]
    done = subprocess.run(
        [*command, "-o", log, sys.executable, "-c", WRITER, path],
        capture_output=True,
        text=True,
        check=False,
        timeout=90,
    )
    return done, log.read_text()


@pytest.mark.parametrize("fault", ["EIO", "ENOSPC"])
def test_nothing_is_acknowledged_after_a_failed_sync_that_is_not_on_the_disk(tmp_path, fault):
    chance = random.Random(7)
    failures = cuts = number = 0
    while True:  # until there is no further sync that could fail
        number += 1
        done, log = trace(tmp_path / f"store-{number}", tmp_path / "log", f"fdatasync:error={fault}:when={number}")
        if number == 1 and "INJECTED" not in log:
            pytest.skip("strace cannot trace here")
        if "INJECTED" not in log:
            break
        assert done.returncode == 0, done.stderr
        disk = Disk()
        for line in log.splitlines():
            disk.play(line)
        failures += disk.failed
        assert [acknowledged for acknowledged, _ in disk.cuts] == list(range(1, COMMITS + 1))
        for acknowledged, files in disk.cuts:
            # Of what still waits the power cut may take anything.
            for share in (0.0, 1.0, 0.5):
                images = {}
                for name, (kept, waiting) in files.items():
                    images[name] = image = bytearray(kept)
                    for page, data in waiting:
                        if chance.random() < share:
                            write(image, page * PAGE, data)
                cuts += 1
                assert stored_in(images, tmp_path / f"cut-{cuts}")[:acknowledged] == list(range(1, acknowledged + 1))
    assert failures >= COMMITS
    assert cuts >= 3 * COMMITS * failures
    print(f"{failures} failed syncs, {cuts} power cuts at an acknowledgement")  # noqa: T201 - shown by -rP


def test_the_same_disk_shows_a_store_that_does_not_wait_for_it(tmp_path, monkeypatch):
    weak = WRITER.replace("map_size=1 << 24", 'map_size=1 << 24, durability="process"')
    monkeypatch.setattr(sys.modules[__name__], "WRITER", weak)
    done, log = trace(tmp_path / "store", tmp_path / "log", "fdatasync:error=EIO:when=1000")
    disk = Disk()
    for line in log.splitlines():
        disk.play(line)
    if not disk.position:
        pytest.skip("strace cannot trace here")

    assert done.returncode == 0, done.stderr
    assert disk.cuts
    acknowledged, files = disk.cuts[-1]
    try:
        found = stored_in({name: kept for name, (kept, _) in files.items()}, tmp_path / "cut")
    except Exception:  # noqa: BLE001 - whatever is left of it
        found = []
    assert len(found) < acknowledged
