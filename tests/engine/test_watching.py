"""Watching: every transition once, in the order of commits, and a slow watcher costs itself alone."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest

from actorproc import (
    Change,
    LockKey,
    ManagerStopped,
    Overflow,
    Procedure,
    ProcedureClient,
    RetryLater,
    RetryPolicy,
    Status,
    UnknownProcedure,
)
from actorproc.api.watch import Watch
from actorproc.engine.callers.change_feed import ChangeFeed
from actorproc.engine.callers.event_hooks import EventHooks
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.runtime.subscription import Subscription
from actorproc.errors import StorageUnavailable
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import PutProcedure
from actorproc.model.states import Phase, ProcedureState
from actorproc.store.memory import MemoryStore
from tests.catalogue.kit import on_threads
from tests.kit.clocks import HandClock
from tests.kit.procedures import Nap, Part
from tests.kit.stores import HeldCommits
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes


@dataclass
class Whole(Procedure):
    """Suspends, waits for a word, fails a while, and at last ends well or is undone."""

    rollback_supported = True
    retry = RetryPolicy(max_attempts=5, base=0.001, jitter=0.0)
    fails: bool = False
    stage: int = 0

    def lock_keys(self):
        return [LockKey.write("whole")]

    def execute(self, ctx):
        self.stage += 1
        if self.stage == 1:
            return Status.suspended([Part(1), Part(2)])
        if self.stage == 2:
            return Status.wait("word")
        if self.stage == 3:
            return Status.sleep(0.001)
        if self.stage == 4 and ctx.attempt == 1:
            raise RetryLater(after=0.001)
        if self.fails:
            raise ValueError("it broke")
        return Status.done("well")

    def rollback(self, ctx):
        return None


@dataclass
class Beats(Procedure):
    gate: str

    def execute(self, ctx):
        for number in range(4):
            ctx.heartbeat(number / 4, f"part {number}")
        ctx.remember("gate", lambda: 1)
        return Status.wait("word") if not ctx.replayed else Status.done()


@dataclass
class Count(Procedure):
    upto: int
    done: int = 0

    def execute(self, ctx):
        self.done += 1
        return Status.done(self.done) if self.done >= self.upto else Status.executing()


def phases(changes):
    return [(str(change.state), str(change.phase)) for change in changes if isinstance(change, Change)]


def live_through(manager, id, *, fails):
    """Submit a `Whole`, give it its word, and wait for its end."""
    handle = manager.submit(Whole(fails=fails), id)
    wait_until(lambda: manager.info(id).phase is Phase.WAITING)
    manager.publish("word", "go")
    handle.wait(30)
    return handle


def test_a_watch_tells_every_transition_once_and_ends_with_the_procedure(open_manager):
    manager = open_manager(workers=1)
    with manager.watch() as everything:
        handle = manager.submit(Whole(), "job")
        watch = manager.watch("job")
        wait_until(lambda: manager.info("job").phase is Phase.WAITING)
        manager.publish("word", "go")
        assert handle.result(30) == "well"
        told = list(watch)
        seen = []
        while not (seen and seen[-1].id == "job" and seen[-1].ended):
            seen.append(everything.next(30))

    assert told[0].kind == "present"
    whole = [change for change in seen if change.id == "job"]
    assert phases(whole) == [
        ("RUNNABLE", "running"),
        ("WAITING", "suspended"),
        ("RUNNABLE", "running"),
        ("WAITING", "waiting"),
        ("RUNNABLE", "running"),
        ("WAITING_TIMEOUT", "sleeping"),
        ("RUNNABLE", "running"),
        ("RUNNABLE", "retrying"),
        ("RUNNABLE", "running"),
        ("SUCCESS", "done"),
    ]
    # The watch of the one began later, and tells the same from there on.
    assert told[1:] == [change for change in whole if change.seq > told[0].seq]
    assert [change.previous for change in whole[1:]] == [change.state for change in whole[:-1]]
    assert whole[0].previous is ProcedureState.INITIALIZING
    assert [change.seq for change in seen] == sorted({change.seq for change in seen})
    parts = {change.id for change in seen} - {"job"}
    assert len(parts) == 2
    for part in parts:
        assert phases(change for change in seen if change.id == part)[-1] == ("SUCCESS", "done")


def test_a_rollback_is_told_too(open_manager):
    manager = open_manager(workers=1)
    with manager.watch() as everything:
        live_through(manager, "job", fails=True)
        seen = []
        while not (seen and seen[-1].ended and seen[-1].id == "job"):
            seen.append(everything.next(30))

    whole = [change for change in seen if change.id == "job"]
    assert phases(whole)[-2:] == [("RUNNABLE", "rolling-back"), ("ROLLEDBACK", "done")]
    assert whole[-1].error.message == "it broke"
    assert whole[-2].reason == "it broke"


def test_with_steps_each_step_and_attempt_is_told(open_manager):
    manager = open_manager(workers=1)
    with manager.watch(steps=True) as watch:
        manager.submit(Count(4), "job").result(30)
        seen = []
        while not (seen and seen[-1].ended):
            seen.append(watch.next(30))

    assert [change.step for change in seen if change.attempt] == [1, 2, 3, 4]
    assert {change.kind for change in seen} == {"state", "step"}


def test_a_watch_of_a_finished_procedure_tells_its_end_at_once(open_manager):
    manager = open_manager(workers=1)
    manager.submit(Part(), "job").result(30)

    (only,) = list(manager.watch("job"))

    assert (only.kind, only.state, only.phase) == ("present", "SUCCESS", "done")


def test_progress_is_told_to_those_who_ask_for_it(open_manager, tmp_path, until):
    manager = open_manager(workers=1)
    with manager.watch(progress=True) as curious, manager.watch() as plain:
        manager.submit(Beats(str(tmp_path)), "job")
        until(lambda: manager.info("job").phase is Phase.WAITING)
        told = []
        while not (told and told[-1].phase is Phase.WAITING):
            told.append(curious.next(30))
        rest = []
        while not (rest and rest[-1].phase is Phase.WAITING):
            rest.append(plain.next(30))

    beats = [change for change in told if change.kind == "progress"]
    assert [change.progress for change in beats] == [0.0, 0.25, 0.5, 0.75]
    assert beats[-1].message == "part 3"
    assert (beats[0].id, beats[0].root, beats[0].step) == ("job", "job", 1)
    assert "progress" not in {change.kind for change in rest}


def test_unknown_ids_and_wrong_arguments_are_refused(open_manager):
    manager = open_manager(workers=1)

    with pytest.raises(UnknownProcedure, match="nobody"):
        manager.watch("nobody")
    with pytest.raises(ValueError, match="buffer"):
        manager.watch(buffer=0)
    with pytest.raises(ValueError, match="since"):
        manager.watch(since="yesterday")


def test_a_stop_ends_a_watch_of_everything_and_fails_a_watch_of_one(open_manager):
    manager = open_manager(workers=1)
    manager.submit(Whole(), "job")
    wait_until(lambda: manager.info("job").phase is Phase.WAITING)
    everything, one = manager.watch(), manager.watch("job")

    manager.stop()

    assert list(everything) == []
    assert one.next().kind == "present"
    with pytest.raises(ManagerStopped):
        one.next()


@pytest.mark.parametrize("end", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()])
def test_a_callback_that_wants_to_end_the_program_ends_no_other_callback(open_manager, until, caplog, end):
    manager = open_manager()
    told = []

    def raises(_handle):
        raise end

    manager.submit(Nap()).add_done_callback(raises)
    until(lambda: "a callback of the host raised" in caplog.text)
    manager.submit(Nap()).add_done_callback(told.append)

    until(lambda: told)


def test_a_closed_watch_ends_also_for_a_thread_that_waits_in_it(open_manager):
    manager = open_manager(workers=1)
    watch = manager.watch()
    found = []
    thread = threading.Thread(target=lambda: found.extend(watch))
    thread.start()

    watch.close()
    watch.close()

    thread.join(30)
    assert not thread.is_alive()
    assert found == []
    assert manager.metrics().watchers == 0
    with pytest.raises(TimeoutError, match=r"0\.01"):
        manager.watch().next(0.01)


def test_a_watch_that_is_dropped_in_the_middle_is_closed(open_manager, until):
    manager = open_manager(workers=1)
    waiting = len(manager._tree._replies._waiting)
    watched = (lambda: manager.watch("job"), manager.watch, lambda: client.watch("job"))
    manager.submit(Nap(600), "job")
    with ProcedureClient(manager._path) as client:
        for watch in watched[::2]:
            for change in watch():
                assert change.id == "job"
                break
        watched[1]()

        until(lambda: manager.metrics().watchers == 0)
    until(lambda: len(manager._tree._replies._waiting) == waiting)


def test_ctrl_c_in_a_watch_that_waits_for_a_commit_leaves_no_watcher_behind(open_manager, monkeypatch):
    manager = open_manager(workers=1)
    store = HeldCommits(manager._running().store)
    tree = manager._tree
    ask = tree._asked

    def ctrl_c(timeout=None):
        raise KeyboardInterrupt

    def interrupted(tell, make):
        future = ask(tell, make)
        future.result = ctrl_c
        return future

    store.free.clear()
    submits = threading.Thread(target=manager.submit, args=(Part(),))
    submits.start()
    assert store.waiting.wait(30)
    with monkeypatch.context() as patch:
        patch.setattr(tree, "_asked", interrupted)
        with pytest.raises(KeyboardInterrupt):
            manager.watch()
    tree.is_settled()  # by now the manager has heard that the watch is closed
    store.free.set()
    submits.join(30)

    assert manager.metrics().watchers == 0


def test_a_watcher_that_comes_back_goes_on_where_it_was(open_manager):
    manager = open_manager(workers=1)
    with manager.watch() as watch:
        manager.submit(Part(), "one").result(30)
        while not (last := watch.next(30)).ended:
            pass
    manager.submit(Part(), "two").result(30)

    with manager.watch(since=last.seq) as again:
        first = again.next(30)
    with manager.watch("two", since=last.seq) as of_two:
        told = list(of_two)
    with manager.watch(since=0) as stranger:
        gap = stranger.next(30)

    assert (first.id, first.previous) == ("two", "INITIALIZING")
    assert phases(told)[-1] == ("SUCCESS", "done")
    assert told[0].kind == "state"
    assert gap == Overflow(seq=gap.seq, lost=None)


def test_numbers_of_changes_grow_over_a_restart(open_manager):
    manager = open_manager(workers=1)
    manager.submit(Part(), "one").result(30)
    before = next(manager.watch("one")).seq
    manager.stop()
    manager.start()

    assert next(manager.watch("one")).seq > before


def test_a_slow_watcher_holds_nobody_up_and_is_told_how_much_it_missed(open_manager):
    manager = open_manager(workers=1)
    slow = manager.watch(buffer=4)
    quick = manager.watch()

    for handle in manager.submit_many([Part(number) for number in range(50)]):
        handle.result(30)
    manager.submit(Part(), "last").result(30)
    whole = []
    while not (whole and whole[-1].id == "last" and whole[-1].ended):
        whole.append(quick.next(30))
    slow.close()
    told = list(slow)

    gap, rest = told[0], told[1:]
    assert isinstance(gap, Overflow)
    assert rest == whole[-4:]
    assert gap.lost == len(whole) - 4
    assert gap.seq == whole[-5].seq


def test_the_end_of_a_watched_procedure_is_never_dropped():
    subscription = Subscription("job", steps=True, progress=False, bound=1)

    for number in range(10):
        subscription.offer(change_of(number, ProcedureState.RUNNABLE))
    subscription.offer(change_of(10, ProcedureState.SUCCESS))

    watch = Watch(subscription, lambda: None)
    gap, last = list(watch)
    assert (gap.lost, last.seq, last.ended) == (10, 10, True)


def change_of(seq, state):
    return Change(
        kind="state",
        seq=seq,
        at=0.0,
        id="job",
        root="job",
        type_name="T",
        state=state,
        phase=Phase.RUNNING,
        previous=ProcedureState.RUNNABLE,
        step=1,
        attempt=1,
    )


def test_a_watch_is_an_async_iterator_that_never_blocks_the_loop(open_manager):
    manager = open_manager(workers=1)

    async def watch_it():
        handle = manager.submit(Whole(), "job")
        seen = []
        async with manager.watch("job") as watch:
            async for change in watch:
                seen.append(change)
                if change.phase is Phase.WAITING:
                    manager.publish("word", "go")
        assert await handle == "well"
        return seen

    seen = asyncio.run(asyncio.wait_for(watch_it(), 60))

    assert phases(seen)[-1] == ("SUCCESS", "done")
    assert ("WAITING", "waiting") in phases(seen)


class Faltering(MemoryStore):
    """Every third commit fails; of those every other one was applied all the same."""

    commits = 0

    def commit(self, writes, epoch, batch=0):
        Faltering.commits += 1
        if Faltering.commits % 3 == 0:
            if Faltering.commits % 2:
                super().commit(writes, epoch, batch)
            raise StorageUnavailable("no space left")
        super().commit(writes, epoch, batch)


def test_nothing_is_told_twice_and_nothing_left_out_when_commits_fail():
    with on_threads(Faltering(), (Count,)) as manager, manager.watch(steps=True) as watch:
        handle = None
        while handle is None:
            try:
                handle = manager.submit(Count(12), "job")
            except StorageUnavailable:
                continue
        assert handle.result(30) == 12
        seen = []
        while not (seen and seen[-1].ended):
            seen.append(watch.next(30))

    steps = [change.step for change in seen]
    assert sorted(set(steps)) == list(range(1, 14))
    assert steps == sorted(steps)
    assert len({(change.step, change.attempt, change.phase, change.state) for change in seen}) == len(seen)


def test_after_a_crash_a_watch_goes_on_from_what_is_stored():
    store = MemoryStore()
    with on_threads(store, (Whole, Part)) as manager:
        manager.submit(Whole(), "job")
        wait_until(lambda: manager.info("job").phase is Phase.WAITING)

    with on_threads(store.clone(), (Whole, Part)) as manager:
        watch = manager.watch("job")
        manager.publish("word", "go")
        told = list(watch)

    assert phases(told) == [
        ("WAITING", "waiting"),
        ("RUNNABLE", "running"),
        ("WAITING_TIMEOUT", "sleeping"),
        ("RUNNABLE", "running"),
        ("RUNNABLE", "retrying"),
        ("RUNNABLE", "running"),
        ("SUCCESS", "done"),
    ]


def test_changes_that_nobody_was_there_for_are_a_gap_and_not_silence():
    clock = HandClock()
    change_feed = ChangeFeed(
        epoch=1, clock=clock, in_flight=InFlightTable(), events=EventHooks(None, lambda errand: errand())
    )
    first = Subscription(None, steps=False, progress=False, bound=10)
    change_feed.subscribe(first, None, None, None)
    change_feed.committed(batch_of("one"))
    seen = first.take(0)
    change_feed.unsubscribe(first)

    change_feed.committed(batch_of("two"))
    soon = Subscription(None, steps=False, progress=False, bound=10)
    change_feed.subscribe(soon, seen.seq, None, None)
    change_feed.unsubscribe(soon)
    clock.now = 3600.0
    change_feed.committed(batch_of("three"))
    late = Subscription(None, steps=False, progress=False, bound=10)
    change_feed.subscribe(late, soon.take(0).seq, None, None)
    change_feed.committed(batch_of("four"))

    gap, four = late.take(0), late.take(0)
    assert (gap.lost, four.id) == (None, "four")
    assert gap.seq < four.seq


def batch_of(id):
    batch = CommitBatch()
    record = ProcedureRecord(id=id, type_name="T", version=1, root=id, parent=None, seq=1)
    batch.writes.append(PutProcedure(record, None))
    return batch
