"""Damaged logs by the thousand: no commit is left out in silence, and none is read that was not made.

    python -m tests.simulator.disk.damaged_logs --mutations 20000 --seed 1

The owner of a small store is killed while commits are in the log alone, also while both files of it are in use. Each
mutation changes these files (flipped bits, garbage, zeroed, swapped and doubled sectors, cut files, records that are
swapped or stand twice, what a file was at an earlier commit, files that are gone, exchanged or copies), and the store is read, first as a mere reader, then as its next owner. Each must find:

- *refused*: one of our errors;
- *whole*: all commits;
- *shorter*: all but the last ones, where no whole record stands behind the first one that was hit: nothing tells that
  from commits which a power cut has torn.

Anything else is *wrong*.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from actorproc.errors import ActorprocError
from actorproc.store.lmdb.log.record import record_at
from actorproc.store.lmdb.log.segment import RECORDS_AT, Segment, is_segment
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
from tests.simulator.disk.torn_writes import View, rows_of_store, workload

__all__ = ["LogDamageReport", "main", "try_mutations"]

_STORES = 4
_COMMITS = 24
_SECTOR = 512

Files = dict[str, bytes]


class LogDamageReport(msgspec.Struct):
    """Result of many mutations."""

    outcomes: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """By kind of mutation and outcome."""
    failures: list[str] = msgspec.field(default_factory=list)

    def count(self, outcome: str) -> int:
        """Number of this outcome."""
        return sum(number for (_, one), number in self.outcomes.items() if one == outcome)


class _Killed:
    """A store whose owner was killed, and its rows as of each commit that is in the log alone."""

    def __init__(self, folder: Path, seed: int) -> None:
        chance = random.Random(seed)
        path = folder / f"store-{seed}"
        store = LmdbStore(path, durability="process", map_size=1 << 24)
        epoch = store.own()
        store._log._checkpointer.tell = lambda **_: None  # type: ignore[method-assign]  # only those that are asked for
        data = (path / "data.mdb").read_bytes()
        checkpoint = chance.randrange(0, _COMMITS // 2)
        self.older: list[Files] = []
        """The files at each commit."""
        self.views: list[View] = [rows_of_store(store)]
        """Rows as of the data file, and behind each commit that it lacks."""
        self.files: Files = {}
        self.others: list[bytes] = []
        """Files of other stores."""
        for batch, writes in enumerate(workload(chance, _COMMITS), 1):
            store.commit(writes, epoch, batch)
            if batch == checkpoint:
                store._log.checkpoint()
                data = (path / "data.mdb").read_bytes()
                self.views = [rows_of_store(store)]
                continue
            if batch == checkpoint + _COMMITS // 3 and seed % 2:  # a checkpoint has begun, and is not done
                log = store._log
                with log._appending:
                    log._overlay.freeze()
                    log._opened().turn()
            self.views.append(rows_of_store(store))
            self.older.append(_logs_in(path))
        self.files = _logs_in(path)
        self.files["data.mdb"] = data
        self.spans = self._spans(path)
        store._log._failed = ActorprocError("killed")
        store._sound = False
        store.close()

    def _spans(self, path: Path) -> list[tuple[str, int, int]]:
        """File, first and last byte of each record that counts, in order of places."""
        found: list[tuple[int, str, int, int]] = []
        for name, data in self.files.items():
            if not is_segment(name):
                continue
            segment = Segment.open(path / name, int(name.split("-")[1]))
            at = RECORDS_AT
            while (record := record_at(data, at, segment.salt)) is not None:
                found.append((record.place, name, at, record.end))
                at = record.end
            segment.close()
        return [span[1:] for span in sorted(found)][1 - len(self.views) :]


def _logs_in(path: Path) -> Files:
    return {file.name: file.read_bytes() for file in path.iterdir() if is_segment(file.name)}


def _flip(chance: random.Random, data: bytearray, end: int) -> None:
    for _ in range(chance.choice((1, 1, 2, 8))):
        data[chance.randrange(end)] ^= 1 << chance.randrange(8)


def _garbage(chance: random.Random, data: bytearray, end: int) -> None:
    at, size = chance.randrange(end), chance.choice((1, 8, 36, 512, 4096))
    data[at : at + size] = chance.randbytes(len(data[at : at + size]))


def _zeros(chance: random.Random, data: bytearray, end: int) -> None:
    at = chance.randrange(end // _SECTOR + 1) * _SECTOR
    size = chance.choice((1, 2, 8)) * _SECTOR
    data[at : at + size] = bytes(len(data[at : at + size]))


def _swap(chance: random.Random, data: bytearray, end: int) -> None:
    one, other = (chance.randrange(end // _SECTOR + 1) * _SECTOR for _ in range(2))
    data[one : one + _SECTOR], data[other : other + _SECTOR] = (
        data[other : other + _SECTOR],
        data[one : one + _SECTOR],
    )


def _double(chance: random.Random, data: bytearray, end: int) -> None:
    one, other = (chance.randrange(end // _SECTOR + 1) * _SECTOR for _ in range(2))
    data[one : one + _SECTOR] = data[other : other + _SECTOR]


def _cut(chance: random.Random, data: bytearray, end: int) -> None:
    del data[chance.randrange(end) :]


_KINDS: dict[str, Callable[[random.Random, bytearray, int], None]] = {
    "flipped bits": _flip,
    "garbage": _garbage,
    "zeroed sectors": _zeros,
    "swapped sectors": _swap,
    "doubled sectors": _double,
    "cut off": _cut,
}


def try_mutations(mutations: int, seed: int, folder: Path) -> LogDamageReport:
    """Damage logs of small stores in `folder` in so many ways, and judge how each is read."""
    killed = [_Killed(folder, seed * 10 + number) for number in range(_STORES)]
    for one in killed:
        one.others = [data for other in killed if other is not one for data in other.older[-1].values()]
    report = LogDamageReport()
    for number in range(mutations):
        chance = random.Random(seed * 1_000_003 + number)
        original = killed[number % _STORES]
        kind, files = _mutated(chance, original)
        outcome = _judge(original, files, folder / "victim")
        report.outcomes[kind, outcome.partition(":")[0]] += 1
        if outcome.startswith("wrong"):
            report.failures.append(f"mutation {number} of seed {seed}, {kind}: {outcome}")
    return report


def _mutated(chance: random.Random, original: _Killed) -> tuple[str, Files]:
    files = dict(original.files)
    name = chance.choice([name for name in files if is_segment(name)])
    if chance.random() < 0.2:
        return _whole_file(chance, original, files, name), files
    if chance.random() < 0.1 and len(spans := [span for span in original.spans if span[0] == name]) > 1:
        return _records(chance, files, name, spans), files
    kind = chance.choice(list(_KINDS))
    ends = [end for file, _, end in original.spans if file == name]
    data = bytearray(files[name])
    _KINDS[kind](chance, data, max(ends, default=_SECTOR))
    files[name] = bytes(data)
    return kind, files


def _whole_file(chance: random.Random, original: _Killed, files: Files, name: str) -> str:
    other = next(one for one in files if is_segment(one) and one != name)
    kind = chance.choice(("gone", "exchanged", "a copy", "of an earlier commit", "of another store"))
    if kind == "gone":
        del files[name]
    elif kind == "exchanged":
        files[name], files[other] = files[other], files[name]
    elif kind == "a copy":
        files[name] = files[other]
    elif kind == "of an earlier commit":
        files[name] = chance.choice(original.older)[name]
    else:
        files[name] = files[name][:_SECTOR] + chance.choice(original.others)[_SECTOR:]
    return kind


def _records(chance: random.Random, files: Files, name: str, spans: Sequence[tuple[str, int, int]]) -> str:
    """Change the order of whole records, or have one twice."""
    data = files[name]
    number = chance.randrange(len(spans) - 1)
    (_, at, between), (_, _, end) = spans[number : number + 2]
    if chance.random() < 0.5:
        files[name] = data[:at] + data[between:end] + data[at:between] + data[end:]
        return "swapped records"
    files[name] = data[:between] + data[at:between] + data[between:]
    return "a record twice"


def _judge(original: _Killed, files: Files, victim: Path) -> str:
    shutil.rmtree(victim, ignore_errors=True)
    victim.mkdir(mode=0o700)
    for name, data in files.items():
        (victim / name).touch(0o600)
        (victim / name).write_bytes(data)
    allowed = _allowed(original, files)
    said = []
    try:
        with LmdbReader(victim, allow_any_filesystem=True) as reader:
            said.append(rows_of_store(reader))
    except ActorprocError:
        pass
    store = LmdbStore(victim, map_size=1 << 24, durability="process")
    try:
        store.own()
        said.append(rows_of_store(store))
        is_refused = False
    except ActorprocError:
        is_refused = True
    except Exception as error:  # noqa: BLE001 - what escapes is the finding
        return f"wrong: the owner got {type(error).__name__}: {error}"
    finally:
        store.close()
    for view in said:
        if view not in [original.views[number] for number in allowed]:
            known = original.views.index(view) if view in original.views else None
            return f"wrong: read as of commit {known}, and {sorted(allowed)} are allowed"
    if is_refused:
        return "refused"
    return "whole" if said[-1] == original.views[-1] else "shorter"


def _allowed(original: _Killed, files: Files) -> set[int]:
    """Numbers of views that a reader may give: all, and that before the records at the end that were hit."""
    last = len(original.spans)
    hit = [files.get(name, b"")[at:end] != original.files[name][at:end] for name, at, end in original.spans]
    first = last
    while first > 0 and hit[first - 1]:
        first -= 1
    return {last, first}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 when nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.disk.damaged_logs", description=__doc__)
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="actorproc-logs-", dir=where) as name:
        report = try_mutations(options.mutations, options.seed, Path(name))
    for kind, outcome in sorted(report.outcomes):
        sys.stdout.write(f"{kind:<20}{outcome:<10}{report.outcomes[kind, outcome]:>8}\n")
    totals = ", ".join(f"{report.count(one)} {one}" for one in ("refused", "whole", "shorter", "wrong"))
    sys.stdout.write(f"{options.mutations} damaged logs (seed {options.seed}): {totals}\n")
    sys.stdout.write("".join(f"  {failure}\n" for failure in report.failures[:10]))
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
