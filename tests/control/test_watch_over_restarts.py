"""A watch of a client goes on after a restart of the manager, and tells a gap only where something may be missing."""

from __future__ import annotations

import pytest

import actorproc
from actorproc import Overflow, procedure
from actorproc.control import engine
from actorproc.control.wire import decode_as
from actorproc.engine.callers.change_feed import _HISTORY, _RETURN, ChangeFeed
from actorproc.engine.callers.event_hooks import EventHooks
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.runtime.subscription import EPOCH_BITS, FeedMark, Subscription
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import PutProcedure
from actorproc.store.lmdb.store import LmdbReader, LmdbStore
from actorproc.store.memory import MemoryStore
from tests.kit.clocks import HandClock
from tests.kit.waiting import BOUND, wait_until


@procedure
def add(one: int, other: int) -> int:
    return one + other


def until_ended(watch, id):
    """What is told up to the end of a procedure."""
    told = []
    while not (told and told[-1].kind != "overflow" and told[-1].id == id and told[-1].ended):
        told.append(watch.next(BOUND))
    return told


@pytest.fixture
def marks(monkeypatch):
    """Numbers of the commits up to which clients were told all."""
    seen = []

    def decoded(body, kind):
        found = decode_as(body, kind)
        if kind is FeedMark:
            seen.append(found.batch)
        return found

    monkeypatch.setattr(engine, "decode_as", decoded)
    return seen


def last_commit(path):
    with LmdbReader(path) as reader:
        return reader.load().batch


@pytest.mark.processes
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_a_restart_in_which_nothing_was_lost_tells_no_gap(serve, marks, how):
    service = serve()
    with actorproc.ProcedureClient(service.path, procedures=[add]) as client:
        client.submit(add(1, 0), "later", delay=3600)
        watch = client.watch()
        told = []
        for life in range(3):
            name = f"job-{life}"
            client.submit(add(life, 1), name).result(BOUND)
            told += until_ended(watch, name)
            wait_until(lambda: marks and marks[-1] == last_commit(service.path))
            marks.clear()
            getattr(service, how)()
            service.start()
        client.abort("later")
        told += until_ended(watch, "later")

    assert not [change for change in told if isinstance(change, Overflow)]
    assert [change.seq for change in told] == sorted({change.seq for change in told})
    ended = [change.id for change in told if change.ended]
    assert ended == ["job-0", "job-1", "job-2", "later"]


@pytest.mark.processes
def test_a_watch_of_one_procedure_tells_a_gap_and_how_it_is_and_costs_other_commits_nothing(serve, marks):
    service = serve()
    with actorproc.ProcedureClient(service.path, procedures=[add]) as client:
        client.submit(add(1, 0), "later", delay=3600)
        watch = client.watch("later")
        first = watch.next(BOUND)
        client.submit(add(1, 1), "other").result(BOUND)
        service.kill()
        service.start()
        gap, present = watch.next(BOUND), watch.next(BOUND)
        client.abort("later")
        told = until_ended(watch, "later")

    assert (first.kind, gap.kind, present.kind) == ("present", "overflow", "present")
    assert (present.state, told[-1].id) == (first.state, "later")
    assert not marks


@pytest.mark.processes
def test_a_commit_that_the_watcher_was_not_told_of_is_a_gap(serve):
    service = serve()
    with actorproc.ProcedureClient(service.path, procedures=[add]) as client, client.watch() as watch:
        client.submit(add(1, 1), "one").result(BOUND)
        until_ended(watch, "one")
        service.kill()
        with actorproc.ProcedureManager(service.path, workers=1, config=actorproc.Config(control=False)) as other:
            other.submit(add(2, 2), "unseen").result(BOUND)
        service.start()
        client.submit(add(3, 3), "two").result(BOUND)
        told = until_ended(watch, "two")

    assert isinstance(told[0], Overflow)
    assert told[0].lost is None
    assert {change.id for change in told[1:]} == {"two"}


@pytest.mark.processes
def test_a_restart_of_the_manager_is_a_gap_in_a_clients_digests(serve):
    service = serve()
    with actorproc.ProcedureClient(service.path) as client, client.watch(digest=0.1) as watch:
        client.submit(add(1, 0), "later", delay=3600)
        before = watch.next(BOUND)
        service.kill()
        service.start()
        found = watch.next(BOUND)
        while found.omitted == 0:
            found = watch.next(BOUND)

    assert [row.id for row in before.rows] == ["later"]
    assert (found.omitted, found.rows) == (None, ())


# ---------------------------------------------------------------- the manager's end alone
EPOCH, LAST = 7, 40
BEFORE = ((EPOCH - 1) << EPOCH_BITS) + 99


def observer_of(clock, **more):
    sink = EventHooks(None, lambda errand: errand())
    return ChangeFeed(
        **{"epoch": EPOCH, "last_batch": LAST} | more, clock=clock, in_flight=InFlightTable(), events=sink
    )


def batch_of(id, number):
    batch = CommitBatch()
    batch.number = number
    record = ProcedureRecord(id=id, type_name="T", version=1, root=id, parent=None, seq=1)
    batch.writes.append(PutProcedure(record, None))
    return batch


def told_to(observer, since, batch):
    """What a watcher that comes back gets at once."""
    watcher = Subscription(None, steps=False, progress=False, bound=2 * _HISTORY, marks=True, batch=batch)
    observer.subscribe(watcher, since, None, None)
    told = []
    while not (told and isinstance(told[-1], FeedMark)):
        told.append(watcher.take(0))
    return told


def test_what_happened_before_the_watcher_was_back_is_told_without_a_gap():
    observer = observer_of(HandClock())
    observer.committed(batch_of("one", 1))
    observer.committed(batch_of("two", 2))

    *changes, mark = told_to(observer, BEFORE, LAST)

    assert [change.id for change in changes] == ["one", "two"]
    assert mark == FeedMark(changes[-1].seq, 2)


@pytest.mark.parametrize(
    ("since", "batch"),
    [
        (BEFORE, LAST - 1),
        (BEFORE, LAST + 1),
        (BEFORE, None),
        (BEFORE - (1 << EPOCH_BITS), LAST),
        (BEFORE + (2 << EPOCH_BITS), LAST),
    ],
    ids=["a commit was missed", "of a restored store", "no mark", "of an earlier life", "of a later life"],
)
def test_a_watcher_that_may_have_missed_something_is_told_a_gap(since, batch):
    observer = observer_of(HandClock())
    observer.committed(batch_of("one", 1))

    assert isinstance(told_to(observer, since, batch)[0], Overflow)


def test_changes_are_noted_for_some_seconds_after_a_restart_only():
    clock = HandClock()
    observer = observer_of(clock)
    clock.now += 2 * _RETURN
    observer.committed(batch_of("one", 1))

    assert isinstance(told_to(observer, BEFORE, LAST)[0], Overflow)


def test_more_changes_than_are_kept_are_a_gap_and_end_the_noting():
    observer = observer_of(HandClock())
    for number in range(1, _HISTORY + 2):
        observer.committed(batch_of(f"p-{number}", number))

    assert not observer._history
    assert isinstance(told_to(observer, BEFORE, LAST)[0], Overflow)


@pytest.mark.parametrize("more", [{"epoch": 1}, {"last_batch": None}], ids=str)
def test_nothing_is_noted_where_no_watcher_can_come_back(more):
    observer = observer_of(HandClock(), **more)
    observer.committed(batch_of("one", 1))

    assert not observer._history
    assert not observer._seen


def test_a_mark_comes_after_all_changes_before_it_and_only_the_last_one_is_kept():
    watcher = Subscription(None, steps=False, progress=False, bound=10, marks=True)
    observer = observer_of(HandClock(), epoch=1)
    observer.subscribe(watcher, None, None, None)
    for number in range(1, 4):
        observer.committed(batch_of(f"p-{number}", number))

    told = [watcher.take(0) for _ in range(4)]

    assert [change.id for change in told[:3]] == ["p-1", "p-2", "p-3"]
    assert told[3] == FeedMark(told[2].seq, 3)
    with pytest.raises(TimeoutError):
        watcher.take(0)


@pytest.mark.parametrize(
    ("seq", "batch"),
    [(BEFORE, LAST), (BEFORE + 5, LAST), (BEFORE + (1 << EPOCH_BITS), None), (None, None)],
    ids=["itself", "a later change of its life", "a change of the next life", "nothing told yet"],
)
def test_a_mark_says_nothing_of_another_life_which_counts_its_commits_anew(seq, batch):
    assert FeedMark(BEFORE, LAST).batch_at(seq) == batch


def test_a_store_names_the_last_commit_of_the_owner_before(tmp_path):
    for store in (MemoryStore(), LmdbStore(tmp_path / "store", map_size=1 << 24)):
        epoch = store.own()
        assert store.load().last_batch == 0
        store.commit([PutProcedure(batch_of("one", 1).writes[0].record, None)], epoch, 17)
        store.close()
        store.own()
        assert (store.load().last_batch, store.load().batch) == (17, 0)
        store.close()
        store.own()
        assert store.load().last_batch == 0
        store.close()
