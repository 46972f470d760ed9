"""What the catalogue's tests share: a ledger outside of the engine, stores that die, managers that restart quickly."""

from __future__ import annotations

import contextlib
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from actorproc.config import Config
from actorproc.errors import ActorprocError, StorageUnavailable
from actorproc.model.rows.writes import PutProcedure, PutStep, Write
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.store.memory import MemoryStore
from tests.kit.waiting import BOUND, wait_until

if TYPE_CHECKING:
    from actorproc.api.handle import ProcedureHandle
    from actorproc.api.manager import ProcedureManager

FAST = Config(spares=0, commit_backoff=0.005, commit_backoff_cap=0.02)


# ---------------------------------------------------------------- called by steps
def note(folder: str, *words: object) -> int:
    """Write one line to the ledger of the test; how often it stands there now."""
    line = " ".join(str(word) for word in words)
    with Path(folder, "ledger").open("a") as file:
        file.write(f"{line}\n")
    return noted(folder).count(line)


def die_once(folder: str, *words: object) -> None:
    """Note the line; the process that notes it first is killed on the spot."""
    if note(folder, *words) == 1:
        os.kill(os.getpid(), signal.SIGKILL)


# ---------------------------------------------------------------- called by tests
def noted(folder: str | Path) -> list[str]:
    """The ledger, oldest line first."""
    try:
        return Path(folder, "ledger").read_text().splitlines()
    except FileNotFoundError:
        return []


def forget(folder: str | Path) -> None:
    """Begin a new ledger."""
    Path(folder, "ledger").unlink(missing_ok=True)


def firsts(lines: Sequence[str]) -> list[str]:
    """The lines without their repetitions."""
    return list(dict.fromkeys(lines))


class RecordingStore(MemoryStore):
    """Keeps a copy of itself from before each commit, all that a host killed at any moment can leave.

    With each copy goes the ledger of `folder` as it was then.
    """

    def __init__(self, folder: str | Path = "") -> None:
        super().__init__()
        self.folder = folder
        self.images: list[tuple[MemoryStore, Counter[str]]] | None = []

    def commit(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        if self.images is not None:
            self.images.append((self.clone(), Counter(noted(self.folder))))
        super().commit(writes, epoch, batch)

    def clone(self) -> Self:
        twin = super().clone()
        twin.images = None
        return twin


class DyingStore(MemoryStore):
    """The host dies before each new step record or failure is saved: nothing of that commit is stored, nor of a later one.

    It is saved at the second attempt, by the next life. This is the toggled kill switch of HBase's executor.
    """

    def __init__(self) -> None:
        super().__init__()
        self.armed = False
        self.dead = False
        self.seen: set[tuple[str, int]] = set()
        """Procedure and number of the records; number 0 stands for its failure."""

    def commit(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        records = {(write.record.procedure, write.record.number) for write in writes if isinstance(write, PutStep)}
        records |= {
            (write.record.id, 0) for write in writes if isinstance(write, PutProcedure) and write.record.rolling
        }
        if self.armed and not records <= self.seen:
            self.dead = True
        self.seen |= records
        if self.dead:
            raise StorageUnavailable("this host is dead")
        super().commit(writes, epoch, batch)

    def reopen(self) -> None:
        if self.dead:
            raise StorageUnavailable("this host is dead")
        super().reopen()

    def next_life(self) -> Self:
        """What the next host finds."""
        twin = self.clone()
        twin.dead = False
        return twin


@contextlib.contextmanager
def on_threads(store: MemoryStore, procedures: Sequence[type] = (), *, workers: int = 1) -> Iterator[ProcedureManager]:
    """A running manager on this store; it is stopped at once in the end, as if killed."""
    from tests.catalogue.on_threads import OnThreads  # not in workers, which import this module for its ledger

    manager = OnThreads("unused", workers=workers, store=store, config=FAST, procedures=procedures).start()
    try:
        yield manager
    finally:
        manager.stop(drain=False, timeout=5)


def live_through_crashes(procedure: Procedure, *, limit: int = 200) -> tuple[MemoryStore, int]:
    """Run a procedure (id "root") to its end while the host dies before each record; the last store, and the lives."""
    store = DyingStore()
    # Armed before anything can run; only the record of the submit itself is let through.
    store.seen.add(("root", 1))
    store.armed = True
    kind = type(procedure)
    lives = 0
    while lives < limit:
        lives += 1
        with on_threads(store, (kind, *kind.uses)) as manager:
            handle = manager.submit(procedure, "root") if lives == 1 else manager.get("root")
            wait_until(lambda here=store, handle=handle: here.dead or handle.done())
            if not store.dead:
                return store, lives
        store = store.next_life()
    raise AssertionError(f"not at its end after {limit} lives")


def ending_of(handle: ProcedureHandle) -> tuple[str, Any]:
    """State and output, or state and kind of failure."""
    failure = handle.exception(BOUND)
    if failure is None:
        return "SUCCESS", handle.result()
    return failure.state, type(failure.cause).__name__


def crash_at_every_commit(
    procedure: Procedure,
    folder: str | Path,
    judge: Callable[[ProcedureManager, ProcedureHandle], object],
    *,
    workers: int = 1,
) -> int:
    """Run a procedure undisturbed, then once more from what each commit would have left if the host died before it.

    `judge` gives what must be the same in all of these histories (it waits for the end itself). No line of the
    ledger may be missing, and after the crash none is new or comes more often. Returns the number of crashes.
    """
    kind = type(procedure)
    types = (kind, *kind.uses)
    store = RecordingStore(folder)
    with on_threads(store, types, workers=workers) as manager:
        handle = manager.submit(procedure, "root")
        wanted = judge(manager, handle)
    undisturbed = Counter(noted(folder))
    images, store.images = store.images, None
    # Before the submit was stored nobody knows of it.
    images = [(image, in_flight) for image, in_flight in images if image.procedure("root") is not None]
    for number, (image, before) in enumerate([*images, (store.clone(), undisturbed)]):
        forget(folder)
        with on_threads(image, types, workers=workers) as manager:
            found = judge(manager, manager.get("root"))
        after = Counter(noted(folder))
        assert found == wanted, f"a crash before commit {number} gives another end"
        assert not after - undisturbed, f"a crash before commit {number} runs what did not run before"
        assert not undisturbed.keys() - (before + after).keys(), f"a crash before commit {number} leaves something out"
    forget(folder)
    return len(images)


def refused(call: Callable[[], object]) -> ActorprocError:
    """The error with which this call is refused."""
    try:
        call()
    except ActorprocError as error:
        return error
    raise AssertionError(f"{call} was not refused")
