"""Compaction and backup of the store on disk: kills at every point, other processes, full disks, the file's size."""

from __future__ import annotations

import errno
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import actorproc.store.lmdb.store as store_lmdb
from actorproc.errors import NotAllowed, StorageUnavailable
from actorproc.model.ids import new_id
from actorproc.model.rows.writes import DeleteProcedure
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
from actorproc.store.lmdb.upkeep.compaction import FRESH_FILE

ROOT = Path(store_lmdb.__file__).parents[3]
KEPT = 20
REMOVED = 400


def size_of(path):
    return (path / "data.mdb").stat().st_size


def names(folder):
    return sorted(entry.name for entry in folder.iterdir())


def fill(store, make, *, first=1, count=KEPT + REMOVED, state=b"x" * 2000):
    """Commit procedures of one step each, and remove all but the last `KEPT` of them."""
    heads = [make.head(f"p{n}", n, state=ProcedureState.SUCCESS, finished_at=1.0) for n in range(first, first + count)]
    for at in range(0, count, 50):
        writes = []
        for head in heads[at : at + 50]:
            writes += [make.put(head), make.step(head.id, 1, output=state)]
        store.commit(writes, 1)
    for at in range(0, count - KEPT, 50):
        store.commit([DeleteProcedure(head) for head in heads[at : min(at + 50, count - KEPT)]], 1)


@pytest.fixture
def loose(lmdb_path, make):
    """A closed store whose file is mostly free pages."""
    store = LmdbStore(lmdb_path)
    store.own()
    fill(store, make)
    store.close()
    return lmdb_path


def content(store):
    heads = list(store.scan())
    return [(head.id, head.seq, len(store.step(head.id, 1).output)) for head in heads]


WANTED = [(f"p{n}", n, 2000) for n in range(REMOVED + 1, REMOVED + KEPT + 1)]


# ---------------------------------------------------------------------- compaction
def test_a_compacted_file_is_smaller_private_and_has_the_same_content(loose):
    store = LmdbStore(loose)
    epoch = store.own()
    before, name = size_of(loose), store.store_id

    report = store.compact()

    assert (report.before, report.after) == (before, size_of(loose))
    assert report.after < before / 4
    assert report.freed == report.before - report.after
    assert content(store) == WANTED
    assert store.store_id == name
    assert stat.S_IMODE((loose / "data.mdb").stat().st_mode) == 0o600
    assert names(loose) == ["data.mdb", "lock.mdb", "owner.lock"]
    store.close()
    again = LmdbStore(loose)
    assert again.own() == epoch + 1
    assert content(again) == WANTED
    again.close()


def test_compacting_what_has_no_free_space_leaves_the_file_alone(loose):
    store = LmdbStore(loose)
    store.own()
    store.compact()
    inode = (loose / "data.mdb").stat().st_ino

    report = store.compact()

    assert report.freed == 0
    assert (loose / "data.mdb").stat().st_ino == inode
    assert not (loose / FRESH_FILE).exists()
    store.close()


KILL = """
import os, shutil, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import PutProcedure
from actorproc.store.lmdb.store import LmdbReader, LmdbStore

def content(store):
    return [(head.id, head.seq, len(store.step(head.id, 1).output)) for head in store.scan()]

def die_at(path, point, work):
    # No other thread is here, so a fork is a process of its own; it is killed at its `point`-th call into C.
    child = os.fork()
    if child == 0:
        store = LmdbStore(path)
        store.own()
        calls = 0
        def count(_frame, event, _argument):
            nonlocal calls
            calls += event == "c_call"
            if calls == point:
                os.kill(os.getpid(), signal.SIGKILL)
        sys.setprofile(count)
        try:
            work(store)
        finally:
            sys.setprofile(None)
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])

loose, victim = Path(sys.argv[2]), Path(sys.argv[3])
with LmdbReader(loose) as reader:
    wanted = content(reader)
"""

KILLED_COMPACTIONS = """
point, kills, sizes = 1, 0, set()
killed = True
while killed:
    shutil.copytree(loose, victim)
    victim.chmod(0o700)
    killed = die_at(victim, point, lambda store: store.compact())
    with LmdbReader(victim) as reader:
        assert content(reader) == wanted, f"read after a kill at call {point}"
    sizes.add((victim / "data.mdb").stat().st_size)
    store = LmdbStore(victim)
    epoch = store.own()
    assert content(store) == wanted, f"killed at call {point}"
    assert store.load().damage == []
    assert not {"data.mdb.compact", "compacting"} & set(os.listdir(victim)), f"left by a kill at call {point}"
    head = ProcedureRecord(id="later", type_name="t", version=1, root="later", parent=None, seq=10_000)
    store.commit([PutProcedure(head, None)], epoch)
    store.close()
    shutil.rmtree(victim)
    kills += killed
    point += 1 if kills < 10 else 5
print(kills > 20, len(sizes) > 1)
"""

KILLED_BACKUPS = """
killed, point, kills = True, 5, 0
while killed:
    target = victim / f"at-{point}" / "copy"
    killed = die_at(loose, point, lambda store: store.backup(target))
    kills += killed
    if target.exists():
        with LmdbReader(target) as reader:
            assert content(reader) == wanted, f"killed at call {point}"
    assert killed or target.exists()
    point += 10
store = LmdbStore(loose)
store.own()
assert content(store) == wanted
store.close()
print(kills > 5)
"""


def killed(script, loose, victim):
    arguments = [str(ROOT), str(loose), str(victim)]
    ran = subprocess.run(
        [sys.executable, "-c", KILL + script, *arguments], capture_output=True, text=True, timeout=170, check=False
    )
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.split()


def test_a_process_killed_anywhere_in_a_compaction_leaves_a_whole_store(loose, tmp_path):
    assert killed(KILLED_COMPACTIONS, loose, tmp_path / "victim") == ["True", "True"]


READ = """
import sys
sys.path.insert(0, sys.argv[1])
from actorproc.store.lmdb.store import LmdbReader
with LmdbReader(sys.argv[2]) as reader:
    print("reading", flush=True)
    last = 0
    while last < int(sys.argv[3]):
        heads = list(reader.scan())
        numbers = [head.seq for head in heads]
        assert numbers == sorted(set(numbers)), numbers
        assert numbers[-1] >= last, (numbers[-1], last)
        last = numbers[-1]
        for head in heads[:3]:
            step = reader.step(head.id, 1)
            assert step is None or len(step.output) == 2000
    print("seen", last, flush=True)
"""


def test_another_process_that_reads_all_the_time_never_sees_less_and_follows_every_compaction(loose, make):
    rounds = 15
    last = REMOVED + KEPT + rounds * 100
    reading = subprocess.Popen(
        [sys.executable, "-c", READ, str(ROOT), str(loose), str(last)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert reading.stdout.readline() == "reading\n"
    store = LmdbStore(loose)
    store.own()
    epoch = store.load().epoch
    gone = 0
    for number in range(rounds):
        first = REMOVED + KEPT + number * 100 + 1
        heads = [
            make.head(f"p{n}", n, state=ProcedureState.SUCCESS, finished_at=1.0) for n in range(first, first + 100)
        ]
        writes = [write for head in heads for write in (make.put(head), make.step(head.id, 1, output=b"y" * 2000))]
        store.commit(writes, epoch)
        store.commit([DeleteProcedure(head) for head in heads[:80]], epoch)
        gone += store.compact().freed > 0

    out, err = reading.communicate(timeout=60)

    assert reading.returncode == 0, err
    assert out == f"seen {last}\n"
    assert gone > rounds // 2
    store.close()


def test_threads_read_on_while_the_file_changes_under_them(loose, make):
    store = LmdbStore(loose)
    store.own()
    epoch = store.load().epoch
    stop = threading.Event()
    failures: list[BaseException] = []

    def read():
        try:
            while not stop.is_set():
                heads = [head for head in store.scan() if head.id.startswith("p")]
                assert [(head.id, head.seq, len(store.step(head.id, 1).output)) for head in heads] == WANTED
        except BaseException as error:  # noqa: BLE001 - shown by the test
            failures.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(10):
        head = make.head(f"q{n}", 1000 + n, state=ProcedureState.SUCCESS, finished_at=1.0)
        store.commit([make.put(head), make.step(head.id, 1, output=b"z" * 500_000)], epoch)
        store.commit([DeleteProcedure(head)], epoch)
        assert store.compact().freed > 0
    stop.set()
    for reader in readers:
        reader.join()

    assert failures == []
    assert content(store) == WANTED
    store.close()


NO_ROOM = """
import resource
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
from actorproc.errors import StorageUnavailable
store = LmdbStore(loose)
epoch = store.own()
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
for copy in (store.compact, lambda: store.backup(victim / "copy")):
    try:
        copy()
    except StorageUnavailable:
        print("refused")
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
head = ProcedureRecord(id="later", type_name="t", version=1, root="later", parent=None, seq=10_000)
store.commit([PutProcedure(head, None)], epoch)
assert store.procedure("later").seq == 10_000
assert os.listdir(victim) == []
assert "data.mdb.compact" not in os.listdir(loose)
assert store.compact().freed > 0
"""


def test_without_room_for_a_copy_nothing_changes_and_commits_go_on(loose, tmp_path):
    assert killed(NO_ROOM, loose, tmp_path / "copies") == ["refused", "refused"]


def content_ids(store):
    return [head.id for head in store.scan()]


def test_a_compaction_that_fails_when_the_file_is_closed_leaves_the_store_open(loose, make, monkeypatch):
    def refuse(_path):
        raise OSError(errno.ENOSPC, "No space left on device")

    store = LmdbStore(loose)
    epoch = store.own()
    try:
        with monkeypatch.context() as patch:
            patch.setattr(store_lmdb, "put_in_place", refuse)
            with pytest.raises(StorageUnavailable, match="No space left"):
                store.compact()

        assert content(store) == WANTED
        store.commit([make.new("late", 1000)], epoch)
        assert store.procedure("late") is not None
    finally:
        store.close()


def test_space_of_what_was_removed_is_used_again_so_the_file_does_not_grow(lmdb_path, make):
    store = LmdbStore(lmdb_path)
    store.own()
    sizes = []
    for round_ in range(24):
        first = 1 + round_ * 150
        heads = [
            make.head(f"p{n}", n, state=ProcedureState.SUCCESS, finished_at=1.0) for n in range(first, first + 150)
        ]
        for at in range(0, 150, 50):
            part = heads[at : at + 50]
            store.commit([w for head in part for w in (make.put(head), make.step(head.id, 1, output=b"x" * 1500))], 1)
            store.commit([DeleteProcedure(head) for head in part], 1)
        sizes.append(size_of(lmdb_path))
    store.close()

    assert sizes[-1] == sizes[8], sizes


# ---------------------------------------------------------------------- backup
def test_a_backup_is_private_whole_and_leaves_the_store_as_it_is(loose, tmp_path):
    (loose / "signing.key").write_bytes(b"k" * 32)
    store = LmdbStore(loose)
    store.own()
    before = names(loose)

    report = store.backup(tmp_path / "deep" / "copy")

    copy = tmp_path / "deep" / "copy"
    assert report.path == str(copy)
    assert report.size == size_of(copy) < size_of(loose)
    assert stat.S_IMODE(copy.stat().st_mode) == 0o700
    assert {name: stat.S_IMODE((copy / name).stat().st_mode) for name in names(copy)} == {
        "data.mdb": 0o600,
        "signing.key": 0o600,
    }
    assert names(tmp_path / "deep") == ["copy"]
    assert names(loose) == before
    assert (copy / "signing.key").read_bytes() == b"k" * 32
    with LmdbReader(copy) as reader:
        assert content(reader) == WANTED
        assert reader.copied_from == store.store_id != reader.store_id
    assert store.copied_from is None
    store.close()


@pytest.mark.parametrize("kind", ["file", "directory", "link"])
def test_a_backup_never_overwrites(loose, tmp_path, kind):
    there = tmp_path / "there"
    if kind == "file":
        there.write_text("mine")
    elif kind == "directory":
        there.mkdir()
    else:
        there.symlink_to(tmp_path / "nowhere")
    store = LmdbStore(loose)
    store.own()

    with pytest.raises(NotAllowed, match="already"):
        store.backup(there)

    assert names(tmp_path) == ["store", "there"]
    store.close()


@pytest.mark.parametrize("place", ["file/copy", "file/below/copy"])
def test_a_backup_below_a_file_is_refused_with_what_is_in_the_way(loose, tmp_path, place):
    (tmp_path / "file").touch()
    store = LmdbStore(loose)
    store.own()
    with pytest.raises(NotAllowed, match="is no directory"):
        store.backup(tmp_path / place)
    store.close()


def test_a_backup_is_made_while_another_thread_commits_and_is_one_moment(loose, tmp_path, make):
    store = LmdbStore(loose)
    store.own()
    epoch = store.load().epoch
    done = threading.Event()
    copies = []
    commits = 0

    def copy_often():
        while len(copies) < 8 or commits < 16:
            copies.append(store.backup(tmp_path / f"copy{len(copies)}"))
        done.set()

    copying = threading.Thread(target=copy_often)
    copying.start()
    while not done.is_set():
        store.commit(
            [make.new(f"one{commits}", 10_000 + 2 * commits), make.new(f"two{commits}", 10_001 + 2 * commits)], epoch
        )
        commits += 1
    copying.join()

    for made in copies:
        with LmdbReader(made.path) as reader:
            ids = [name for name in content_ids(reader) if name.startswith(("one", "two"))]
            assert len(ids) % 2 == 0
            assert reader.load().damage == []
    assert len({made.store_id for made in copies}) == len(copies)
    store.close()


def test_a_backup_of_a_backup_names_the_one_it_was_made_of(loose, tmp_path):
    store = LmdbStore(loose)
    store.own()
    first = store.backup(tmp_path / "first")
    store.close()
    copy = LmdbStore(tmp_path / "first")
    copy.own()

    second = copy.backup(tmp_path / "second")

    assert second.copied_from == first.store_id
    copy.close()


def test_a_reader_can_make_a_backup_of_a_store_that_is_at_work(loose, tmp_path):
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from actorproc.store.lmdb.store import LmdbReader\n"
        "with LmdbReader(sys.argv[2]) as reader: print(reader.backup(sys.argv[3]).store_id)"
    )
    store = LmdbStore(loose)
    store.own()

    out = subprocess.run(
        [sys.executable, "-c", script, str(ROOT), str(loose), str(tmp_path / "copy")],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout

    with LmdbReader(tmp_path / "copy") as reader:
        assert reader.store_id == out.strip()
        assert content(reader) == WANTED
    store.close()


def test_what_a_killed_backup_left_goes_with_the_next_one_to_the_same_place(loose, tmp_path):
    backups = tmp_path / "backups"
    script = """
import os, sys
from actorproc.store.lmdb.upkeep import backup
from actorproc.store.lmdb.store import LmdbReader
def stop(*_):
    print("half", flush=True)
    sys.stdin.read()
backup._copy_key = stop
with LmdbReader(sys.argv[1]) as reader: reader.backup(sys.argv[2])
"""

    def begin():
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(loose), str(backups / "copy")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert process.stdout.readline() == b"half\n"
        return process

    kept = [".copy.notes", f".other.{new_id()}", f".copy.{new_id()}"]
    for name in kept:
        (backups / name).mkdir(parents=True)
        (backups / name / "mine").write_text("kept")
    with begin() as killed_one:
        killed_one.kill()
    [left] = set(names(backups)) - set(kept)
    assert (backups / left / "data.mdb").exists()
    with begin() as at_work:
        [busy] = set(names(backups)) - set(kept)  # the one before went, and the next two are told apart
        assert busy != left
        with LmdbReader(loose) as reader:
            wanted = content(reader)
            reader.backup(backups / "copy")
        assert set(names(backups)) == {*kept, "copy", busy}
        assert (backups / busy / "data.mdb").exists()
        at_work.kill()

    with LmdbReader(backups / "copy") as copy:
        assert content(copy) == wanted
    assert all((backups / name / "mine").read_text() == "kept" for name in kept)


def test_a_process_killed_in_a_backup_leaves_no_directory_that_looks_like_one(loose, tmp_path):
    assert killed(KILLED_BACKUPS, loose, tmp_path / "copies") == ["True"]
