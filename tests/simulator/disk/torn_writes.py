"""Remains of a commit after a power cut: every order of its sectors, rebuilt and read.

    python -m tests.simulator.disk.torn_writes --states 20000 --seed 1

A commit writes one record to the log and waits for the disk (``fdatasync``). A checkpoint writes the changed pages of
the data file, waits, and then writes one of the two meta pages, and waits for that. Until a wait is over the disk may
have taken any of the 512-byte sectors and left out the others; what LMDB writes of a meta page lies within one sector,
which is on disk or is not. So the states a power cut can leave are known from the files before and after (the method is
that of ALICE, Pillai 2014, with the order of system calls given). A new owner must find in each the store as before the
commit, or as after it; and as after it when the wait was over, for then it was acknowledged. A checkpoint changes
nothing of what is read, at whatever sector the power fails.

The tool is tested against a disk that is not waited for (`--weak`): there acknowledged commits are missing, and a new
meta page may meet old data.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from actorproc.errors import ActorprocError
from actorproc.model.policies import LockMode
from actorproc.model.rows.record_parts import Past
from actorproc.model.rows.records import LockRecord, ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import DeleteLock, PutLock, PutProcedure, PutStep, Was, Write
from actorproc.model.states import ProcedureState
from actorproc.store.directory import DATA_FILE, OWNER_FILE
from actorproc.store.lmdb.files.meta_pages import read_meta_pages
from actorproc.store.lmdb.log.segment import is_segment
from actorproc.store.lmdb.page_check import seal_of
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
from actorproc.store.rows.layout import BATCH, EPOCH, FORMAT_KEY, LAST_BATCH
from actorproc.store.rows.tables import Table

__all__ = ["TornVerdict", "TornWrite", "View", "main", "record_writes", "rows_of_store", "try_states", "workload"]

SECTOR = 512
_LOOKED_AT = 20
_LATER = 1 << 62
_IN_A_PAGE = 4096 // SECTOR
_OF_THE_OWNER = {(Table.META, EPOCH), (Table.META, BATCH), (Table.META, LAST_BATCH), (Table.META, FORMAT_KEY)}

View = dict[tuple[Table, bytes], bytes]
Files = dict[str, bytes]


class TornWrite(msgspec.Struct, frozen=True):
    """One commit or checkpoint: the files on the disk before and after it, and the rows of both."""

    before: Files
    after: Files
    view_before: View
    view_after: View
    sectors: tuple[tuple[str, int], ...]
    """File and number of the sectors that are written before the first wait."""
    meta: int | None
    """Number of the sector with the meta page, which a checkpoint writes behind that."""


class TornVerdict(msgspec.Struct):
    """Numbers of tries and of findings."""

    states: int = 0
    kept_old: int = 0
    """States that read as the store before the commit."""
    took_new: int = 0
    """States that read as the store after it."""
    wrong: int = 0
    """States that read as neither, or not at all: an acknowledged commit lost, or a half one seen."""
    noticed: int = 0
    """Of the wrong ones, those that the store refused to read."""
    examples: list[str] = msgspec.field(default_factory=list)


def record_writes(path: Path, seed: int, commits: int) -> list[TornWrite]:
    """Run random commits on a new store in `path`, and a checkpoint now and then; the files are copied around each."""
    chance = random.Random(seed)
    store = LmdbStore(path)
    epoch = store.own()
    store._log._checkpointer.tell = lambda **_: None  # type: ignore[method-assign]  # only those that are asked for
    torn: list[TornWrite] = []
    try:
        before, view = _files(path), rows_of_store(store)
        for batch, writes in enumerate(workload(chance, commits), 1):
            store.commit(writes, epoch, batch)
            after, now = _files(path), rows_of_store(store)
            torn.append(TornWrite(before, after, view, now, _changed_sectors(before, after), None))
            before, view = after, now
            if chance.random() < 0.3:
                store._log.checkpoint()
                after = _files(path)
                metas = read_meta_pages(path)
                assert metas is not None
                meta = metas.newest % 2 * _IN_A_PAGE
                sectors = tuple(one for one in _changed_sectors(before, after) if one != (DATA_FILE, meta))
                torn.append(TornWrite(before, after, view, view, sectors, meta))
                before = after
    finally:
        store.close()
    return torn


def _files(path: Path) -> Files:
    return {one.name: one.read_bytes() for one in path.iterdir() if one.name == DATA_FILE or is_segment(one.name)}


def _sector(image: bytes, number: int) -> bytes:
    return image[number * SECTOR : (number + 1) * SECTOR]


def _changed_sectors(before: Files, after: Files) -> tuple[tuple[str, int], ...]:
    found = []
    for name, data in after.items():
        padded = before[name].ljust(len(data), b"\0")
        count = len(data) // SECTOR
        found += [(name, number) for number in range(count) if _sector(padded, number) != _sector(data, number)]
    return tuple(found)


def try_states(torn: Sequence[TornWrite], folder: Path, *, states: int, seed: int, weak: bool = False) -> TornVerdict:
    """Rebuild `states` states of these writes in `folder` and read each. `weak`: nothing waits for the disk."""
    chance = random.Random(seed)
    verdict = TornVerdict()
    folder.mkdir(mode=0o700)
    while verdict.states < states:
        write = chance.choice(torn)
        is_over = chance.random() < 0.5
        share = 1.0 if is_over and not weak else chance.random()
        taken = [one for one in write.sectors if chance.random() < share]
        if write.meta is not None and is_over and chance.random() < 0.5:
            taken.append((DATA_FILE, write.meta))
        wanted = [write.view_after] if is_over else [write.view_before, write.view_after]
        verdict.states += 1
        files = _image(write, taken, cut=chance.random() < 0.1 and not is_over)
        _judge(write, files, folder, verdict, wanted, apart=weak)
    return verdict


def _judge(
    write: TornWrite, files: Files, folder: Path, verdict: TornVerdict, wanted: Sequence[View], *, apart: bool
) -> None:
    for old in folder.iterdir():
        old.unlink()
    for name, data in files.items():
        (folder / name).touch(0o600)
        (folder / name).write_bytes(data)
    # The pages of one state in twenty are looked at first, as those of any unsealed file: a state that a
    # power cut leaves must not be taken for damage. The others are sealed and only read, which is quicker.
    looked_at = verdict.states % _LOOKED_AT == 0 and not apart
    seal = "" if looked_at else seal_of(folder, lambda: _LATER, durable=True)
    (folder / OWNER_FILE).write_text(seal, encoding="utf-8")
    (folder / OWNER_FILE).chmod(0o600)
    # Pages that point nowhere are a bus error in LMDB: where such are expected, a child reads.
    answer = _in_child(lambda: _read(write, folder, wanted)) if apart else _read(write, folder, wanted)
    if answer == "as after":
        verdict.took_new += 1
    elif answer == "as before":
        verdict.kept_old += 1
    else:
        verdict.wrong += 1
        verdict.noticed += answer == "refused"
        verdict.examples.append(f"state {verdict.states}: {answer}")


def _read(write: TornWrite, folder: Path, wanted: Sequence[View]) -> str:
    """Read a state as the next owner would, and the one after that; what it is, or what is wrong."""
    try:
        found, again = _as_owned(folder), _as_owned(folder)
    except ActorprocError:
        return "refused"
    if again != found:
        return "other rows"
    if found not in wanted:
        return "lost" if found == write.view_before else "other rows"
    return "as after" if found == write.view_after else "as before"


def _as_owned(folder: Path) -> View:
    store = LmdbStore(folder, allow_any_filesystem=True)
    try:
        store.own()
        return rows_of_store(store)
    finally:
        store.close()


def _in_child(ask: Callable[[], str]) -> str:
    answers = ("as after", "as before", "refused", "lost", "other rows")
    child = os.fork()
    if child == 0:
        code = len(answers)
        try:
            code = answers.index(ask())
        finally:
            os._exit(code)
    status = os.waitpid(child, 0)[1]
    code = os.waitstatus_to_exitcode(status)
    return answers[code] if 0 <= code < len(answers) else f"the reader died with {code}"


def _image(write: TornWrite, taken: Sequence[tuple[str, int]], *, cut: bool) -> Files:
    """The files with some of the sectors; `cut`: new lengths were not stored either."""
    found = {}
    for name, data in write.after.items():
        image = bytearray(write.before[name].ljust(len(data), b"\0"))
        for number in [number for file, number in taken if file == name]:
            image[number * SECTOR : (number + 1) * SECTOR] = _sector(data, number)
        found[name] = bytes(image[: len(write.before[name])] if cut else image)
    return found


def rows_of_store(store: LmdbStore | LmdbReader) -> View:
    """All rows but those that each owner sets anew."""
    with store._view() as rows:
        found = {(table, key): value for table in Table for key, value in rows.scan(table)}
    return {row: value for row, value in found.items() if row not in _OF_THE_OWNER}


def workload(chance: random.Random, commits: int) -> Iterator[list[Write]]:
    """Commits as an engine makes them: submits, steps with their heads, locks taken and given back, ends."""
    heads: list[ProcedureRecord] = []
    for number in range(commits):
        writes: list[Write] = []
        for _ in range(chance.randint(1, 6)):
            if not heads or chance.random() < 0.3:
                seq = len(heads) + 1
                head = ProcedureRecord(
                    id=f"p{chance.getrandbits(64):016x}", type_name="torn", version=1, root="", parent=None, seq=seq
                )
                head.root = head.id
                heads.append(head)
                was = None
                writes.append(PutLock(LockRecord(f"cat/{seq}", LockMode.WRITE, head.id, head.id, float(number))))
            else:
                head = chance.choice(heads)
                was = Was.of(head)
                head.step += 1
                head.records = head.step
                head.past = Past(searchable=(f"step={head.step % 3}",))
                if head.state is not ProcedureState.SUCCESS and chance.random() < 0.2:
                    head.state, head.finished_at = ProcedureState.SUCCESS, float(number)
                    writes.append(DeleteLock(f"cat/{head.seq}", head.id))
            step = StepRecord(
                procedure=head.id,
                number=head.step,
                kind=StepKind.STEP,
                at=float(number),
                state=chance.randbytes(chance.choice((8, 80, 800, 9000))),
            )
            writes += [PutStep(step), PutProcedure(msgspec.structs.replace(head), was)]
        yield writes


def main(arguments: Sequence[str] | None = None) -> int:
    """Run it; 0 when no state was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.disk.torn_writes", description=__doc__)
    parser.add_argument("--states", type=int, default=20_000, help="states to try (20000)")
    parser.add_argument("--commits", type=int, default=40, help="commits to tear (40)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--weak", action="store_true", help="the disk is not waited for: must find wrong states")
    options = parser.parse_args(arguments)
    # In memory when there is such a directory: what is tried is the reading, not the disk.
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="actorproc-torn-", dir=where) as name:
        torn = record_writes(Path(name, "store"), options.seed, options.commits)
        verdict = try_states(
            torn,
            Path(name, "state"),
            states=options.states,
            seed=options.seed,
            weak=options.weak,
        )
    sys.stdout.write(
        f"{verdict.states} states of {len(torn)} torn commits and checkpoints (seed {options.seed}): {verdict.kept_old} read as before "
        f"the commit, {verdict.took_new} as after it, {verdict.wrong} wrong ({verdict.noticed} of them refused)\n"
    )
    for example in verdict.examples[:5]:
        sys.stdout.write(f"  {example}\n")
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
