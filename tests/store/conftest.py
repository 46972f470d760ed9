"""Builders of records, and a store of each kind."""

from __future__ import annotations

from types import SimpleNamespace

import msgspec
import pytest

from actorproc.model.policies import LockMode
from actorproc.model.rows.records import (
    ChildRecord,
    EventRecord,
    LockRecord,
    NoteRecord,
    PoisonRecord,
    ProcedureRecord,
    StepKind,
    StepRecord,
    UndoRecord,
)
from actorproc.model.rows.writes import (
    PutChild,
    PutEvent,
    PutLock,
    PutNote,
    PutPoison,
    PutProcedure,
    PutStep,
    PutUndo,
    Was,
)
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.memory import MemoryStore


def head(id, seq, *, root=None, parent=None, state=ProcedureState.RUNNABLE, **fields):
    values = {"type_name": "shop.Order", "version": 1, "digest": b"d"} | fields
    return ProcedureRecord(id=id, seq=seq, root=root or id, parent=parent, state=state, **values)


def change(record, **fields):
    """The write that stores `record` with other fields, and the record it leaves."""
    was = Was(record.state, record.due_at, record.finished_at)
    changed = msgspec.structs.replace(record, **fields)
    return PutProcedure(changed, was), changed


def step(procedure, number, kind=StepKind.STEP, **fields):
    return PutStep(StepRecord(procedure=procedure, number=number, kind=kind, at=1.5, state=b"state", **fields))


@pytest.fixture
def make():
    """Writes by short names."""
    return SimpleNamespace(
        head=head,
        new=lambda *args, **fields: PutProcedure(head(*args, **fields), None),
        put=lambda record: PutProcedure(record, None),
        change=change,
        step=step,
        child=lambda *args: PutChild(ChildRecord(*args)),
        undo=lambda root, seq, procedure="p": PutUndo(UndoRecord(root, seq, procedure, "label", 1)),
        lock=lambda path, holder: PutLock(LockRecord(path, LockMode.WRITE, holder, holder, 2.5)),
        poison=lambda path: PutPoison(PoisonRecord(path, "p", "p", 3.5, "rollback gave up")),
        event=lambda target, seq, payload=b"x": PutEvent(EventRecord(target, seq, payload, None, 4.5)),
        note=lambda procedure, number, key: PutNote(NoteRecord(procedure, number, key, b"value")),
    )


@pytest.fixture
def lmdb_path(tmp_path):
    return tmp_path / "store"


@pytest.fixture(params=["memory", "lmdb"])
def store(request, lmdb_path):
    """An owned store with epoch 1."""
    made = MemoryStore() if request.param == "memory" else LmdbStore(lmdb_path, map_size=1 << 24)
    assert made.own() == 1
    yield made
    made.close()
