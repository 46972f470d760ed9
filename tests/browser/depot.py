"""A store in which much stands still, for the pages: run as ``python -m tests.browser.depot DIRECTORY [CHILDREN]``.

It makes its procedures where they are missing, says "ready", and keeps the manager up until it is ended.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from actorproc import Limits, LockKey, Procedure, ProcedureManager, RetryPolicy, Saga, Secret, Status, step
from actorproc.errors import StorageUnavailable
from actorproc.store.lmdb.store import LmdbStore

__all__ = ["EVIL", "LONG", "main"]

LONG = "evil" + "-:@." * 31
"""As long as an id may be."""
EVIL = "<img src=x onerror=alert(1)></script>\x1b[31m\u202eowned"
"""Markup, an escape, and a mark that turns the direction of reading."""


@dataclass
class ReadRegion(Procedure):
    """Holds a key; the first attempt of one hangs in C code."""

    hangs: bool = False

    def lock_keys(self) -> list[LockKey]:
        return [LockKey.write("region/eu")]

    def execute(self, ctx) -> Status:
        if self.hangs and ctx.attempt == 1:
            ctx.heartbeat(0.4, "400 of 1000 blocks")
            print("reads block 400")
            select.select([], [], [])
        return Status.done("read")


@dataclass
class Flaky(Procedure):
    """Is tried again, seldom and for ever."""

    def execute(self, ctx) -> Status:
        raise ConnectionError(EVIL)


Flaky.retry = RetryPolicy(max_attempts=1000, base=600.0, cap=600.0, retry_on=(ConnectionError,))


@dataclass
class Crashes(Procedure):
    """Its worker dies."""

    how: str
    limits = Limits(crashes=1)

    def execute(self, ctx) -> Status:
        print("last words", file=sys.stderr, flush=True)
        if self.how == "segv":
            ctypes.string_at(0)
        os.kill(os.getpid(), signal.SIGKILL)
        return Status.done()


class Order(Saga):
    """Three steps; its undo of the first fails, so that its key is poisoned."""

    customer: str
    card: Secret[str]
    priced: bool = True
    lines: list[int] = field(default_factory=list)
    reserved: bool = False

    def poison_keys(self) -> list[str]:
        return ["shop/items"]

    @step
    def reserve(self, ctx) -> None:
        self.reserved = True
        self.lines = [1, 2, 3]
        print("reserved for", self.customer)

    @reserve.undo
    def release(self, ctx) -> None:
        raise OSError("disk is read-only")

    @step
    def charge(self, ctx) -> None:
        self.lines = [1, 2, 3, 5]
        if not self.priced:
            raise ValueError("an item has no price")

    @step
    def ship(self, ctx) -> dict[str, str]:
        return {"parcel": "P-7"}


Order.rollback_retry = RetryPolicy(max_attempts=1)


@dataclass
class Part(Procedure):
    """Waits for an event, or is done at once."""

    waits: bool = False

    def execute(self, ctx) -> Status:
        return Status.wait("paid") if self.waits and ctx.event is None else Status.done()


@dataclass
class Wide(Procedure):
    """Has many children, of which one waits."""

    children: int
    began: bool = False

    def execute(self, ctx) -> Status:
        if self.began:
            return Status.done(len(ctx.children))
        self.began = True
        return Status.suspended([(f"{ctx.id}.{number}", Part(number == 17)) for number in range(self.children)])


CLASSES = (ReadRegion, Flaky, Crashes, Order, Part, Wide)


def fill(manager: ProcedureManager, children: int) -> None:
    """Submit all, and wait until each stands where it is to stand."""
    manager.submit(ReadRegion(hangs=True), "read-us")
    until(lambda: manager.info("read-us").phase == "running")
    for name in ("read-eu", "read-asia"):
        manager.submit(ReadRegion(), name)
    manager.submit(Flaky(), "flaky")
    for how in ("segv", "kill"):
        manager.submit(Crashes(how), f"crash-{how}")
    manager.submit(Order("Ada", Secret("4711-0815")), "order-1", tags=("gift",))
    manager.submit(Order("Bob", Secret("4711-0816"), priced=False), "order-2")
    manager.submit(Wide(children), "wide")
    manager.submit(Part(waits=True), LONG, owner=EVIL, tags=(EVIL,))
    for number in range(60):
        manager.submit(Part(), f"part-{number:03}", owner="batch")
    until(lambda: all(manager.info(f"crash-{how}").state == "FAILED" for how in ("segv", "kill")))
    until(lambda: manager.info("order-1").state == "SUCCESS" and manager.info("order-2").state == "FAILED")
    until(lambda: manager.info("wide").children.get("SUCCESS") == children - 1)
    until(lambda: manager.info("flaky").phase == "retrying" and manager.info("part-059").state == "SUCCESS")


def until(met, within: float = 60.0) -> None:
    """Wait for a condition."""
    end = time.monotonic() + within
    while not met():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def may_be_full(mark: Path) -> None:
    """Have commits of this process refused while a file is there."""
    commit = LmdbStore.commit

    def refused_or_done(*arguments):
        if mark.exists():
            raise StorageUnavailable("no space left on device")
        commit(*arguments)

    LmdbStore.commit = refused_or_done


def main(directory: str, children: str = "300", task: str = "") -> None:
    """Run the manager until this process is ended; it fills the store where there is none yet, or as the task says.

    A gated one is opened by SIGUSR1, and one whose disk may be full gets a procedure by it.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    is_new = task == "fill" or (not task and not Path(directory).exists())
    if task == "full":
        may_be_full(Path(directory + ".full"))
    manager = ProcedureManager(directory, workers=3, procedures=CLASSES, lead=task != "host")
    manager.start(gated=task == "gated")
    try:
        asked = {"gated": manager.open, "full": lambda: manager.submit(Part(), "late")}.get(task)
        if asked is not None:
            signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=asked, daemon=True).start())
        if is_new:
            fill(manager, int(children))
        print("ready", flush=True)
        while True:
            signal.pause()
    finally:
        manager.stop(drain=False)


if __name__ == "__main__":
    from tests.browser import depot  # its classes have the name of the module, which workers import

    depot.main(*sys.argv[1:])
