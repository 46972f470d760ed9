"""The store's jobs: order, failures, recovery, and an end in order."""

from __future__ import annotations

import queue
import threading

import pytest

from actorproc.errors import Deposed, ManagerStopped, StorageUnavailable, StoreInUse
from actorproc.store.committer import Committer
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.memory import MemoryStore

BOUND = 20  # seconds a fact may take on a very slow machine


class FailingStore(MemoryStore):
    """Refuses while `trouble` is set, and notes the thread of every call."""

    def __init__(self):
        super().__init__()
        self.trouble = None
        self.threads = set()
        self.calls = []

    def own(self):
        self._note("own")
        return super().own()

    def reopen(self):
        self._note("reopen")
        if self.trouble is not None:
            raise self.trouble

    def close(self):
        self._note("close")
        super().close()

    def _apply(self, rows):
        self._note("commit")
        if self.trouble is not None:
            raise self.trouble
        super()._apply(rows)

    def _note(self, call):
        self.calls.append(call)
        self.threads.add(threading.current_thread().name)


@pytest.fixture
def answers():
    return queue.Queue()


@pytest.fixture
def made():
    """Makes committers, each with a thread that does what it is asked for."""
    calls = []

    def make(store, done, **options):
        asked = queue.SimpleQueue()
        committer = Committer(store, done, lambda: asked.put(True), **options)

        def work():
            while asked.get():
                committer.work()

        thread = threading.Thread(target=work, name="works", daemon=True)
        thread.start()
        calls.append((committer, asked, thread))
        return committer

    yield make
    for committer, asked, thread in calls:
        committer.stop(BOUND)
        asked.put(False)
        thread.join(BOUND)
        assert not thread.is_alive()


@pytest.fixture
def running(answers, made):
    store = FailingStore()
    committer = made(store, lambda batch, error: answers.put((batch, error)), first_delay=0.001, longest_delay=0.01)
    committer.start()
    return store, committer


def test_every_batch_is_answered_in_order_once_it_is_stored(running, answers, make):
    store, committer = running

    for n in range(1, 51):
        committer.submit([make.new(f"p{n}", n)], n)

    assert [answers.get(timeout=BOUND) for _ in range(50)] == [(n, None) for n in range(1, 51)]
    assert len(list(store.scan())) == 50


def test_a_commit_happens_on_the_thread_that_works_and_the_ends_on_one_of_the_committers(running, answers, make):
    store, committer = running
    committer.submit([make.new("a", 1)], 1)
    answers.get(timeout=BOUND)

    assert committer.stop(BOUND)

    assert store.calls == ["own", "commit", "close"]
    assert store.threads == {"actorproc-store", "works"}


def test_nothing_happens_while_no_thread_works(answers, make):
    store, asked = FailingStore(), []
    committer = Committer(store, lambda *answer: answers.put(answer), lambda: asked.append(True))
    committer.start()
    committer.submit([make.new("a", 1)], 1)

    assert asked == [True]
    assert len(committer.jobs) == 1
    assert answers.empty()
    assert committer.work()
    assert not committer.work()
    assert answers.get_nowait() == (1, None)
    committer.stop(BOUND)


def test_a_stop_waits_no_longer_than_it_may_for_a_disk_that_hangs_and_closes_when_it_goes_on(answers, make, made):
    store, hangs, goes_on = FailingStore(), threading.Event(), threading.Event()
    plain = store._apply

    def hang(rows):
        hangs.set()
        assert goes_on.wait(BOUND)
        plain(rows)

    store._apply = hang
    committer = made(store, lambda *answer: answers.put(answer))
    committer.start()
    committer.submit([make.new("a", 1)], 1)
    assert hangs.wait(BOUND)

    assert not committer.stop(0.01)
    assert "close" not in store.calls

    goes_on.set()
    assert committer.stop(BOUND)
    assert answers.get_nowait() == (1, None)
    assert store.calls == ["own", "commit", "close"]


def test_a_stop_in_the_middle_of_a_job_waits_for_nothing(make, made):
    stopped = queue.Queue()
    committer = made(FailingStore(), lambda *_: stopped.put(committer.stop(BOUND)))
    committer.start()
    committer.submit([make.new("a", 1)], 1)

    assert not stopped.get(timeout=BOUND)
    assert committer.stop(BOUND)


def test_a_start_returns_what_is_stored(make):
    store = MemoryStore()
    store.own()
    store.commit([make.new("a", 1)], 1)
    committer = Committer(store, lambda *_: None)

    snapshot = committer.start()

    assert [head.id for head in snapshot.procedures] == ["a"]
    assert committer.epoch == snapshot.epoch == 2
    committer.stop(BOUND)


def test_a_start_raises_what_owning_raises_and_ends_its_thread(lmdb_path):
    first = LmdbStore(lmdb_path)
    first.own()
    before = set(threading.enumerate())  # those of the test before may be about to end

    with pytest.raises(StoreInUse):
        Committer(LmdbStore(lmdb_path), lambda *_: None).start()

    assert set(threading.enumerate()) - before == set()
    first.close()


def test_after_a_failed_commit_nothing_is_stored_until_the_store_is_reopened(running, answers, make):
    store, committer = running
    store.trouble = StorageUnavailable("no space")
    committer.submit([make.new("a", 1)], 1)
    assert answers.get(timeout=BOUND) == (1, store.trouble)
    trouble, store.trouble = store.trouble, None

    committer.submit([make.new("b", 2)], 2)
    assert answers.get(timeout=BOUND) == (2, trouble)
    committer.reopen(lambda snapshot, error: answers.put((snapshot, error)))
    snapshot, error = answers.get(timeout=BOUND)

    assert error is None
    assert snapshot.procedures == []
    committer.submit([make.new("c", 1)], 3)
    assert answers.get(timeout=BOUND) == (3, None)
    assert [head.id for head in store.scan()] == ["c"]


def test_reopening_is_retried_with_growing_delays_until_it_works(running, answers):
    store, committer = running
    store.trouble = StorageUnavailable("no space")
    committer.submit([], 1)
    answers.get(timeout=BOUND)
    delays = []

    def retrying(error, delay):
        delays.append(delay)
        if len(delays) == 8:
            store.trouble = None

    committer.reopen(lambda snapshot, error: answers.put((snapshot, error)), retrying)
    snapshot, error = answers.get(timeout=BOUND)

    assert error is None
    assert snapshot.epoch == 1
    assert delays == [0.001, 0.002, 0.004, 0.008, 0.01, 0.01, 0.01, 0.01]


def test_a_store_that_reopens_and_fails_again_is_retried_ever_more_slowly(answers, made):
    store = FailingStore()
    committer = made(store, lambda *answer: answers.put(answer), first_delay=0.001, longest_delay=0.01)
    committer.start()
    reopened = []

    for batch in range(6):
        store.trouble = StorageUnavailable("no space")
        committer.submit([], batch)
        assert answers.get(timeout=BOUND)[1] is store.trouble
        store.trouble = None
        committer.reopen(lambda *answer: answers.put(answer))
        assert answers.get(timeout=BOUND)[1] is None
        reopened.append(committer._delay)

    assert reopened == [0.001, 0.002, 0.004, 0.008, 0.01, 0.01]
    committer.submit([], 9)
    assert answers.get(timeout=BOUND) == (9, None)
    assert committer._delay == 0.0
    committer.stop(BOUND)


def test_a_store_taken_over_by_another_owner_is_not_waited_for(running, answers):
    store, committer = running
    store.trouble = StoreInUse("taken over", 7)

    committer.reopen(lambda snapshot, error: answers.put((snapshot, error)))

    assert answers.get(timeout=BOUND) == (None, store.trouble)


def test_a_committer_whose_store_was_taken_over_writes_nothing_to_it_ever_again(running, answers):
    store, committer = running
    store.trouble = Deposed("taken over")
    committer.submit([], 1)
    assert answers.get(timeout=BOUND) == (1, store.trouble)
    taken_over, store.trouble, called = store.trouble, None, len(store.calls)

    committer.submit([], 2)
    assert answers.get(timeout=BOUND) == (2, taken_over)
    committer.reopen(lambda *answer: answers.put(answer))
    assert answers.get(timeout=BOUND) == (None, taken_over)
    with pytest.raises(Deposed):
        committer.run(lambda: None).result(BOUND)
    assert store.calls[called:] == []


def test_a_committer_that_is_told_of_a_takeover_commits_no_more(running, answers):
    store, committer = running
    taken_over, called = Deposed("told by a keeper"), len(store.calls)

    committer.depose(taken_over)
    committer.submit([], 1)

    assert answers.get(timeout=BOUND) == (1, taken_over)
    assert store.calls[called:] == []


def test_stopping_ends_a_waiting_reopen_at_once(answers, made):
    store = FailingStore()
    committer = made(store, lambda *_: None, first_delay=3600, longest_delay=3600)
    committer.start()
    store.trouble = StorageUnavailable("no space")
    committer.reopen(lambda *answer: answers.put(answer), lambda *_: answers.put("waiting"))
    assert answers.get(timeout=BOUND) == "waiting"

    assert committer.stop(BOUND)

    snapshot, error = answers.get(timeout=BOUND)
    assert snapshot is None
    assert isinstance(error, ManagerStopped)
    assert store.calls[-1] == "close"


def test_a_stop_commits_what_was_submitted_before(running, answers, make):
    store, committer = running
    committer.submit([make.new("a", 1)], 1)

    assert committer.stop(BOUND)
    assert committer.stop(BOUND)

    assert answers.get_nowait() == (1, None)
    assert store.procedure("a") is not None


def test_stopping_what_never_started_is_no_error():
    assert Committer(MemoryStore(), lambda *_: None).stop(BOUND)


def test_a_listener_that_fails_does_not_end_the_work(answers, make, made, caplog):
    def done(batch, error):
        if batch == 1:
            raise RuntimeError("gone")
        answers.put((batch, error))

    committer = made(MemoryStore(), done)
    committer.start()

    committer.submit([], 1)
    committer.submit([make.new("a", 1)], 2)

    assert answers.get(timeout=BOUND) == (2, None)
    assert "listener" in caplog.text
    committer.stop(BOUND)


def test_a_store_on_disk_is_written_by_one_thread_and_read_by_others(lmdb_path, answers, make, made):
    store = LmdbStore(lmdb_path)
    committer = made(store, lambda batch, error: answers.put((batch, error)))
    committer.start()
    record = make.head("a", 1)
    to_two, two = make.change(record, attempt=2)

    committer.submit([make.put(record), make.step("a", 1), to_two], 1)

    assert answers.get(timeout=BOUND) == (1, None)
    assert store.procedure("a") == two
    committer.reopen(lambda snapshot, error: answers.put((snapshot, error)))
    assert answers.get(timeout=BOUND)[0].procedures == [two]
    assert committer.stop(BOUND)
    LmdbStore.reader(lmdb_path).close()
