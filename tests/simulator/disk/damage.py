"""Damaged stores by the thousand: nothing is read wrongly in silence, and no process dies of what it reads.

    python -m tests.simulator.disk.damage --mutations 100000 --seed 1

Each mutation changes a small real store (flipped bits, garbage and swapped pages, cut files, a lock file that is gone),
and a forked child then reads all of it, first as a mere reader, then as the owner a manager would be. Each answer must
be that of the sound store, or say that something is damaged:

- *refused*: opening raised one of our errors;
- *told*: what is damaged was named, and everything else was right;
- *unharmed*: every answer was right, for the damage hit nothing in use.

Anything else is *wrong*, and a child that dies is a dead host. Both are failures, shown with a seed that repeats them.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from actorproc.errors import ActorprocError
from actorproc.model.rows.snapshot import Damage
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
from tests.simulator.disk.damaged_stores import DAMAGED, Answers, ask_all, ask_snapshot, make_store, mutate

__all__ = ["DamageReport", "MutationVerdict", "main", "try_mutation", "try_mutations"]

_BATCH = 50
"""Mutations of one child."""
_EACH = 20.0
"""Seconds after which reading one store counts as hanging."""
_STORES = 8
_FAILURES = {"wrong", "died"}


_TOLD_OF = {
    "audit": {"audit"},
    "start": {"starts"},
    "acknowledged": {"acknowledged"},
    "event": {"events"},
    "events": {"events"},
    "schedule": {"schedules"},
}
"""Rows without which nothing is done wrongly: there it is enough that one of them was told to be damaged."""


class MutationVerdict(msgspec.Struct, frozen=True):
    """Result of reading one damaged store."""

    seed: int
    kind: str
    outcome: str
    """refused, told, unharmed, wrong, or died."""
    words: str = ""


class DamageReport(msgspec.Struct):
    """Result of many mutations."""

    outcomes: Counter[tuple[str, str]] = msgspec.field(default_factory=Counter)
    """By kind of mutation and outcome."""
    failures: list[MutationVerdict] = msgspec.field(default_factory=list)
    """Wrong answers and dead hosts."""

    @property
    def tried(self) -> int:
        """Mutations in all."""
        return self.outcomes.total()

    def add(self, verdict: MutationVerdict) -> None:
        """Count one."""
        self.outcomes[verdict.kind, verdict.outcome] += 1
        if verdict.outcome in _FAILURES:
            self.failures.append(verdict)

    def __str__(self) -> str:
        names = ("refused", "told", "unharmed", "wrong", "died")
        lines = [f"{'mutation':<30}" + "".join(f"{name:>10}" for name in names)]
        kinds = sorted({kind for kind, _ in self.outcomes})
        lines += [f"{kind:<30}" + "".join(f"{self.outcomes[kind, name]:>10}" for name in names) for kind in kinds]
        totals = [sum(self.outcomes[kind, name] for kind in kinds) for name in names]
        return "\n".join([*lines, f"{'all':<30}" + "".join(f"{total:>10}" for total in totals)])


class _Original:
    """One sound store, and what it answers."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.path = folder / f"store-{seed}"
        self.images = make_store(self.path, seed)
        with LmdbReader(self.path, allow_any_filesystem=True) as reader:
            self.ids = [head.id for head in reader.scan()]
            self.answers = ask_all(reader, self.ids)
            self.snapshot = ask_snapshot(reader.load())
        self.files = {file.name: file.read_bytes() for file in self.path.iterdir() if file.name != "data.mdb"}

    def put_damaged(self, target: Path, seed: int) -> str:
        """Write a damaged copy into an existing directory; the kind of damage."""
        kind, data, others = mutate(random.Random(seed), self.images)
        files: dict[str, bytes | None] = {**self.files, "data.mdb": data, **others}
        for name, content in files.items():
            (target / name).unlink(missing_ok=True)
            if content is not None:
                (target / name).touch(0o600)
                (target / name).write_bytes(content)
        return kind


def try_mutations(mutations: int, seed: int, folder: Path, tell: Callable[[str], object] = str) -> DamageReport:
    """Damage small stores in `folder` in so many ways and judge how each is read."""
    originals = [_Original(folder, seed + number) for number in range(_STORES)]
    report = DamageReport()
    seeds = range(seed * 1_000_003, seed * 1_000_003 + mutations)
    while report.tried < mutations:
        batch = seeds[report.tried : report.tried + _BATCH]
        for verdict in _in_a_child(originals, batch, folder):
            report.add(verdict)
        tell(f"{report.tried} of {mutations}")
    return report


def try_mutation(seed: int, campaign: int, folder: Path) -> MutationVerdict:
    """One mutation of the campaign of this seed again, in a child."""
    originals = [_Original(folder, campaign + number) for number in range(_STORES)]
    return _in_a_child(originals, [seed], folder)[0]


def _in_a_child(originals: Sequence[_Original], seeds: Sequence[int], folder: Path) -> list[MutationVerdict]:
    """The verdicts of a child on these; when it died, the last one says so and the rest was not tried."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            _judge_all(originals, seeds, folder, writing)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        lines = pipe.read().splitlines()
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    verdicts = [msgspec.json.decode(line, type=MutationVerdict) for line in lines]
    if verdicts and verdicts[-1].outcome == "begun":
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        verdicts[-1] = msgspec.structs.replace(verdicts[-1], outcome="died", words=how)
    return [verdict for verdict in verdicts if verdict.outcome != "begun"]


def _judge_all(originals: Sequence[_Original], seeds: Sequence[int], folder: Path, pipe: int) -> None:
    target = folder / f"damaged-{os.getpid()}"
    target.mkdir(mode=0o700)
    for seed in seeds:
        original = originals[seed % len(originals)]
        kind = original.put_damaged(target, seed)
        # An alarm without a handler ends the child, which then counts as dead.
        signal.setitimer(signal.ITIMER_REAL, _EACH)
        os.write(pipe, msgspec.json.encode(MutationVerdict(seed, kind, "begun")) + b"\n")
        outcome, words = _judge(original, target)
        os.write(pipe, msgspec.json.encode(MutationVerdict(seed, kind, outcome, words)) + b"\n")
    signal.setitimer(signal.ITIMER_REAL, 0)


def _judge(original: _Original, target: Path) -> tuple[str, str]:
    try:
        with LmdbReader(target, allow_any_filesystem=True) as reader:
            answers = ask_all(reader, original.ids)
        wrong = _differences(answers, original.answers, [])
        told = any(answer == DAMAGED for answer in answers.values())
        if wrong:
            return "wrong", f"a reader was told otherwise: {wrong[0]}"
    except ActorprocError:
        told = True
    except Exception as error:  # noqa: BLE001 - what escapes is the finding
        return "wrong", f"a reader got {type(error).__name__}: {error}"
    store = LmdbStore(target, map_size=1 << 24, durability="process")
    try:
        store.own()
        snapshot = store.load()
        answers = ask_all(store, original.ids)
    except ActorprocError:
        return "refused", ""
    except Exception as error:  # noqa: BLE001 - as above
        return "wrong", f"the owner got {type(error).__name__}: {error}"
    finally:
        store.close()
    wrong = _differences(answers, original.answers, snapshot.damage)
    wrong += _differences(ask_snapshot(snapshot), original.snapshot, snapshot.damage)
    if wrong:
        return "wrong", f"the owner was told otherwise: {wrong[0]}"
    told = told or bool(snapshot.damage) or any(answer == DAMAGED for answer in answers.values())
    return ("told" if told else "unharmed"), ""


def _differences(found: Answers, truth: Answers, damage: list[Damage]) -> list[str]:
    """Answers that are neither right nor told to be damaged, in words."""
    words = " ".join(f"{one.table} {one.key} {one.reason}" for one in damage)
    tables = {one.table for one in damage}
    wrong = []
    for name in found.keys() | truth.keys():
        answer, wanted = found.get(name), truth.get(name)
        if answer in (wanted, DAMAGED) or (len(name) > 1 and any(part in words for part in name[1:2])):
            continue
        if name == ("paused",) and answer is not None and "paused" in words:
            continue
        if name == ("next_seq",) and wanted is not None and answer is not None and answer >= wanted:
            continue
        if isinstance(answer, list) and isinstance(wanted, list) and words:
            # A list may lack what is told to be damaged, and nothing else.
            missing = [row for row in wanted if row not in answer]
            extra = [row for row in answer if row not in wanted]
            if not extra and all(getattr(row, "id", "?") in words for row in missing):
                continue
        if not answer and tables & _TOLD_OF.get(name[0], set()):
            continue  # a row that is missed here was told of, under a key that is damaged too
        wrong.append(f"{name} is {answer!r:.200} instead of {wanted!r:.200}; damage: {words:.300}")
    return wrong


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 when nothing was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.disk.damage", description=__doc__)
    parser.add_argument("--mutations", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--replay", type=int, metavar="SEED", help="only this mutation of the campaign of --seed")
    options = parser.parse_args(arguments)
    # In memory when there is such a directory: what is tried is the reading, not the disk.
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="actorproc-damage-", dir=where) as name:
        if options.replay is not None:
            again = try_mutation(options.replay, options.seed, Path(name))
            sys.stdout.write(f"{again.kind}: {again.outcome} {again.words}\n")
            return 1 if again.outcome in _FAILURES else 0
        report = try_mutations(options.mutations, options.seed, Path(name))
    sys.stdout.write(f"{report}\n{report.tried} damaged stores in {time.monotonic() - begun:.0f} s: ")
    sys.stdout.write(f"{len(report.failures)} read wrongly or deadly\n")
    for failure in report.failures[:10]:
        sys.stdout.write(f"  --replay {failure.seed}: {failure.kind}: {failure.outcome}: {failure.words}\n")
    return 1 if report.failures else 0


if __name__ == "__main__":
    sys.exit(main())
