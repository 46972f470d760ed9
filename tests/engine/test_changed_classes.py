"""A class changes between two starts: what waits, sleeps, is being undone or has children goes on, or is parked."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from actorproc import Procedure, RetryPolicy, Status
from actorproc.store.memory import MemoryStore
from actorproc.testing.inline import FAST, InlineManager, VirtualClock
from tests.kit.waiting import wait_until

LATER = 5000.0
NAMES = ("sleeps", "waits", "parent", "parent.child", "undone")


def release(number, undone, *, migrate=None, undoes=True):
    """The class as one release of a program has it."""

    @dataclass
    class Changing(Procedure):
        kind: str
        data: object

        type_name = "Changing"
        version = number
        rollback_retry = RetryPolicy(max_attempts=100, base=LATER, cap=LATER, retry_on=(RuntimeError,))

        def execute(self, ctx):
            if self.kind == "parent" and ctx.step == 1:
                return Status.suspended([("parent.child", type(self)("waits", 2))])
            if self.kind == "undone":
                raise ValueError("it fails")
            if self.kind == "sleeps":
                return Status.wait("never", timeout=LATER)
            if self.kind == "waits" and ctx.event is None:
                return Status.wait(f"go {ctx.id}")
            return Status.done([number, self.data])

        def on_timeout(self, ctx):
            return Status.done([number, self.data])

        def rollback(self, ctx):
            if not undoes:
                raise RuntimeError("it cannot be undone yet")
            undone.append([number, self.data])

    if migrate is not None:
        Changing.migrate = classmethod(migrate)
    return Changing


def anew(cls, data, from_version):
    return data | {"data": f"{data['data']} of {from_version}"}


def raises(cls, data, from_version):
    raise KeyError("a field that never was")


def leaves(cls, data, from_version):
    raise SystemExit(3)


def nothing(cls, data, from_version):
    return None


@pytest.fixture
def life():
    """Starts a manager on one store with one release of the class, at a time that goes on."""
    store, clock = MemoryStore(), VirtualClock()

    def start(cls):
        return InlineManager([cls], config=FAST, store=store, clock=clock)

    start.clock = clock
    return start


def begin(life, number):
    first = release(number, [], undoes=False)
    with life(first) as manager:
        for name in ("sleeps", "waits", "parent", "undone"):
            manager.submit(first(name, 1), name)
        wait_until(lambda: [manager.info(name).phase for name in NAMES[:2]] == ["waiting"] * 2)
        wait_until(lambda: manager.list(id_prefix="parent.") and manager.info("parent.child").phase == "waiting")
        wait_until(lambda: manager.info("undone").undo_error is not None)
    life.clock.advance(2 * LATER)


def ends(life, number, undone, *, signalled=()):
    """Wait until everything has come to its end with this release; what it gave."""
    with life(release(number, undone, migrate=anew)) as manager:
        for name in signalled:
            manager.signal(name, "go")
        wait_until(lambda: all(manager.info(name).finished_at is not None for name in NAMES))
        return {name: manager.get(name).result(0) for name in NAMES[:4]}, manager.info("undone").state


@pytest.mark.parametrize("number", [2, 7])
def test_a_newer_class_migrates_whatever_it_finds(life, number):
    begin(life, 1)
    undone = []

    results, state = ends(life, number, undone, signalled=("waits", "parent.child"))

    moved = [number, "1 of 1"]
    assert results == {"sleeps": moved, "waits": moved, "parent": moved, "parent.child": [number, "2 of 1"]}
    assert (state, undone) == ("ROLLEDBACK", [moved])


@pytest.mark.parametrize(
    ("stored", "number", "migrate", "reason"),
    [
        (1, 2, None, "has version 1, the class has version 2 and no migrate"),
        (5, 1, None, "has version 5, the class has version 1 and no migrate"),
        (1, 2, raises, "KeyError: 'a field that never was'"),
        (1, 2, leaves, "SystemExit: 3"),
        (1, 2, nothing, "no mapping of fields"),
    ],
    ids=["no migrate", "older class", "raises", "exits", "nothing"],
)
def test_a_state_that_cannot_be_migrated_is_parked_until_a_class_can(life, stored, number, migrate, reason):
    begin(life, stored)
    undone = []
    with life(release(number, undone, migrate=migrate)) as manager:
        for name in ("waits", "parent.child"):
            manager.signal(name, "go")
        parked = ("sleeps", "waits", "parent.child", "undone")
        wait_until(lambda: all(manager.info(name).phase == "parked" for name in parked))
        assert all(reason in manager.info(name).reason for name in parked)
        assert manager.info("parent").phase == "suspended"
        assert undone == []

    results, state = ends(life, 9, undone)

    moved = [9, f"1 of {stored}"]
    assert results == {"sleeps": moved, "waits": moved, "parent": moved, "parent.child": [9, f"2 of {stored}"]}
    assert (state, undone) == ("ROLLEDBACK", [moved])
