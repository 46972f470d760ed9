"""Calls that are cancelled, refused or asked for while they are on their way into the store."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

from actorproc import Config, ProcedureManager, Status, UnknownProcedure, procedure
from actorproc.executor import CallBroken, ProcedureExecutor, queue
from tests.executor.calls import Never, add, fail, mark_and_wait

pytestmark = [pytest.mark.processes, pytest.mark.usefixtures("results_stay")]


def refuse():
    raise OSError("no licence server")


class Result:
    """What can be referred to weakly."""


@pytest.fixture
def small(tmp_path):
    """An executor whose manager has room for one call that runs and one that waits."""
    config = Config(spares=0, max_running=1, max_queued=1)
    with ProcedureManager(tmp_path / "state", workers=1, config=config) as manager:
        executor = ProcedureExecutor(manager)
        executor.submit(add, 1).result(30)
        yield executor
        manager.stop(drain=False, timeout=10)  # a test that failed has let nobody go
        executor.shutdown()


def in_one_batch(executor, monkeypatch, submit):
    """What `submit` submits goes to the manager together."""
    go, following = threading.Event(), queue.CallQueue._next
    monkeypatch.setattr(queue.CallQueue, "_next", lambda calls: go.wait(30) and following(calls))
    executor.submit(add, 2)  # the sender takes it, and stands still before the next
    futures = submit()
    go.set()
    return futures


def test_a_call_that_is_stored_with_a_part_of_its_batch_is_not_withdrawn_with_the_rest(
    small, tmp_path, monkeypatch, until
):
    release, markers = tmp_path / "release", [tmp_path / str(number) for number in range(4)]
    refused, plain = threading.Event(), queue.CallQueue._submitted

    def submitted(calls, *arguments):
        found = plain(calls, *arguments)
        if not found:
            refused.set()
        return found

    futures = in_one_batch(
        small,
        monkeypatch,
        lambda: [small.submit(mark_and_wait, str(marker), str(release)) for marker in markers],
    )
    monkeypatch.setattr(queue.CallQueue, "_submitted", submitted)
    assert refused.wait(30)
    until(markers[0].exists)
    until(lambda: small._queue._held is not None and small._queue._held is futures[-1]._batch)
    # As one who asked while all of the batch was on its way, and looks at it again.
    withdrawn = [small._queue._withdraw(future) for future in futures]
    release.touch()

    assert withdrawn[0] is False
    for future, is_withdrawn in zip(futures, withdrawn, strict=True):
        assert future.cancelled() is is_withdrawn
        assert is_withdrawn or future.result(30)
    assert sum(marker.exists() for marker in markers) == sum(not future.cancelled() for future in futures)


def test_whoever_waits_for_the_disk_waits_for_the_part_that_has_the_call(small, tmp_path, monkeypatch, until):
    release, marker = tmp_path / "release", tmp_path / "began"
    futures = in_one_batch(
        small,
        monkeypatch,
        lambda: [small.submit(mark_and_wait, str(marker), str(release)) for _ in range(6)],
    )

    assert futures[0].durable(30) is futures[0]
    until(marker.exists)
    with pytest.raises(TimeoutError):
        futures[-1].durable(0.2)
    release.touch()
    assert futures[-1].durable(30) is futures[-1]
    assert all(future.result(30) for future in futures)


def test_a_call_that_cannot_be_pickled_is_not_on_disk(open_executor):
    executor = open_executor()
    future = executor.submit(add, Never())

    with pytest.raises(Exception, match="not this one"):
        future.durable(5)
    with pytest.raises(UnknownProcedure):
        executor.manager.info(future.id)


def test_a_call_of_an_earlier_initializer_breaks_nothing_but_its_own_future(open_executor, tmp_path):
    with open_executor(tmp_path / "one", initializer=refuse) as broken:
        future = broken.submit(add, 1)
        with pytest.raises(CallBroken):
            future.result(30)
    executor = open_executor(tmp_path / "one")

    assert executor.submit(add, 1).result(30) == 1
    with pytest.raises(CallBroken, match="no licence server"):
        executor.get(future.id).result(30)
    assert executor.submit(add, 2).result(30) == 2


def test_an_executor_that_is_broken_says_so_without_keeping_who_asked(open_executor):
    executor = open_executor(initializer=refuse)
    with pytest.raises(CallBroken):
        executor.submit(add, 1).result(30)

    def frames():
        with pytest.raises(CallBroken) as broken:
            executor.submit(add, 1)
        return len(broken.traceback)

    first = frames()
    assert [frames() for _ in range(5)] == [first] * 5


@pytest.mark.parametrize("arguments", [[4, 5], [4, 6]], ids=["the same", "others"])
def test_a_call_of_an_id_that_is_under_way_is_the_one_that_is_under_way(open_executor, arguments):
    executor = open_executor(max_workers=1)

    for number in range(20):
        first = executor.submit_as(f"a{number}", sum, [4, 5])
        second = executor.submit_as(f"a{number}", sum, arguments)
        assert (first.result(30), second.result(30)) == (9, 9)
        assert second.durable(30) is second


def test_a_call_never_gets_the_end_of_a_procedure_that_has_its_id(tmp_path, monkeypatch):
    @procedure
    def other(ctx):
        return Status.done(1)

    with ProcedureManager(tmp_path / "state", procedures=[other], workers=1) as manager:
        manager.run(other(), id="taken")
        executor = ProcedureExecutor(manager)
        monkeypatch.setattr(type(manager._running().store), "procedure", lambda *_: None)  # it comes a moment later
        future = executor.submit_as("taken", add, 1)
        monkeypatch.undo()

        assert "taken" in str(future.exception(30))
        executor.shutdown()


def test_a_map_whose_time_is_up_says_so_without_waiting_for_the_disk(open_executor, tmp_path, monkeypatch):
    executor = open_executor(max_workers=1)
    release = tmp_path / "release"
    asked, may_go = threading.Event(), threading.Event()
    plain = executor._queue.cancel_each

    def stand_still(futures):
        asked.set()
        may_go.wait(30)
        plain(futures)

    monkeypatch.setattr(executor._queue, "cancel_each", stand_still)
    results = executor.map(mark_and_wait, [str(tmp_path / "began")] * 3, [str(release)] * 3, timeout=0.1)

    with pytest.raises(TimeoutError):
        next(results)

    assert asked.wait(30)
    release.touch()
    may_go.set()


def test_results_are_let_go_without_the_collector(open_executor, until):
    executor = open_executor()
    gc.collect()
    gc.disable()
    try:
        future = executor.submit(Result)
        future.add_done_callback(lambda _: None)
        kept = weakref.ref(future.result(30))
        del future
        until(lambda: kept() is None)

        results = executor.map(lambda number: fail(ValueError) if number == 0 else Result(), range(6))
        with pytest.raises(ValueError):
            next(results)
        del results
        until(lambda: not executor._queue._unfinished)
        until(lambda: not any(type(one) is Result for one in gc.get_objects()))
    finally:
        gc.enable()


def test_a_quota_refuses_and_takes_and_what_is_cancelled_never_runs(small, tmp_path):
    for number in range(6):
        folder = tmp_path / f"round-{number}"
        folder.mkdir()
        futures = [small.submit(mark_and_wait, str(folder / str(one)), "/") for one in range(20)]
        time.sleep(0.002 * number)  # only where in the batch it comes depends on it
        answers = [future.cancel() for future in reversed(futures)][::-1]
        for future, answer, one in zip(futures, answers, range(20), strict=True):
            assert future.cancelled() is answer
            if not answer:
                assert future.result(30)
            assert (folder / str(one)).exists() is not answer
