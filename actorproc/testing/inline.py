"""The engine without processes: steps run on threads of the test, state is in memory, time can be moved.

For unit tests of procedures. A step is stopped by a debugger, seen by a coverage tool, and can use objects of the test.
A class that could not be sent to a worker process is refused all the same, as it would be outside of tests.
Threads cannot be killed: a killed inline worker falls silent, and its step goes on to its end unheard, as a zombie's
would. Kills of real processes are for `ProcedureManager` itself.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any, Self, TypeVar, cast

from actorproc.api.handle import ProcedureHandle
from actorproc.api.manager import ProcedureManager
from actorproc.config import Config
from actorproc.engine.engine import EngineTree
from actorproc.errors import ManagerStopped, StorageUnavailable, UsageError
from actorproc.model.ids import WorkerId
from actorproc.model.messages.definitions import Definition
from actorproc.model.names import LAST_HEARTBEAT
from actorproc.model.rows.writes import PutNote, PutStep, Write
from actorproc.procedure.authoring.context import StopStep
from actorproc.procedure.declaring.environment import entered
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.procedure.values.error_text import in_words
from actorproc.store.base import ProcedureStore
from actorproc.store.memory import MemoryStore
from actorproc.support.durations import in_seconds
from actorproc.testing.fake_pool import FakePool
from actorproc.testing.points import worker_dies_by
from actorproc.workers.base import PoolEvent, WorkerMessages
from actorproc.workers.child.runtime.type_cache import TypeCache
from actorproc.workers.child.runtime.worker_runtime import WorkerRuntime
from actorproc.workers.protocol.frames import Began, Ended, Run, ToWorker

__all__ = ["CrashingStore", "InlineManager", "InlinePool", "VirtualClock"]

R = TypeVar("R")

FAST = Config(spares=0, commit_backoff=0.005, commit_backoff_cap=0.02)
_LOOK = 0.005
"""Seconds between two looks at an idle engine."""


class VirtualClock:
    """The clocks of the system, moved forward by hand: sleeps, delays, backoffs and deadlines come at once.

    Give it to a manager as ``clock=``. `advance` before the manager was made only changes what time it is.
    """

    def __init__(self) -> None:
        self._ahead = 0.0
        self._watchers: list[Callable[[], None]] = []

    def wall(self) -> float:
        """Epoch seconds, UTC."""
        return time.time() + self._ahead

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return time.monotonic() + self._ahead

    def advance(self, seconds: float | timedelta) -> None:
        """Let some time pass now.

        Args:
            seconds: Seconds, or a timedelta, not negative.

        Raises:
            TypeError: ``seconds`` is no duration.
            ValueError: ``seconds`` is negative or not finite.
        """
        self._ahead += in_seconds(seconds, "the time to advance by")
        for watcher in list(self._watchers):
            watcher()

    def when_moved(self, watcher: Callable[[], None]) -> None:
        """Have a function called after each `advance`.

        Args:
            watcher: Called without arguments.
        """
        self._watchers.append(watcher)


class InlinePool(FakePool):
    """Worker threads that use the classes of the test itself, and die when they are told to.

    `environment` is called by each worker at its begin. `on_run` sees each step that is handed out. `loses` is asked
    about each answer of a step; the worker of one that it wants lost dies before the manager hears the answer.
    """

    def __init__(
        self,
        runtime_of: Callable[[str], TypeRuntime | None],
        *,
        environment: Callable[[], Any] | None = None,
        on_run: Callable[[Run], object] | None = None,
        loses: Callable[[Ended], bool] | None = None,
    ) -> None:
        # Nothing stays warm, so each step is loaded from what is stored, as after a crash.
        super().__init__(warm_limit=0)
        self._runtime_of = runtime_of
        self._environment = environment
        self._left = contextlib.ExitStack()
        """Closes what the environment's factory opened."""
        self._brought: dict[bytes, TypeRuntime] = {}
        """Classes of children that no manager was told of, by their pickles."""
        self._on_run = on_run
        self._loses = loses

    @property
    def is_idle(self) -> bool:
        """No step runs, and no worker is on its way."""
        return all(fake.booted and not fake.worker_runtime.running for fake in list(self._workers.values()))

    def send(self, worker: WorkerId, messages: Sequence[ToWorker]) -> None:
        """Hand messages over at once."""
        if self._on_run is not None:
            for message in messages:
                if isinstance(message, Run):
                    self._on_run(message)
        super().send(worker, messages)

    def _prepare(self, worker_runtime: WorkerRuntime) -> None:
        worker_runtime.types = _OwnClasses(self._runtime_of, self._brought)

    def _begin(self, worker: WorkerId, worker_runtime: WorkerRuntime) -> None:
        self._dies_here(worker)
        if self._environment is not None:
            try:
                worker_runtime.env = entered(self._environment(), self._left)
            except BaseException as error:
                msg = f"the environment factory failed: {in_words(error)}"
                raise UsageError(msg) from error

    def close(self, timeout: float) -> None:
        super().close(timeout)
        self._left.close()

    def _dies_here(self, worker: WorkerId) -> None:
        """The calling thread is this worker's."""

        def die() -> None:
            self.crash(worker)
            raise StopStep

        worker_dies_by(die)

    def _emit(self, fake: Any, event: PoolEvent) -> None:
        for message in event.messages if isinstance(event, WorkerMessages) else ():
            if isinstance(message, Began):
                self._dies_here(fake.worker)  # a step beside others says this on the thread it has for itself
            if isinstance(message, Ended) and self._loses is not None and self._loses(message):
                self.crash(fake.worker)
                return
        super()._emit(fake, event)


class _OwnClasses(TypeCache):
    """The classes as the test has them, and not copies: a step can append to a list of the test."""

    def __init__(self, runtime_of: Callable[[str], TypeRuntime | None], brought: dict[bytes, TypeRuntime]) -> None:
        super().__init__()
        self._runtime_of = runtime_of
        self._brought = brought

    def runtime(self, type_name: str) -> TypeRuntime:
        own = self._runtime_of(type_name)
        if own is None and type_name in self._definitions:
            own = self._brought.get(self._definitions[type_name].pickled or b"")  # an importable one is found as well
        return own if own is not None else super().runtime(type_name)

    def announce(self, classes: Iterable[type], like: TypeRuntime) -> tuple[Definition, ...]:
        given = tuple(classes)
        news = super().announce(given, like)
        if news:
            found = [TypeRuntime.of_class(cls, signing_key=like.signing_key) for cls in given]
            own = {runtime.type_name: runtime for runtime in found}
            for definition in news:
                if definition.pickled is not None:
                    runtime = self._brought[definition.pickled] = own[definition.meta.type_name]
                    runtime.revision = definition.revision
        return news


class InlineManager(ProcedureManager):
    """A `ProcedureManager` without processes and files, for tests; a context manager.

    All methods are those of `ProcedureManager`. The limits of threads in place of processes are listed in
    docs/reference/procedures/testing.md.

    Args:
        procedures: Classes and `procedure` functions to register at once. Default: none.
        workers: Number of workers. Default: 1.
        store: A store. Default: a new `MemoryStore`.
        clock: A clock. Default: a new `VirtualClock`.
        config: All other settings. Default: those of `Config` with short waits.
        on_run: Called with each step that is handed out. Default: None.
        loses: Asked about each answer of a step. If it returns True, the worker dies before the manager hears the
            answer. Default: None.
        **options: Those of `ProcedureManager`.
    """

    def __init__(
        self,
        procedures: Sequence[Any] = (),
        *,
        workers: int = 1,
        store: ProcedureStore | None = None,
        clock: VirtualClock | None = None,
        config: Config = FAST,
        on_run: Callable[[Run], object] | None = None,
        loses: Callable[[Ended], bool] | None = None,
        **options: Any,
    ) -> None:
        self.clock = clock if clock is not None else VirtualClock()
        self._on_run = on_run
        self._loses = loses
        super().__init__(
            "inline",
            procedures=procedures,
            workers=workers,
            store=store if store is not None else MemoryStore(),
            clock=self.clock,
            config=config,
            **options,
        )

    def _make_pool(self, epoch: int) -> InlinePool:
        del epoch
        self.pool = InlinePool(
            self._types._registry.get, environment=self._environment, on_run=self._on_run, loses=self._loses
        )
        return self.pool

    def crash_worker(self, slot: int | None = None) -> bool:
        """Let a worker die now.

        Args:
            slot: Its slot. Default: None, the first worker that runs a step.

        Returns:
            False when there was no such worker.
        """
        for worker, info in self.pool.facts().items() if self._tree is not None else ():
            if (slot is None and info.state == "busy") or worker.slot == slot:
                self.pool.crash(worker)
                return True
        return False

    def finish(self, handle: ProcedureHandle[R], timeout: float | timedelta = 20.0) -> ProcedureHandle[R]:
        """Wait until a procedure has ended, and skip the time in which nothing happens.

        Whenever no step runs, the clock is moved to what the engine waits for next.

        Args:
            handle: The procedure.
            timeout: Real seconds, or a timedelta, to wait at most. Default: 20.

        Returns:
            The handle.

        Raises:
            TimeoutError: The time is up; the message has phase and reason.
        """
        patience = in_seconds(timeout, "timeout", endless=True)
        deadline = time.monotonic() + patience
        while not handle.wait(_LOOK):
            if time.monotonic() > deadline:
                msg = f"{handle.id} did not end within {patience:g} s: {handle.info().phase}, {handle.info().reason}"
                raise TimeoutError(msg)
            self.skip()
        return handle

    def skip(self) -> float:
        """Let the time pass until the engine wants to do something, if nothing runs.

        Returns:
            The seconds skipped; 0 when something runs.
        """
        tree = cast("EngineTree | None", self._tree)
        at = _next_at(tree) if tree is not None else None
        # What is due already is on its way: it comes before everything that is later.
        seconds = 0.0 if at is None else max(0.0, at - self.clock.monotonic())
        if tree is None or not seconds or not self._is_settled(tree) or _next_at(tree) != at:
            return 0.0
        self.clock.advance(seconds)
        return seconds

    def _is_settled(self, tree: EngineTree) -> bool:
        """Nothing but time moves anything: no step, no commit, no message, no worker that is being started.

        Work passes from one part of the engine to another, and each part is looked at by itself. So all are looked at
        twice, and none may have changed.
        """
        seen = []
        for _ in range(2):
            try:
                if not tree.is_settled():
                    return False
            except ManagerStopped:
                return False
            seen.append(tree.slots())
            if not self.pool.is_idle:
                return False
        return seen[0] == seen[1]


def _next_at(tree: EngineTree) -> float | None:
    return tree._alarm.next_at("manager", "supervisor")


Place = tuple[str, int] | tuple[str, int, str]
"""A record of a step log, or what a step remembers."""


class CrashingStore(MemoryStore):
    """A store whose host dies at a record: before it is stored, or right after.

    `at` is the id of a procedure and the number of a record of its step log; or the step, and the key of a value that
    it remembers. None: it never dies. From then on nothing can be stored. `next_life` is what the next host finds.
    """

    def __init__(self) -> None:
        super().__init__()
        self.stored: list[Place] = []
        """Every record, in order."""
        self.on_record: Callable[[Place], object] = lambda _: None
        """Called with each record when it is about to be stored for the first time."""
        self.at: Place | None = None
        self.after = False
        self.dead = threading.Event()

    def commit(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        records = [place for write in writes if (place := _place_of(write)) is not None]
        for record in records:
            if record not in self.stored:
                self.on_record(record)
        hit = self.at is not None and self.at in records
        if hit and not self.after:
            self.dead.set()
        self._refuse_when_dead()
        super().commit(writes, epoch, batch)
        self.stored += [record for record in records if record not in self.stored]
        if hit:
            self.dead.set()
            self._refuse_when_dead()

    def reopen(self) -> None:
        self._refuse_when_dead()
        super().reopen()

    def next_life(self) -> Self:
        """Copy of the stored rows for another host, which does not die."""
        twin = self.clone()
        twin.at, twin.dead = None, threading.Event()
        return twin

    def _refuse_when_dead(self) -> None:
        if self.dead.is_set():
            msg = "this host is dead"
            raise StorageUnavailable(msg)


def _place_of(write: Write) -> Place | None:
    if isinstance(write, PutStep):
        return write.record.procedure, write.record.number
    if isinstance(write, PutNote) and LAST_HEARTBEAT not in write.record.key:  # when that is stored, time decides
        return write.record.procedure, write.record.step, write.record.key
    return None
