"""Digests of changes: each procedure once, at most ten a second, bounded, and complete but for what they say."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pytest

from actorproc import ChangeDigest, Procedure, ProcedureClient, Status, UsageError
from actorproc.engine.callers.change_digests import ChangeDigests
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.runtime.subscription import MOST_ROWS, DigestSubscription
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import DeleteProcedure, PutProcedure
from actorproc.model.states import Phase, ProcedureState
from tests.kit.clocks import HandClock
from tests.kit.procedures import Part


def record_of(id, **fields):
    return ProcedureRecord(id=id, type_name="T", version=1, root=id, parent=None, seq=1, **fields)


def batch_of(*ids, removed=(), **fields):
    batch = CommitBatch()
    batch.writes += [PutProcedure(record_of(id, **fields), None) for id in ids]
    batch.writes += [DeleteProcedure(record_of(id)) for id in removed]
    return batch


class Feed:
    """The digests of a manager, with a clock that is moved by hand."""

    def __init__(self, interval=0.1):
        self.clock = HandClock()
        self.clock.now = 100.0
        self.digests = ChangeDigests(clock=self.clock, in_flight=InFlightTable())
        self.watcher = self.add(interval)

    def add(self, interval=0.1, *, is_known=True):
        watcher = DigestSubscription(interval)
        self.digests.subscribe(watcher, is_known=is_known)
        return watcher

    def pass_time(self, seconds):
        self.clock.now += seconds
        if self.digests.due_at is not None and self.clock.now >= self.digests.due_at:
            self.digests.look(self.clock.now)


def taken(watcher):
    """The digest that waits for a watcher now, or None."""
    ready, found = watcher.take_now(lambda: None)
    return found if ready else None


def ids_of(digest):
    return None if digest is None else [row.id for row in digest.rows]


def test_the_first_change_comes_at_once_and_the_next_ones_together():
    feed = Feed()

    feed.digests.committed(batch_of("one"))
    first = taken(feed.watcher)
    for name in ("two", "three", "two"):
        feed.digests.committed(batch_of(name))
    early, due = taken(feed.watcher), feed.digests.due_at
    feed.pass_time(0.1)

    assert ids_of(first) == ["one"]
    assert (early, due) == (None, 100.1)
    assert ids_of(taken(feed.watcher)) == ["two", "three"]
    assert feed.digests.due_at is None


def test_a_procedure_that_changed_often_stands_there_once_as_it_is_now():
    feed = Feed()
    feed.digests.committed(batch_of("job", step=1, attempt=1))
    taken(feed.watcher)

    for step in range(2, 6):
        feed.digests.committed(batch_of("job", step=step, attempt=1))
    feed.digests.committed(batch_of("job", step=6, attempt=2, state=ProcedureState.SUCCESS))
    feed.pass_time(1.0)

    (row,) = taken(feed.watcher).rows
    assert (row.step, row.attempt, row.state, row.phase) == (6, 2, "SUCCESS", "done")


@pytest.mark.parametrize("changes", [MOST_ROWS - 1, MOST_ROWS, MOST_ROWS + 1, 3 * MOST_ROWS, 10 * MOST_ROWS + 7])
@pytest.mark.parametrize("commits", [1, 7])
def test_too_many_changes_are_a_number_and_no_list(changes, commits):
    feed = Feed()
    feed.digests.committed(batch_of("first"))
    taken(feed.watcher)
    names = [f"p{number}" for number in range(changes)]

    for place in range(commits):
        feed.digests.committed(batch_of(*names[place::commits]))
    feed.pass_time(0.1)
    found = taken(feed.watcher)
    feed.digests.committed(batch_of("after"))
    feed.pass_time(0.1)

    if changes <= MOST_ROWS:
        assert (len(found.rows), found.omitted, found.is_whole) == (changes, 0, True)
    else:
        assert (found.rows, found.omitted, found.is_whole) == ((), changes, False)
    assert ids_of(taken(feed.watcher)) == ["after"]


def test_a_watcher_that_takes_nothing_costs_no_memory_and_misses_nothing_that_it_is_not_told_of():
    feed = Feed()
    for number in range(40):
        feed.digests.committed(batch_of(*(f"{number}-{place}" for place in range(50))))
        feed.pass_time(0.1)

    found = taken(feed.watcher)

    assert (found.rows, found.removed, found.omitted) == ((), (), 2000)
    assert taken(feed.watcher) is None


def test_a_watcher_with_a_longer_interval_gets_all_of_it_in_one():
    feed = Feed(interval=1.0)
    quick = feed.add()
    seen = []

    feed.digests.committed(batch_of("start"))
    assert ids_of(taken(feed.watcher)) == ids_of(taken(quick)) == ["start"]
    for number in range(9):
        feed.digests.committed(batch_of(f"p{number}"))
        feed.pass_time(0.1)
        seen += ids_of(taken(quick))
        assert taken(feed.watcher) is None
    feed.pass_time(0.2)

    assert seen == [f"p{number}" for number in range(9)]
    assert ids_of(taken(feed.watcher)) == seen


def test_a_procedure_that_is_removed_is_told_by_its_id_and_one_of_the_same_id_again_as_a_row():
    feed = Feed()
    feed.digests.committed(batch_of("one", "two"))
    taken(feed.watcher)

    feed.digests.committed(batch_of("one", removed=["two"]))
    feed.digests.committed(batch_of(removed=["one"]))
    feed.pass_time(0.1)
    gone = taken(feed.watcher)
    feed.digests.committed(batch_of(removed=["two"]))
    feed.digests.committed(batch_of("two"))
    feed.pass_time(0.1)

    assert (gone.rows, set(gone.removed)) == ((), {"one", "two"})
    back = taken(feed.watcher)
    assert (ids_of(back), back.removed) == (["two"], ())


def command_of(id, step, attempt):
    token = StepToken(1, WorkerId(0, 1), id, step, attempt)
    return token, RunStep(token, "T", False, id, None, False, False, None, 0)


def test_progress_is_part_of_the_row_of_the_step_that_told_it_and_of_no_later_one():
    feed = Feed()
    feed.digests.committed(batch_of("other"))
    taken(feed.watcher)

    token, command = command_of("job", 2, 1)
    feed.digests.heartbeat(token, command, 0.25)
    feed.digests.heartbeat(token, command, 0.5)
    feed.pass_time(0.1)
    (running,) = taken(feed.watcher).rows
    feed.digests.heartbeat(token, command, 0.9)
    feed.digests.committed(batch_of("job", step=3, attempt=1))
    feed.pass_time(0.1)
    (later,) = taken(feed.watcher).rows
    feed.digests.heartbeat(token, command, 1.0)
    feed.digests.committed(batch_of(removed=["job"]))
    feed.pass_time(0.1)
    gone = taken(feed.watcher)

    assert (running.id, running.step, running.phase, running.progress) == ("job", 2, Phase.RUNNING, 0.5)
    assert (later.step, later.progress) == (3, None)
    assert (gone.rows, gone.removed) == ((), ("job",))


def test_a_watcher_that_missed_something_is_told_so_at_once():
    feed = Feed()

    late = feed.add(is_known=False)

    assert taken(late).omitted is None
    assert taken(feed.watcher) is None


def test_without_watchers_nothing_is_kept():
    feed = Feed(interval=5.0)
    feed.digests.committed(batch_of("one"))
    feed.digests.committed(batch_of("two"))

    feed.digests.unsubscribe(feed.watcher)

    assert feed.digests.due_at is None
    assert not feed.digests._heads


# ---------------------------------------------------------------- of a running manager
@dataclass
class Tells(Procedure):
    def execute(self, ctx):
        ctx.heartbeat(0.5, "half")
        ctx.remember("told", lambda: 1)
        return Status.wait("word") if not ctx.replayed else Status.done()


def until_told(watch, seen, condition):
    """Rows by id, as far as digests have told them."""
    ends = time.monotonic() + 60
    while not condition(seen):
        assert time.monotonic() < ends
        digest = watch.next(30)
        assert isinstance(digest, ChangeDigest)
        assert digest.is_whole
        for row in digest.rows:
            seen.setdefault(row.id, []).append(row)
        for name in digest.removed:
            seen.setdefault(name, []).append(None)
    return seen


@pytest.mark.processes
@pytest.mark.parametrize("how", ["manager", "client"])
def test_the_last_row_of_each_procedure_is_how_it_is(open_manager, how):
    manager = open_manager(workers=2)
    source = manager if how == "manager" else ProcedureClient(manager._path)
    with source.watch(digest=0.1) as watch:
        names = [handle.id for handle in manager.submit_many([Part(number) for number in range(100)])]
        manager.submit(Tells(), "tells")
        seen = until_told(
            watch,
            {},
            lambda seen: (
                all(seen.get(name, [None])[-1] for name in [*names, "tells"])
                and all(seen[name][-1].phase is Phase.DONE for name in names)
                and seen["tells"][-1].phase is Phase.WAITING
            ),
        )
        manager.delete(names[0])
        until_told(watch, seen, lambda seen: seen[names[0]][-1] is None)

    assert manager.info("tells").step == seen["tells"][-1].step
    if how == "client":
        source.close()
    assert manager.metrics().watchers in (0, 1)  # a client's leave is told behind its back


@pytest.mark.processes
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"digest": 0.05}, ValueError, "at least 0.1"),
        ({"digest": -1}, ValueError, "digest"),
        ({"digest": float("nan")}, ValueError, "digest"),
        ({"digest": float("inf")}, ValueError, "digest"),
        ({"digest": "often"}, TypeError, "digest"),
        ({"digest": True}, TypeError, "digest"),
        ({"digest": 1, "id": "job"}, UsageError, "all procedures"),
        ({"digest": 1, "since": 3}, UsageError, "no other argument"),
        ({"digest": 1, "steps": True}, UsageError, "no other argument"),
        ({"digest": 1, "buffer": 3}, UsageError, "no other argument"),
    ],
)
def test_arguments_that_make_no_digest_are_refused(open_manager, arguments, error, words):
    manager = open_manager(workers=1)

    with pytest.raises(error, match=words):
        manager.watch(**arguments)
