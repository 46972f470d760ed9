"""What is stored of calls, once the program has their results."""

from __future__ import annotations

import asyncio
import time
from concurrent.futures import as_completed

import pytest

from actorproc import ProcedureExecutor, ProcedureManager, StoreReader, UnknownProcedure
from tests.executor.calls import Explodes, OurError, add, fail, mark_and_wait

pytestmark = pytest.mark.processes


def stored(path):
    with StoreReader(path) as reader:
        return {info.id for info in reader.list(limit=10_000)}


def by_result(executor, futures):
    return [future.result(30) for future in futures]


def by_exception(executor, futures):
    return [future.exception(30) for future in futures]


def as_they_come(executor, futures):
    return [future.result() for future in as_completed(futures, 30)]


def awaited(executor, futures):
    async def gathered():
        return await asyncio.gather(*map(asyncio.wrap_future, futures))

    return asyncio.run(gathered())


def by_callback(executor, futures):
    for future in futures:
        future.add_done_callback(lambda future: future.result())


@pytest.mark.parametrize("take", [by_result, by_exception, as_they_come, awaited, by_callback])
@pytest.mark.parametrize("count", [1, 600])
def test_calls_whose_results_were_taken_leave_the_store(open_executor, tmp_path, take, count):
    executor = open_executor()
    take(executor, [executor.submit(add, number, 1) for number in range(count)])
    executor.shutdown()

    assert stored(tmp_path / "state") == set()


def test_they_leave_while_the_program_goes_on(open_executor, until, tmp_path):
    executor = open_executor()
    future = executor.submit(bytes, 1_000_000)
    until(future.done)
    assert executor.manager.info(future.id).state == "SUCCESS"  # until the result was taken

    assert len(future.result()) == 1_000_000
    until(lambda: not executor.manager.list())
    assert len(future.result()) == 1_000_000
    with pytest.raises(UnknownProcedure):
        executor.get(future.id)


def test_maps_and_failures_leave_too(open_executor, tmp_path):
    executor = open_executor()
    assert list(executor.map(add, range(50))) == list(range(50))
    assert list(executor.map(add, range(50), chunksize=7)) == list(range(50))
    with pytest.raises(OurError):
        executor.submit(fail, OurError).result(30)
    executor.shutdown()

    assert stored(tmp_path / "state") == set()


def test_what_has_a_name_and_what_was_not_taken_stays(open_executor, tmp_path):
    executor = open_executor()
    named = [executor.submit_as("named", add, 1), executor.submit_with(id="also")(add, 2)]
    assert [future.result(30) for future in named] == [1, 2]
    left = executor.submit(add, 3)
    unreadable = executor.submit(Explodes)
    assert unreadable.exception(30) is not None
    executor.shutdown()

    assert stored(tmp_path / "state") == {"named", "also", left.id, unreadable.id}
    with ProcedureExecutor(tmp_path / "state", 1) as again:
        assert again.get(left.id).result(30) == 3
    assert left.id in stored(tmp_path / "state")


def test_cancelled_calls_leave_with_their_arguments(open_executor, tmp_path):
    executor = open_executor(max_workers=1)
    running = executor.submit(mark_and_wait, tmp_path / "began", tmp_path / "release")
    waiting = [executor.submit(add, number).durable(30) for number in range(20)]
    assert all(future.cancel() for future in waiting)
    (tmp_path / "release").touch()
    assert running.result(30)
    executor.shutdown()

    assert stored(tmp_path / "state") == set()


def test_a_call_that_a_stop_of_the_manager_cut_short_stays(tmp_path):
    manager = ProcedureManager(tmp_path / "state", workers=1).start()
    executor = ProcedureExecutor(manager)
    future = executor.submit(mark_and_wait, tmp_path / "began", tmp_path / "release").durable(30)
    manager.stop(drain=False, timeout=5)
    assert future.exception(30) is not None
    executor.shutdown()
    (tmp_path / "release").touch()

    with ProcedureExecutor(tmp_path / "state", 1) as again:
        assert again.get(future.id).result(30) > 0


def test_named_calls_stay_for_as_long_as_retain_says(open_executor, until):
    executor = open_executor(retain=0.1)
    assert executor.submit_as("named", add, 1).result(30) == 1
    until(lambda: not executor.manager.list())


def test_a_result_that_is_taken_late_leaves_too(open_executor, until):
    executor = open_executor()
    future = executor.submit(add, 1)
    until(lambda: future.done() and executor._queue._is_asleep)
    assert future.result() == 1
    until(lambda: not executor.manager.list())


def test_the_end_waits_for_no_removal_for_long(open_executor, monkeypatch):
    executor = open_executor()
    assert executor.submit(add, 1).result(30) == 1
    monkeypatch.setattr("actorproc.executor.taken._LAST_SECONDS", 0.2)
    monkeypatch.setattr(
        executor._queue._taken, "drop_some", lambda **_: setattr(executor._queue._taken, "_under_way", Never())
    )
    began = time.monotonic()
    executor.shutdown()
    assert time.monotonic() - began < 30
    executor._queue._taken._under_way = None


class Never:
    """A reply that does not come."""

    def exception(self, timeout):
        time.sleep(max(0.0, timeout))
        raise TimeoutError
