"""Who waits for a while and gives up leaves nothing behind, however often: a procedure may go on for weeks."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass

import pytest

from actorproc import Phase, Procedure, ProcedureClient, Status

pytestmark = pytest.mark.processes


@dataclass
class Wait(Procedure):
    """Does nothing until it is signalled."""

    def execute(self, ctx):
        return Status.done() if ctx.step > 1 else Status.wait("go")


async def give_up(wait):
    """Wait, and be cancelled in it."""
    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_cancelled_awaits_of_a_handle_are_forgotten(open_manager):
    manager = open_manager(workers=1)
    name = manager.submit(Wait()).id
    end = manager._tree.watch(name)
    waiting = len(end._done_callbacks)

    async def wait():
        await manager.get(name)

    for _ in range(3):
        asyncio.run(give_up(wait))

    assert len(end._done_callbacks) == waiting


def test_who_has_heard_of_an_end_and_leaves_keeps_it_from_nobody_behind_him(open_manager):
    manager = open_manager(workers=1)
    name = manager.submit(Wait()).id
    first_is_told, first_has_left = threading.Event(), threading.Event()

    async def wait():
        await manager.get(name)

    def between(_):
        first_is_told.set()
        first_has_left.wait(30)

    async def begun(waiting):
        task = asyncio.ensure_future(waiting)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        return task

    async def two():
        first = await begun(wait())
        manager._tree.watch(name).add_done_callback(between)
        second = await begun(wait())
        manager.signal(name)
        assert first_is_told.wait(30)  # the loop stands still until then
        await first
        first_has_left.set()
        await asyncio.wait_for(second, 30)

    asyncio.run(two())


def test_cancelled_awaits_of_a_change_are_forgotten(open_manager, until):
    manager = open_manager(workers=1)
    handle = manager.submit(Wait())
    until(lambda: handle.info().phase is Phase.WAITING)
    with manager.watch(handle.id) as watch:
        assert watch.next(30) is not None

        for _ in range(3):
            asyncio.run(give_up(watch.__anext__))

        assert not watch._subscription._wakers
    assert not watch._subscription._wakers


def test_clients_that_are_gone_are_forgotten_also_by_the_procedures_they_waited_for(open_manager, tmp_path, until):
    manager = open_manager(workers=1)
    name = manager.submit(Wait()).id
    end = manager._tree.watch(name)
    waiting, answers = len(end._done_callbacks), len(manager._tree._replies._waiting)

    for _ in range(3):
        with ProcedureClient(tmp_path / "state") as client:
            client.get(name)._watch()
            until(lambda: len(end._done_callbacks) > waiting)
        until(lambda: len(end._done_callbacks) == waiting)
    until(lambda: len(manager._tree._replies._waiting) == answers)
