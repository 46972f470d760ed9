"""The store on disk: files, permissions, other processes, full maps, full disks, kills and forks."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import lmdb
import pytest

import actorproc.store.lmdb.store as store_lmdb
from actorproc.errors import EngineError, StorageUnavailable, StoreDamaged, StoreFormat, StoreInUse
from actorproc.store import directory
from actorproc.store.lmdb import open_store
from actorproc.store.lmdb.files import meta_pages
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.rows import codec
from actorproc.store.rows.layout import FORMAT, FORMAT_KEY
from actorproc.store.rows.tables import Table
from tests.kit.stores import opened

ROOT = Path(store_lmdb.__file__).parents[2]
IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
from actorproc.errors import *
from actorproc.model.rows.records import ProcedureRecord, StepRecord, StepKind
from actorproc.model.rows.writes import PutProcedure, PutStep
from actorproc.store.lmdb.store import LmdbStore
def pair(n, size=10):
    head = ProcedureRecord(id=f"p{n}", type_name="t", version=1, root=f"p{n}", parent=None, seq=n)
    return [PutProcedure(head, None), PutStep(StepRecord(procedure=f"p{n}", number=1, kind=StepKind.STEP, at=1.0, state=b"s" * size))]
path = sys.argv[2]
"""


def start(script, path, **options):
    """A real other process, with `path` given."""
    return subprocess.Popen(
        [sys.executable, "-c", IMPORTS + textwrap.dedent(script), str(ROOT), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def run(script, path, **options):
    process = start(script, path, **options)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    return out.strip()


@pytest.fixture
def filled(lmdb_path, make):
    """A closed store with one procedure."""
    store = opened(lmdb_path)
    store.commit([make.new("a", 1), make.step("a", 1)], 1)
    store.close()
    return lmdb_path


# Files and permissions


@pytest.mark.parametrize("umask", [0o000, 0o022, 0o077, 0o777])
def test_directory_and_files_are_private_whatever_the_umask(tmp_path, umask):
    path = tmp_path / "store"
    before = os.umask(umask)
    try:
        store = opened(path)
    finally:
        os.umask(before)

    assert stat.S_IMODE(path.stat().st_mode) == 0o700
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.iterdir()}
    assert set(modes) == {"data.mdb", "lock.mdb", "owner.lock", "log-1-0", "log-1-1"}
    assert set(modes.values()) == {0o600}, modes
    store.close()


def test_the_table_of_readers_has_all_its_pages_before_it_is_mapped(lmdb_path):
    opened(lmdb_path).close()

    found = (lmdb_path / "lock.mdb").stat()
    assert found.st_blocks * 512 >= found.st_size  # a page that is missing is a SIGBUS on a full disk


def test_a_disk_without_room_for_the_table_of_readers_is_an_error_and_no_signal(lmdb_path):
    lmdb_path.mkdir(mode=0o700)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(StorageUnavailable, match=r"making .*lock\.mdb"):
            opened(lmdb_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert {file.name for file in lmdb_path.iterdir()} <= {"owner.lock"}
    opened(lmdb_path).close()


@pytest.mark.parametrize("mode", [0o720, 0o702, 0o777])
def test_a_directory_others_can_write_to_is_refused_with_the_chmod_to_do(lmdb_path, mode):
    lmdb_path.mkdir()
    lmdb_path.chmod(mode)

    with pytest.raises(EngineError, match=f"chmod go-w {lmdb_path}"):
        LmdbStore(lmdb_path).own()

    assert list(lmdb_path.iterdir()) == []


@pytest.mark.parametrize("name", ["data.mdb", "lock.mdb", "owner.lock"])
def test_a_file_others_can_write_to_is_refused(filled, name):
    (filled / name).chmod(0o666)

    with pytest.raises(EngineError, match=f"chmod go-w .*{name}"):
        LmdbStore(filled).own()
    with pytest.raises(EngineError, match=f"chmod go-w .*{name}"):
        LmdbStore.reader(filled)


@pytest.mark.parametrize("name", ["", "data.mdb", "lock.mdb", "owner.lock"])
def test_a_symbolic_link_is_refused(filled, tmp_path, name):
    real = tmp_path / "real"
    (filled / name).rename(real)
    (filled / name).symlink_to(real)

    with pytest.raises(EngineError, match="symbolic link"):
        LmdbStore(filled).own()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("name", ["", "data.mdb"])
def test_a_directory_or_file_of_another_user_is_refused_with_the_chown_to_do(filled, name):
    os.chown(filled / name, 12345, 12345)

    with pytest.raises(EngineError, match=r"belongs to user 12345.*chown"):
        LmdbStore(filled).own()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_place_where_we_may_not_write_is_named(tmp_path):
    for parent in (tmp_path, *tmp_path.parents[:2]):
        parent.chmod(0o755)
    script = """
    import os
    os.setuid(12345)
    try: LmdbStore(path).own()
    except EngineError as error: print(error)
    """

    said = run(script, tmp_path / "store")

    assert str(tmp_path / "store") in said
    assert "Permission denied" in said


def test_a_path_that_is_a_file_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_text("x")

    with pytest.raises(EngineError, match="no directory"):
        LmdbStore(file).own()


def test_a_remote_file_system_is_refused_unless_forced(lmdb_path, monkeypatch, tmp_path):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - ext4 /dev/sda rw\n2 1 0:2 / {tmp_path} rw shared:1 - nfs4 host:/x rw\n")
    monkeypatch.setattr(directory, "_MOUNTS", mounts)
    monkeypatch.delenv("ACTORPROC_ALLOW_ANY_FILESYSTEM", raising=False)  # fixtures of a whole module may set it

    with pytest.raises(EngineError, match="nfs4"):
        LmdbStore(lmdb_path).own()

    opened(lmdb_path, allow_any_filesystem=True).close()


@pytest.mark.parametrize("kind", ["overlay", "ext4", "tmpfs", "zfs"])
def test_local_and_overlay_file_systems_are_fine(lmdb_path, monkeypatch, tmp_path, kind):
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"1 0 0:1 / / rw - {kind} none rw\n")
    monkeypatch.setattr(directory, "_MOUNTS", mounts)

    opened(lmdb_path).close()


# What is no store of ours


@pytest.mark.parametrize(("other", "advice"), [(FORMAT + 2, "or a later one"), (FORMAT - 1, "it can export it")])
def test_another_format_is_refused_and_left_as_it_is(filled, other, advice):
    env = lmdb.open(str(filled), max_dbs=32, lib_version=0)
    with env.begin(write=True) as txn:
        txn.put(FORMAT_KEY, codec.encode(Table.META, FORMAT_KEY, other), db=env.open_db(b"meta", txn=txn))
    env.close()
    before = (filled / "data.mdb").read_bytes()

    with pytest.raises(StoreFormat, match=f"format {other} .*{advice}"):
        LmdbStore(filled).own()
    with pytest.raises(StoreFormat, match=f"format {other} "):
        LmdbStore.reader(filled)

    assert (filled / "data.mdb").read_bytes() == before


@pytest.mark.parametrize("named", [None, b"meta"])
def test_an_lmdb_file_of_another_program_is_refused(lmdb_path, named):
    lmdb_path.mkdir(mode=0o700)
    env = lmdb.open(str(lmdb_path), max_dbs=2, mode=0o700, lib_version=0)
    with env.begin(write=True) as txn:
        txn.put(b"meta", b"theirs", db=env.open_db(named, txn=txn))
    env.close()

    with pytest.raises(StoreFormat, match="no actorproc store"):
        LmdbStore(lmdb_path).own()


@pytest.mark.parametrize("content", [b"x", b"hello world" * 1000, b"SQLite format 3\0" + bytes(4096)])
def test_a_file_that_is_no_lmdb_file_is_refused(lmdb_path, content):
    lmdb_path.mkdir(mode=0o700)
    (lmdb_path / "data.mdb").write_bytes(content)
    (lmdb_path / "data.mdb").chmod(0o600)

    with pytest.raises(StoreFormat):
        LmdbStore(lmdb_path).own()

    assert (lmdb_path / "data.mdb").read_bytes() == content


def test_a_file_of_the_other_lmdb_engine_is_refused(lmdb_path):
    lmdb_path.mkdir(mode=0o700)
    lmdb.open(str(lmdb_path), mode=0o700, lib_version=1).close()

    with pytest.raises(StoreFormat):
        LmdbStore(lmdb_path).own()


def test_an_empty_data_file_is_a_first_start_that_was_killed(lmdb_path):
    lmdb_path.mkdir(mode=0o700)
    (lmdb_path / "data.mdb").touch(0o600)

    opened(lmdb_path).close()


@pytest.mark.parametrize("keep", [0.3, 0.6, 0.95])
def test_a_truncated_file_is_damage_and_no_bus_error(lmdb_path, make, keep):
    store = opened(lmdb_path)
    for n in range(1, 200):
        store.commit([make.new(f"p{n}", n), make.step(f"p{n}", 1)], 1)
    used = store.size().used  # behind that there may be free pages only
    store.close()
    os.truncate(lmdb_path / "data.mdb", int(used * keep))

    with pytest.raises(StoreDamaged, match="cut short"):
        LmdbStore(lmdb_path).own()
    with pytest.raises(StoreDamaged, match="cut short"):
        LmdbStore.reader(lmdb_path)


def test_a_file_that_grows_while_it_is_looked_at_does_not_look_cut_short(lmdb_path, make, monkeypatch):
    store = opened(lmdb_path)

    def commit_meanwhile(path, first, page_size=meta_pages._page_size):
        for n in (1, 2):
            store.commit([make.new(f"p{n}", n), make.step(f"p{n}", 1, output=b"o" * 1_000_000)], 1)
        return page_size(path, first)

    monkeypatch.setattr(meta_pages, "_page_size", commit_meanwhile)
    found = meta_pages.read_meta_pages(lmdb_path)
    assert found.size >= (max(found.last_pages) + 1) * found.page_size
    store.close()


def test_a_reader_of_a_missing_store_says_so(tmp_path):
    with pytest.raises(EngineError, match="there is no store"):
        LmdbStore.reader(tmp_path / "nothing")
    (tmp_path / "empty").mkdir(mode=0o700)
    with pytest.raises(EngineError, match="there is no store"):
        LmdbStore.reader(tmp_path / "empty")


def test_a_reader_of_a_store_whose_first_owner_was_killed_while_making_it_says_that_there_is_none_yet(lmdb_path):
    script = """
    import os
    LmdbStore._claim = lambda self, txn: os._exit(9)
    LmdbStore(path).own()
    """
    process = start(script, lmdb_path)
    process.communicate(timeout=60)
    assert process.returncode == 9

    with pytest.raises(EngineError, match=r"there is no store at .* yet") as caught:
        LmdbStore.reader(lmdb_path)
    assert not isinstance(caught.value, StoreFormat)
    opened(lmdb_path).close()
    LmdbStore.reader(lmdb_path).close()


def test_a_deleted_lock_file_of_lmdb_is_made_again(filled):
    (filled / "lock.mdb").unlink()

    store = opened(filled)

    assert [head.id for head in store.scan()] == ["a"]
    store.close()


def test_reading_a_store_that_was_never_owned_says_what_to_do(lmdb_path):
    with pytest.raises(EngineError, match="own"):
        LmdbStore(lmdb_path).procedure("a")


def test_a_wrong_durability_is_a_value_error(lmdb_path):
    with pytest.raises(ValueError, match="power"):
        LmdbStore(lmdb_path, durability="fast")


def test_durability_process_keeps_what_was_committed(lmdb_path, make):
    store = opened(lmdb_path, durability="process")
    store.commit([make.new("a", 1)], 1)
    store.close()

    again = LmdbStore(lmdb_path)
    assert again.own() == 2
    assert [head.id for head in again.scan()] == ["a"]
    again.close()


# One owner


def test_a_second_owner_in_this_process_is_refused_and_the_first_goes_on(lmdb_path, make):
    store = opened(lmdb_path)

    with pytest.raises(StoreInUse, match="another manager of this process") as caught:
        LmdbStore(lmdb_path).own()

    assert caught.value.pid == os.getpid()
    store.commit([make.new("a", 1)], 1)
    store.close()
    opened(lmdb_path).close()


def test_a_second_owner_is_told_the_pid_of_the_first(lmdb_path):
    with start("LmdbStore(path).own(); print('up', flush=True); sys.stdin.read()", lmdb_path) as other:
        assert other.stdout.readline() == "up\n"

        with pytest.raises(StoreInUse, match=f"process {other.pid}") as caught:
            LmdbStore(lmdb_path).own()

        assert caught.value.pid == other.pid
        other.kill()
        other.communicate(timeout=30)
    store = LmdbStore(lmdb_path)
    assert store.own() == 2
    store.close()


def test_the_lock_of_a_dead_owner_is_waited_for_until_what_it_was_starting_has_let_go(lmdb_path):
    """A process between fork and exec has a copy of every descriptor; this one takes its time."""
    code = (
        "store = LmdbStore(path); store.own(); import os\n"
        "links = {int(fd): os.path.realpath(f'/proc/self/fd/{fd}') for fd in os.listdir('/proc/self/fd')}\n"
        "os.set_inheritable(next(fd for fd, link in links.items() if link.endswith('owner.lock')), True)\n"
        "import subprocess; quiet = subprocess.DEVNULL\n"
        "subprocess.Popen(['sleep', '0.3'], close_fds=False, stdin=quiet, stdout=quiet, stderr=quiet)\n"
        "print('up', flush=True); os._exit(0)"
    )
    with start(code, lmdb_path) as other:
        assert other.stdout.readline() == "up\n"
        assert other.wait(30) == 0

    store = LmdbStore(lmdb_path)

    assert store.own() == 2
    store.close()


def test_owning_twice_by_the_same_object_is_refused(lmdb_path):
    store = opened(lmdb_path)

    with pytest.raises(StoreInUse):
        store.own()

    store.close()


def test_a_failed_own_leaves_the_store_free(filled):
    data = (filled / "data.mdb").read_bytes()
    (filled / "data.mdb").write_bytes(b"x" * 9000)
    store = LmdbStore(filled)
    with pytest.raises(StoreFormat):
        store.own()
    (filled / "data.mdb").write_bytes(data)

    assert store.own() == 2
    store.close()


# Readers in other processes


def test_another_process_reads_while_the_owner_writes(lmdb_path, make):
    store = opened(lmdb_path)
    store.commit([make.new("a", 1)], 1)
    script = """
    with LmdbStore.reader(path) as reader:
        for line in sys.stdin:
            print(reader.load().epoch, [head.id for head in reader.scan()], flush=True)
    """
    with start(script, lmdb_path) as other:
        other.stdin.write("go\n")
        other.stdin.flush()
        assert other.stdout.readline() == "1 ['a']\n"

        # Grown far beyond the map the reader knows.
        size = store._env.info()["map_size"]
        store.commit(
            [make.new("b", 2), make.note("b", 1, "big")] + [make.step("b", n, label="x" * 60000) for n in range(600)], 1
        )

        assert store._env.info()["map_size"] > size
        other.stdin.write("go\n")
        other.stdin.flush()
        assert other.stdout.readline() == "1 ['a', 'b']\n"
        other.communicate(timeout=30)
    store.close()


def test_a_reader_in_the_owners_process_sees_every_commit_and_outlives_the_owner(lmdb_path, make):
    store = opened(lmdb_path)
    with LmdbStore.reader(lmdb_path) as reader:
        store.commit([make.new("a", 1)], 1)
        assert reader.procedure("a").id == "a"
        store.close()
        assert reader.procedure("a").id == "a"

        again = LmdbStore(lmdb_path)
        again.commit([make.new("b", 2)], again.own())
        assert reader.procedure("b").id == "b"
        again.reopen()
        assert reader.procedure("b").id == "b"
        again.close()
        assert reader.procedure("b").id == "b"


def test_readers_of_one_process_share_an_environment_whichever_is_closed_first(lmdb_path, make):
    store = opened(lmdb_path)
    store.commit([make.new("a", 1)], 1)
    store.close()

    first, second = LmdbStore.reader(lmdb_path), LmdbStore.reader(lmdb_path)
    assert second.procedure("a") == first.procedure("a")
    first.close()
    with LmdbStore.reader(lmdb_path) as third:
        assert second.procedure("a").id == "a"
        second.close()
        assert third.procedure("a").id == "a"
        with pytest.raises(EngineError, match="not open"):
            second.procedure("a")


# The map


def test_a_tiny_map_grows_and_the_batch_is_whole(lmdb_path, make):
    store = LmdbStore(lmdb_path, map_size=1 << 16)
    store.own()

    for n in range(1, 30):
        steps = [make.step(f"p{n}", k, label="x" * 5000) for k in range(1, 21)]
        store.commit([make.new(f"p{n}", n, records=20), *steps], 1)

    assert len(list(store.scan())) == 29
    assert all(len(store.steps(f"p{n}")) == 20 for n in range(1, 30))
    store.close()
    again = LmdbStore(lmdb_path, map_size=1 << 16)
    assert again.own() == 2
    assert len(list(again.scan())) == 29
    again.close()


def test_the_map_grows_under_readers_of_other_threads(lmdb_path, make):
    store = LmdbStore(lmdb_path, map_size=1 << 18)
    store.own()
    store.commit([make.new("a", 1)], 1)
    ended, wrong = threading.Event(), []

    def read():
        try:
            while not ended.is_set():
                assert next(store.scan()).id == "a"
                assert store.load().damage == []
        except Exception as error:  # noqa: BLE001 - judged by the main thread
            wrong.append(error)

    readers = [threading.Thread(target=read) for _ in range(3)]
    for reader in readers:
        reader.start()
    for n in range(2, 60):
        store.commit([make.new(f"p{n}", n), make.step(f"p{n}", 1, label="x" * 300_000)], 1)
        if n % 20 == 0:
            store.reopen()
    ended.set()
    for reader in readers:
        reader.join()

    assert [error for error in wrong if not isinstance(error, StorageUnavailable)] == []
    store.close()


def test_the_map_shrinks_to_what_the_address_space_allows(lmdb_path):
    limit = 3 << 30
    script = "store = LmdbStore(path); print(store.own(), store._env.info()['map_size'] < 3 << 30)"

    said = run(script, lmdb_path, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)))

    assert said == "1 True"


# Trouble with the disk


FILL = """
import os
store = LmdbStore(path, map_size=1 << 30)
store.own()
n, size = 0, 40_000
while True:
    n += 1
    try: store.commit(pair(n, size), 1)
    except StorageUnavailable as error:
        print(n, type(error.__cause__).__name__, flush=True)
        break
assert len(list(store.scan())) == n - 1        # readable while the disk is full
store.reopen()
sys.stdin.readline()
store.reopen()
heads = [head.id for head in store.load().procedures]
assert heads == [f"p{k}" for k in range(1, n)], heads
assert all(len(store.step(id, 1).state) == size for id in heads)
store.commit(pair(n, size), 1)
print(len(store.load().procedures), store.load().damage)
"""


def test_a_full_disk_loses_nothing_and_ends_when_there_is_space(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = shutil.which("mount")
    small = ["-t", "tmpfs", "-o", "size=8m", "none", disk]
    if mount is None or subprocess.run([mount, *small], capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a tmpfs here (needs CAP_SYS_ADMIN)")
    try:
        (disk / "ballast").write_bytes(b"x" * 6_000_000)
        with start(FILL, disk / "store") as process:
            n, cause = process.stdout.readline().split()
            assert cause in {"OSError", "DiskError", "Error"}
            (disk / "ballast").unlink()
            out, err = process.communicate("go\n", timeout=60)
        assert process.returncode == 0, err
        assert out.strip() == f"{n} []"
    finally:
        subprocess.run(["umount", disk], check=True)


def test_a_file_size_limit_is_storage_trouble_and_loses_nothing(lmdb_path):
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 2 << 20))

    lift = FILL.replace(
        "sys.stdin.readline()", "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (2 << 20,) * 2)"
    )

    said = run(lift, lmdb_path, preexec_fn=limit)

    first, last = said.splitlines()
    assert last == f"{first.split()[0]} []"


def test_reopening_a_store_whose_file_is_gone_does_not_make_an_empty_one(filled):
    store = opened(filled)
    (filled / "data.mdb").rename(filled / "elsewhere")

    with pytest.raises(StorageUnavailable, match="gone"):
        store.reopen()
    with pytest.raises(StorageUnavailable):
        store.procedure("a")

    assert not (filled / "data.mdb").exists()
    (filled / "elsewhere").rename(filled / "data.mdb")
    store.reopen()
    assert store.procedure("a").id == "a"
    store.close()


@pytest.mark.parametrize("call", ["stat", "unlink"])
def test_reopening_on_a_file_system_that_has_shut_down_is_worth_another_try(filled, monkeypatch, call):
    def fail(*_, **__):
        raise OSError(errno.EIO, "Input/output error")

    store = opened(filled)
    with monkeypatch.context() as patch:
        patch.setattr(Path, call, fail)
        with pytest.raises(StorageUnavailable, match="Input/output error"):
            store.reopen()

    store.reopen()
    assert store.procedure("a").id == "a"
    store.close()


def test_reopening_refuses_another_store_put_in_its_place(filled, tmp_path):
    opened(tmp_path / "other").close()
    store = opened(filled)
    (tmp_path / "other" / "data.mdb").replace(filled / "data.mdb")

    with pytest.raises(StoreFormat, match="replaced"):
        store.reopen()

    store.close()


# Kills and forks


@pytest.mark.parametrize("round_", range(3))
def test_after_kill_9_every_acknowledged_commit_is_there_and_nothing_half(lmdb_path, round_):
    script = """
    store = LmdbStore(path, map_size=1 << 18)
    store.own()
    n = 0
    while True:
        store.commit([w for k in range(5) for w in pair(n * 5 + k + 1, 3000)], 1)
        n += 1
        print(n, flush=True)
    """
    with start(script, lmdb_path) as writer:
        for _ in range(20 + 7 * round_):
            acknowledged = int(writer.stdout.readline())
        writer.kill()
        rest, _ = writer.communicate(timeout=30)
    acknowledged = max([acknowledged, *map(int, rest.split())])

    store = LmdbStore(lmdb_path)
    assert store.own() == 2
    snapshot = store.load()

    found = [head.seq for head in snapshot.procedures]
    assert found == list(range(1, len(found) + 1))
    assert len(found) % 5 == 0
    assert len(found) >= 5 * acknowledged
    assert all(len(store.step(head.id, 1).state) == 3000 for head in snapshot.procedures)
    assert snapshot.damage == []
    store.close()


def test_a_forked_child_can_neither_write_nor_read_nor_hold_the_lock(lmdb_path):
    # Two processes share one standard output here: a line is one write, as print() promises nothing of the kind.
    script = r"""
    import os
    def say(*words): os.write(1, (" ".join(map(str, words)) + "\n").encode())
    store = LmdbStore(path)
    store.own()
    store.commit(pair(1), 1)
    go, stay = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        for act in (lambda: store.commit(pair(2), 1), lambda: store.procedure("p1"), store.reopen):
            try: act()
            except EngineError as error: said.append("fork" in str(error))
        store.close()
        say(said)
        os.close(stay)
        os.read(go, 1)        # lives on while the parent gives the store up
        sys.exit(0)           # an ordinary end, with all its clean-up
    store.commit(pair(3), 1)
    store.close()
    again = LmdbStore(path)
    say(again.own(), len(list(again.scan())))
    again.commit(pair(4), 2)
    os.close(stay)
    say(os.waitpid(child, 0)[1], len(list(again.scan())))
    again.commit(pair(5), 2)
    """

    said = run(script, lmdb_path).splitlines()

    assert sorted(said) == sorted(["[True, True, True]", "2 2", "0 3"])


def test_dropped_stores_leave_no_fork_hooks_behind(lmdb_path):
    from actorproc.store.lmdb import owner_lock

    before = len(owner_lock._held)
    for _ in range(20):
        opened(lmdb_path).close()

    assert len(owner_lock._held) == before


HOLDS = """
import os, signal, sys
from actorproc.errors import EngineError
from actorproc.store.lmdb.store import LmdbStore

reader = LmdbStore.reader(sys.argv[1])
views = []
try:
    while len(views) < int(sys.argv[2]):
        views.append(reader._view())
except EngineError:
    pass
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed_while_it_reads(path, views):
    process = subprocess.Popen([sys.executable, "-c", HOLDS, str(path), str(views)], cwd=ROOT)
    assert process.wait(60) == -signal.SIGKILL
    return process.pid


def test_what_a_killed_reader_saw_is_not_kept_for_ever(lmdb_path, make, monkeypatch):
    monkeypatch.setattr(store_lmdb, "_LOOK_EVERY", 0.0)
    store = LmdbStore(lmdb_path)
    store.own()
    try:
        pid = killed_while_it_reads(lmdb_path, 1)
        assert str(pid) in store._env.readers()

        store.commit([make.new("p1", 1)], 1)

        assert str(pid) not in store._env.readers()
    finally:
        store.close()


def test_killed_readers_take_no_places_from_those_that_live(lmdb_path):
    store = LmdbStore(lmdb_path)
    store.own()
    try:
        killed_while_it_reads(lmdb_path, 10_000)

        with contextlib.ExitStack() as stack:
            views = [stack.enter_context(store._view()) for _ in range(8)]
            assert len({view.count(Table.META) for view in views}) == 1
    finally:
        store.close()


def test_who_finds_no_place_among_the_readers_waits_for_one(lmdb_path, monkeypatch):
    store = LmdbStore(lmdb_path)
    store.own()
    try:
        with contextlib.ExitStack() as others:
            for _ in range(512):
                others.enter_context(store._view())
            clock = SimpleNamespace(monotonic=time.monotonic, sleep=lambda _: others.close())
            monkeypatch.setattr(open_store, "time", clock)

            assert store.procedure("p1") is None
    finally:
        store.close()


def test_more_readers_than_there_are_places_are_told_so(lmdb_path, monkeypatch):
    monkeypatch.setattr(open_store, "_PATIENCE", 0.0)
    store = LmdbStore(lmdb_path)
    store.own()
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(512):
                stack.enter_context(store._view())
            with pytest.raises(EngineError, match="512 threads and processes"):
                store._view()
        assert store.procedure("p1") is None
    finally:
        store.close()
