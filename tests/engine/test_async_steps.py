"""Steps written with ``async def``: beside each other in one worker, and who pays for a crash, a limit or an abort."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import (
    AsyncContext,
    Limits,
    Procedure,
    ProcedureFailed,
    ProcedureState,
    RetryPolicy,
    Saga,
    Status,
    UsageError,
    procedure,
    step,
)
from actorproc.api.replay.exported import store_of_export
from actorproc.api.replay.replayer import Replayer, registry_of
from actorproc.cli.main import main
from actorproc.testing import InlineManager
from tests.kit.waiting import wait_until


def arrive(folder, name):
    with Path(folder, name).open("a") as file:
        file.write(f"{os.getpid()}\n")


async def pass_gate(folder, name):
    arrive(folder, name)
    while not Path(folder, f"{name}.open").exists():  # noqa: ASYNC110, ASYNC240 - a file is all that is shared
        await asyncio.sleep(0.01)


def segfault():
    ctypes.string_at(1)


# ---------------------------------------------------------------------- beside each other
@procedure
async def meet(folder: str, number: int) -> int:
    await pass_gate(folder, "met")
    return number * 2


def test_a_hundred_steps_wait_beside_each_other_in_one_worker(open_manager, gate):
    manager = open_manager(workers=1, procedures=[meet])
    handles = manager.submit_many([meet(gate.folder, number) for number in range(100)])
    gate.reached("met", times=100)
    gate.open("met")

    assert [handle.result(30) for handle in handles] == [number * 2 for number in range(100)]
    assert len(set(gate.arrivals("met"))) == 1


class Order(Saga):
    folder: str
    paid: int = 0

    @step
    async def reserve(self, ctx: AsyncContext):
        self.paid = await ctx.remember("price", self._price)
        await ctx.expose("price", self.paid)

    async def _price(self):
        await asyncio.sleep(0)
        return 40

    @reserve.undo
    async def release(self, ctx):
        arrive(self.folder, "released")

    @step
    def plain(self, ctx):  # on a thread of its own, with the requests that wait
        assert threading.current_thread() is not threading.main_thread()
        self.paid += ctx.remember("tip", lambda: 2)

    @step
    async def look(self, ctx: AsyncContext):
        found = await ctx.query(ctx.id)
        assert found["id"] == ctx.id
        return Status.suspended([meet(self.folder, 21)])

    @step
    async def pay(self, ctx: AsyncContext):
        assert ctx.step_name == "pay"
        (child,) = ctx.children.values()
        one, two = await asyncio.gather(asyncio.sleep(0.01, 1), asyncio.sleep(0.01, 2))
        if self.folder.endswith("bad"):
            raise ValueError("no money")
        return self.paid + child.output + one + two


@pytest.mark.parametrize("inline", [False, True])
def test_requests_of_the_context_are_awaited_and_plain_steps_may_stand_between(open_manager, gate, inline):
    gate.open("met")
    if inline:
        with InlineManager([Order, meet]) as manager:
            assert manager.run(Order(gate.folder), timeout=30) == 40 + 2 + 42 + 3
        return
    manager = open_manager(procedures=[Order, meet])
    handle = manager.submit(Order(gate.folder))
    assert handle.result(30) == 87
    assert dict(manager.info(handle.id).exposed)["price"] == 40


def test_a_failed_saga_is_undone_by_its_async_undos(open_manager, tmp_path):
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "met.open").touch()
    manager = open_manager(procedures=[Order, meet])

    with pytest.raises(ProcedureFailed, match="no money"):
        manager.run(Order(str(folder)), timeout=30)
    assert (folder / "released").exists()


# ---------------------------------------------------------------------- crashes
@dataclass
class Dies(Procedure):
    folder: str
    how: str
    limits = Limits(crashes=1)

    async def execute(self, ctx):
        await pass_gate(self.folder, "guilty")
        await getattr(self, f"_{self.how}")()
        return Status.done("alive")

    async def _step(self):
        segfault()

    async def _exit(self):
        os._exit(3)

    async def _killed(self):
        os.kill(os.getpid(), signal.SIGKILL)
        await asyncio.to_thread(threading.Event().wait)  # not before the signal has come

    async def _child_task(self):
        async def child():
            await asyncio.sleep(0)
            segfault()

        await asyncio.gather(child(), asyncio.sleep(30))

    async def _to_thread(self):
        await asyncio.to_thread(segfault)

    async def _own_pool(self):
        with ThreadPoolExecutor(1) as pool:
            await asyncio.wrap_future(pool.submit(segfault))

    async def _own_thread(self):
        threading.Thread(target=segfault).start()
        await asyncio.sleep(30)

    async def _callback(self):
        asyncio.get_running_loop().call_later(0.01, segfault)
        await asyncio.sleep(30)

    async def _timer_of_a_callback(self):
        loop = asyncio.get_running_loop()
        loop.call_soon(loop.call_soon, segfault)
        await asyncio.sleep(30)


WAYS = [name[1:] for name, member in vars(Dies).items() if name.startswith("_") and asyncio.iscoroutinefunction(member)]


@procedure
async def bystander(folder: str, number: int) -> int:
    await pass_gate(folder, "by")
    return number


@pytest.mark.parametrize("how", WAYS)
def test_a_crash_is_charged_to_the_step_whose_code_ran_and_to_none_beside_it(open_manager, gate, how):
    manager = open_manager(workers=1, procedures=[Dies, bystander])
    others = manager.submit_many([bystander(gate.folder, number) for number in range(5)])
    guilty = manager.submit(Dies(gate.folder, how))
    gate.reached("by", times=5)
    gate.reached("guilty")
    gate.open("guilty")

    with pytest.raises(ProcedureFailed, match="its worker crashed"):
        guilty.result(30)
    gate.reached("by", times=10)  # each was begun again, beside the others
    gate.open("by")
    assert [handle.result(30) for handle in others] == list(range(5))
    assert len(set(gate.arrivals("by"))) == 2
    assert [attempt for handle in others for attempt in manager.attempts(handle.id)] == []


def test_a_worker_that_is_killed_while_all_its_steps_wait_costs_none_of_them(open_manager, gate):
    manager = open_manager(workers=1, procedures=[bystander])
    strict = Limits(crashes=1)
    handles = manager.submit_many([bystander(gate.folder, number) for number in range(5)], limits=strict)
    pid = gate.reached("by", times=5)
    os.kill(pid, signal.SIGKILL)
    gate.reached("by", times=10)
    gate.open("by")

    assert [handle.result(30) for handle in handles] == list(range(5))


# ---------------------------------------------------------------------- limits and aborts
@dataclass
class Stubborn(Procedure):
    folder: str
    swallows: int
    retry = RetryPolicy(max_attempts=1)

    async def execute(self, ctx):
        arrive(self.folder, "stubborn")
        left = self.swallows
        while True:
            try:
                await asyncio.sleep(30)
            except asyncio.CancelledError:
                arrive(self.folder, "cancelled")
                if not left:
                    return Status.done("too late")
                left -= 1


@pytest.mark.parametrize("swallows", [0, 1])
def test_a_limit_cancels_the_step_again_and_its_outcome_wins_over_what_is_returned(open_manager, gate, swallows):
    manager = open_manager(workers=1, procedures=[Stubborn, bystander])
    neighbour = manager.submit(bystander(gate.folder, 7))
    gate.reached("by")
    late = manager.submit(Stubborn(gate.folder, swallows), limits=Limits(wall_time=0.1, grace=30))

    with pytest.raises(ProcedureFailed, match="longer than its wall time"):
        late.result(30)
    assert len(gate.arrivals("cancelled")) == swallows + 1
    gate.open("by")
    assert neighbour.result(30) == 7
    assert len(gate.arrivals("by")) == 1  # its worker lived on


def test_a_step_that_never_ends_costs_its_worker_and_its_neighbours_run_again_uncharged(open_manager, gate):
    manager = open_manager(workers=1, procedures=[Stubborn, bystander])
    neighbour = manager.submit(bystander(gate.folder, 7), limits=Limits(crashes=1))
    gate.reached("by")
    late = manager.submit(Stubborn(gate.folder, 10**6), limits=Limits(wall_time=0.1, grace=0.3))

    with pytest.raises(ProcedureFailed, match="longer than its wall time"):
        late.result(30)
    gate.reached("by", times=2)
    gate.open("by")
    assert neighbour.result(30) == 7
    assert manager.attempts(neighbour.id) == []


@dataclass
class Blocker(Procedure):
    folder: str
    limits = Limits(crashes=1)

    async def execute(self, ctx):
        await pass_gate(self.folder, "blocker")
        threading.Event().wait()  # not awaited
        return Status.done()


def test_a_step_that_blocks_the_loop_pays_for_its_neighbours_limits(open_manager, gate, caplog):
    manager = open_manager(workers=1, procedures=[Blocker, bystander])
    blocker = manager.submit(Blocker(gate.folder))
    gate.reached("blocker")
    limits = Limits(wall_time=5, grace=1.5, crashes=1)
    neighbours = manager.submit_many([bystander(gate.folder, number) for number in range(3)], limits=limits)
    gate.reached("by", times=3)
    gate.open("blocker")

    with pytest.raises(ProcedureFailed, match="it blocked the event loop of its worker"):
        blocker.result(30)
    gate.open("by")
    assert [handle.result(30) for handle in neighbours] == [0, 1, 2]
    warnings = [record for record in caplog.records if "blocks the event loop" in record.getMessage()]
    assert warnings
    assert all(blocker.id in record.getMessage() for record in warnings)
    assert "in execute" in warnings[0].getMessage()


class Booking(Saga):
    folder: str

    @step
    async def book(self, ctx):
        arrive(self.folder, "booking")
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            arrive(self.folder, "tidied")

    @book.undo
    async def cancel(self, ctx):
        arrive(self.folder, "undone")


@pytest.mark.parametrize("force", [False, True])
def test_an_abort_cancels_the_step_at_once_and_undoes_it_when_it_has_ended(open_manager, gate, force):
    manager = open_manager(workers=1, procedures=[Booking, bystander])
    neighbour = manager.submit(bystander(gate.folder, 7))
    handle = manager.submit(Booking(gate.folder), limits=Limits(grace=30))
    gate.reached("booking")
    gate.reached("by")
    manager.abort(handle.id, force=force)

    assert handle.wait(30)
    assert manager.info(handle.id).state is ProcedureState.ROLLEDBACK
    assert gate.arrivals("tidied")
    assert gate.arrivals("undone")
    gate.open("by")
    assert neighbour.result(30) == 7
    assert len(gate.arrivals("by")) == 1


def test_an_operator_ends_an_attempt_and_the_step_runs_again(open_manager, gate):
    manager = open_manager(workers=1, procedures=[bystander])
    handle = manager.submit(bystander(gate.folder, 7))
    pid = gate.reached("by")
    manager.kill(handle.id)
    gate.reached("by", times=2)
    gate.open("by")

    assert handle.result(30) == 7
    assert set(gate.arrivals("by")) == {pid}


# ---------------------------------------------------------------------- what a step leaves behind, and shows
@procedure
async def forgetful(folder: str) -> str:
    async def acts_late():
        await asyncio.sleep(0.2)
        arrive(folder, "acted")

    asyncio.create_task(acts_late(), name="late one")  # noqa: RUF006 - it is the mistake
    await asyncio.sleep(0)
    return "done"


def test_tasks_that_a_step_leaves_behind_are_cancelled_before_its_end_and_told(open_manager, gate, caplog):
    manager = open_manager(workers=1, procedures=[forgetful])

    assert manager.run(forgetful(gate.folder), timeout=30) == "done"
    (said,) = wait_until(lambda: [one for one in caplog.records if "left work behind" in one.getMessage()])
    assert said.levelno == logging.WARNING
    assert "late one (forgetful.<locals>.acts_late, " in said.getMessage()
    assert not gate.arrivals("acted")


class Talks(Saga):
    folder: str
    name: str

    @step
    async def speak(self, ctx):
        await pass_gate(self.folder, "speaks")
        logging.getLogger("shop").warning("%s logs", self.name)
        sys.stdout.write(f"{self.name} prints\n")
        await asyncio.to_thread(print, f"{self.name} prints in a thread")
        ctx.log.warning("%s tells", self.name)


def test_stacks_prints_and_log_records_are_those_of_the_step(open_manager, gate, caplog):
    manager = open_manager(workers=1, procedures=[Talks])
    handles = [manager.submit(Talks(gate.folder, name)) for name in ("Ann", "Ben")]
    gate.reached("speaks", times=2)
    stack = manager.stack(handles[0].id)
    assert "in speak" in stack
    assert "await asyncio.sleep(0.01)" in stack
    assert stack.count("in pass_gate") == 1
    gate.open("speaks")
    for handle, name in zip(handles, ("Ann", "Ben"), strict=True):
        handle.result(30)
        kept = "\n".join(entry.text for entry in manager.logs(handle.id))
        assert {f"{name} logs", f"{name} prints", f"{name} prints in a thread", f"{name} tells"} <= set(
            kept.splitlines()
        )
        assert ("Ben" if name == "Ann" else "Ann") not in kept


# ---------------------------------------------------------------------- refusals
@pytest.mark.parametrize(
    ("limits", "said"),
    [
        (Limits(memory=10**9), r"memory"),
        (Limits(cpu_time=5), r"cpu_time"),
        (Limits(dedicated=True), r"dedicated"),
        (Limits(threads=4), r"write tasks="),
    ],
)
def test_limits_of_the_whole_process_are_refused(open_manager, limits, said):
    bad = type("Bad", (Dies,), {"limits": limits})
    with pytest.raises(UsageError, match=said):
        InlineManager([bad])
    manager = open_manager(procedures=[meet])
    with pytest.raises(UsageError, match=said.replace("write tasks=", "threads")):
        manager.submit(meet("x", 1), limits=limits)
    with pytest.raises(UsageError, match=r"tasks=3.*memory"):
        Limits(tasks=3, memory=10**9)


@procedure
async def crowd() -> int:
    beside.append(None)
    most = 0
    for _ in range(20):
        await asyncio.sleep(0)
        most = max(most, len(beside))
    beside.pop()
    return most


beside: list[None] = []
"""One entry for each step that runs, in the worker."""


@pytest.mark.parametrize("tasks", [1, 2])
def test_the_number_of_tasks_is_a_limit_of_a_worker(open_manager, tasks):
    manager = open_manager(workers=1, procedures=[crowd])
    handles = manager.submit_many([crowd() for _ in range(12)], limits=Limits(tasks=tasks))

    assert max(handle.result(30) for handle in handles) <= tasks


# ---------------------------------------------------------------------- replays
def test_async_steps_are_replayed_to_the_ends_that_are_stored(open_manager, gate, tmp_path):
    gate.open("met")
    manager = open_manager(procedures=[Order, meet])
    handle = manager.submit(Order(gate.folder))
    assert handle.result(30) == 87
    manager.stop()
    export = ["--path", str(tmp_path / "state"), "export", "--all", "--reveal", "--out", str(tmp_path / "all.json")]
    assert main(export) == 0
    replayer = Replayer(store_of_export(str(tmp_path / "all.json")), registry_of([Order, meet], None), quiet=True)

    found = [replayer.replay(*one[:2]) for one in replayer.steps(handle.id)]

    assert [result.verdict for result in found] == ["same"] * 4, found
