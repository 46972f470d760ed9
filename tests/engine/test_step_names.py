"""The name of a step, wherever the step is told of."""

from __future__ import annotations

import enum
import logging
import os
import signal

import pytest

from actorproc import Procedure, ProcedureFailed, RetryPolicy, Saga, StateMachineProcedure, Status, StoreReader, step
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes


class Order(Saga, retry=RetryPolicy(max_attempts=1)):
    folder: str = ""

    @step
    def reserve(self, ctx):
        return None

    @reserve.undo
    def release(self, ctx):
        return None

    @step
    def ask(self, ctx):
        ctx.log.warning("asked")

    @step
    def ship(self, ctx):
        raise ValueError("no van")


class Halts(Saga):
    @step
    def prepare(self, ctx):
        return None

    @step
    def wait_here(self, ctx):
        return Status.wait("go")

    @step
    def crash(self, ctx):
        os.kill(os.getpid(), signal.SIGKILL)


class Light(enum.Enum):
    RED = 1
    GREEN = 2


class Lamp(StateMachineProcedure):
    initial_state = Light.RED

    def execute_from_state(self, ctx, state):
        return Light.GREEN if state is Light.RED else None


class Plain(Procedure):
    def execute(self, ctx):
        return Status.done() if ctx.step == 2 else Status.executing()


def test_a_failed_saga_says_everywhere_in_which_step(open_manager, caplog):
    caplog.set_level(logging.INFO)
    events = []
    manager = open_manager(workers=1, on_event=events.append)
    handle = manager.submit(Order(), id="order")

    with pytest.raises(ProcedureFailed, match=r"at step 3 \(ship\)") as raised:
        handle.result(timeout=30)

    assert raised.value.step_name == "ship"
    assert raised.value.cause is not None
    assert raised.value.cause.step_name == "ship"
    info = manager.info("order")
    assert (info.step_name, info.step_in_words) == ("ship", "step 3 (ship)")
    assert info.error is not None
    assert info.error.step_name == "ship"
    log = [(row.number, row.step_name, row.next_name) for row in manager.steps("order")]
    assert log[:4] == [(1, None, "reserve"), (2, "reserve", "ask"), (3, "ask", "ship"), (4, "reserve", None)]
    wait_until(lambda: any(event.kind == "rolled-back" for event in events))
    assert next(event for event in events if event.kind == "rolled-back").step_name == "ship"
    asked = next(record for record in caplog.records if record.getMessage() == "asked")
    facts = ("procedure", "root", "step", "step_name", "attempt", "slot", "pid")
    assert [getattr(asked, name) for name in facts] == ["order", "order", 2, "ask", 1, 0, asked.process]
    named = next(iter(manager.metrics().named_steps.values()))
    assert {name: counts.run for name, counts in named.items()} == {
        "ask": 1,
        "reserve": 1,
        "ship": 1,
        "undo reserve": 1,
    }
    assert 'step="undo reserve"' in manager.metrics().prometheus()


def test_a_waiting_one_and_a_dead_worker_are_told_by_name_also_after_a_restart(open_manager, tmp_path):
    events = []
    with open_manager(workers=1) as manager:
        manager.submit(Halts(), id="halts")
        wait_until(lambda: manager.info("halts").event == "go")
        assert manager.info("halts").step_name == "crash"
    with StoreReader(tmp_path / "state") as reader:
        assert reader.info("halts").step_name == "crash"
    manager = open_manager(workers=1, on_event=events.append)
    manager.register(Halts)
    assert manager.info("halts").step_in_words == "step 3 (crash)"
    manager.signal("halts")
    with pytest.raises(ProcedureFailed, match=r"in step 3 \(crash\)"):
        manager.get("halts").result(timeout=60)
    died = next(event for event in events if event.kind == "worker-died")
    assert died.step_name == "crash"
    assert "step 3 (crash) attempt 1" in str(died)
    assert "crash" in manager.why("halts").says


def test_states_are_names_and_plain_steps_have_numbers(open_manager):
    manager = open_manager(workers=1)
    manager.submit(Lamp(), id="lamp").result(timeout=30)
    manager.submit(Plain(), id="plain").result(timeout=30)

    assert [row.next_name for row in manager.steps("lamp")] == ["RED", "GREEN", None]
    assert [row.step_name for row in manager.steps("lamp")] == [None, "RED", "GREEN"]
    assert [row.next_name for row in manager.steps("plain")] == [None, None, None]
    assert manager.info("plain").step_name is None
