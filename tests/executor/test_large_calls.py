"""Calls with arguments of megabytes: sent ahead of their commit, signed by their digest, dropped at their end."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import psutil
import pytest

from actorproc import ProcedureManager, StorageUnavailable
from actorproc.executor import ProcedureExecutor
from actorproc.procedure.authoring.call import Call
from actorproc.store.lmdb.files.blobs import LONG
from actorproc.store.lmdb.store import LmdbStore
from actorproc.workers.protocol.frames import Run
from tests.executor.calls import die_once
from tests.kit.stores import HeldCommits
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("results_stay")]

SIZE = 3_000_000


def digest(content, *more, **named):
    found = hashlib.sha256(content)
    for each in (*more, *named.values()):
        found.update(each)
    return found.hexdigest()


def note(path, content):
    with Path(path).open("a") as file:
        file.write(hashlib.sha256(content).hexdigest() + "\n")
    return len(content)


def fail_with(content):
    raise ValueError(len(content))


def die_once_with(marker, content):
    die_once(marker)
    return digest(content)


class FullStore(LmdbStore):
    """Its commits fail while it is `full`; with `late` what failed is written all the same."""

    def __init__(self, path):
        super().__init__(path)
        self.full = self.late = False
        held = HeldCommits(self)
        self.free, self.waiting = held.free, held.waiting

    def commit(self, writes, epoch, batch=0):
        if self.full and not self.late:
            raise StorageUnavailable("full")
        super().commit(writes, epoch, batch)
        if self.full:
            raise StorageUnavailable("full, and written")

    def reopen(self):
        if self.full:
            raise StorageUnavailable("still full")
        super().reopen()


@pytest.fixture
def held(tmp_path):
    """An executor on a store that can be held, with one worker."""
    store = FullStore(tmp_path / "held")
    manager = ProcedureManager(store.path, store=store, workers=1, procedures=[Call]).start()
    with ProcedureExecutor(manager) as executor:
        try:
            assert executor.submit(abs, -1).result(30) == 1
            yield executor, store
        finally:
            store.free.set()
    manager.stop()


def test_large_arguments_of_every_kind_arrive_as_they_are(open_executor):
    executor = open_executor()
    one, two = os.urandom(SIZE), os.urandom(SIZE // 2)
    expected = digest(one, two)

    assert executor.submit(digest, one, two).result(30) == expected
    assert executor.submit(digest, one, last=two).result(30) == expected
    assert executor.submit(digest, bytearray(one), memoryview(two).tobytes()).result(30) == expected
    assert executor.submit(lambda given: digest(*given), [one, two]).result(30) == expected
    assert executor.submit(lambda: digest(one, two)).result(30) == expected
    assert list(executor.map(digest, [one] * 5, [two] * 5)) == [expected] * 5
    assert executor.submit(bytes.upper, b"a" * SIZE).result(30) == b"A" * SIZE


def test_the_arguments_of_a_call_that_ended_well_are_dropped_and_their_room_is_used_again(open_executor, tmp_path):
    executor = open_executor()
    futures = []

    def call(times):
        for _ in range(times):
            futures.append(executor.submit(digest, os.urandom(SIZE)))
            futures[-1].result(30)
        return (tmp_path / "state" / "data.mdb").stat().st_size

    before, after = call(4), call(12)

    assert after - before < 2 * SIZE
    for future in futures:
        first, closing = executor.manager.steps(future.id)
        assert (first.path[-12:], first.state_bytes, first.outcome) == ("/000001.step", 0, "submitted")
        assert (closing.path[-14:], closing.outcome) == ("/000002.commit", "done")
    assert executor.get(futures[0].id).result(30) == futures[0].result()


def test_the_arguments_of_a_short_or_a_failed_call_are_kept(open_executor):
    executor = open_executor()
    short, failed = executor.submit(digest, b"x"), executor.submit(fail_with, b"x" * SIZE)
    short.result(30)
    assert isinstance(failed.exception(30), ValueError)

    assert executor.manager.steps(short.id)[0].state_bytes > 0
    assert executor.manager.steps(failed.id)[0].state_bytes > SIZE


def test_a_large_call_whose_worker_was_killed_is_made_again(open_executor, tmp_path):
    executor = open_executor()
    content = os.urandom(SIZE)

    future = executor.submit(die_once_with, str(tmp_path / "died"), content)

    assert future.result(30) == digest(content)
    assert executor.manager.steps(future.id)[-1].attempts == 2


def test_large_calls_of_a_killed_host_are_made_by_the_next_one(open_executor, tmp_path):
    script = (
        "import os, sys\n"
        "from actorproc.executor import ProcedureExecutor\n"
        "executor = ProcedureExecutor(sys.argv[1], 1)\n"
        "executor.manager.pause()\n"
        f"futures = [executor.submit(bytes.count, bytes([n]) * {SIZE}, bytes([n])) for n in range(3)]\n"
        "for future in futures: print(future.durable(30).id, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "state")], capture_output=True, text=True, timeout=60, check=False
    )
    executor = open_executor()
    executor.manager.resume()

    ids = ended.stdout.split()
    assert (ended.returncode, len(ids)) == (-9, 3), ended.stderr
    assert [executor.get(name).result(30) for name in ids] == [SIZE] * 3


def sent_by(executor, lost=()):
    """The messages to its workers, from now on; those of the type `lost` do not get there."""
    sent = []
    pool = executor.manager._tree.pool
    send = pool.send

    def note_and_send(worker, messages):
        sent.extend(messages)
        send(worker, [message for message in messages if not isinstance(message, lost)])

    pool.send = note_and_send
    return sent


def test_arguments_are_sent_when_they_are_stored(held, tmp_path):
    executor, store = held
    content = os.urandom(SIZE)
    sent = sent_by(executor)
    store.free.clear()

    future = executor.submit(note, str(tmp_path / "began"), content)

    assert store.waiting.wait(30)
    assert not sent
    assert not future.done()
    assert not (tmp_path / "began").exists()
    store.free.set()
    assert future.result(30) == SIZE
    (run,) = sent
    assert type(run) is Run
    assert (tmp_path / "began").read_text() == digest(content) + "\n"


def test_a_worker_that_dies_while_arguments_are_stored_costs_nothing(held, tmp_path):
    executor, store = held
    content = os.urandom(SIZE)
    (worker,) = executor.manager.workers()
    store.free.clear()
    future = executor.submit(note, str(tmp_path / "began"), content)
    assert store.waiting.wait(30)

    os.kill(worker.pid, 9)
    wait_until(lambda: [each.pid for each in executor.manager.workers()] not in ([], [worker.pid]))
    store.free.set()

    assert future.result(30) == SIZE
    assert (tmp_path / "began").read_text() == digest(content) + "\n"


@pytest.mark.parametrize("late", [False, True], ids=["not-written", "written-but-reported-failed"])
def test_a_call_whose_commit_failed_with_its_arguments_is_made_once(held, tmp_path, late):
    executor, store = held
    first, second = os.urandom(SIZE), os.urandom(SIZE)
    store.late, store.full = late, True

    future = executor.submit(note, str(tmp_path / "began"), first)
    wait_until(lambda: executor.manager.health().status == "storage-trouble")
    store.full = False

    assert future.result(30) == SIZE
    assert executor.submit(note, str(tmp_path / "began"), second).result(30) == SIZE
    assert (tmp_path / "began").read_text() == digest(first) + "\n" + digest(second) + "\n"


def test_arguments_and_results_of_many_megabytes_are_files_that_go_with_the_call(open_executor, tmp_path):
    executor = open_executor()
    content = os.urandom(LONG + 1)
    future = executor.submit(bytes.upper, content)
    assert future.result(30) == content.upper()

    (closing,) = (tmp_path / "state" / "blobs").iterdir()  # the arguments went at the end of the call
    assert closing.stat().st_size > LONG
    assert (tmp_path / "state" / "data.mdb").stat().st_size < LONG
    assert executor.get(future.id).result(30) == content.upper()
    executor.manager.delete(future.id)
    wait_until(lambda: not list((tmp_path / "state" / "blobs").iterdir()))


@pytest.mark.parametrize("harm", [Path.unlink, lambda file: os.truncate(file, 1000)], ids=["missing", "short"])
def test_a_call_whose_arguments_are_damaged_is_parked_and_the_others_run(open_executor, tmp_path, harm):
    executor = open_executor()
    executor.manager.pause()
    futures = [executor.submit_as(name, len, os.urandom(LONG)) for name in ("sound", "hurt")]
    for future in futures:
        future.durable(30)
    hurt = Path(executor.manager._tree.store.place_of("hurt", 1))
    executor.manager.stop(drain=False)
    executor.shutdown()
    harm(hurt)

    executor = open_executor()
    executor.manager.resume()
    assert executor.get("sound").result(30) == LONG
    info = executor.manager.info("hurt")
    assert info.phase == "parked"
    assert hurt.name in info.reason


def test_arguments_of_many_megabytes_are_mapped_by_the_worker_from_the_store(held):
    executor, store = held
    content = os.urandom(LONG)
    sent = sent_by(executor)
    store.free.clear()
    future = executor.submit(digest, content)
    assert store.waiting.wait(30)
    store.free.set()

    assert future.result(30) == digest(content)
    (run,) = [message for message in sent if isinstance(message, Run)]
    assert run.state is None
    assert run.size > LONG
    assert Path(os.fsdecode(run.file)).parent == Path(store.path) / "blobs"


@pytest.mark.parametrize("harm", ["missing", "short"])
def test_a_worker_that_cannot_map_a_file_gets_its_content(held, tmp_path, harm):
    executor, _ = held
    pool = executor.manager._tree.pool
    send, sent = pool.send, []
    (tmp_path / "short").write_bytes(b"x")

    def elsewhere(worker, messages):
        for message in messages:
            if isinstance(message, Run):
                sent.append(message.file)
                if message.file:
                    msgspec.structs.force_setattr(message, "file", os.fsencode(tmp_path / harm))
        send(worker, messages)

    pool.send = elsewhere
    content = os.urandom(LONG)
    assert executor.submit(digest, content).result(30) == digest(content)
    assert [bool(file) for file in sent] == [True, False]


def test_large_arguments_of_every_kind_arrive_from_files_as_they_are(open_executor):
    executor = open_executor()
    one, two = os.urandom(LONG), os.urandom(LONG + 7)
    expected = digest(one, two)

    assert executor.submit(digest, one, two).result(30) == expected
    assert executor.submit(digest, one, last=two).result(30) == expected
    assert executor.submit(digest, bytearray(one), two).result(30) == expected
    assert executor.submit(lambda given: digest(*given), [one, two]).result(30) == expected
    assert executor.submit(lambda: digest(one, two)).result(30) == expected
    assert list(executor.map(digest, [one] * 3, [two] * 3)) == [expected] * 3


def test_a_call_with_a_file_whose_worker_was_killed_is_made_again(open_executor, tmp_path):
    executor = open_executor()
    content = os.urandom(LONG)
    future = executor.submit(die_once_with, str(tmp_path / "died"), content)
    assert future.result(30) == digest(content)
    assert executor.manager.steps(future.id)[-1].attempts == 2


def mapped_files():
    """Files of long values that workers have mapped, gone from their directory or not."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(OSError):
            maps = Path(f"/proc/{process.pid}/maps").read_text()
            found += [line for line in maps.splitlines() if "/blobs/" in line]
    return found


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs /proc")
def test_a_file_that_is_removed_is_mapped_by_no_worker_once_the_call_has_ended(open_executor):
    executor = open_executor()
    content = os.urandom(LONG)
    assert executor.submit(bytes.upper, content).result(30) == content.upper()
    wait_until(lambda: not mapped_files())
    assert executor.submit(bytes.upper, content).result(30) == content.upper()  # its result was staged
    wait_until(lambda: not mapped_files())
    assert isinstance(executor.submit(fail_with, content).exception(30), ValueError)
    wait_until(lambda: not mapped_files())
