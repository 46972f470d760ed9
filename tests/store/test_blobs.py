"""Long values stand in files beside the data file, and live exactly as long as the rows that name them."""

from __future__ import annotations

import errno
import gc
import os
import shutil
import stat
import subprocess
import sys
import threading
import zlib
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from actorproc import Procedure, ProcedureManager, Status
from actorproc.cli.main import main
from actorproc.errors import EngineError, NotAllowed, StorageUnavailable, StoreDamaged
from actorproc.model.ids import new_id
from actorproc.model.rows.records import StepKind, StepRecord
from actorproc.model.rows.writes import DeleteProcedure, PutProcedure, PutStep, TrimLog
from actorproc.store.lmdb.files import blobs
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
from actorproc.store.rows.tables import Table
from actorproc.store.tools.isolated_check import examine
from actorproc.store.tools.salvage import SalvageReader
from actorproc.store.tools.transfer import bring_in, take_out
from actorproc.support.staged_files import LONG as REALLY_LONG, taken, write_staged
from tests.kit.stores import opened

LONG = 5000


@dataclass
class Gives(Procedure):
    content: bytes

    def execute(self, ctx):
        return Status.done(self.content)


@pytest.fixture(autouse=True)
def short_is_long(monkeypatch):
    monkeypatch.setattr(blobs, "LONG", LONG)


@pytest.fixture
def owned(lmdb_path):
    store = opened(lmdb_path)
    yield store
    store.close()


def record(procedure="a", number=1, state=b"s" * LONG, **fields):
    return StepRecord(procedure=procedure, number=number, kind=StepKind.STEP, at=1.5, state=state, **fields)


def names(path):
    return sorted(file.name for file in (path / "blobs").iterdir()) if (path / "blobs").exists() else []


def put(store, make, *records):
    heads = {}
    for each in records:
        heads[each.procedure] = max(heads.get(each.procedure, 0), each.number)
    seqs = {name: number for number, name in enumerate(sorted(heads), 1)}
    writes = [make.new(name, seqs[name], records=count) for name, count in heads.items()]
    store.commit([*writes, *(PutStep(each) for each in records)], 1)
    return {name: store.procedure(name) for name in heads}


@pytest.mark.parametrize(
    ("fields", "files"),
    [
        ({"state": b"s" * (LONG - 1)}, 0),
        ({"state": b"s" * LONG}, 1),
        ({"state": b"", "output": b"o" * LONG}, 1),
        ({"state": b"s" * LONG, "output": b"o" * (LONG + 1)}, 1),
        ({"state": memoryview(b"s" * LONG)}, 1),
        ({"state": bytearray(b"s" * LONG), "codec": "pickle"}, 1),
    ],
    ids=["short", "state", "output", "both", "view", "bytearray"],
)
def test_a_record_comes_back_as_it_was(owned, make, fields, files):
    stored = record(**fields)
    put(owned, make, stored)

    assert len(names(owned.path)) == files
    found = owned.step("a", 1)
    assert (bytes(found.state), bytes(found.output)) == (bytes(stored.state), bytes(stored.output))
    assert owned.steps("a") == [found]
    with LmdbReader(owned.path) as reader:
        assert reader.step("a", 1) == found
    assert (owned.place_of("a", 1) is not None) == bool(files)
    owned.close()
    assert owned.own() == 2
    assert owned.step("a", 1) == found
    assert len(names(owned.path)) == files


def test_files_are_private_and_counted(owned, make):
    put(owned, make, record())
    before = (owned.path / "data.mdb").stat().st_size
    (name,) = names(owned.path)

    assert stat.S_IMODE((owned.path / "blobs").stat().st_mode) == 0o700
    assert stat.S_IMODE((owned.path / "blobs" / name).stat().st_mode) == 0o600
    assert owned.size().file > before + LONG - 1
    assert owned.size().used >= LONG


def test_a_directory_that_others_can_write_to_is_refused(owned, make):
    put(owned, make, record())
    owned.close()
    (owned.path / "blobs").chmod(0o777)
    with pytest.raises(EngineError, match="blobs has mode 0777"):
        owned.own()
    (owned.path / "blobs").rename(owned.path / "moved")
    (owned.path / "blobs").symlink_to(owned.path / "moved")
    with pytest.raises(EngineError, match="symbolic link"):
        owned.own()


@pytest.mark.parametrize("way", ["overwritten", "shortened", "trimmed", "deleted", "deleted and made again"])
def test_a_file_goes_with_its_row(owned, make, way):
    heads = put(owned, make, record(number=1), record(number=2), record("b"))
    kept = owned.place_of("b", 1)
    fresh = record(state=b"n" * LONG)
    writes = {
        "overwritten": [PutStep(fresh)],
        "shortened": [PutStep(record(state=b""))],
        "trimmed": [TrimLog("a", 1, 2, 3)],
        "deleted": [DeleteProcedure(heads["a"])],
        "deleted and made again": [DeleteProcedure(heads["a"]), PutProcedure(heads["a"], None), PutStep(fresh)],
    }[way]
    before = {owned.place_of("a", 1), owned.place_of("a", 2)}
    owned.commit(writes, 1)

    left = {"overwritten": 3, "shortened": 2, "trimmed": 1, "deleted": 1, "deleted and made again": 2}[way]
    assert len(names(owned.path)) == left
    assert Path(kept).exists()
    assert owned.step("b", 1) == record("b")
    assert len([path for path in before if Path(path).exists()]) == (1 if way in ("overwritten", "shortened") else 0)
    if fresh in [write.record for write in writes if isinstance(write, PutStep)]:
        assert owned.step("a", 1) == fresh


def test_files_that_no_row_names_go_at_the_next_start(owned, make):
    put(owned, make, record())
    folder = owned.path / "blobs"
    (name,) = names(owned.path)
    owned.close()
    content = (folder / name).read_bytes()
    (folder / "0123456789abcdef").write_bytes(content)  # a commit that failed
    (folder / "0123456789abcde0").write_bytes(content[:-3])  # a write that was cut short
    (folder / "0123456789abcde1").write_bytes(b"")
    (folder / "notes.txt").write_text("of another")
    owned.own()

    assert names(owned.path) == sorted([name, "notes.txt"])
    assert owned.step("a", 1) == record()


def test_a_named_file_that_lost_its_end_stays(owned, make):
    put(owned, make, record())
    owned.close()
    (name,) = names(owned.path)
    os.truncate(owned.path / "blobs" / name, 100)
    owned.own()

    assert names(owned.path) == [name]
    with pytest.raises(StoreDamaged, match=name):
        owned.step("a", 1)


@pytest.mark.parametrize("place", range(1, 24))
def test_a_named_file_stays_whatever_its_end_says(owned, make, place):
    """A bit that changes in the key, its length, its checksum or the mark."""
    put(owned, make, record("a"), record("b"))
    file = Path(owned.place_of("a", 1))
    owned.close()
    content = bytearray(file.read_bytes())
    content[-place] ^= 0x40
    file.write_bytes(content)
    owned.own()

    assert file.exists()
    assert owned.step("a", 1) == record("a")
    assert owned.place_of("a", 1) == os.fspath(file)


def test_the_file_of_a_damaged_row_stays(owned, make):
    put(owned, make, record("a"), record("b"))
    file = Path(owned.place_of("a", 1))
    key = (1).to_bytes(8) + b"a"
    with owned._view() as rows:
        value = bytearray(rows.get(Table.STEPS, key))
    value[6] ^= 1  # in the name of the file
    owned._log.checkpoint()
    owned._transact(lambda txn: txn.put(key, bytes(value), db=owned._databases[Table.STEPS]))
    owned.close()
    owned.own()

    assert file.exists()
    with pytest.raises(StoreDamaged, match="checksum"):
        owned.step("a", 1)
    assert owned.step("b", 1) == record("b")


def remove(file):
    file.unlink()


def shorten(file):
    os.truncate(file, LONG - 1)


def alter(file):
    content = bytearray(file.read_bytes())
    content[LONG // 2] ^= 1
    file.write_bytes(content)


def link(file):
    file.rename(file.with_suffix(".moved"))
    file.symlink_to(file.with_suffix(".moved"))


def replace_by_directory(file):
    file.unlink()
    file.mkdir()


def empty(file):
    file.write_bytes(b"")


HARM = [remove, shorten, alter, link, replace_by_directory, empty]


@pytest.mark.parametrize("harm", HARM)
def test_a_damaged_file_is_named_and_never_read_as_something_else(owned, make, harm, tmp_path):
    put(owned, make, record("a"), record("b"))
    file = owned.path / "blobs" / Path(owned.place_of("a", 1)).name
    harm(file)

    with pytest.raises(StoreDamaged, match=f"steps a/1: the file blobs/{file.name}, which holds its state"):
        owned.step("a", 1)
    with pytest.raises(StoreDamaged):
        owned.steps("a")
    assert owned.step("b", 1) == record("b")
    owned.close()
    found = [row for row in examine(owned.path) if row["what"] == "damaged"]
    assert [(row["table"], row["key"], row["procedure"]) for row in found] == [("steps", "a/1", "a")]
    assert file.name in found[0]["reason"]
    with SalvageReader(owned.path) as saved:
        assert saved.step("b", 1) == record("b")
        with pytest.raises(StoreDamaged, match=file.name):
            saved.step("a", 1)
    with LmdbReader(owned.path) as reader:  # what is good is copied
        reader.backup(tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    assert copy.step("b", 1) == record("b")
    with pytest.raises(StoreDamaged, match=file.name):
        copy.step("a", 1)
    copy.close()


def test_doctor_does_not_tell_of_what_goes_while_it_looks(owned, make, monkeypatch):
    monkeypatch.setattr(LmdbReader, "facts", lambda _store: {})  # which has a look at the reader's own environment
    heads = put(owned, make, record("a"), record("b"))
    found = []
    for row in examine(owned.path):
        if row["what"] == "table" and row["table"] == "steps":
            owned.commit([DeleteProcedure(heads["a"])], 1)
        found.append(row)

    assert not [row for row in found if row["what"] == "damaged"]


def cannot_link(monkeypatch, real=os.link):
    """As where the backup is on another file system."""

    def link(source, target, **options):
        if "blobs" in os.fspath(source):
            raise OSError(errno.EXDEV, "another file system")
        real(source, target, **options)

    monkeypatch.setattr(os, "link", link)


@pytest.mark.parametrize("who", ["owner", "reader"])
@pytest.mark.parametrize("can_link", [True, False])
def test_a_backup_has_files_of_its_own(owned, make, tmp_path, monkeypatch, who, can_link):
    if not can_link:
        cannot_link(monkeypatch)
    heads = put(owned, make, record("a"), record("b"))
    source = owned if who == "owner" else LmdbReader(owned.path)
    report = source.backup(tmp_path / "copy")
    owned.commit([DeleteProcedure(heads["a"])], 1)
    for file in (owned.path / "blobs").iterdir():
        alter(file)

    assert report.size > 2 * LONG
    copy = opened(tmp_path / "copy")
    assert (copy.step("a", 1), copy.step("b", 1)) == (record("a"), record("b"))
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in (tmp_path / "copy" / "blobs").iterdir())
    copy.close()


def test_what_a_killed_backup_left_goes_with_its_files(owned, make, tmp_path):
    put(owned, make, record("a"))
    left = tmp_path / f".copy.{new_id()}"
    (left / "blobs").mkdir(parents=True)
    (left / "data.mdb").touch()
    os.link(owned.place_of("a", 1), left / "blobs" / "0123456789abcdef")
    (left / "blobs" / "0123456789abcdef.new").touch()
    owned.backup(tmp_path / "copy")

    assert not left.exists()
    assert owned.step("a", 1) == record("a")


def test_what_is_removed_while_a_backup_is_made_stays_until_it_is_there(owned, make, tmp_path, monkeypatch):
    from actorproc.store.lmdb.upkeep import backup

    heads = put(owned, make, record("a"), record("b"))

    def copy_and_remove(env, file, *, doing, real=backup.copy_to):
        real(env, file, doing=doing)
        owned.commit([DeleteProcedure(heads["a"])], 1)

    monkeypatch.setattr(backup, "copy_to", copy_and_remove)
    cannot_link(monkeypatch)
    owned.backup(tmp_path / "copy")
    copy = opened(tmp_path / "copy")
    assert copy.step("a", 1) == record("a")
    copy.close()
    assert len(names(owned.path)) == 2
    owned.commit([PutStep(record("b", 2))], 1)
    assert len(names(owned.path)) == 2  # of b; what waited is gone


def test_a_reader_that_cannot_hold_what_goes_says_so(owned, make, tmp_path, monkeypatch):
    from actorproc.store.lmdb import reader as lmdb_reader
    from actorproc.store.lmdb.upkeep import backup

    heads = put(owned, make, record("a"))
    reader = LmdbReader(owned.path)
    monkeypatch.setattr(owned, "_copying", threading.Lock())

    def copy_and_remove(env, file, *, doing, real=backup.copy_to):
        real(env, file, doing=doing)
        monkeypatch.setattr(owned, "_copying", threading.Lock())  # as in another process
        owned.commit([DeleteProcedure(heads["a"])], 1)

    monkeypatch.setattr(backup, "copy_to", copy_and_remove)
    cannot_link(monkeypatch)
    with pytest.raises(NotAllowed, match="try again"):
        reader.backup(tmp_path / "copy")
    assert not (tmp_path / "copy").exists()
    assert lmdb_reader.here.owner_of(owned.path) is owned


def test_an_export_has_them_and_an_import_makes_them(owned, make, tmp_path):
    put(owned, make, record())
    tree = take_out(owned, "a")
    other = opened(tmp_path / "other")
    assert bring_in(other, [tree], lambda writes: other.commit(writes, 1)) == ["a"]

    assert other.step("a", 1) == record()
    assert len(names(other.path)) == 1
    other.close()


def test_a_compaction_leaves_them(owned, make):
    put(owned, make, record())
    owned.compact()
    assert owned.step("a", 1) == record()
    assert len(names(owned.path)) == 1


@pytest.mark.parametrize("place", ["open", "write", "fsync", "names"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_disk_that_refuses_leaves_nothing(owned, make, monkeypatch, place, code):
    put(owned, make, record("a"))

    def refuse(*_, **__):
        raise OSError(code, os.strerror(code))

    where, name = {
        "open": (blobs, "new_private"),
        "write": (blobs, "_write_all"),
        "fsync": (os, "fsync"),
        "names": (blobs, "sync_names"),
    }[place]
    with monkeypatch.context() as patch:
        patch.setattr(where, name, refuse)
        with pytest.raises(StorageUnavailable, match=os.strerror(code)):
            owned.commit([make.new("b", 2), PutStep(record("b")), PutStep(record("b", 2))], 1)
    assert len(names(owned.path)) == 1
    owned.reopen()
    assert owned.procedure("b") is None
    assert owned.step("a", 1) == record("a")
    owned.commit([make.new("b", 2), PutStep(record("b"))], 1)
    assert owned.step("b", 1) == record("b")


def test_nothing_is_written_into_another_store_that_took_the_place(owned, make, tmp_path):
    put(owned, make, record("a"))
    owned.path.rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", owned.path)
    before = names(owned.path)

    with pytest.raises(StorageUnavailable, match="moved or removed"):
        owned.commit([make.new("b", 2), PutStep(record("b"))], 1)
    assert names(owned.path) == before


def test_files_and_their_names_are_on_the_disk_before_the_commit(owned, make, monkeypatch):
    put(owned, make, record("a"))
    done = []

    def noting(where, name, word):
        real = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *args, **named: done.append(word(*args)) or real(*args, **named))

    noting(blobs, "_write_all", lambda _fd, content: f"write {len(content)}")
    noting(os, "fsync", lambda fd: "sync names" if stat.S_ISDIR(os.fstat(fd).st_mode) else "sync")
    noting(owned._log, "append", lambda *_: "commit")
    noting(Path, "unlink", lambda *_: "remove")
    owned.commit([PutStep(record("a", state=b"n" * LONG))], 1)

    assert done == [f"write {LONG}", "write 23", "sync", "sync names", "commit", "remove"]


def test_a_failed_commit_removes_nothing_whatever_comes_next(owned, make, monkeypatch):
    put(owned, make, record("a"))
    with monkeypatch.context() as patch:

        def refuse(*_, **__):
            raise StorageUnavailable("the disk is gone")

        patch.setattr(owned._log, "append", refuse)
        with pytest.raises(StorageUnavailable):
            owned.commit([PutStep(record("a", state=b""))], 1)
    owned.commit([make.new("b", 2), PutStep(record("b"))], 1)
    assert owned.step("a", 1) == record("a")
    owned.close()
    owned.own()
    assert owned.step("a", 1) == record("a")
    assert len(names(owned.path)) == 2


def test_what_workers_staged_goes_at_a_start_and_not_while_the_store_is_opened_again(owned, make):
    put(owned, make, record("a"))
    staged = [owned.path / "blobs" / name for name in ("12-3.new", "0123456789abcdef.taken")]
    for file in staged:
        file.write_bytes(b"x")
    owned.reopen()
    assert all(file.exists() for file in staged)
    owned.close()
    owned.own()
    assert not any(file.exists() for file in staged)


def test_a_file_that_a_worker_staged_is_given_a_name_and_not_written_again(owned, make, monkeypatch):
    put(owned, make, record("a"))
    room = os.fspath(owned.path / "blobs")
    content = os.urandom(LONG)
    name = write_staged(room, content)
    inode = (owned.path / "blobs" / name).stat().st_ino
    view = taken(room, name, LONG)
    lost = taken(room, write_staged(room, content), LONG)
    Path(lost.obj.path).unlink()  # its mapping has it still
    put_one = record("a", 2, state=view)
    owned.commit([PutStep(put_one), PutStep(record("a", 3, state=lost))], 1)
    del view, put_one
    gc.collect()

    assert Path(owned.place_of("a", 2)).stat().st_ino == inode
    assert owned.step("a", 2).state == owned.step("a", 3).state == content
    assert len(names(owned.path)) == 3


def test_a_row_with_a_file_looks_as_it_is_written_down(owned, make):
    """The form in `docs/reference/store-format.md`, byte by byte."""
    stored = record("a", 1, state=b"s" * LONG)
    put(owned, make, stored)
    (name,) = names(owned.path)
    with owned._view() as rows:
        value = bytes(rows.get(Table.STEPS, (1).to_bytes(8) + b"a"))
    short = msgspec.structs.replace(stored, state=b"")
    rest = bytes.fromhex(name) + LONG.to_bytes(8) + zlib.crc32(b"s" * LONG).to_bytes(4) + b"\0"
    rest += msgspec.msgpack.encode(short)
    key = (1).to_bytes(8) + b"a"
    assert value == b"\3" + zlib.crc32(b"\3steps\0" + key + rest).to_bytes(4) + rest
    assert (owned.path / "blobs" / name).read_bytes() == b"s" * LONG + key + len(key).to_bytes(2) + zlib.crc32(
        key
    ).to_bytes(4) + b"ap-blob1"


def test_a_stopped_store_is_rid_of_them_by_a_command(lmdb_path, monkeypatch):
    with ProcedureManager(lmdb_path, workers=1, procedures=[Gives]) as manager:
        assert manager.run(Gives(b"x" * REALLY_LONG), "gone") == b"x" * REALLY_LONG
    assert len(names(lmdb_path)) >= 1
    assert main(["--path", os.fspath(lmdb_path), "delete", "gone", "--yes"]) == 0
    assert names(lmdb_path) == []


CRASH = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.states import ProcedureState
from actorproc.model.rows.writes import PutProcedure, PutStep
from actorproc.store.lmdb.files import blobs
from actorproc.store.lmdb.store import LmdbStore

point, place = sys.argv[1], sys.argv[2]
blobs.LONG = 5000
store = LmdbStore(place)
epoch = store.own()
head = ProcedureRecord(id="a", seq=1, root="a", parent=None, state=ProcedureState.RUNNABLE, type_name="t", version=1, digest=b"d")
old = StepRecord(procedure="a", number=1, kind=StepKind.STEP, at=1.5, state=b"o" * 5000)
new = StepRecord(procedure="a", number=1, kind=StepKind.STEP, at=1.5, state=b"n" * 5000)
store.commit([PutProcedure(head, None), PutStep(old)], epoch, 1)

def dying(function, after):
    def call(*args, **named):
        if after:
            function(*args, **named)
        os.kill(os.getpid(), signal.SIGKILL)
    return call

when, _, what = point.partition(" ")
owner, name = {"open": (blobs, "new_private"), "write": (blobs, "_write_all"), "fsync": (os, "fsync"),
    "names": (blobs, "sync_names"), "commit": (store._log, "append"), "unlink": (Path, "unlink")}[what]
setattr(owner, name, dying(getattr(owner, name), when == "after"))
store.commit([PutStep(new)], epoch, 2)
"""


@pytest.mark.parametrize(
    ("point", "state"),
    [
        *((f"{when} {what}", b"o") for what in ("open", "write", "fsync", "names") for when in ("before", "after")),
        ("before commit", b"o"),
        ("after commit", b"n"),
        ("before unlink", b"n"),
        ("after unlink", b"n"),
    ],
)
def test_a_kill_at_any_point_leaves_the_old_or_the_new(lmdb_path, point, state):
    root = os.fspath(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", CRASH, point, os.fspath(lmdb_path), root], capture_output=True, text=True, check=False
    )
    assert done.returncode == -9, done.stderr

    with LmdbReader(lmdb_path) as reader:
        assert reader.step("a", 1).state == state * LONG
    store = LmdbStore(lmdb_path)
    store.own()
    assert store.step("a", 1).state == state * LONG
    assert len(names(lmdb_path)) == 1
    store.close()
