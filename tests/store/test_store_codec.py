"""Records to bytes: the format stays, and damage is noticed."""

from __future__ import annotations

import json
import random
from pathlib import Path

import msgspec
import pytest

from actorproc.errors import StoreDamaged
from actorproc.model.ids import Mode
from actorproc.model.policies import LockKey, LockMode, StepLimits
from actorproc.model.rows.asks import ReplyRecord
from actorproc.model.rows.enqueued import EnqueuedRecord
from actorproc.model.rows.record_parts import Debounce, Past
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
    RemovalRecord,
    StartRecord,
    StepKind,
    StepRecord,
    Trace,
    UndoRecord,
)
from actorproc.model.rows.schedules import Leap, ScheduleRecord
from actorproc.model.rows.writes import PutProcedure, PutStep
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.memory import MemoryStore
from actorproc.store.rows import codec
from actorproc.store.rows.layout import NEXT_SEQ, SWEEP
from actorproc.store.rows.step_log import step_key
from actorproc.store.rows.tables import Table
from actorproc.support.digests import BIN_32, BIN_32_CODE, BY_DIGEST, SIGNATURE_SIZE, digest_of_parts

ERROR = ErrorInfo("error", "builtins.ValueError", "no stock", "Traceback …", "order-1", 3)
GOLDEN = json.loads(Path(__file__).with_name("golden_v1.json").read_text())
RECORDS = {
    Table.META: 41,
    Table.PROCEDURES: ProcedureRecord(
        id="order-1",
        type_name="shop.Order",
        version=2,
        root="order-1",
        parent=None,
        seq=7,
        state=ProcedureState.WAITING_TIMEOUT,
        step=3,
        records=4,
        unit="pay",
        attempt=2,
        errors=1,
        rollback_supported=True,
        on_child_failure="resume",
        due_at=1700000000.5,
        locks=(LockKey.write("shop/1"), LockKey.read("stock")),
        error=ERROR,
        owner="anna",
        tags=("blue",),
        created_at=1699999999.25,
        digest=b"\x00\xff",
    ),
    Table.STEPS: StepRecord(
        procedure="order-1", number=3, kind=StepKind.ROLLBACK, at=1.5, state=b"\x80", label="pay", error=ERROR
    ),
    Table.CHILDREN: ChildRecord("order-1", 3, 0, "child-1"),
    Table.UNDO: UndoRecord("order-1", 2, "child-1", "", 1),
    Table.LOCKS: LockRecord("shop/1", LockMode.WRITE, "order-1", "order-1", 2.5),
    Table.POISON: PoisonRecord("shop/1", "order-1", "order-1", 3.5, "the rollback gave up"),
    Table.EVENTS: EventRecord("order-1", 1, b"paid", "k1", 4.5),
    Table.NOTES: NoteRecord("order-1", 3, "old", b"\x01"),
    Table.ATTEMPTS: AttemptRecord("order-1", 3, Mode.EXECUTE, 2, 1, 9.5, 10.5, 1, 4, 4711, ERROR),
    Table.EXPOSED: ExposedRecord("order-1", "copied", b"\x2a", 11.5),
    Table.REPLIES: ReplyRecord("order-1", "price", "a1", b"\x2a", 12.5, 3),
    Table.ACKNOWLEDGED: AcknowledgementRecord("order-1", 5.5),
    Table.REMOVALS: RemovalRecord("order-1", 6.5),
    Table.STARTS: StartRecord("smtp", 2, 8.5),
    Table.SCHEDULES: ScheduleRecord(
        id="nightly",
        spec="cron 0 2 * * *",
        timezone="Europe/Berlin",
        new=NewProcedure(
            id="nightly", type_name="shop.Etl", state=b"\x80", digest=b"\x00\xff", tags=("schedule:nightly",)
        ),
        overlap="cancel-running",
        anchor=1700000000,
        declared_at=1700000000.5,
        epoch=3,
        watermark=1700013600.0,
        fired=1700013600,
        due=1700100000,
        waiting=(1700100000,),
        fault="the class is missing",
        firings=7,
        leaps=(Leap(1800000000.5, 1700000000.0),),
    ),
    Table.ENQUEUED: EnqueuedRecord(
        key=b"w" + bytes(16),
        at=1700000000.5,
        new=NewProcedure(id="mail-1", type_name="shop.Mail", state=b"\x80", digest=b"\x00\xff"),
        refused="no class is registered as 'shop.Mail'",
        error="UnknownType",
        refused_at=1700000001.5,
        raw=b"\x01",
    ),
    Table.AUDIT: AuditRecord("order-1", 1, 7.5, "retry", "the disk was replaced", "the failed step"),
}


@pytest.mark.parametrize("table", RECORDS, ids=lambda table: table.label)
def test_bytes_of_format_version_1_still_decode_to_the_same_record(table):
    value = bytes.fromhex(GOLDEN[table.label])

    assert codec.decode(table, b"golden", value) == RECORDS[table]


DEBOUNCE = Debounce("doc", 2.5, (("doc:1", b"t" * 8),), waits=False)


@pytest.mark.parametrize(
    ("part", "stored", "before"),
    [
        pytest.param(
            Past(6, 9, 4, b"k" * 8, 2, True, host_losses=3, host=4, lock_due=1.5, origin=-2, debounce=DEBOUNCE),
            "9d060904c4086b6b6b6b6b6b6b6b02c30304c0cb3ff8000000000000fe94a3646f63cb40040000000000009192a5646f633a31c4087474747474747474c290",
            (
                "96060904c4086b6b6b6b6b6b6b6b02c3",
                {"host_losses": 0, "host": 0, "lock_due": 0.0, "origin": 0, "debounce": None},
            ),
            id="past",
        ),
        pytest.param(
            Past(6, 9, 4, b"k" * 8, 2, True, host_losses=3, host=4, lock_due=1.5, origin=-2),
            "9d060904c4086b6b6b6b6b6b6b6b02c30304c0cb3ff8000000000000fec090",
            ("9a060904c4086b6b6b6b6b6b6b6b02c30304c0cb3ff8000000000000", {"origin": 0}),
            id="past of a fork",
        ),
        pytest.param(
            Past(6, 9, 4, b"k" * 8, 2, True, searchable=("city=Graz",)),
            "9d060904c4086b6b6b6b6b6b6b6b02c30000c0cb000000000000000000c091a9636974793d4772617a",
            ("9c060904c4086b6b6b6b6b6b6b6b02c30000c0cb000000000000000000c0", {"searchable": ()}),
            id="past with searchable fields",
        ),
        pytest.param(
            Past(host=4, trace=Trace(b"t" * 16 + b"s" * 8 + b"\x01a=b", 8.5, b"l" * 25, b"w" * 25)),
            "9d000100c40001c20004"
            "94c41c747474747474747474747474747474747373737373737373" + "01613d62cb4021000000000000"
            "c419" + "6c" * 25 + "c419" + "77" * 25 + "cb000000000000000000c090",
            ("98000100c40001c20004", {"trace": None}),
            id="trace",
        ),
        pytest.param(
            StepLimits(wall_time=9.5, heartbeat=3.0, on=("gpu", "ssd"), resources={"gpu": 0.5}, lock_wait=2.5, tasks=7),
            "dc0014cb4023000000000000c0c0c003c201c0c0cb3ff0000000000000c0c0c0c2cb4008000000000000"
            "92a3677075a373736481a3677075cb3fe0000000000000cb4004000000000000c007",
            (
                "9fcb4023000000000000c0c0c003c201c0c0cb3ff0000000000000c0c0c0c2cb4008000000000000",
                {"on": (), "resources": {}, "lock_wait": None, "tasks": None},
            ),
            id="limits",
        ),
    ],
)
def test_parts_of_a_head_have_these_bytes_and_earlier_ones_read_without(part, stored, before):
    earlier, absent = before

    assert msgspec.msgpack.encode(part).hex() == stored
    assert msgspec.msgpack.decode(bytes.fromhex(stored), type=type(part)) == part
    assert msgspec.msgpack.decode(bytes.fromhex(earlier), type=type(part)) == msgspec.structs.replace(part, **absent)


def test_every_kind_of_record_has_golden_bytes():
    assert set(RECORDS) == set(codec._DECODERS)
    assert set(GOLDEN) == {table.label for table in RECORDS}


@pytest.mark.parametrize("table", RECORDS, ids=lambda table: table.label)
def test_every_single_bit_flip_is_noticed(table):
    value = codec.encode(table, b"k", RECORDS[table])

    for bit in range(8 * len(value)):
        damaged = bytearray(value)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(StoreDamaged):
            codec.decode(table, b"k", bytes(damaged))


@pytest.mark.parametrize("codec_name", ["pickle", "data"])
def test_a_long_state_comes_back_from_the_store(codec_name, tmp_path, make):
    content = random.Random(1).randbytes(3_000_000)
    sealed = BY_DIGEST + b"s" * SIGNATURE_SIZE + digest_of_parts((content,)) + content
    state = BIN_32.pack(BIN_32_CODE, len(sealed)) + sealed
    record = StepRecord("order-1", 1, StepKind.STEP, 1.5, state, codec_name, outcome="submitted", label="x")
    assert codec.encode_long(Table.STEPS, b"k", record) == codec.encode(Table.STEPS, b"k", record)
    for store in (MemoryStore(), LmdbStore(tmp_path / "store")):
        epoch = store.own()
        store.commit([make.new("order-1", 1), PutStep(record)], epoch)

        assert store.step("order-1", 1) == record
        store.close()


def test_garbage_is_damage_and_never_another_error():
    chance = random.Random(1)
    for length in range(80):
        with pytest.raises(StoreDamaged):
            codec.decode(Table.PROCEDURES, b"k", chance.randbytes(length))


def test_a_record_under_another_key_or_in_another_table_is_damage():
    value = codec.encode(Table.PROCEDURES, b"order-1", RECORDS[Table.PROCEDURES])

    with pytest.raises(StoreDamaged, match="procedures order-2"):
        codec.decode(Table.PROCEDURES, b"order-2", value)
    with pytest.raises(StoreDamaged, match="poison order-1"):
        codec.decode(Table.POISON, b"order-1", value)


def test_a_record_with_fields_added_later_is_read_without_them():
    longer = [*msgspec.structs.astuple(RECORDS[Table.CHILDREN]), "a field of a later version"]

    assert codec.decode(Table.CHILDREN, b"k", codec.encode(Table.CHILDREN, b"k", longer)) == RECORDS[Table.CHILDREN]


def test_a_record_written_before_a_field_existed_gets_its_default():
    shorter = msgspec.structs.astuple(RECORDS[Table.STEPS])[:5]

    found = codec.decode(Table.STEPS, b"k", codec.encode(Table.STEPS, b"k", shorter))

    assert found.error is None


@pytest.mark.parametrize(
    ("table", "key", "shown"),
    [
        (Table.META, b"epoch", "epoch"),
        (Table.STEPS, bytes(7) + b"\x03a", "a/3"),
        (Table.CHILDREN, b"a\0" + bytes(7) + b"\x03" + bytes(8), "a/3/0"),
        (Table.LOCKS, b"cat/db\0a", "cat/db held by a"),
        (Table.NOTES, b"a\0" + bytes(7) + b"\x01\0old", "a/1/old"),
        (Table.ORDER, bytes(7) + b"\x09", "9"),
        (Table.TIMERS, bytes(7) + b"\x09\0a", "9/a"),
    ],
)
def test_keys_are_shown_to_people(table, key, shown):
    assert codec.show_key(table, key) == shown


# Damage in a store: what is sound is loaded, what is not is listed.


@pytest.fixture
def tree(make):
    """A root with two children, and another root, in memory; and the rows to damage."""
    store = MemoryStore()
    store.own()
    store.commit([make.new("r", 1), make.new("c1", 2, root="r"), make.new("c2", 3, root="r"), make.new("x", 4)], 1)
    store.commit([make.step("r", 1), make.undo("r", 1), make.lock("k", "r"), make.event("r", 1), make.poison("q")], 1)
    return store


def put(store, table, key, value):
    store._rows.apply([(table, key, value)])


def found(snapshot):
    return [head.id for head in snapshot.procedures], [(damage.table, damage.key) for damage in snapshot.damage]


def test_a_damaged_head_is_listed_and_the_rest_of_its_tree_is_loaded(tree):
    put(tree, Table.PROCEDURES, b"c1", b"\x01garbage")

    assert found(tree.load()) == (["r", "c2", "x"], [("procedures", "c1")])
    with pytest.raises(StoreDamaged, match="c1"):
        tree.procedure("c1")
    with pytest.raises(StoreDamaged, match="c1"):
        list(tree.scan())
    with pytest.raises(StoreDamaged, match="c1"):
        tree.tree("r")


def test_swapped_heads_are_both_noticed(tree):
    one, two = (tree._rows.get(Table.PROCEDURES, key) for key in (b"c1", b"x"))
    put(tree, Table.PROCEDURES, b"c1", two)
    put(tree, Table.PROCEDURES, b"x", one)

    assert found(tree.load()) == (["r", "c2"], [("procedures", "c1"), ("procedures", "x")])


@pytest.mark.parametrize("table", [Table.UNDO, Table.LOCKS, Table.EVENTS, Table.POISON], ids=lambda t: t.label)
def test_other_damaged_records_are_listed_and_left_out(tree, table):
    key, value = next(tree._rows.scan(table))
    put(tree, table, key, value[:-1] + bytes([value[-1] ^ 1]))

    snapshot = tree.load()

    assert found(snapshot)[0] == ["r", "c1", "c2", "x"]
    assert [damage.table for damage in snapshot.damage] == [table.label]
    assert len(snapshot.units + snapshot.locks + snapshot.events + snapshot.poisons) == 3


@pytest.mark.parametrize(
    ("table", "key"),
    [
        *((table, b"lost") for table in (Table.STARTS, Table.ACKNOWLEDGED, Table.REMOVALS, Table.SCHEDULES)),
        *((Table.META, key) for key in (b"batch", b"last_batch", b"audits", b"next_seq", b"epoch")),
    ],
    ids=str,
)
def test_whatever_a_start_reads_and_finds_damaged_is_listed(tree, table, key):
    put(tree, table, key, b"\x01garbage")

    assert table.label in [damage.table for damage in tree.load().damage]


def test_the_shown_key_of_a_schedule_leads_to_its_row(tree):
    for key in (b"a", b"a!", b"\xb1-\xff", "\u00e9".encode(), b"x41"):
        assert codec.shown_key(codec.show_key(Table.SCHEDULES, key)) == key


@pytest.mark.parametrize("table", [Table.BY_STATE, Table.MEMBERS, Table.ORDER], ids=lambda t: t.label)
@pytest.mark.parametrize("harm", ["lost", "lost all", "swapped", "points nowhere"])
def test_no_unfinished_procedure_is_lost_with_its_index_rows(tree, table, harm):
    rows = list(tree._rows.scan(table))
    if harm == "lost all":
        put(tree, table, b"", SWEEP)
    elif harm == "lost":
        put(tree, table, rows[1][0], None)
    elif harm == "swapped":
        put(tree, table, rows[1][0], rows[2][1])
        put(tree, table, rows[2][0], rows[1][1])
    else:
        put(tree, table, rows[1][0], b"nobody")

    snapshot = tree.load()

    assert found(snapshot)[0] == ["r", "c1", "c2", "x"]
    assert snapshot.next_seq >= 5
    # What is read of `order` at a start is its length and its last key, and no value of it.
    assert snapshot.damage or (table is Table.ORDER and not harm.startswith("lost"))


def test_an_index_row_that_points_to_another_procedure_stops_a_scan(tree):
    put(tree, Table.ORDER, (1).to_bytes(8), b"x")

    with pytest.raises(StoreDamaged, match="order 1"):
        list(tree.scan())


def test_damage_that_looks_like_a_finished_state_does_not_hide_a_live_head(tree, make):
    # The index says SUCCESS, the head says RUNNABLE: as after a write with a wrong `was`.
    put(tree, Table.BY_STATE, b"RUNNABLE\0" + (4).to_bytes(8), None)

    assert "x" in found(tree.load())[0]


def test_a_damaged_step_is_named(tree):
    put(tree, Table.STEPS, step_key("r", 1), b"\x01garbage")

    with pytest.raises(StoreDamaged, match="steps r/1"):
        tree.step("r", 1)
    with pytest.raises(StoreDamaged, match="steps r/1"):
        tree.steps("r")


def test_a_damaged_number_in_meta_does_not_stop_a_start(tree):
    put(tree, Table.META, NEXT_SEQ, b"\x01garbage")

    snapshot = tree.load()

    assert snapshot.next_seq == 5
    assert ("meta", "next_seq") in found(snapshot)[1]


def test_writing_a_wrong_was_is_reported_at_the_next_load(tree, make):
    _, changed = make.change(make.head("x", 4), state=ProcedureState.SUCCESS)
    tree.commit([PutProcedure(changed, make.change(changed)[0].was)], 1)

    assert [damage.table for damage in tree.load().damage] == ["by_state"]
