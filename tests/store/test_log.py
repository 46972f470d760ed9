"""The log of a store in a directory: what is done half is not gone on with, and readers see one commit or the next."""

from __future__ import annotations

import errno
import os
import shutil
import struct
import subprocess
import sys
import threading
import zlib

import lmdb
import msgspec
import pytest

from actorproc.errors import Deposed, EngineError, StorageUnavailable, StoreDamaged, StoreFormat
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import PutProcedure
from actorproc.store.directory import OWNER_FILE
from actorproc.store.lmdb.log import checkpointer, commit_log, segment
from actorproc.store.lmdb.log.overlay import Layers, Overlay
from actorproc.store.lmdb.log.place import LogPlace
from actorproc.store.lmdb.log.record import decoded, encoded, later_record, record_at
from actorproc.store.lmdb.log.segment import RECORDS_AT, Segment, numbers_in
from actorproc.store.lmdb.log.tail import tail_in
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
from actorproc.store.rows import codec
from actorproc.store.rows.layout import EPOCH, rows_of
from actorproc.store.rows.tables import Table


def put(number, steps=0):
    id = f"p{number}"
    head = ProcedureRecord(id=id, type_name="t", version=1, root=id, parent=None, seq=number, step=steps)
    return PutProcedure(head, None)


def commit(store, *numbers, steps=0):
    store.commit([put(number, steps) for number in numbers], store._epoch, numbers[0])


def ids(store):
    return [head.id for head in store.scan()]


def steps_of(rows, *numbers):
    found = []
    for number in numbers:
        key = f"p{number}".encode()
        value = rows.get(Table.PROCEDURES, key)
        found.append(None if value is None else codec.decode(Table.PROCEDURES, key, value).step)
    return found


@pytest.fixture
def store(lmdb_path, monkeypatch):
    monkeypatch.setattr(checkpointer, "_EVERY", 3600.0)  # checkpoints come when they are asked for
    store = LmdbStore(lmdb_path, map_size=1 << 24)
    store.own()
    yield store
    store.close()


def killed(store):
    """The owner is gone as after SIGKILL, with its log as it is."""
    store._log._checkpointer.stop()
    store._log._failed = StorageUnavailable("killed")
    store._sound = False
    store.close()


def copied(store, place):
    """The directory as another process would find it after a kill, without the owner."""
    shutil.copytree(store.path, place, ignore=shutil.ignore_patterns(OWNER_FILE, "lock.mdb"))
    place.chmod(0o700)
    return place


# Records and files

GOLDEN_HEAD = "61702d6c6f67310a0000000000000003000000000000000573616c7473616c742785d6fa"
"""Head of log 3 of epoch 5."""
GOLDEN_RECORD = (
    "61706c7280ccfc1800000011000000000000000700000000000000030000000000000009929301c4027031c40201029306c4016bc0"
)
"""A record of format 5: it must be read for ever."""


def test_a_record_is_as_the_page_about_the_format_says():
    rows = [(Table.PROCEDURES, b"p1", b"\x01\x02"), (Table.LOCKS, b"k", None)]
    salt = zlib.crc32(b"saltsalt")

    record = encoded(rows, 7, 3, 9, salt)

    body = msgspec.msgpack.encode([[Table.PROCEDURES, b"p1", b"\x01\x02"], [Table.LOCKS, b"k", None]])
    behind = struct.pack(">IQQQ", len(body), 7, 3, 9) + body
    assert record == b"aplr" + zlib.crc32(behind, salt).to_bytes(4) + behind
    assert record.hex() == GOLDEN_RECORD
    found = record_at(b"\0" * 5 + record, 5, salt)
    assert (found.place, found.epoch, found.batch, found.end) == (7, 3, 9, 5 + len(record))
    assert found.rows()[:2] == rows
    assert decoded(found.body, 0) == rows


def test_a_file_of_format_5_is_read_for_ever(tmp_path):
    file = tmp_path / "log-3-1"
    file.touch(0o600)
    file.write_bytes(bytes.fromhex(GOLDEN_HEAD).ljust(RECORDS_AT, b"\0") + bytes.fromhex(GOLDEN_RECORD))

    opened = Segment.open(file, 3)

    assert opened.epoch == 5
    (found,) = tail_in([opened], LogPlace(3, 3, 6))
    assert found.rows()[:2] == [(Table.PROCEDURES, b"p1", b"\x01\x02"), (Table.LOCKS, b"k", None)]
    opened.close()


@pytest.mark.parametrize("at", range(0, 60, 3))
def test_a_record_with_one_changed_byte_is_none(at):
    salt = zlib.crc32(b"saltsalt")
    record = bytearray(encoded([(Table.PROCEDURES, b"p1", b"x" * 40)], 7, 3, 9, salt))
    assert record_at(bytes(record), 0, salt) is not None

    record[at] ^= 1

    assert record_at(bytes(record), 0, salt) is None


def test_a_record_of_another_file_or_of_an_earlier_use_does_not_count():
    mine, other = zlib.crc32(b"saltsalt"), zlib.crc32(b"another!")
    record = encoded([(Table.PROCEDURES, b"p1", b"x")], 7, 3, 9, mine)

    assert record_at(record, 0, other) is None
    assert later_record(b"zero" + record, 0, mine, 7).place == 7
    assert later_record(b"zero" + record, 0, mine, 8) is None
    assert later_record(b"zero" + record, 0, other, 7) is None


def test_the_head_of_a_file_is_as_the_page_about_the_format_says(tmp_path):
    made = Segment.make(tmp_path / "log-3-0", 3, 5)
    made.close()

    data = (tmp_path / "log-3-0").read_bytes()

    assert data[:24] == b"ap-log1\n" + (3).to_bytes(8) + (5).to_bytes(8)
    assert data[32:36] == zlib.crc32(data[:32]).to_bytes(4)
    assert data[36:] == bytes(len(data) - 36)
    assert RECORDS_AT == 512
    assert Segment.open(tmp_path / "log-3-0", 3).epoch == 5
    with pytest.raises(StoreDamaged, match="head"):
        Segment.open(tmp_path / "log-3-0", 4)


def test_a_record_that_spans_many_sectors_is_read_whole_by_the_next_owner_and_by_a_reader(store, tmp_path):
    store.commit([put(number) for number in range(1, 400)], store._epoch, 1)
    commit(store, 400)
    place = copied(store, tmp_path / "copy")

    with LmdbReader(place, allow_any_filesystem=True) as reader:
        assert len(ids(reader)) == 400
    with_owner = LmdbStore(place, map_size=1 << 24)
    with_owner.own()
    assert len(ids(with_owner)) == 400
    with_owner.close()


@pytest.mark.parametrize("mode", [0o622, 0o606])
def test_a_file_that_others_can_write_is_refused_in_words(store, tmp_path, mode):
    commit(store, 1)
    place = copied(store, tmp_path / "copy")
    next(place.glob("log-*")).chmod(mode)

    with pytest.raises(EngineError, match="chmod go-w"):
        LmdbStore(place).own()


def test_a_link_in_the_place_of_a_file_is_not_followed(store, tmp_path):
    commit(store, 1)
    place = copied(store, tmp_path / "copy")
    file = min(place.glob("log-*"))
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(EngineError, match="cannot open"):
        LmdbStore(place).own()


@pytest.mark.parametrize("number", [errno.EMFILE, errno.EIO, errno.ENOMEM])
def test_a_file_that_cannot_be_opened_now_is_worth_another_try(store, tmp_path, monkeypatch, number):
    commit(store, 1)
    place = copied(store, tmp_path / "copy")
    really = os.open

    def refuse(path, *arguments, **options):
        if "log-" in os.fspath(path):
            raise OSError(number, os.strerror(number))
        return really(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(segment.os, "open", refuse)
        with pytest.raises(StorageUnavailable, match="cannot open"):
            LmdbStore(place).own()

    again = LmdbStore(place)
    again.own()
    assert ids(again) == ["p1"]
    again.close()


def test_one_file_copied_over_the_other_is_damage(store, tmp_path):
    commit(store, 1)
    store._log.checkpoint()
    commit(store, 2)
    place = copied(store, tmp_path / "copy")
    one, other = sorted(place.glob("log-*"))
    shutil.copy(one, other)

    with pytest.raises(StoreDamaged, match="copy of"):
        LmdbStore(place).own()
    with pytest.raises(StoreDamaged, match="copy of"):
        LmdbReader(place, allow_any_filesystem=True)


def test_a_log_without_its_data_file_is_not_taken_for_a_new_store(store, tmp_path):
    commit(store, 1)
    place = copied(store, tmp_path / "copy")
    (place / "data.mdb").rename(tmp_path / "elsewhere")

    with pytest.raises(StoreDamaged, match="last commits"):
        LmdbStore(place).own()

    assert len(list(place.glob("log-*"))) == 2
    (tmp_path / "elsewhere").rename(place / "data.mdb")
    again = LmdbStore(place)
    again.own()
    assert ids(again) == ["p1"]
    again.close()


@pytest.mark.parametrize("tool", [["cp", "-a"], ["cp", "-r"]])
def test_a_copy_of_a_killed_store_by_hand_has_all_commits(store, tmp_path, tool):
    commit(store, 1)
    store._log.checkpoint()
    commit(store, 2)
    killed(store)

    subprocess.run([*tool, store.path, tmp_path / "copy"], check=True)

    (tmp_path / "copy").chmod(0o700)
    again = LmdbStore(tmp_path / "copy", map_size=1 << 24)
    again.own()
    assert ids(again) == ["p1", "p2"]
    again.close()


def test_a_copy_without_the_log_is_refused_in_words(store, tmp_path):
    commit(store, 1)
    killed(store)
    (tmp_path / "copy").mkdir(0o700)
    shutil.copy(store.path / "data.mdb", tmp_path / "copy")

    with pytest.raises(StoreDamaged, match="Put it back") as refused:
        LmdbStore(tmp_path / "copy").own()

    assert "doctor --export-good" in str(refused.value)


def test_a_store_on_a_read_only_file_system_is_refused_in_words_and_not_changed(store, tmp_path):
    commit(store, 1)
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "none", disk]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a tmpfs here (needs CAP_SYS_ADMIN)")
    try:
        copied(store, disk / "store")
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        with pytest.raises(EngineError, match="needs read, write and search permission"):
            LmdbReader(disk / "store", allow_any_filesystem=True)
        with pytest.raises(EngineError, match="needs read, write and search permission"):
            LmdbStore(disk / "store").own()
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
        with LmdbReader(disk / "store", allow_any_filesystem=True) as reader:
            assert ids(reader) == ["p1"]
    finally:
        subprocess.run(["umount", disk], check=True)


# What is done half


def interrupt(*_, **__):
    raise KeyboardInterrupt


class After:
    """Runs a method, and is interrupted behind it."""

    def __init__(self, patch, owner, name):
        self._really = getattr(owner, name)
        patch.setattr(owner, name, self)

    def __call__(self, *arguments, **options):
        self._really(*arguments, **options)
        raise KeyboardInterrupt


HALF = {
    "a record that is not written": lambda patch, store: patch.setattr(Segment, "write", interrupt),
    "a record that is not synced": lambda patch, store: patch.setattr(commit_log, "sync_data", interrupt),
    "a record that is synced": lambda patch, store: After(patch, commit_log, "sync_data"),
    "rows that are not shown": lambda patch, store: patch.setattr(store._log._overlay, "put", interrupt),
    "a large commit that is begun": lambda patch, store: patch.setattr(store._log, "_transact", interrupt),
    "a large commit that is written": lambda patch, store: After(patch, store._log, "_transact"),
    "a large commit that is shown": lambda patch, store: After(patch, store._log._overlay, "clear"),
    "a checkpoint that is begun": lambda patch, store: After(patch, store._log._overlay, "freeze"),
    "a checkpoint that is not written": lambda patch, store: patch.setattr(store._log, "_transact", interrupt),
    "a checkpoint that is written": lambda patch, store: After(patch, store._log, "_transact"),
    "a checkpoint that is over": lambda patch, store: After(patch, store._log._overlay, "thaw"),
}


@pytest.mark.parametrize("half", HALF)
def test_what_ctrl_c_leaves_half_done_is_not_gone_on_with(store, monkeypatch, tmp_path, half):
    commit(store, 1)
    with monkeypatch.context() as patch:
        HALF[half](patch, store)
        if "large" in half:
            patch.setattr(store._log, "takes", lambda _: False)
        with pytest.raises(KeyboardInterrupt):
            store._log.checkpoint() if "checkpoint" in half else commit(store, 2)

    with pytest.raises(StorageUnavailable):
        commit(store, 3)
    left = LmdbStore(copied(store, tmp_path / "copy"), map_size=1 << 24)
    left.own()
    as_killed = ids(left)
    left.close()
    store.reopen()

    assert as_killed[0] == "p1"
    assert as_killed in (["p1"], ["p1", "p2"])
    assert ids(store) == as_killed
    commit(store, 4)
    store._log.checkpoint()
    commit(store, 5)
    assert ids(store) == [*as_killed, "p4", "p5"]
    assert store.load().damage == []


def test_a_commit_that_is_refused_before_it_begins_needs_no_reopening(store):
    with pytest.raises(Exception, match="key is empty or longer"):
        store.commit([PutProcedure(msgspec.structs.replace(put(1).record, id="x" * 600), None)], store._epoch, 1)

    commit(store, 2)
    assert ids(store) == ["p2"]


def test_after_a_failed_sync_the_file_is_not_written_again(store, monkeypatch):
    commit(store, 1)
    before = numbers_in(store.path)

    def fail(fd):
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(commit_log, "sync_data", fail)
        with pytest.raises(StorageUnavailable, match="Input/output"):
            commit(store, 2)
    with pytest.raises(StorageUnavailable):
        commit(store, 3)
    store.reopen()

    assert numbers_in(store.path).keys().isdisjoint(before)
    commit(store, 4)
    assert ids(store) == ["p1", "p2", "p4"]  # the record was whole in what the kernel gave


def test_a_disk_that_hangs_in_a_checkpoint_is_not_closed_under_it(store, monkeypatch):
    monkeypatch.setattr(checkpointer, "_PATIENCE", 0.05)
    begun, go = threading.Event(), threading.Event()
    transact = store._log._transact

    def hang(work):
        begun.set()
        assert go.wait(60)
        transact(work)

    store._log._transact = hang
    commit(store, 1)
    store._log._checkpointer.tell(now=True)
    assert begun.wait(60)

    with pytest.raises(StorageUnavailable, match="does not answer"):
        store.reopen()
    assert ids(store) == ["p1"]

    go.set()
    store._log._transact = transact
    while store._log._checkpointer._thread is not None:
        try:
            store.reopen()
        except StorageUnavailable:
            continue
    commit(store, 2)
    assert ids(store) == ["p1", "p2"]


# Two owners


@pytest.fixture
def other_process(store, tmp_path):
    """Runs code as an owner in another process, on the same directory."""

    def run(code):
        script = (
            "import sys\nfrom actorproc.store.lmdb.store import LmdbStore\n"
            "from tests.store.test_log import commit, ids\n"
            "store = LmdbStore(sys.argv[1], map_size=1 << 24)\nstore.own()\n" + code
        )
        done = subprocess.run(
            [sys.executable, "-c", script, store.path], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("ends", ["in order", "killed"])
@pytest.mark.parametrize("late", ["a commit", "a large commit", "a checkpoint"])
def test_an_owner_that_was_taken_over_acknowledges_and_writes_nothing(
    store, other_process, tmp_path, monkeypatch, late, ends
):
    commit(store, 1)
    (store.path / OWNER_FILE).unlink()
    bye = "store.close()" if ends == "in order" else "import os\nos._exit(0)"
    other_process(f"assert ids(store) == ['p1']\ncommit(store, 2)\n{bye}\n")

    if late == "a large commit":
        monkeypatch.setattr(store._log, "takes", lambda _: False)
    with pytest.raises(Deposed):
        store._log.checkpoint() if late == "a checkpoint" else commit(store, 3)
    with pytest.raises(Deposed):
        commit(store, 4)
    store.close()

    again = LmdbStore(store.path, map_size=1 << 24)
    again.own()
    assert ids(again) == ["p1", "p2"]
    again.close()


# Readers


def test_a_view_into_which_a_commit_and_a_checkpoint_come_shows_one_commit(store, monkeypatch):
    commit(store, 1, 2)
    store._log.checkpoint()
    commit(store, 3)
    really = store._log.layers

    def slow():
        layers = really()
        monkeypatch.setattr(store._log, "layers", really)
        commit(store, 1, 2, 3, steps=5)
        store._log.checkpoint()
        return layers

    monkeypatch.setattr(store._log, "layers", slow)
    with store._view() as rows:
        assert steps_of(rows, 1, 2, 3) in ([0, 0, 0], [5, 5, 5])
        assert rows.count(Table.PROCEDURES) == 3


def test_a_view_stays_as_it_is_over_commits_checkpoints_and_large_commits(store):
    commit(store, 1, 2)
    store._log.checkpoint()
    commit(store, 3)
    with store._view() as before:
        commit(store, 1, 2, 3, 4, steps=5)
        with store._view() as between:
            store._log.checkpoint()
            commit(store, 1, 3, 5, steps=6)
            store._log.write_through(lambda txn: None)
            commit(store, 2, 6, steps=7)
            for rows, wanted in ((before, [0, 0, 0, None, None, None]), (between, [5, 5, 5, 5, None, None])):
                assert steps_of(rows, 1, 2, 3, 4, 5, 6) == wanted
                assert [key.decode() for key, _ in rows.scan(Table.PROCEDURES)] == [
                    f"p{number}" for number, step in enumerate(wanted, 1) if step is not None
                ]
                assert rows.count(Table.PROCEDURES) == 6 - wanted.count(None)
    with store._view() as now:
        assert steps_of(now, 1, 2, 3, 4, 5, 6) == [6, 7, 6, 5, 6, 7]


def test_a_view_that_goes_away_while_a_commit_is_shown_does_not_disturb_it():
    overlay = Overlay()
    overlay.put([(Table.PROCEDURES, b"p1", b"x")], 1)
    kept = [overlay.layers() for _ in range(3)]

    class Going:
        def __call__(self):
            overlay._views.discard(next(iter(overlay._views)))

    overlay._views |= {Going(), Going()}
    overlay.put([(Table.PROCEDURES, b"p1", b"y")], 2)

    assert kept
    assert overlay.layers().get(Table.PROCEDURES, b"p1") == b"y"


def test_layers_that_a_snapshot_has_are_left_out():
    overlay = Overlay()
    overlay.put([(Table.PROCEDURES, b"p1", b"x")], 3)
    overlay.freeze()
    overlay.put([(Table.PROCEDURES, b"p2", b"x")], 5)

    for place, left, is_within in ((2, 2, True), (3, 1, True), (4, 1, True), (5, 0, True), (6, 0, False)):
        layers = overlay.layers()
        assert layers.leave_out(place) is is_within
        assert len(layers.found) == left
    assert Layers(()).found == ()


def other_reader(store):
    """A reader in another process, which does what is typed."""
    begin = (
        "import sys\nfrom actorproc.store.lmdb.store import LmdbReader\n"
        "reader = LmdbReader(sys.argv[1])\n"
        "ids = lambda: print(*[head.id for head in reader.scan()], flush=True)\n"
        "for line in sys.stdin: exec(line)\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", begin, store.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def ask(process, line="ids()"):
    process.stdin.write(line + "\n")
    process.stdin.flush()
    return process.stdout.readline().split()


def test_a_reader_that_was_there_before_the_first_log_sees_what_is_in_it(store):
    commit(store, 1)
    store.close()
    with lmdb.open(os.fspath(store.path), max_dbs=64, lib_version=0) as env, env.begin(write=True) as txn:
        txn.drop(env.open_db(b"log", txn=txn, create=False))  # as an earlier version leaves a store
    with other_reader(store) as process:
        assert ask(process) == ["p1"]
        store.own()
        commit(store, 2)

        assert ask(process) == ["p1", "p2"]
        process.stdin.close()


def test_a_reader_does_not_read_the_log_of_a_store_whose_place_another_one_has_taken(store, tmp_path):
    commit(store, 1)
    with other_reader(store) as process:
        assert ask(process) == ["p1"]
        number = store._log._log.place.number
        store.close()
        restored = LmdbStore(tmp_path / "restored", map_size=1 << 24)
        for _ in range(number):
            restored.own()
            commit(restored, 7)
            assert restored._log._log.place.number <= number
            if restored._log._log.place.number < number:
                restored.close()
        assert restored._log._log.place.number == number
        killed(restored)
        shutil.rmtree(store.path)
        (tmp_path / "restored").rename(store.path)

        assert ask(process) == ["p7"]
        process.stdin.close()


def test_a_reader_follows_checkpoints_large_commits_reopenings_and_new_owners(store, monkeypatch):
    with other_reader(store) as process:
        wanted = []
        for number in range(1, 25):
            commit(store, number)
            wanted.append(f"p{number}")
            if number % 2:
                assert sorted(ask(process)) == sorted(wanted)
            if number % 3 == 0:
                store._log.checkpoint()
            if number % 5 == 0:
                store._log.write_through(lambda txn: None)
            if number % 7 == 0:
                store.reopen()
            if number % 11 == 0:
                store.close()
                assert sorted(ask(process)) == sorted(wanted)
                store.own()
        assert sorted(ask(process)) == sorted(wanted)
        process.stdin.close()


BACKUP = """
import sys
from actorproc.store.lmdb.store import LmdbReader
from actorproc.store.lmdb.upkeep import backup
reader = LmdbReader(sys.argv[1])
really = backup.copy_to
def slow(env, file, *, doing):
    really(env, file, doing=doing)
    print("copied", flush=True)
    sys.stdin.readline()
    list(reader.scan())  # as another thread does: it comes to a later place in the log
backup.copy_to = slow
reader.backup(sys.argv[2])
"""


def test_a_backup_by_a_reader_has_no_gap_where_the_log_went_on_meanwhile(store, tmp_path):
    commit(store, 1)
    store._log.checkpoint()
    commit(store, 2)
    command = [sys.executable, "-c", BACKUP, store.path, tmp_path / "backup"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "copied\n"
        store._log.checkpoint()
        commit(store, 3)
        process.communicate("go\n", timeout=60)
    assert process.returncode == 0

    kept = LmdbStore(tmp_path / "backup", map_size=1 << 24)
    kept.own()
    assert ids(kept) == ["p1", "p2"]
    kept.close()


@pytest.mark.parametrize("by", ["owner", "reader"])
def test_a_backup_has_what_was_committed_before_it(store, tmp_path, by):
    commit(store, 1)
    store._log.checkpoint()
    commit(store, 2)
    if by == "owner":
        store.backup(tmp_path / "backup")
    else:
        with other_reader(store) as process:
            assert ask(process, f"reader.backup({os.fspath(tmp_path / 'backup')!r}); ids()") == ["p1", "p2"]
            process.stdin.close()

    assert not list((tmp_path / "backup").glob("log-*"))
    kept = LmdbStore(tmp_path / "backup", map_size=1 << 24)
    kept.own()
    assert ids(kept) == ["p1", "p2"]
    kept.close()


def test_rows_of_a_commit_are_the_same_in_the_log_as_in_the_data_file(store):
    rows = [row for row in rows_of([put(1), put(2)]) if isinstance(row[2], bytes)]
    store.commit([put(1), put(2)], store._epoch, 1)
    with store._view() as folded:
        in_log = {(table, key): folded.get(table, key) for table, key, _ in rows}
    store._log.checkpoint()
    with store._view() as folded:
        assert {(table, key): folded.get(table, key) for table, key, _ in rows} == in_log


@pytest.mark.parametrize("even_damaged", [False, True])
def test_a_store_that_an_earlier_version_left_when_the_power_failed_is_refused_in_words(store, even_damaged):
    commit(store, 1)
    store.close()
    with lmdb.open(os.fspath(store.path), max_dbs=64, lib_version=0) as env, env.begin(write=True) as txn:
        meta = env.open_db(b"meta", txn=txn, create=False)
        epoch = codec.encode(Table.META, EPOCH, 9)
        txn.put(EPOCH, epoch, db=meta)  # an owner that had no log
    (store.path / OWNER_FILE).write_text("boot another\n", encoding="utf-8")

    with pytest.raises(StoreFormat, match="export it with that one and import it"):
        LmdbStore(store.path).own()
    if even_damaged:  # for doctor
        LmdbReader(store.path, even_damaged=True).close()
    else:
        with pytest.raises(StoreFormat, match="export it with that one and import it"):
            LmdbReader(store.path)
    (store.path / OWNER_FILE).unlink()
    store.own()
    assert ids(store) == ["p1"]
