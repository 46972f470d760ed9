"""Rows that are sound one by one, and wrong together: one is missing, older, too many, or another one's."""

from __future__ import annotations

import contextlib

import lmdb
import msgspec
import pytest

from actorproc.errors import StoreDamaged
from actorproc.model.policies import LockKey, LockMode
from actorproc.model.rows.record_parts import Past
from actorproc.model.rows.records import (
    AuditRecord,
    ChildRecord,
    EventRecord,
    LockRecord,
    ProcedureRecord,
    StepKind,
    StepRecord,
    UndoRecord,
)
from actorproc.model.rows.writes import (
    PutAudit,
    PutChild,
    PutEvent,
    PutLock,
    PutProcedure,
    PutStep,
    PutSwitch,
    PutUndo,
)
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.environment import ReadSnapshot
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
from actorproc.store.rows import codec
from actorproc.store.rows.keys import head_key, number_key
from actorproc.store.rows.layout import AUDITS, EPOCH, STORE_ID, key_of
from actorproc.store.rows.step_log import step_key
from actorproc.store.rows.tables import Table
from actorproc.store.tools.isolated_check import examine

WAITS = ProcedureState.WAITING_TIMEOUT


def head(name, seq, **more):
    record = ProcedureRecord(id=name, type_name="T", version=1, root=name, parent=None, seq=seq, tags=("eu",), epoch=1)
    record.past = Past(searchable=("customer=42",))
    for field, value in more.items():
        setattr(record, field, value)
    return record


PARENT = head(
    "parent", 1, state=WAITS, due_at=5e9, step=2, records=2, children=1, audits=1, undo_next=2,
    locks=(LockKey("cats/1", LockMode.WRITE),),
)  # fmt: skip
CHILD = head("child", 2, root="parent", parent="parent", depth=1, state=ProcedureState.SUCCESS, finished_at=7.0)
OTHER = head("other", 3, state=WAITS, due_at=6e9)
ENDED = head("ended", 4, state=ProcedureState.FAILED, finished_at=9.0, undo_next=2)
UNDONE = head("undone", 5, state=ProcedureState.ROLLEDBACK, finished_at=9.5)
HEADS = (PARENT, CHILD, OTHER, ENDED, UNDONE)


def step(name, number):
    return StepRecord(procedure=name, number=number, kind=StepKind.STEP, at=1.0, state=b"%d" % number)


LOG = (step("parent", 1), step("parent", 2), step("child", 1), step("other", 1), step("ended", 1), step("undone", 1))
LINK = ChildRecord("parent", 1, 0, "child")
UNIT = UndoRecord("parent", 1, "parent", "", 1)
KEPT = UndoRecord("ended", 1, "ended", "", 1)
"""Serves a retry, and must not make up for one that is missing elsewhere."""
LOCK = LockRecord("cats/1", LockMode.WRITE, "parent", "parent", 2.0)
AUDIT = AuditRecord("parent", 1, 3.0, "pause")


@pytest.fixture
def path(tmp_path):
    """A small store in which everything fits."""
    store = LmdbStore(tmp_path / "store", map_size=1 << 24)
    epoch = store.own()
    writes = [PutProcedure(record, None) for record in HEADS] + [PutStep(record) for record in LOG]
    writes += [PutChild(LINK), PutUndo(UNIT), PutUndo(KEPT), PutLock(LOCK), PutAudit(AUDIT)]
    writes += [PutEvent(EventRecord("other", 1, b"", None, 1.0)), PutAudit(AuditRecord("", 1, 3.0, "pause"))]
    store.commit([*writes, PutSwitch(None, 1)], epoch, 1)
    store.close()
    return store.path


def change(path, table, key, value):
    """Put or delete one row behind the back of the engine."""
    with lmdb.open(str(path), max_dbs=32, map_size=1 << 24, lib_version=0) as env, env.begin(write=True) as txn:
        db = env.open_db(table.label.encode(), txn=txn)
        assert txn.delete(key, db=db) if value is None else txn.put(key, value, db=db)


def told(path):
    """What doctor finds, as tables and reasons."""
    return [(one["table"], one["reason"]) for one in examine(path) if one["what"] == "damaged"]


def damage(path):
    store = LmdbStore(path, map_size=1 << 24)
    try:
        store.own()
        snapshot = store.load()
        return {(one.table, one.key) for one in snapshot.damage}, {one.id for one in snapshot.procedures}
    finally:
        store.close()


def as_bytes(table, record):
    key = key_of(table, record)
    return key, codec.encode(table, key, record)


def test_nothing_is_found_where_everything_fits(path):
    assert told(path) == []
    assert damage(path) == (set(), {"parent", "child", "other"})


def count_scans(monkeypatch, table):
    """How often this table is walked through as a whole from here on, as the length of a list."""
    scans = []
    scan = ReadSnapshot.scan

    def counted(self, walked, prefix=b"", **more):
        if walked is table and not prefix:
            scans.append(more)
        return scan(self, walked, prefix, **more)

    monkeypatch.setattr(ReadSnapshot, "scan", counted)
    return scans


def test_doctor_tells_what_hangs_on_each_damaged_head(path):
    for record in (PARENT, ENDED):
        change(path, Table.PROCEDURES, head_key(record.id), b"\x00" * 40)

    hangs = {one["key"]: one["hangs"] for one in examine(path) if one["what"] == "damaged" and one["hangs"]}

    assert hangs["parent"] == ["2 records of its step log", "1 links to children", "1 descendants", "1 locks"]
    assert hangs["ended"] == ["1 records of its step log"]


@pytest.mark.parametrize("table", [Table.PROCEDURES, Table.STEPS], ids=lambda table: table.label)
def test_doctor_walks_no_table_once_for_each_damaged_row(path, monkeypatch, table):
    def walks(heads):
        for record in heads:
            change(path, Table.PROCEDURES, head_key(record.id), b"\x00" * 40)
        for record in heads:  # their keys are lost as well
            change(path, Table.STEPS, b"\xff" * 8 + record.id.encode() + b"\xff", b"\x00" * 40)
        scans = count_scans(monkeypatch, table)
        told(path)
        monkeypatch.undo()
        return len(scans)

    assert walks(HEADS[:1]) == walks(HEADS)


INDEX_ROWS = {
    Table.ORDER: number_key(3),
    Table.MEMBERS: b"other\0" + number_key(3),
    Table.BY_STATE: b"WAITING_TIMEOUT\0" + number_key(3),
    Table.FAILED: number_key(4),
    Table.ROLLED_BACK: number_key(5),
    Table.BY_TYPE: b"T\0" + number_key(3),
    Table.BY_TAG: b"eu\0" + number_key(3),
    "a field": b"\xfecustomer=42\0" + number_key(3),
    Table.TIMERS: number_key(6 * 10**15) + b"\0other",
    Table.FINISHED: number_key(9 * 10**6) + b"\0ended",
}


@pytest.mark.parametrize("name", INDEX_ROWS, ids=lambda name: name if isinstance(name, str) else name.label)
def test_doctor_tells_of_an_index_row_that_is_missing_or_too_many(path, name):
    table, row = name if isinstance(name, Table) else Table.BY_TAG, INDEX_ROWS[name]
    change(path, table, row, None)
    assert (table.label, "the row is missing or points elsewhere; a start makes it again") in told(path)

    damage(path)  # an owner makes it again
    assert told(path) == []

    change(path, table, row[:-1] + b"!", b"parent")
    assert {found for found, _ in told(path)} == {table.label}


@pytest.mark.parametrize(
    ("table", "key"),
    [
        (Table.CHILDREN, key_of(Table.CHILDREN, LINK)),
        (Table.UNDO, key_of(Table.UNDO, UNIT)),
        (Table.LOCKS, key_of(Table.LOCKS, LOCK)),
    ],
    ids=["child", "unit", "lock"],
)
def test_a_procedure_stands_still_when_a_row_of_its_own_is_gone(path, table, key):
    change(path, table, key, None)

    assert told(path)
    with pytest.raises(StoreDamaged, match="rows of the store"):
        LmdbReader(path)
    found, goes_on = damage(path)
    assert ("procedures", "parent") in found
    assert goes_on == {"child", "other"}


def test_doctor_tells_of_a_gap_in_a_step_log(path):
    change(path, Table.STEPS, step_key("parent", 1), None)

    assert told(path) == [("steps", "the record is missing")]


def test_a_lost_row_of_the_audit_log_is_told_and_hinders_nobody(path):
    change(path, Table.AUDIT, key_of(Table.AUDIT, AUDIT), None)

    assert told(path) == [("audit", "there are 0 rows, and its head counts 1")]
    found, goes_on = damage(path)
    assert {table for table, _ in found} == {"audit"}
    assert goes_on == {"parent", "child", "other"}


@pytest.mark.parametrize(
    "forgets", [{"records": 1, "step": 1}, {"children": 0}, {"audits": 0}, {"undo_next": 1}], ids=str
)
def test_a_head_that_is_older_than_its_rows_is_not_gone_on_from(path, forgets):
    older = msgspec.structs.replace(PARENT, **forgets)
    change(path, Table.PROCEDURES, *as_bytes(Table.PROCEDURES, older))

    assert any("an older one" in reason for _, reason in told(path))
    found, goes_on = damage(path)
    assert ("procedures", "parent") in found
    assert "parent" not in goes_on


@pytest.mark.parametrize(
    ("table", "key", "record"),
    [
        (Table.PROCEDURES, b"other", PARENT),
        (Table.STEPS, step_key("other", 1), LOG[1]),
        (Table.LOCKS, b"dogs\0other", LOCK),
        (Table.EVENTS, b"other\0" + number_key(1), EventRecord("elsewhere", 1, b"", None, 1.0)),
    ],
    ids=["head", "step", "lock", "event"],
)
def test_a_record_with_a_right_checksum_in_the_place_of_another_is_not_taken_for_it(path, table, key, record):
    change(path, table, key, codec.encode(table, key, record))

    assert (table.label, "the record belongs under another key") in told(path)
    _, goes_on = damage(path)
    assert "other" not in goes_on


def test_who_is_in_another_ones_place_as_well_as_in_his_own_goes_on(path):
    change(path, Table.PROCEDURES, b"other", codec.encode(Table.PROCEDURES, b"other", PARENT))

    found, goes_on = damage(path)

    assert ("procedures", "other") in found
    assert goes_on == {"parent", "child"}


@pytest.mark.parametrize(
    ("key", "value"), [(EPOCH, "a text"), (EPOCH, 0), (AUDITS, "a text"), (AUDITS, 7), (STORE_ID, 12)]
)
def test_a_number_of_the_store_that_cannot_be_is_told(path, key, value):
    change(path, Table.META, key, codec.encode(Table.META, key, value))

    assert {table for table, _ in told(path)} == {"meta"}
    assert damage(path)[0] == {("meta", key.decode())}
    assert head_key("parent").decode() in damage(path)[1]


def test_a_copy_in_the_place_of_another_record_does_not_stop_whose_it_is(path):
    _, sound = as_bytes(Table.STEPS, LOG[1])
    change(path, Table.STEPS, step_key("other", 1), sound)

    found, goes_on = damage(path)

    assert ("procedures", "other") in found
    assert goes_on == {"parent", "child"}


ODD_KEYS = {"long": b"\xff" * 511, "without an id": b"\0" * 8, "short": b"\0", "no text": b"parent\0" + b"\xff" * 500}


@pytest.mark.parametrize("key", ODD_KEYS.values(), ids=list(ODD_KEYS))
@pytest.mark.parametrize("table", Table, ids=lambda table: table.label)
def test_a_row_of_whatever_bytes_keeps_no_manager_and_no_reader_from_the_others(path, table, key):
    for value in (b"", b"\xff" * 600):  # an index row names nobody, or somebody whom no key can name
        change(path, table, key, value)

        assert told(path)
        found, running = damage(path)
        assert found
        assert "other" in running or table in {Table.CHILDREN, Table.NOTES}  # whose these were may be anybody
        change(path, table, key, value)
        with LmdbReader(path, allow_any_filesystem=True, even_damaged=True) as reader:
            assert "other" in reader.ids("")
            assert reader.ids("other") == ["other"]
            assert {head.id for head in reader.scan(skip_damaged=True)} >= {"other", "ended"}
            with contextlib.suppress(StoreDamaged):
                assert ("ended", 9.0) in reader.finished()
