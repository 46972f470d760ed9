"""The public face: a directory becomes a running engine, procedures go in, outputs come out."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from types import TracebackType
from typing import Any, Self, TypeVar

from actorproc.actors.clock import Clock, SystemClock
from actorproc.actors.messages import Ending
from actorproc.actors.tree import EngineTree
from actorproc.arguments import (
    check_workers,
    checked_priority,
    checked_tags,
    checked_text,
    delay_seconds,
    epoch_seconds,
    pair,
)
from actorproc.config import Config
from actorproc.errors import ActorprocError, ManagerStopped, StateTooLarge
from actorproc.handle import ProcedureHandle
from actorproc.info import Health, LockInfo, PoisonInfo, ProcedureInfo
from actorproc.model.events import AbortRequested, PoisonCleared, Signalled, Submitted
from actorproc.model.ids import check_id, new_id
from actorproc.model.policies import LockKey
from actorproc.model.records import NewProcedure, StepRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.procedure.procedure import Procedure
from actorproc.procedure.runtime import encode_value
from actorproc.procedure.shipping import pickled_by_value
from actorproc.queries import Queries
from actorproc.registration import Registration
from actorproc.store.base import ProcedureStore
from actorproc.store.lmdb import Durability, LmdbStore
from actorproc.workers.base import WorkerInfo, WorkerPool
from actorproc.workers.local_pool import LocalPool

__all__ = ["ProcedureManager"]

logger = logging.getLogger("actorproc")

_C = TypeVar("_C", bound=type)
_T = TypeVar("_T")
_List = list
"""`ProcedureManager.list` hides the builtin inside the class."""


class ProcedureManager:
    """Runs procedures in worker processes and remembers every step in a directory.

    ``path`` is that directory. ``procedures`` are classes to register at once. ``workers`` is the number of worker
    processes, default `os.cpu_count()`. ``store`` replaces the store on disk (then ``path`` and ``durability`` are
    not used). ``environment`` is a factory called once in each worker; what it returns is ``ctx.env``. ``preload``
    names modules each worker imports before its first step. ``on_fatal`` is called with the error when no worker
    can be started any more or a bug stopped the engine. ``durability`` is "power" (a commit survives a power cut)
    or "process" (it survives any kill, not a power cut).

    The constructor touches nothing: use ``with`` or `start`. All methods may be called from any thread.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        procedures: Iterable[type] = (),
        workers: int | None = None,
        store: ProcedureStore | None = None,
        config: Config | None = None,
        environment: Callable[[], Any] | None = None,
        preload: Sequence[str] = (),
        on_fatal: Callable[[ActorprocError], None] | None = None,
        durability: Durability = "power",
        clock: Clock | None = None,
    ) -> None:
        if workers is not None:
            check_workers(workers)
        self._path = os.fspath(path)
        if not self._path:
            msg = "the path of a manager is empty; give a directory of its own, such as 'state'"
            raise ValueError(msg)
        self._slots = workers if workers is not None else os.cpu_count() or 1
        self._given_store = store
        self._config = config if config is not None else Config()
        self._environment = environment
        self._preload = tuple(preload)
        self._on_fatal = on_fatal
        self._durability = durability
        self._clock = clock if clock is not None else SystemClock()
        self._types = Registration(self._path if store is None else None, self._config.signing_key)
        self._starting = threading.Lock()
        self._tree: EngineTree | None = None
        self._pid = 0
        for procedure_class in procedures:
            self.register(procedure_class)

    # ------------------------------------------------------------ life
    def start(self) -> Self:
        """Own the directory, recover what was unfinished, start the workers; returns the manager.

        Raises `StoreInUse` naming the other owner's pid, `StoreFormat`, `WorkerBootFailed` with the workers'
        traceback. Starting a started manager does nothing.
        """
        with self._starting:
            if self._tree is not None and not self._tree.closed:
                self._check_fork()
                return self
            store = self._given_store
            tree = EngineTree(
                store=store if store is not None else LmdbStore(self._path, durability=self._durability),
                make_pool=self._make_pool,
                slots=self._slots,
                config=self._config,
                clock=self._clock,
                on_fatal=self._on_fatal,
            )
            self._pid = os.getpid()
            tree.start(self._types.definitions)
            self._types.attach(tree)
            self._tree = tree
        return self

    def _make_pool(self, epoch: int) -> WorkerPool:
        environment = self._environment
        return LocalPool(
            epoch=epoch,
            spares=self._config.spares,
            preload=self._preload,
            environment=pickled_by_value(environment) if environment is not None else None,
            max_frame=self._config.max_frame,
            warm_limit=self._config.warm_limit,
        )

    def stop(self, drain: bool = True, timeout: float | None = None) -> None:
        """Stop within `timeout` seconds (None: as long as the running steps take).

        With `drain` the running steps are waited for, not the procedures: these go on at the next start. What still
        runs when the time is up is killed; its step runs again then. Whoever waits for a handle gets
        `ManagerStopped`. Stopping a stopped manager does nothing.
        """
        tree = self._tree
        if tree is not None and os.getpid() == self._pid:
            tree.stop(drain=drain, timeout=timeout)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Ctrl-C and SystemExit mean now; other exceptions are no reason to interrupt steps.
        self.stop(drain=kind is None or issubclass(kind, Exception), timeout=self._config.stop_timeout)

    async def __aenter__(self) -> Self:
        return await _in_thread(self.start)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(lambda: self.__exit__(kind, error, trace))

    # ------------------------------------------------------------ types
    def register(self, procedure_class: _C) -> _C:
        """Make a class known, before or after `start`; what was parked for it goes on. Usable as a decorator."""
        self._types.register(procedure_class)
        return procedure_class

    def register_loader(self, type_name: str, loader: Callable[[Any], Procedure]) -> None:
        """Make a type known by a function that turns its stored state into a procedure, in a worker."""
        self._types.register_loader(type_name, loader)

    # ------------------------------------------------------------ submitting
    def submit(
        self,
        procedure: Procedure,
        id: str | None = None,  # noqa: A002 - public contract
        owner: str | None = None,
        priority: int = 0,
        delay: float | timedelta = 0,
        deadline: datetime | timedelta | float | None = None,
        tags: Iterable[str] | None = None,
    ) -> ProcedureHandle:
        """Submit a procedure; returns once it is durable.

        ``id`` names it for ever: submitting the same id again returns the existing procedure when type and initial
        state are the same, else raises `DuplicateProcedure`. ``owner`` is free text. Higher ``priority`` goes
        first. ``delay`` is seconds (or a timedelta) before it may start; ``deadline`` a datetime, epoch seconds, or
        a timedelta from now.
        """
        tree = self._running()
        new = self._describe(procedure, id, owner, priority, delay, deadline, tags)
        ids = tree.request(lambda reply: Submitted((new,), reply))
        return ProcedureHandle(ids[0], self)

    def submit_many(
        self,
        procedures: Iterable[Procedure | tuple[str, Procedure]],
        *,
        owner: str | None = None,
        priority: int = 0,
        delay: float | timedelta = 0,
        deadline: datetime | timedelta | float | None = None,
        tags: Iterable[str] | None = None,
    ) -> _List[ProcedureHandle]:
        """Submit procedures, or ``(id, procedure)`` pairs, in one commit: all of them or none."""
        tree = self._running()
        labels = checked_tags(tags)
        pairs = [pair(item) for item in procedures]
        news = tuple(
            self._describe(procedure, id, owner, priority, delay, deadline, labels)
            for id, procedure in pairs  # noqa: A001
        )
        if not news:
            return []
        ids = tree.request(lambda reply: Submitted(news, reply))
        return [ProcedureHandle(id, self) for id in ids]  # noqa: A001

    def run(self, procedure: Procedure, **options: Any) -> Any:
        """Submit with the options of `submit`, wait for the end and return the output."""
        return self.submit(procedure, **options).result()

    def _describe(
        self,
        procedure: Procedure,
        id: str | None,  # noqa: A002
        owner: str | None,
        priority: int,
        delay: float | timedelta,
        deadline: datetime | timedelta | float | None,
        tags: Iterable[str] | None,
    ) -> NewProcedure:
        runtime = self._types.runtime_of(procedure)
        seconds = delay_seconds(delay)
        new = runtime.describe(
            procedure,
            id=check_id(id) if id is not None else new_id(),
            fresh=id is None,
            owner=checked_text(owner, "owner", 1024) if owner is not None else None,
            priority=checked_priority(priority),
            due_at=self._clock.wall() + seconds if seconds else None,
            deadline=epoch_seconds(deadline, self._clock),
            tags=checked_tags(tags),
        )
        if len(new.state) > self._config.max_state:
            msg = (
                f"the state of {new.type_name} has {len(new.state)} bytes; Config.max_state is "
                f"{self._config.max_state}. Keep large data in a file and its path in the state"
            )
            raise StateTooLarge(msg)
        return new

    # ------------------------------------------------------------ verbs
    def abort(self, id: str, force: bool = False) -> bool:  # noqa: A002 - public contract
        """Ask a procedure to abort and roll back; False when it has ended already. `force` kills its running step."""
        check_id(id)
        accepted: bool = self._running().request(lambda reply: AbortRequested(id, reply, force=force))
        return accepted

    def signal(self, target: str, payload: Any = None, dedup: str | None = None) -> bool:
        """Send an event to a procedure (by id) or to whoever waits for this event name; durable when it returns.

        False when the procedure has ended. Two signals with the same ``dedup`` count once as long as
        the first has not been taken.
        """
        checked_text(target, "the target of a signal")
        if dedup is not None:
            checked_text(dedup, "dedup")
        data = encode_value(payload)
        accepted: bool = self._running().request(lambda reply: Signalled(target, data, reply, dedup))
        return accepted

    def clear_poison(self, path: str, reason: str | None = None) -> bool:
        """Give a poisoned key back, once what it stands for is known to be sound; durable when it returns.

        ``path`` is the key as `poisons` lists it; ``reason`` goes into the log. False when that key is not
        poisoned. Raises `TypeError` or `ValueError` for what can be no key.
        """
        LockKey.write(path)
        if reason is not None:
            checked_text(reason, "reason", 1024)
        tree = self._running()
        known = next((poison for poison in Queries(tree).poisons() if poison.path == path), None)
        cleared: bool = tree.request(lambda reply: PoisonCleared(path, reply, reason))
        if cleared:
            by = f"poisoned by {known.by}: {known.reason}" if known is not None else "poisoned a moment ago"
            logger.warning("poison key %r was cleared: %s (it was %s)", path, reason or "no reason given", by)
        return cleared

    def pause(self) -> None:
        """Hand out no more steps until `resume`; running steps end, submits are accepted."""
        self._running().set_dispatching(on=False)

    def resume(self) -> None:
        """Go on after `pause`."""
        self._running().set_dispatching(on=True)

    # ------------------------------------------------------------ reading
    def get(self, id: str) -> ProcedureHandle:  # noqa: A002 - public contract
        """A handle of an existing procedure, finished ones included; raises `UnknownProcedure`."""
        Queries(self._running()).head(id)
        return ProcedureHandle(id, self)

    def info(self, id: str) -> ProcedureInfo:  # noqa: A002 - public contract
        """One procedure as it is now; raises `UnknownProcedure`."""
        return Queries(self._running()).info(id)

    def list(
        self,
        state: ProcedureState | str | None = None,
        type_name: str | None = None,
        root: str | None = None,
        tag: str | None = None,
        limit: int | None = None,
        after: str | None = None,
        owner: str | None = None,
    ) -> _List[ProcedureInfo]:
        """Procedures in submit order that match all given filters; ``after`` is the id of the last one seen."""
        return Queries(self._running()).listed(
            state=ProcedureState(state) if state is not None else None,
            type_name=type_name,
            root=root,
            tag=tag,
            owner=owner,
            limit=limit,
            after=after,
        )

    def steps(self, id: str) -> _List[StepRecord]:  # noqa: A002 - public contract
        """The step log of a procedure in order; raises `UnknownProcedure`."""
        return Queries(self._running()).steps(id)

    def locks(self) -> _List[LockInfo]:
        """The lock table: every granted lock with its holder, its age, and who waits for it in which order."""
        return Queries(self._running()).locks(self._clock.wall())

    def dangling_locks(self) -> _List[LockInfo]:
        """Locks whose holder does not exist or has ended, or of which the store and the running engine disagree.

        Normally empty: a row here, with its ``reason``, is a bug or a store changed from outside (the idea is
        that of Accumulo's FATE administration). Raises `StorageUnavailable` while the store is in trouble.
        """
        return Queries(self._running()).dangling_locks(self._clock.wall())

    def poisons(self) -> _List[PoisonInfo]:
        """The poisoned keys: who poisoned them, when and why. `clear_poison` gives one back."""
        return Queries(self._running()).poisons()

    def workers(self) -> _List[WorkerInfo]:
        """Every worker process: pid, the step in it, age, CPU seconds, memory."""
        return Queries(self._running()).workers()

    def health(self) -> Health:
        """How the engine does; never raises, also when it is stopped or broken."""
        tree = self._tree
        if tree is None or os.getpid() != self._pid or (tree.closed and tree.failure is None):
            return Health.stopped()
        return Queries(tree).health(tree.failure)

    # ------------------------------------------------------------ what handles ask (HandleSource)
    def watch(self, id: str) -> Future[Ending]:  # noqa: A002
        """A future of a procedure's end."""
        tree = self._running()
        ending = Queries(tree).ending(id)
        if ending is None:
            return tree.watch(id)
        # It has ended: what is stored is final, and the manager need not be asked.
        future: Future[Ending] = Future()
        future.set_result(ending)
        return future

    def ended(self, id: str) -> bool:  # noqa: A002
        """The procedure is in a terminal state."""
        return Queries(self._running()).head(id).state in TERMINAL

    def output_of(self, ending: Ending) -> Any:
        """The decoded output of a procedure that succeeded."""
        if ending.closing is None:
            return None
        return self._types.decode_output(ending.record.type_name, ending.closing.output)

    def post(self, errand: Callable[[], object]) -> None:
        """Run a callback on the manager's thread for callbacks."""
        tree = self._tree
        if tree is not None:
            tree.post(errand)

    # ------------------------------------------------------------ checks
    def _running(self) -> EngineTree:
        tree = self._tree
        if tree is None:
            msg = "this manager is not started: use `with ProcedureManager(…) as manager:` or call start()"
            raise ManagerStopped(msg)
        self._check_fork()
        if tree.closed:
            msg = "this manager has been stopped; call start() to use it again"
            raise ManagerStopped(msg)
        return tree

    def _check_fork(self) -> None:
        if os.getpid() != self._pid:
            msg = (
                f"this manager belongs to process {self._pid} and cannot be used in its forked child {os.getpid()}: "
                "create and start a manager after the fork, in one process only"
            )
            raise ManagerStopped(msg)


async def _in_thread(call: Callable[[], _T]) -> _T:
    return await asyncio.to_thread(call)
