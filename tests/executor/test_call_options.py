"""Limits, retries and times of calls: of an executor, and of one call."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from pathlib import Path

import pytest

from actorproc import Config, InvalidId, Limits, ProcedureExecutor, ProcedureManager, RetryPolicy
from actorproc.errors import StepTimeout
from actorproc.executor import CallBroken, CallTimeout
from tests.executor.calls import OurError, add, die, fail_until, sleep_after_mark

pytestmark = pytest.mark.processes

SOON = {"base": 0.01, "jitter": 0.0}


def attempts(marker):
    return len(Path(marker).read_text().splitlines())


# ---------------------------------------------------------------- time
@pytest.mark.parametrize("timeout", [0.3, timedelta(milliseconds=300)])
def test_a_call_past_its_timeout_is_killed_and_the_pool_goes_on(open_executor, tmp_path, timeout):
    executor = open_executor(max_workers=1)
    hanging = executor.submit_with(timeout=timeout)(sleep_after_mark, tmp_path / "marks", 60)

    with pytest.raises(CallTimeout, match=r"wall time of 0\.3 s") as caught:
        hanging.result(30)
    assert isinstance(caught.value, TimeoutError)
    assert isinstance(caught.value, StepTimeout)
    assert (caught.value.kind, attempts(tmp_path / "marks")) == ("timeout", 1)
    assert executor.submit(add, 1, 2).result(30) == 3


def test_the_timeout_of_a_call_replaces_only_the_wall_time_of_the_executors_limits(open_executor, tmp_path):
    executor = open_executor(limits=Limits(memory=256 * 2**20, wall_time=0.3))

    assert isinstance(executor.submit(sleep_after_mark, tmp_path / "a", 60).exception(30), CallTimeout)
    assert isinstance(executor.submit(bytearray, 2**30).exception(30), MemoryError)
    long = executor.submit_with(timeout=30)
    assert long(sleep_after_mark, tmp_path / "b", 0.6).result(30) is None
    assert isinstance(long(bytearray, 2**30).exception(30), MemoryError)
    assert executor.submit_with(limits=Limits())(lambda: len(bytearray(2**29))).result(30) == 2**29


@pytest.mark.parametrize("retry_on", [StepTimeout, (OurError, CallTimeout)])
def test_a_killed_call_is_tried_again_where_its_policy_takes_timeouts(open_executor, retry_on):
    executor = open_executor(max_workers=1)
    retry = RetryPolicy(max_attempts=2, retry_on=retry_on, **SOON)
    submit = executor.submit_with(timeout=0.2, retry=retry, id="hangs")

    assert isinstance(submit(time.sleep, 60).exception(30), CallTimeout)
    assert executor.manager.info("hangs").errors == 2


def test_a_limit_between_heartbeats_is_refused_for_calls_which_send_none(open_executor):
    with pytest.raises(ValueError, match=r"a call sends no heartbeats.*wall_time"):
        open_executor(limits=Limits(heartbeat=5))
    with pytest.raises(ValueError, match="a call sends no heartbeats"):
        open_executor().submit_with(limits=Limits(heartbeat=5))(add, 1, 2)


def test_a_number_of_tasks_is_refused_for_calls_which_run_on_no_loop(open_executor):
    with pytest.raises(ValueError, match=r"Limits\(tasks=5\) is for async steps"):
        open_executor(limits=Limits(tasks=5))
    with pytest.raises(ValueError, match="is for async steps"):
        open_executor().submit_with(limits=Limits(tasks=1))(add, 1, 2)


async def added_later(left, right):
    await asyncio.sleep(0)
    return add(left, right)


def add_on_a_loop(left, right):
    return asyncio.run(added_later(left, right))


# The coroutine that a call makes is of no use, as Python says in the worker.
@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
def test_an_async_function_is_no_call_and_a_loop_may_wait_for_plain_ones(open_executor):
    executor = open_executor(max_workers=1)

    with pytest.raises(TypeError, match=r"added_later\(\) is 'async def', and an executor awaits nothing"):
        executor.submit(added_later, 1, 2).result(60)
    with pytest.raises(TypeError, match=r"added_later\(\) is 'async def', and an executor awaits nothing"):
        list(executor.map(added_later, [1, 2], [3, 4], chunksize=2))

    async def main():
        first = asyncio.get_running_loop().run_in_executor(executor, add_on_a_loop, 1, 2)
        return await first, await asyncio.wrap_future(executor.submit(add_on_a_loop, 3, 4))

    assert asyncio.run(main()) == (3, 7)


def test_time_in_the_queue_does_not_count(open_executor, tmp_path):
    executor = open_executor(max_workers=1)
    first = executor.submit(sleep_after_mark, tmp_path / "marks", 0.6)

    assert executor.submit_with(timeout=0.5)(add, 1, 2).result(30) == 3
    assert first.done()


# ---------------------------------------------------------------- retries
@pytest.mark.parametrize(
    "retry_on",
    [OurError, (ValueError, OurError), lambda error: isinstance(error, OurError)],
    ids=["class", "tuple", "function"],
)
def test_errors_that_a_policy_names_are_tried_again(open_executor, tmp_path, retry_on):
    executor = open_executor(retry=RetryPolicy(max_attempts=3, retry_on=retry_on, **SOON))

    assert executor.submit(fail_until, tmp_path / "third", 3, OurError).result(30) == 3
    assert isinstance(executor.submit(fail_until, tmp_path / "fourth", 4, OurError).exception(30), OurError)
    assert attempts(tmp_path / "fourth") == 3
    assert isinstance(executor.submit(fail_until, tmp_path / "other", 2, KeyError).exception(30), KeyError)
    assert attempts(tmp_path / "other") == 1
    assert list(executor.map(fail_until, [tmp_path / "m1", tmp_path / "m2"], [2, 3], [OurError] * 2)) == [2, 3]


def test_one_call_has_a_policy_and_the_others_have_none(open_executor, tmp_path):
    executor = open_executor()
    retry = RetryPolicy(max_attempts=5, retry_on=OurError, **SOON)

    assert executor.submit_with(retry=retry)(fail_until, tmp_path / "with", 3, OurError).result(30) == 3
    assert isinstance(executor.submit(fail_until, tmp_path / "without", 3, OurError).exception(30), OurError)
    never = executor.submit_with(retry=RetryPolicy(max_attempts=1))
    assert isinstance(never(fail_until, tmp_path / "never", 2, TimeoutError).exception(30), TimeoutError)


def test_a_policy_of_classes_that_a_script_defines(open_executor, tmp_path):
    class Local(Exception):
        pass

    def work(marker):
        with marker.open("a") as file:
            file.write("mark\n")
        if len(marker.read_text().splitlines()) < 2:
            raise Local
        return "done"

    executor = open_executor(retry=RetryPolicy(retry_on=Local, **SOON))
    assert executor.submit(work, tmp_path / "marks").result(30) == "done"


def test_a_call_goes_on_with_its_policy_after_a_restart_of_the_program(open_executor, tmp_path):
    executor = open_executor(max_workers=1)
    retry = RetryPolicy(max_attempts=3, retry_on=OurError, base=3.0, jitter=0.0)
    future = executor.submit_with(id="job", retry=retry)(fail_until, tmp_path / "marks", 2, OurError)
    while not (tmp_path / "marks").exists() or executor.manager.info("job").errors == 0:
        time.sleep(0.01)
    executor.manager.stop()
    assert not future.cancelled()

    again = open_executor(max_workers=1)
    assert again.get("job").result(30) == 2


def test_deaths_are_counted_as_the_limits_say(open_executor):
    executor = open_executor(max_workers=1)

    with pytest.raises(CallBroken, match="for the 1st time"):
        executor.submit_with(limits=Limits(crashes=1))(die).result(30)


# ---------------------------------------------------------------- names and settings
def test_a_call_with_an_id_is_made_once(open_executor):
    executor = open_executor()
    submit = executor.submit_with(id="sum", timeout=30)

    assert [submit(add, 1, 2).result(30), submit(add, 5, 5).result(30), executor.get("sum").result(30)] == [3, 3, 3]
    assert executor.submit_as("sum", add, 0).id == "sum"


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"timeout": 0}, ValueError, "timeout is a number of seconds"),
        ({"timeout": float("nan")}, ValueError, "timeout is a number of seconds"),
        ({"timeout": "1"}, TypeError, "timeout is a number of seconds"),
        ({"limits": 5}, TypeError, "limits is a Limits"),
        ({"retry": 5}, TypeError, "retry is a RetryPolicy"),
        ({"id": "a/b"}, InvalidId, "is not valid"),
        ({"limits": Limits(threads=2), "timeout": 5, "colour": 1}, TypeError, "colour"),
    ],
)
def test_wrong_options_of_a_call_are_refused_at_once(open_executor, options, error, words):
    with pytest.raises(error, match=words):
        open_executor().submit_with(**options)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"limits": 5}, TypeError, "limits is a Limits"),
        ({"retry": 5}, TypeError, "retry is a RetryPolicy"),
        ({"config": {}}, TypeError, "config is a Config"),
        ({"retain": -1}, ValueError, "retain is a number of seconds"),
        ({"retain": "week"}, TypeError, "retain is a number of seconds"),
    ],
)
def test_wrong_options_of_an_executor_are_refused_at_once(tmp_path, options, error, words):
    with pytest.raises(error, match=words):
        ProcedureExecutor(tmp_path / "state", **options)


def test_settings_are_those_of_a_manager_of_its_own(open_executor, tmp_path):
    executor = open_executor(config=Config(spares=0), max_tasks_per_child=7, retain=timedelta(hours=1))
    config = executor.manager._config

    assert (config.spares, config.recycle_steps, config.retain_for) == (0, 7, 3600.0)
    with ProcedureManager(tmp_path / "other", workers=1) as manager:
        for options in ({"config": Config()}, {"retain": 5}):
            with pytest.raises(ValueError, match="for an executor with a manager of its own"):
                ProcedureExecutor(manager, **options)
        with ProcedureExecutor(manager, limits=Limits(wall_time=0.2)) as shared:
            assert isinstance(shared.submit(time.sleep, 60).exception(30), CallTimeout)
