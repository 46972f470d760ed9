"""The redo record of a small commit: what it holds, and when it is used."""

from __future__ import annotations

import json
import logging
import resource
import subprocess
import sys

import lmdb
import pytest

from actorproc.cli.main import main
from actorproc.errors import NotAllowed, StorageUnavailable, StoreFormat
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutProcedure, PutStep
from actorproc.store.lmdb.commit.meta_pages import read_meta_pages
from actorproc.store.lmdb.commit.redo_record import _SECTOR, RedoRecord
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
from actorproc.store.rows.layout import SWEEP
from actorproc.store.rows.tables import Table
from actorproc.store.tools.salvage import SalvageReader

PAGE = 4096
ROWS = [(Table.STEPS, b"key", b"value"), (Table.LOCKS, b"gone", None)]


@pytest.fixture
def record(tmp_path):
    with (tmp_path / "file").open("w+b") as file:
        file.write(bytes(2 * PAGE))
        file.flush()
        yield RedoRecord(file.fileno(), PAGE)


def writes(number, size=20):
    head = ProcedureRecord(id=f"p{number}", type_name="T", version=1, root=f"p{number}", parent=None, seq=number)
    return [
        PutProcedure(head, None),
        PutStep(StepRecord(procedure=head.id, number=1, kind=StepKind.STEP, at=1.0, state=b"%d" % number * size)),
    ]


def last_transaction(path):
    return read_meta_pages(path).newest


class Cut:
    """What a power cut takes back: the meta page of the last commit, which nobody has waited for."""

    def __init__(self, path):
        self.path = path
        self.data = path / "data.mdb"

    def remember(self):
        self.before = self.data.read_bytes()[: 2 * PAGE]

    def happen(self):
        place = last_transaction(self.path) % 2 * PAGE
        with self.data.open("r+b") as file:
            file.seek(place)
            file.write(self.before[place : place + 512])


@pytest.fixture
def killed(tmp_path):
    """A store with three commits, whose owner was killed."""
    path = tmp_path / "store"
    cut = Cut(path)
    store = LmdbStore(path)
    epoch = store.own()
    for number in (1, 2, 3):
        cut.remember()
        store.commit(writes(number), epoch, number)
    store._settle = lambda: None  # it is killed, and does not close in good order
    store._sound = False
    store.close()
    return cut


@pytest.fixture
def cut(killed):
    """The same when the disk has no meta page for the last commit."""
    killed.happen()
    return killed


# ------------------------------------------------------------------ the record
def test_rows_come_back_for_the_transaction_whose_they_are(record):
    record.write(7, record.body_of(ROWS))
    record.write(8, record.body_of(ROWS[:1]))

    assert record.read(7) == ROWS
    assert record.read(8) == ROWS[:1]
    assert record.read(9) is None
    assert record.read(5) is None


def test_a_record_is_overwritten_by_that_of_the_next_transaction_but_one(record):
    for number in (7, 8, 9):
        record.write(number, record.body_of(ROWS))

    assert [record.read(number) is None for number in (7, 8, 9)] == [True, False, False]


@pytest.mark.parametrize("at", range(512, 512 + 60))
def test_a_record_of_which_a_byte_is_another_one_is_none(record, at):
    record.write(9, record.body_of(ROWS))
    with open(record._fd, "r+b", closefd=False, buffering=0) as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 1]))

    is_in_the_record = at < 512 + 24 + len(record.body_of(ROWS))
    assert (record.read(9) is None) == is_in_the_record


@pytest.mark.parametrize("body", [b"\x91\x93\xcc\x63\xc4\x01k\xc4\x01v", b"\xa5other"], ids=["table 99", "a text"])
def test_rows_that_only_a_later_version_can_have_written_are_not_passed_over(record, body):
    record.write(7, body)

    with pytest.raises(StoreFormat, match="later actorproc"):
        record.read(7)


def test_what_is_forgotten_does_not_come_back(record):
    record.write(7, record.body_of(ROWS))
    record.forget(7)

    assert record.read(7) is None


def test_the_first_sector_of_a_page_is_left_alone(record):
    with open(record._fd, "r+b", closefd=False, buffering=0) as file:
        file.seek(0)
        file.write(b"m" * 512)
        room = PAGE - 512 - 24 - 20
        for number in (7, 8):
            record.write(number, record.body_of([(Table.STEPS, b"", b"x" * room)]))
        record._write_again()
        file.seek(0)
        content = file.read()

    assert content[:512] == b"m" * 512
    assert content[PAGE : PAGE + 512] == bytes(512)
    assert len(content) == 2 * PAGE
    assert len(record.read(7)[0][2]) == room


@pytest.mark.parametrize(
    "rows",
    [
        [(Table.STEPS, b"key", b"x" * PAGE)],
        [(Table.STEPS, b"key", b"x" * 300)] * 12,
        [(Table.META, b"next_seq", 7)],
        [(Table.NOTES, b"p\0", SWEEP)],
    ],
    ids=["one that is large", "many", "a number to raise", "a sweep"],
)
def test_rows_without_room_and_rows_that_depend_on_what_is_stored_get_no_record(record, rows):
    assert record.body_of(rows) is None


def test_a_file_that_takes_nothing_is_storage_that_is_unavailable(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(2 * PAGE))
    with path.open("rb") as file, pytest.raises(StorageUnavailable, match="redo record"):
        RedoRecord(file.fileno(), PAGE).write(7, b"rows")


# ------------------------------------------------------------------ the store
def test_the_next_owner_makes_a_commit_again_of_which_the_disk_has_the_record_only(cut, caplog):
    with LmdbReader(cut.path) as reader:
        assert reader.procedure("p3") is None  # who only looks sees the commit before

    caplog.set_level(logging.INFO, "actorproc.store")
    store = LmdbStore(cut.path)
    store.own()
    try:
        assert [head.seq for head in store.load().procedures] == [1, 2, 3]
        assert store.step("p3", 1).state == b"3" * 20
        assert "made again" in caplog.text
    finally:
        store.close()


def test_a_backup_does_not_pass_it_over(cut, tmp_path):
    with LmdbReader(cut.path) as reader, pytest.raises(NotAllowed, match="would lack its last commit"):
        reader.backup(tmp_path / "copy")

    store = LmdbStore(cut.path)
    store.own()
    store.close()
    with LmdbReader(cut.path) as reader:
        reader.backup(tmp_path / "copy")
    with LmdbReader(tmp_path / "copy") as copy:
        assert [head.seq for head in copy.scan()] == [1, 2, 3]


def test_an_export_does_not_pass_it_over_either(cut, capsys):
    assert main(["--path", str(cut.path), "export", "--all"]) != 0
    assert "would lack its last commit" in capsys.readouterr().err

    assert main(["--path", str(cut.path), "export", "--all", "--skip-damaged"]) == 0
    assert len(json.loads(capsys.readouterr().out)["trees"]) == 3


def test_who_saves_what_is_good_does_not_pass_it_over(cut):
    with SalvageReader(cut.path) as reader:
        assert reader.roots() == ["p1", "p2", "p3"]
        assert reader.step("p3", 1).state == b"3" * 20
        assert [head.id for head in reader.scan()] == ["p1", "p2", "p3"]


def test_a_damaged_meta_page_costs_no_commit_of_which_there_is_the_record(killed):
    with killed.data.open("r+b") as file:
        file.seek(last_transaction(killed.path) % 2 * PAGE)
        file.write(bytes(_SECTOR))

    with SalvageReader(killed.path) as reader:
        assert reader.roots() == ["p1", "p2", "p3"]


def test_it_is_made_again_once(cut, caplog):
    caplog.set_level(logging.INFO, "actorproc.store")
    for _ in range(3):
        store = LmdbStore(cut.path)
        epoch = store.own()
        store.commit([], epoch, 1)
        store.close()

    assert caplog.text.count("made again") == 1
    with LmdbReader(cut.path) as reader:
        assert [head.seq for head in reader.scan()] == [1, 2, 3]


def test_a_large_commit_waits_for_its_meta_page_and_has_no_record(tmp_path):
    store = LmdbStore(tmp_path / "store")
    epoch = store.own()
    try:
        store.commit(writes(1, 5000), epoch, 1)
        assert store._file.redo.read(last_transaction(store.path)) is None
        store.commit(writes(2), epoch, 2)
        assert store._file.redo.read(last_transaction(store.path)) is not None
    finally:
        store.close()


def test_with_durability_process_there_is_no_record(tmp_path):
    store = LmdbStore(tmp_path / "store", durability="process")
    epoch = store.own()
    try:
        store.commit(writes(1), epoch, 1)
        assert store._file.redo.read(last_transaction(store.path)) is None
    finally:
        store.close()


def test_after_a_compaction_the_records_are_in_the_new_file(tmp_path):
    store = LmdbStore(tmp_path / "store")
    epoch = store.own()
    try:
        for batch in range(1, 5):
            store.commit(writes(1, 200_000), epoch, batch)  # each leaves the pages of the one before unused
        before = store._file.redo
        store.compact()
        assert store._file.redo is not before
        store.commit(writes(2), epoch, 5)
        assert store._file.redo.read(last_transaction(store.path)) is not None
    finally:
        store.close()


def test_what_was_under_way_when_the_power_failed_does_not_come_back_with_a_later_owner(tmp_path):
    """Its record may be on the disk although the meta page beside which it stands is not: then the numbers fit later."""
    path, after = tmp_path / "store", {}
    store = LmdbStore(path)
    epoch = store.own()
    for number in (1, 2, 3, 4):
        store.commit(writes(number), epoch, number)
        after[last_transaction(path)] = (path / "data.mdb").read_bytes()
    store.close()
    last = max(after)
    image = bytearray(after[last])
    own, other = (last - 1) % 2 * PAGE, last % 2 * PAGE  # the pages with its record, and with that of the one before
    image[own : own + 512] = after[last - 2][own : own + 512]
    image[other : other + PAGE] = after[last - 1][other : other + PAGE]
    cut = tmp_path / "cut"
    cut.mkdir(mode=0o700)
    (cut / "data.mdb").touch(0o600)
    (cut / "data.mdb").write_bytes(image)

    for _ in range(3):
        store = LmdbStore(cut)
        store.own()
        assert [head.seq for head in store.load().procedures] == [1, 2, 3]
        store.close()


READER = """
import sys
from actorproc.store.lmdb.store import LmdbReader
with LmdbReader(sys.argv[1]) as reader:
    print(len(reader.load().procedures), flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("is_read", [False, True], ids=["alone", "another process has it open"])
def test_a_meta_page_that_the_system_has_dropped_costs_nothing(tmp_path, is_read):
    store = LmdbStore(tmp_path / "store")
    cut = Cut(store.path)
    epoch = store.own()
    for number in range(1, 8):
        cut.remember()
        store.commit(writes(number), epoch, number)
    other = [sys.executable, "-c", READER if is_read else "print(7); input()", store.path]
    with subprocess.Popen(other, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "7\n"
        cut.happen()
        if is_read:
            with pytest.raises(StorageUnavailable, match="behind what other processes saw"):
                store.reopen()
        store.reopen()
        assert store.load().batch == 7
        store.commit(writes(8), epoch, 8)
        assert [head.seq for head in store.load().procedures] == list(range(1, 9))
        store.close()
        process.communicate("\n")

    store.own()
    assert [head.seq for head in store.load().procedures] == list(range(1, 9))
    store.close()


class Failing:
    """An environment of which the next waits for the disk fail."""

    def __init__(self, env, failures):
        self._env = env
        self.failures = failures

    def __getattr__(self, name):
        return getattr(self._env, name)

    def sync(self, force=False):
        if self.failures:
            self.failures -= 1
            raise lmdb.Error("Input/output error")
        self._env.sync(force)


def test_a_compaction_whose_last_wait_fails_leaves_a_store_that_was_opened_anew(tmp_path, monkeypatch):
    store = LmdbStore(tmp_path / "store")
    epoch = store.own()
    for batch in range(1, 5):
        store.commit(writes(1, 200_000), epoch, batch)
    opened, plain = [], store._open_environment

    def failing():
        opened.append(Failing(plain(), failures=0 if opened else 1))
        return opened[-1]

    monkeypatch.setattr(store, "_open_environment", failing)
    with pytest.raises(StorageUnavailable, match="Input/output error"):
        store.compact()

    assert len(opened) == 2
    assert store._env is opened[1]
    assert not (store.path / "compacting").exists()
    store.commit(writes(2), epoch, 5)
    assert [head.seq for head in store.load().procedures] == [1, 2]
    store.close()


def test_a_file_that_is_no_store_is_not_written_to(tmp_path, monkeypatch):
    path = tmp_path / "store"
    path.mkdir(mode=0o700)
    with lmdb.open(str(path), lib_version=0) as env, env.begin(write=True) as txn:
        txn.put(b"a", b"stranger")
    for name in ("data.mdb", "lock.mdb"):
        (path / name).chmod(0o600)
    written = []
    monkeypatch.setattr(RedoRecord, "_write_again", written.append)

    store = LmdbStore(path)
    with pytest.raises(StoreFormat):
        store.own()
    assert written == []


def test_a_record_of_which_the_disk_takes_a_part_is_storage_that_is_unavailable(record, monkeypatch):
    monkeypatch.setattr("actorproc.store.lmdb.commit.redo_record.os.pwrite", lambda fd, data, place: 10)

    with pytest.raises(StorageUnavailable, match="took 10 bytes"):
        record.write(7, record.body_of(ROWS))


FULL = """
import resource, sys
from actorproc.errors import NotAllowed, StorageUnavailable, StoreFormat
from actorproc.store.lmdb.store import LmdbStore
from tests.store.test_redo import last_transaction, writes

store = LmdbStore(sys.argv[1])
epoch = store.own()
for number in range(1, 21):
    store.commit(writes(number), epoch, number)
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
number = last_transaction(store.path) + 1
try:
    store.commit(writes(21), epoch, 21)
except StorageUnavailable:
    print("refused", store._file.redo.read(number))
resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
store.reopen()
print(store.load().batch, store.procedure("p21"))
store.commit(writes(21), epoch, 22)
print(store.procedure("p21").id)
store.close()
"""


@pytest.mark.skipif(not hasattr(resource, "RLIMIT_FSIZE"), reason="no limit of file sizes here")
def test_a_commit_that_the_disk_refused_leaves_no_record(tmp_path):
    said = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path / "store"], capture_output=True, text=True, timeout=60, check=False
    )

    assert said.stdout.splitlines() == ["refused None", "20 None", "p21"], said.stderr
