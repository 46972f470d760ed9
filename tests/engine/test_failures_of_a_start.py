"""A store that fails once, at any place of a start and of what follows: the start is refused, or nothing is left out."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest

from actorproc import Procedure, Status
from actorproc.errors import StorageUnavailable
from actorproc.model.states import ProcedureState
from actorproc.store.memory import MemoryStore
from actorproc.testing import InlineManager
from tests.kit.waiting import wait_until

OPERATIONS = (
    *("own", "load", "commit", "reopen"),
    *("procedure", "procedures", "tree", "step", "states", "ending", "children", "notes", "finished", "finished_trees"),
)
STRIDE = 3
"""Each run of the test lets operations of one remainder fail, so that processors share them."""


class FailsOnce(MemoryStore):
    """The n-th operation of the engine fails; a commit may be applied first."""

    def __init__(self) -> None:
        super().__init__()
        self.nth = 0
        self.seen = 0
        self.is_applied = False
        self.struck = ""

    def strikes(self, name: str) -> bool:
        if threading.current_thread() is threading.main_thread():
            return False
        self.seen += 1
        if self.seen != self.nth:
            return False
        self.struck = name
        return True


def _operation(name: str) -> Any:
    def operate(self: FailsOnce, *arguments: Any, **options: Any) -> Any:
        honest = getattr(super(FailsOnce, self), name)
        if self.strikes(name):
            if self.is_applied and name in ("commit", "own"):
                honest(*arguments, **options)
            raise StorageUnavailable(f"{name} {self.nth} fails, as planned")
        return honest(*arguments, **options)

    return operate


for _name in OPERATIONS:
    setattr(FailsOnce, _name, _operation(_name))


@dataclass
class Quick(Procedure):
    def execute(self, ctx):
        return Status.done("quick")


@dataclass
class Waiter(Procedure):
    def execute(self, ctx):
        return Status.wait("go") if ctx.event is None else Status.done(ctx.event)


@dataclass
class Sleeper(Procedure):
    def execute(self, ctx):
        return Status.sleep(60.0) if ctx.step == 1 else Status.done("woken")


@dataclass
class Family(Procedure):
    def execute(self, ctx):
        if ctx.step == 1:
            return Status.suspended([("child", Waiter())])
        return Status.done([child.output for child in ctx.children.values()])


TYPES = [Quick, Waiter, Sleeper, Family]
RESULTS = {"waiter": "now", "sleeper": "woken", "family": ["now"]} | {f"quick-{n}": "quick" for n in range(6)}


@pytest.fixture(scope="module")
def left_behind() -> FailsOnce:
    """A store with procedures that wait for events, a time, a child and their turn."""
    store = FailsOnce()
    with InlineManager(TYPES, store=store) as manager:
        for name, procedure in (("waiter", Waiter()), ("sleeper", Sleeper()), ("family", Family())):
            manager.submit(procedure, name)
        waiting = {"waiter": "WAITING", "child": "WAITING", "sleeper": "WAITING_TIMEOUT", "family": "WAITING"}
        wait_until(lambda: all((head := store.procedure(id)) and head.state == state for id, state in waiting.items()))
        manager.pause(reason="what follows is for the next life")
        for number in range(6):
            manager.submit(Quick(), f"quick-{number}")
    return store


def _live(store: FailsOnce) -> int:
    """Start until that works, and finish all; the number of starts."""
    starts = 0
    while True:
        starts += 1
        manager = InlineManager(TYPES, store=store)
        try:
            manager.start()
            break
        except StorageUnavailable:
            if starts > 1:  # although only one operation fails
                raise
    try:
        _insist(manager, manager.resume)
        for name in ("waiter", "child"):
            _insist(manager, manager.signal, name, "now")
        for name, result in RESULTS.items():
            handle = manager.get(name)
            assert manager.finish(handle).result(0) == result
    finally:
        manager.stop()
    return starts


def _insist(manager: InlineManager, verb: Any, *arguments: Any) -> None:
    while True:
        try:
            verb(*arguments)
        except StorageUnavailable:
            wait_until(lambda: manager.health().status != "storage-trouble")
        else:
            return


@pytest.mark.parametrize("is_applied", [False, True], ids=["refused", "applied-first"])
@pytest.mark.parametrize("remainder", range(STRIDE))
def test_one_operation_of_a_store_fails_and_nothing_that_was_left_behind_is_forgotten(
    left_behind: FailsOnce, remainder: int, is_applied: bool, caplog
) -> None:
    undisturbed = left_behind.clone()
    undisturbed.seen, undisturbed.nth = 0, 0
    assert _live(undisturbed) == 1
    struck = set()
    for nth in range(1 + remainder, undisturbed.seen, STRIDE):
        store = left_behind.clone()
        store.seen, store.nth, store.is_applied = 0, nth, is_applied

        starts = _live(store)

        struck.add(store.struck)
        assert starts == (2 if store.struck in ("own", "load") and nth <= 2 else 1), store.struck
        assert {head.state for head in store.scan()} == {ProcedureState.SUCCESS}
        assert len(list(store.scan())) == len(RESULTS) + 1
        assert [record.getMessage() for record in caplog.records if record.levelname == "CRITICAL"] == []
    assert len(struck) >= 3
