"""Waiting for calls whose end does not come: time limits in words, and calls that are parked."""

from __future__ import annotations

import pytest

from actorproc import Config, ProcedureManager, ProcedureParked, ResultTimeout
from actorproc.executor import ProcedureExecutor
from actorproc.procedure.authoring.call import Call
from tests.executor.calls import add
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND

WAITS = {
    "result": lambda executor, future: future.result(0.1),
    "exception": lambda executor, future: future.exception(0.1),
    "map": lambda executor, future: next(executor.map(add, [1], [2], timeout=0.2)),
}


@pytest.mark.parametrize("wait", WAITS)
def test_a_time_limit_that_passed_says_how_the_call_stands(tmp_path, wait):
    with ProcedureManager(tmp_path / "s", procedures=[Call], workers=1, **LIGHT).start(gated=True) as manager:
        executor = ProcedureExecutor(manager)
        future = executor.submit_as("sum", add, 1, 2)
        future.durable(BOUND)
        with pytest.raises(TimeoutError) as caught:
            WAITS[wait](executor, future)
        assert isinstance(caught.value, ResultTimeout)
        assert (caught.value.phase, caught.value.step) == ("queued", 1)
        manager.open()
        assert future.result(BOUND) == 3
        assert future.exception(0) is None
        executor.shutdown()


def _times_out():
    raise TimeoutError("of the function itself")


def test_a_time_limit_of_the_function_itself_stays_what_it_is(tmp_path):
    with ProcedureManager(tmp_path / "s", procedures=[Call], workers=1, **LIGHT) as manager:
        with (
            ProcedureExecutor(manager) as executor,
            pytest.raises(TimeoutError, match="of the function itself") as told,
        ):
            executor.submit(_times_out).result(BOUND)
        assert not isinstance(told.value, ResultTimeout)


def test_a_call_that_is_parked_ends_its_future(tmp_path):
    """Its store was signed by another key: no worker can read it, however long it is waited for."""
    with ProcedureManager(tmp_path / "s", procedures=[Call], workers=1, **LIGHT).start(gated=True) as manager:
        executor = ProcedureExecutor(manager)
        executor.submit_as("sum", add, 1, 2).durable(BOUND)
        manager.stop()
        executor.shutdown()
    light = {**LIGHT, "config": Config(spares=0, signing_key=b"another", parked_grace=0.0)}
    with (
        ProcedureManager(tmp_path / "s", procedures=[Call], workers=1, **light) as manager,
        ProcedureExecutor(manager) as executor,
    ):
        error = executor.get("sum").exception(BOUND)
        assert isinstance(error, ProcedureParked)
        assert error.member == "sum"
