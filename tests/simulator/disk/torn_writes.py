"""Remains of a commit after a power cut: every order of its sectors, rebuilt and read.

    python -m tests.simulator.disk.torn_writes --states 20000 --seed 1

The store writes the changed pages, waits for the disk (``fdatasync``), and then writes one of the two meta pages. After
a large commit it waits for that one too. A small one leaves it in the kernel's hands until the next commit: its rows
stand in a redo record (`actorproc.store.lmdb.commit.redo_record`), for which the first wait has cared. Until a wait is over the disk may
have taken any of the 512-byte sectors and left out the others; what LMDB writes of a meta page lies within one sector,
which is on disk or is not. So the states a power cut can leave are known from the file before and the file after a
commit (the method is that of ALICE, Pillai 2014, with the order of system calls given). A new owner must find in each
the store as before the commit, or as after it; and as after it when the wait was over, for then it was acknowledged.

The tool is tested against two modes in which it must find states that are neither: without the wait (`--weak`), where
a new meta page may meet old data, and without the redo record (`--no-redo`), where an acknowledged commit is missing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from actorproc.errors import ActorprocError
from actorproc.model.policies import LockMode
from actorproc.model.rows.records import LockRecord, ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import DeleteLock, PutLock, PutProcedure, PutStep, Was, Write
from actorproc.model.states import ProcedureState
from actorproc.store.directory import DATA_FILE, LOCK_FILE, OWNER_FILE
from actorproc.store.lmdb.files.meta_pages import read_meta_pages
from actorproc.store.lmdb.page_check import seal_of
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
from actorproc.store.rows.layout import BATCH, EPOCH, LAST_BATCH
from actorproc.store.rows.tables import Table

__all__ = ["TornCommit", "TornVerdict", "main", "record_commits", "try_states"]

SECTOR = 512
_LOOKED_AT = 20
_LATER = 1 << 62
_IN_A_PAGE = 4096 // SECTOR
_OF_THE_OWNER = {(Table.META, EPOCH), (Table.META, BATCH), (Table.META, LAST_BATCH)}

View = dict[tuple[Table, bytes], bytes]


class TornCommit(msgspec.Struct, frozen=True):
    """One commit: what the disk had before it, the data file after it, and the rows of both."""

    before: bytes
    after: bytes
    view_before: View
    view_after: View
    sectors: tuple[int, ...]
    """Numbers of the sectors that the commit waits for: of pages, of its redo record, of a meta page that was late."""
    meta: int
    """Number of the sector with its meta page."""
    is_redone: bool
    """It has a redo record, and does not wait for its meta page."""


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


def record_commits(path: Path, seed: int, commits: int) -> list[TornCommit]:
    """Run random commits on a new store in `path`; the file is copied around each."""
    chance = random.Random(seed)
    store = LmdbStore(path)
    epoch = store.own()
    data = path / DATA_FILE
    torn: list[TornCommit] = []
    try:
        before, view, late = data.read_bytes(), _view(path), b""
        for batch, writes in enumerate(_workload(chance, commits), 1):
            store.commit(writes, epoch, batch)
            after, now, number = data.read_bytes(), _view(path), _last_transaction(path)
            is_redone = store._file.redo is not None and store._file.redo.read(number) is not None
            meta, meta_before = number % 2 * _IN_A_PAGE, (number - 1) % 2 * _IN_A_PAGE
            on_disk = _with_sector(before, meta_before, late) if late else before
            sectors = tuple(one for one in _changed_sectors(on_disk, after) if one != meta)
            torn.append(TornCommit(on_disk, after, view, now, sectors, meta, is_redone))
            # The disk has this commit's meta page now, or with the next commit: what stood there before it till then.
            late = _sector(before, meta) if is_redone else b""
            before, view = after, now
    finally:
        store.close()
    return torn


def _last_transaction(path: Path) -> int:
    metas = read_meta_pages(path)
    assert metas is not None
    return metas.newest


def _sector(image: bytes | bytearray, number: int) -> bytes:
    return bytes(image[number * SECTOR : (number + 1) * SECTOR])


def _with_sector(image: bytes, number: int, content: bytes) -> bytes:
    return image[: number * SECTOR] + content + image[(number + 1) * SECTOR :]


def _changed_sectors(before: bytes, after: bytes) -> tuple[int, ...]:
    padded = before.ljust(len(after), b"\0")
    return tuple(number for number in range(len(after) // SECTOR) if _sector(padded, number) != _sector(after, number))


def try_states(
    torn: Sequence[TornCommit], folder: Path, *, states: int, seed: int, weak: bool = False, no_redo: bool = False
) -> TornVerdict:
    """Rebuild `states` states of these commits in `folder` and read each.

    `weak`: the meta page waits for nothing. `no_redo`: there is no redo record, and a small commit does not wait twice.
    """
    chance = random.Random(seed)
    verdict = TornVerdict()
    folder.mkdir(mode=0o700)
    while verdict.states < states:
        commit = chance.choice(torn)
        is_over = chance.random() < 0.5
        new_meta = is_over and chance.random() < 0.5
        share = 1.0 if is_over and not weak else chance.random()
        taken = [number for number in commit.sectors if chance.random() < share]
        image = _image(commit, taken, new_meta=new_meta, cut=chance.random() < 0.1 and not is_over)
        if no_redo:
            image = _without_redo(image)
        if is_over:
            wanted = [commit.view_after if new_meta or commit.is_redone else commit.view_before]
        else:
            wanted = [commit.view_before, commit.view_after]
        verdict.states += 1
        _judge(commit, image, folder, verdict, wanted, apart=weak)
    return verdict


def _judge(
    commit: TornCommit, image: bytes, folder: Path, verdict: TornVerdict, wanted: Sequence[View], *, apart: bool
) -> None:
    data = folder / DATA_FILE
    with contextlib.suppress(FileNotFoundError):
        (folder / LOCK_FILE).unlink()
    data.write_bytes(image)
    data.chmod(0o600)
    # The pages of one state in twenty are looked at first, as those of any unsealed file: a state that a
    # power cut leaves must not be taken for damage. The others are sealed and only read, which is quicker.
    looked_at = verdict.states % _LOOKED_AT == 0 and not apart
    seal = "" if looked_at else seal_of(folder, lambda: _LATER, durable=True)
    (folder / OWNER_FILE).write_text(seal, encoding="utf-8")
    (folder / OWNER_FILE).chmod(0o600)
    # Pages that point nowhere are a bus error in LMDB: where such are expected, a child reads.
    answer = _in_child(lambda: _read(commit, folder, wanted)) if apart else _read(commit, folder, wanted)
    if answer == "as after":
        verdict.took_new += 1
    elif answer == "as before":
        verdict.kept_old += 1
    else:
        verdict.wrong += 1
        verdict.noticed += answer == "refused"
        verdict.examples.append(f"state {verdict.states}: {answer}")


def _read(commit: TornCommit, folder: Path, wanted: Sequence[View]) -> str:
    """Read a state as the next owner would, and the one after that; what it is, or what is wrong."""
    try:
        found, again = _as_owned(folder), _as_owned(folder)
    except ActorprocError:
        return "refused"
    if again != found:
        return "other rows"
    if found not in wanted:
        return "lost" if found == commit.view_before else "other rows"
    return "as after" if found == commit.view_after else "as before"


def _as_owned(folder: Path) -> View:
    store = LmdbStore(folder, allow_any_filesystem=True)
    try:
        store.own()
        return _rows(store)
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


def _image(commit: TornCommit, taken: Sequence[int], *, new_meta: bool, cut: bool) -> bytes:
    """The data file with some of the commit's sectors; `cut`: its new length was not stored either."""
    image = bytearray(commit.before.ljust(len(commit.after), b"\0"))
    for number in (*taken, commit.meta) if new_meta else taken:
        image[number * SECTOR : (number + 1) * SECTOR] = _sector(commit.after, number)
    return bytes(image[: len(commit.before)] if cut else image)


def _without_redo(image: bytes) -> bytes:
    for page in range(2):
        for number in range(page * _IN_A_PAGE + 1, (page + 1) * _IN_A_PAGE):
            image = _with_sector(image, number, bytes(SECTOR))
    return image


def _view(path: Path) -> View:
    """All rows of a store that is open in this process: read from a copy."""
    with tempfile.TemporaryDirectory(prefix="actorproc-torn-") as name:
        folder = Path(name, "copy")
        folder.mkdir(mode=0o700)
        shutil.copyfile(path / DATA_FILE, folder / DATA_FILE)
        (folder / DATA_FILE).chmod(0o600)
        return _view_alone(folder)


def _view_alone(folder: Path) -> View:
    with LmdbReader(folder, allow_any_filesystem=True) as reader:
        reader.load()
        return _rows(reader)


def _rows(store: LmdbStore | LmdbReader) -> View:
    """All but the two that each owner sets anew."""
    with store._view() as rows:
        found = {(table, key): value for table in Table for key, value in rows.scan(table)}
    return {row: value for row, value in found.items() if row not in _OF_THE_OWNER}


def _workload(chance: random.Random, commits: int) -> Iterator[list[Write]]:
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
                was = Was(head.state, head.due_at, head.finished_at)
                head.step += 1
                head.records = head.step
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
    parser.add_argument("--no-redo", action="store_true", help="no redo records: must find commits that are lost")
    options = parser.parse_args(arguments)
    # In memory when there is such a directory: what is tried is the reading, not the disk.
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="actorproc-torn-", dir=where) as name:
        torn = record_commits(Path(name, "store"), options.seed, options.commits)
        verdict = try_states(
            torn,
            Path(name, "state"),
            states=options.states,
            seed=options.seed,
            weak=options.weak,
            no_redo=options.no_redo,
        )
    sys.stdout.write(
        f"{verdict.states} states of {len(torn)} torn commits (seed {options.seed}): {verdict.kept_old} read as before "
        f"the commit, {verdict.took_new} as after it, {verdict.wrong} wrong ({verdict.noticed} of them refused)\n"
    )
    for example in verdict.examples[:5]:
        sys.stdout.write(f"  {example}\n")
    return 1 if verdict.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
