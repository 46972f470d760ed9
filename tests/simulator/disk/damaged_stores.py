"""Small real stores with a row of each kind, ways to damage their files, and all that a reader can be asked.

What a sound store answers is the truth that `tests.simulator.disk.damage` compares with.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from actorproc.errors import StoreDamaged
from actorproc.model.ids import Mode
from actorproc.model.policies import LockMode
from actorproc.model.rows.record_parts import Past
from actorproc.model.rows.records import (
    AcknowledgementRecord,
    AttemptRecord,
    AuditRecord,
    ChildRecord,
    ErrorInfo,
    EventRecord,
    ExposedRecord,
    LockRecord,
    NewProcedure,
    NoteRecord,
    PoisonRecord,
    ProcedureRecord,
    StartRecord,
    StepKind,
    StepRecord,
    UndoRecord,
)
from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import (
    DeleteProcedure,
    PutAcknowledgement,
    PutAttempt,
    PutAudit,
    PutChild,
    PutEvent,
    PutExposed,
    PutLock,
    PutNote,
    PutPoison,
    PutProcedure,
    PutSchedule,
    PutStart,
    PutStep,
    PutSwitch,
    PutUndo,
    Was,
    Write,
)
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.rows.reading import RecordReader

__all__ = ["DAMAGED", "KINDS", "Answers", "ask_all", "ask_snapshot", "make_store", "mutate"]

PAGE = 4096
DAMAGED = "damaged"
"""The answer of a reader that says so."""

Answers = dict[tuple[str, ...], Any]
_ENDED = ProcedureState.SUCCESS


def make_store(path: Path, seed: int) -> list[bytes]:
    """Fill a new store; the data file as it was after each of its last commits, the last one at the end."""
    chance = random.Random(seed)
    store = LmdbStore(path, durability="process", map_size=1 << 24)
    epoch = store.own()
    images = []
    try:
        heads: dict[str, ProcedureRecord] = {}
        for batch, writes in enumerate(_commits(chance, heads), 1):
            store.commit(writes, epoch, batch)
            store.close()  # with all in the data file
            images.append((path / "data.mdb").read_bytes())
            epoch = store.own()
    finally:
        store.close()
    return images[-4:]


def _commits(chance: random.Random, heads: dict[str, ProcedureRecord]) -> list[list[Write]]:
    commits: list[list[Write]] = []
    for number in range(12):
        writes: list[Write] = []
        root = _submit(chance, heads, writes, None)
        for _ in range(number % 3):
            _submit(chance, heads, writes, root)
        commits.append(writes)
    for name in list(heads):
        writes = []
        for _ in range(chance.randint(0, 3)):
            _step(chance, heads[name], heads[heads[name].root], writes)
        commits.append(writes)
    for head in [head for head in heads.values() if head.parent is None][::4]:
        writes = []
        _end(head, [one for one in heads.values() if one.root == head.id], writes)
        commits.append(writes)
    gone = next(head for head in heads.values() if head.state is _ENDED and head.children == 0)
    commits.append([DeleteProcedure(msgspec.structs.replace(gone))])
    del heads[gone.id]
    said: list[Write] = [PutAudit(AuditRecord("", 1, 5.0, "pause", "a look")), PutSwitch(None, 1)]
    commits.append([*said, PutStart(StartRecord("mail", 0, 4.0))])
    commits.append([PutPoison(PoisonRecord("cat/poisoned", "someone", "someone", 6.0, "an undo gave up"))])
    return commits


def _submit(
    chance: random.Random, heads: dict[str, ProcedureRecord], writes: list[Write], parent: ProcedureRecord | None
) -> ProcedureRecord:
    seq = len(heads) + 1
    name = f"p{seq}-{chance.getrandbits(48):012x}"
    head = heads[name] = ProcedureRecord(
        id=name,
        type_name=f"shop.{chance.choice(('Order', 'Refund', 'Count'))}",
        version=1,
        root=name if parent is None else parent.root,
        parent=None if parent is None else parent.id,
        depth=0 if parent is None else 1,
        seq=seq,
        tags=("eu",) if seq % 2 else (),
        due_at=float(1000 + seq) if seq % 5 == 0 else None,
        created_at=float(seq),
        digest=chance.randbytes(8),
        audits=1 if seq % 3 == 0 else 0,
        past=Past(searchable=(f"customer={seq % 7}", "note")) if seq % 4 else None,
    )
    if parent is not None:
        was = _was(parent)
        writes.append(PutChild(ChildRecord(parent.id, 1, parent.children, name)))
        parent.children += 1
        parent.pending += 1
        writes.append(PutProcedure(msgspec.structs.replace(parent), was))
    writes.append(PutProcedure(msgspec.structs.replace(head), None))
    writes.append(PutStep(_record(chance, head, 1)))
    writes.append(PutLock(LockRecord(f"cat/{seq}", LockMode.WRITE, name, head.root, float(seq))))
    if seq % 3 == 0:
        error = ErrorInfo("error", "ValueError", "no", procedure=name, step=1)
        writes.append(PutAttempt(AttemptRecord(name, 1, Mode.EXECUTE, 1, 1, 1.0, 2.0, 0, 1, 99, error)))
        writes.append(PutExposed(ExposedRecord(name, "copied", b"\xa5shown")))
        writes.append(PutNote(NoteRecord(name, 1, "key", chance.randbytes(40))))
        writes.append(PutEvent(EventRecord(name, 1, chance.randbytes(30), None, 2.0)))
        writes.append(PutAudit(AuditRecord(name, 1, 3.0, "pause", "why not")))
    return head


def _record(chance: random.Random, head: ProcedureRecord, number: int) -> StepRecord:
    size = chance.choice((8, 80, 400, 800, 9000))
    return StepRecord(
        procedure=head.id, number=number, kind=StepKind.STEP, at=float(number), state=chance.randbytes(size)
    )


def _step(chance: random.Random, head: ProcedureRecord, root: ProcedureRecord, writes: list[Write]) -> None:
    was = _was(head)
    writes.append(PutUndo(UndoRecord(head.root, root.undo_next, head.id, f"step {head.step}", head.step)))
    root.undo_next += 1
    head.step += 1
    head.records += 1
    head.updated_at = float(head.step)
    if head.past is not None:
        head.past = Past(searchable=(f"customer={head.seq % 7}", f"step={head.step}"))
    writes += [PutStep(_record(chance, head, head.records)), PutProcedure(msgspec.structs.replace(head), was)]
    if head is not root:
        writes.append(PutProcedure(msgspec.structs.replace(root), _was(root)))


def _end(root: ProcedureRecord, tree: list[ProcedureRecord], writes: list[Write]) -> None:
    for head in tree:
        was = _was(head)
        head.state, head.finished_at, head.due_at, head.pending = _ENDED, 100.0 + head.seq, None, 0
        head.records += 1
        closing = StepRecord(
            procedure=head.id, number=head.records, kind=StepKind.COMMIT, at=9.0, output=b"\x81\xa6output\x01"
        )
        writes += [PutStep(closing), PutProcedure(msgspec.structs.replace(head), was)]
    writes.append(PutAcknowledgement(AcknowledgementRecord(root.id, 200.0)))
    new = NewProcedure(id=f"{root.id}-daily", type_name=root.type_name, state=b"\x80", digest=b"d")
    writes.append(PutSchedule(ScheduleRecord(id=new.id, spec="every 86400", new=new, watermark=200.0, fired=86400)))


def _was(head: ProcedureRecord) -> Was:
    return Was.of(head)


# ---------------------------------------------------------------------- damage
_Mutation = Callable[[random.Random, list[bytes]], tuple[bytes, dict[str, bytes | None]]]
"""Gives a new data file, and what becomes of other files of the store (None: deleted)."""


def mutate(chance: random.Random, images: list[bytes]) -> tuple[str, bytes, dict[str, bytes | None]]:
    """One mutation of the last image: its kind, the new data file, and other files that change."""
    kind = chance.choice(list(KINDS))
    data, others = KINDS[kind](chance, images)
    return kind, data, others


def _flip(chance: random.Random, images: list[bytes]) -> tuple[bytes, dict[str, bytes | None]]:
    data = bytearray(images[-1])
    for _ in range(chance.choice((1, 1, 1, 2, 8))):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    return bytes(data), {}


def _flip_header(chance: random.Random, images: list[bytes]) -> tuple[bytes, dict[str, bytes | None]]:
    """Flip bits where structure is: page headers, pointers to nodes, the first nodes, meta pages."""
    data = bytearray(images[-1])
    page = chance.randrange(len(data) // PAGE)
    for _ in range(chance.choice((1, 1, 2, 4))):
        data[page * PAGE + chance.randrange(160 if page < 2 else 64)] ^= 1 << chance.randrange(8)
    return bytes(data), {}


def _overwrite(chance: random.Random, images: list[bytes]) -> tuple[bytes, dict[str, bytes | None]]:
    data = bytearray(images[-1])
    size = chance.choice((1, 4, 8, 64, 512, PAGE))
    at = chance.randrange(len(data) - size)
    data[at : at + size] = chance.choice((chance.randbytes(size), bytes(size), b"\xff" * size))
    return bytes(data), {}


def _garbage_page(chance: random.Random, images: list[bytes]) -> tuple[bytes, dict[str, bytes | None]]:
    data = bytearray(images[-1])
    at = chance.randrange(len(data) // PAGE) * PAGE
    data[at : at + PAGE] = chance.choice((chance.randbytes(PAGE), bytes(PAGE), b"\xff" * PAGE))
    return bytes(data), {}


def _other_page(chance: random.Random, images: list[bytes]) -> tuple[bytes, dict[str, bytes | None]]:
    """A whole and valid page in the place of another one."""
    data = bytearray(images[-1])
    one, other = (chance.randrange(2, len(data) // PAGE) * PAGE for _ in range(2))
    kept = data[one : one + PAGE]
    if chance.random() < 0.5:
        data[one : one + PAGE] = data[other : other + PAGE]
    data[other : other + PAGE] = kept
    return bytes(data), {}


def _truncate(chance: random.Random, images: list[bytes]) -> tuple[bytes, dict[str, bytes | None]]:
    data = images[-1]
    size = chance.randrange(len(data))
    return data[: chance.choice((size, size - size % PAGE, size - size % 512, len(data) - PAGE))], {}


def _append(chance: random.Random, images: list[bytes]) -> tuple[bytes, dict[str, bytes | None]]:
    return images[-1] + chance.randbytes(chance.choice((1, 512, PAGE, 3 * PAGE))), {}


def _no_lock_file(chance: random.Random, images: list[bytes]) -> tuple[bytes, dict[str, bytes | None]]:
    garbage = chance.choice((None, b"", chance.randbytes(100), chance.randbytes(8192), bytes(8192)))
    return images[-1], {"lock.mdb": garbage}


def _owner_file(chance: random.Random, images: list[bytes]) -> tuple[bytes, dict[str, bytes | None]]:
    words = b"pid 99999999999999999999\nhost x\nboot \nsealed-size nothing\n"
    return images[-1], {"owner.lock": chance.choice((None, chance.randbytes(300), b"\0" * 4000, words))}


KINDS: dict[str, _Mutation] = {
    "bits flipped": _flip,
    "bits flipped in headers": _flip_header,
    "bytes overwritten": _overwrite,
    "page of garbage": _garbage_page,
    "page in another's place": _other_page,
    "cut short": _truncate,
    "garbage behind the end": _append,
    "lock file gone or garbage": _no_lock_file,
    "owner's file gone or garbage": _owner_file,
}


# ---------------------------------------------------------------------- questions
def ask_all(store: RecordReader, ids: list[str]) -> Answers:
    """Everything a reader can be asked; a refusal that names damage is an answer too."""
    answers: Answers = {}

    def ask(name: tuple[str, ...], question: Callable[[], Any]) -> None:
        try:
            answers[name] = question()
        except StoreDamaged:
            answers[name] = DAMAGED

    for id_ in ids:
        for name in ("procedure", "steps", "children", "events", "audit", "tree"):
            ask((name, id_), partial(getattr(store, name), id_))
        ask(("notes", id_), partial(store.notes, id_, 1))
    for name in ("locks", "poisons", "count_states", "finished"):
        ask((name,), getattr(store, name))
    ask(("audit", ""), partial(store.audit, ""))
    ask(("list",), partial(_list, store))
    for state in ProcedureState:
        ask(("list", state), partial(_list, store, state=state))
    ask(("list", "eu"), partial(_list, store, tag="eu"))
    for name in ("shop.Order", "shop.Refund", "shop.Count"):
        ask(("list", name), partial(_list, store, type_name=name))
    return answers


def ask_snapshot(snapshot: RecoverySnapshot) -> Answers:
    """Read the snapshot of a start, row by row."""
    answers: Answers = {("live", head.id): head for head in snapshot.procedures}
    answers |= {("unit", unit.root, str(unit.seq)): unit for unit in snapshot.units}
    answers |= {("lock", lock.path): lock for lock in snapshot.locks}
    answers |= {("poison", poison.path): poison for poison in snapshot.poisons}
    answers |= {("event", event.target, str(event.seq)): event for event in snapshot.events}
    answers |= {("start", start.key, str(start.place)): start for start in snapshot.starts}
    answers |= {("acknowledged", row.root): row for row in snapshot.acknowledgements}
    answers |= {("schedule", row.id): row for row in snapshot.schedules}
    answers["next_seq",] = snapshot.next_seq
    answers["paused",] = snapshot.paused
    return answers


def _list(store: RecordReader, **filters: Any) -> list[ProcedureRecord]:
    return list(store.scan(**filters))
