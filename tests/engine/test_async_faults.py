"""Async steps that break what they share with others, and state machines of them."""

from __future__ import annotations

import asyncio
import enum
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import (
    Limits,
    Procedure,
    ProcedureFailed,
    ProcedureState,
    RetryPolicy,
    Saga,
    StateMachineProcedure,
    Status,
    procedure,
    step,
)
from tests.engine.test_async_steps import arrive, bystander, pass_gate


# ---------------------------------------------------------------------- the loop
@dataclass
class Ends(Procedure):
    folder: str
    how: str
    retry = RetryPolicy(max_attempts=1)

    async def execute(self, ctx):
        loop = asyncio.get_running_loop()
        if self.how == "callback":
            loop.call_soon(sys.exit, 3)
        elif self.how == "stop":
            loop.stop()
        elif self.how == "close":
            loop.close()
        elif self.how == "own":
            sys.exit(3)
        else:
            await asyncio.gather(self._raise(), asyncio.sleep(0))
        await asyncio.sleep(0)
        return Status.done("over")

    async def _raise(self):
        raise {"exit": SystemExit, "interrupt": KeyboardInterrupt, "cancel": asyncio.CancelledError}[self.how]


@pytest.mark.parametrize(
    ("how", "end"),
    [
        ("exit", "SystemExit"),
        ("interrupt", "KeyboardInterrupt"),
        ("cancel", "CancelledError"),
        ("own", "SystemExit"),
        ("close", "Cannot close a running event loop"),
        ("callback", None),
        ("stop", None),
    ],
)
def test_what_ends_a_loop_elsewhere_ends_one_step_at_most(open_manager, gate, how, end):
    manager = open_manager(workers=1, procedures=[Ends, bystander])
    neighbour = manager.submit(bystander(gate.folder, 7))
    gate.reached("by")
    handle = manager.submit(Ends(gate.folder, how))

    if end is None:
        assert handle.result(30) == "over"
    else:
        with pytest.raises(ProcedureFailed, match=end):
            handle.result(30)
    gate.open("by")
    assert neighbour.result(30) == 7
    assert len(gate.arrivals("by")) == 1  # its worker lived on


@dataclass
class Plain(Procedure):
    folder: str

    def execute(self, ctx):
        arrive(self.folder, "plain")
        while not Path(self.folder, "plain.open").exists():
            threading.Event().wait(0.01)
        return Status.done()


def test_the_stack_of_a_plain_step_is_told_by_a_worker_that_has_run_async_ones(open_manager, gate):
    manager = open_manager(workers=1, procedures=[Plain, bystander])
    gate.open("by")
    assert manager.run(bystander(gate.folder, 7), timeout=30) == 7
    handle = manager.submit(Plain(gate.folder))
    gate.reached("plain")

    assert "in execute" in manager.stack(handle.id)
    gate.open("plain")
    handle.result(30)


# ---------------------------------------------------------------------- what does not end with its step
class Acts(Saga):
    """A step that acts on a thread, where nothing can be cancelled."""

    folder: str
    how: str

    @step
    async def book(self, ctx):
        if self.how == "to_thread":
            await asyncio.to_thread(self._act)

    @book.undo
    async def cancel(self, ctx):
        arrive(self.folder, "undone")

    @step
    def plain(self, ctx):
        if self.how == "plain":
            self._act()

    @plain.undo
    def undo_plain(self, ctx):
        arrive(self.folder, "undone")

    def _act(self):
        arrive(self.folder, "acting")
        while not Path(self.folder, "acting.open").exists():
            threading.Event().wait(0.01)
        if Path(self.folder, "undone").exists():
            arrive(self.folder, "acted behind its undo")
        arrive(self.folder, "acted")


@pytest.mark.parametrize("how", ["to_thread", "plain"])
@pytest.mark.parametrize("ends", [False, True])
def test_a_step_that_acts_on_a_thread_is_undone_when_the_thread_has_ended(open_manager, gate, how, ends):
    manager = open_manager(workers=1, procedures=[Acts])
    handle = manager.submit(Acts(gate.folder, how), limits=Limits(grace=30 if ends else 0.2))
    gate.reached("acting")
    manager.abort(handle.id, force=True)
    if ends:
        gate.open("acting")

    assert handle.wait(30)
    gate.open("acting")
    assert manager.info(handle.id).state is ProcedureState.ROLLEDBACK
    assert bool(gate.arrivals("acted")) is ends  # else its worker was killed
    assert gate.arrivals("undone")
    assert not gate.arrivals("acted behind its undo")


@procedure
async def sows(folder: str, depth: int) -> str:
    async def child(left: int) -> None:
        try:
            await asyncio.sleep(60)
        finally:
            arrive(folder, f"cancelled {left}")
            if left:
                running.append(asyncio.create_task(child(left - 1)))
                await asyncio.sleep(0)

    running = [asyncio.create_task(child(depth))]
    await asyncio.sleep(0)
    return "done"


def test_tasks_that_cancelled_tasks_start_are_cancelled_before_the_end_as_well(open_manager, gate):
    manager = open_manager(workers=1, procedures=[sows])

    assert manager.run(sows(gate.folder, 3), timeout=30) == "done"
    assert [len(gate.arrivals(f"cancelled {left}")) for left in (3, 2, 1, 0)] == [1, 1, 1, 1]


@procedure
async def leaves_a_generator(folder: str) -> int:
    async def numbers():
        try:
            for number in range(10):
                yield number
        finally:
            await asyncio.sleep(0)
            arrive(folder, "closed")

    async for number in numbers():
        if number == 3:
            break
    return number


def test_a_generator_that_is_left_by_a_break_is_closed_before_the_end(open_manager, gate, caplog):
    manager = open_manager(workers=1, procedures=[leaves_a_generator])

    assert manager.run(leaves_a_generator(gate.folder), timeout=30) == 3
    assert len(gate.arrivals("closed")) == 1
    assert not [record for record in caplog.records if "left work behind" in record.getMessage()]


# ---------------------------------------------------------------------- state machines
class Phase(enum.Enum):
    PACK = "pack"
    SEND = "send"
    WAIT = "wait"


@dataclass
class Parcel(StateMachineProcedure):
    folder: str
    how: str = ""
    initial_state = Phase.PACK
    retry = RetryPolicy(max_attempts=1)

    async def execute_from_state(self, ctx, state):
        await asyncio.sleep(0)
        if self.how in ("hold", "refuse"):
            await pass_gate(self.folder, "runs")
        if state is Phase.SEND and self.how == "fail":
            raise ValueError("no van")
        if state is Phase.SEND and self.how == "late":
            return Status.wait("signed", timeout=0.01)
        return {Phase.PACK: Phase.SEND, Phase.SEND: None}[state]

    async def rollback_state(self, ctx, state):
        await asyncio.sleep(0)
        arrive(self.folder, f"undone {state.value}")

    async def on_timeout(self, ctx):
        await asyncio.sleep(0)
        return Status.done("not signed")

    async def on_completed(self, ctx):
        await asyncio.sleep(0)
        arrive(self.folder, "completed")

    async def abort(self, ctx):
        await asyncio.sleep(0)
        arrive(self.folder, "asked")
        return self.how != "refuse"


def test_states_undos_and_hooks_of_a_machine_are_awaited(open_manager, gate):
    manager = open_manager(workers=1, procedures=[Parcel])

    assert manager.run(Parcel(gate.folder), timeout=30) is None
    assert len(gate.arrivals("completed")) == 1
    assert manager.run(Parcel(gate.folder, "late"), timeout=30) == "not signed"
    assert len(gate.arrivals("completed")) == 2
    failed = manager.submit(Parcel(gate.folder, "fail"))
    with pytest.raises(ProcedureFailed, match="no van"):
        failed.result(30)
    assert manager.info(failed.id).state is ProcedureState.ROLLEDBACK
    assert gate.arrivals("undone send")
    assert gate.arrivals("undone pack")


@pytest.mark.parametrize("allows", [True, False])
def test_a_machine_is_asked_by_an_awaited_hook_and_may_go_on(open_manager, gate, allows):
    manager = open_manager(workers=1, procedures=[Parcel])
    handle = manager.submit(Parcel(gate.folder, "hold" if allows else "refuse"))
    gate.reached("runs")
    manager.abort(handle.id)
    gate.open("runs")

    assert handle.wait(30)
    assert gate.arrivals("asked")
    end = ProcedureState.ROLLEDBACK if allows else ProcedureState.SUCCESS
    assert manager.info(handle.id).state is end


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize("limits", [{"memory": 10**9}, {"cpu_time": 5}, {"processes": 3}, {"nice": 5}, {"cpus": (0,)}])
def test_limits_of_the_whole_process_are_refused_of_a_step_when_its_class_is_made(limits):
    (name,) = limits
    with pytest.raises(TypeError, match=rf"the step 'plain' of .*Mixed has Limits\({name}=…\), .*'async def'"):

        class Mixed(Saga):
            @step(limits=Limits(**limits))
            def plain(self, ctx): ...

            @step
            async def waits(self, ctx): ...

    with pytest.raises(TypeError, match=rf"the step 'PACK' of .*Machine has Limits\({name}=…\), "):

        class Machine(Parcel, state_limits={Phase.PACK: Limits(**limits)}): ...
