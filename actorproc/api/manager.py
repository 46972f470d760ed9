"""`ProcedureManager`: a directory becomes a running engine, procedures go in, outputs come out."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from actorproc.api.home.succession import Succession
from actorproc.api.queries import Queries
from actorproc.api.registration import Registration
from actorproc.api.verbs.async_life import AsyncLife
from actorproc.api.verbs.base import RunningEngine
from actorproc.api.verbs.maintenance import MaintenanceVerbs
from actorproc.api.verbs.operator import OperatorVerbs
from actorproc.api.verbs.register import RegisterVerbs
from actorproc.api.verbs.reload import ReloadVerbs
from actorproc.api.verbs.repair import RepairVerbs
from actorproc.api.verbs.scale import ScaleVerbs
from actorproc.api.verbs.schedule import ScheduleVerbs
from actorproc.api.verbs.signal import SignalVerbs
from actorproc.config import Config
from actorproc.engine.arguments import (
    check_parts,
    check_wiring,
    check_workers,
    checked_classes,
    checked_max_workers,
    checked_modules,
    checked_tracing,
)
from actorproc.engine.runtime.clock import waiting_seconds
from actorproc.errors import ActorprocError, ManagerStopped, StoreDamaged, StoreFormat, StoreInUse, UsageError
from actorproc.model.around_step import checked_around_step
from actorproc.model.messages.events import HostAdded
from actorproc.model.placement import checked_labels, checked_resources
from actorproc.model.slots import MOST_WORKERS
from actorproc.procedure.authoring.function import ProcedureFunction
from actorproc.procedure.shipping.importing import shut_here
from actorproc.procedure.values.codec import permit_calls, permit_size
from actorproc.report.changes import LeaderEvent, LifecycleEvent
from actorproc.report.health import Health
from actorproc.store.base import ProcedureStore
from actorproc.store.home import home_of
from actorproc.support.clock import Clock
from actorproc.support.durations import in_seconds
from actorproc.workers.os.patched import refuse_patched_threads
from actorproc.workers.os.processors import usable_processors

if TYPE_CHECKING:
    from actorproc.api.home.host_side import HostSide
    from actorproc.api.home.shared_engine import SharedEngine
    from actorproc.api.home.worker_pools import WorkerPools
    from actorproc.control.doors import Entrance
    from actorproc.control.link_door import LinkEntrance
    from actorproc.engine.engine import EngineTree
    from actorproc.store.reading import Durability
    from actorproc.store.shared import SharedStore
    from actorproc.telemetry.tracing import Tracing
    from actorproc.workers.base import WorkerPool

__all__ = ["ProcedureManager"]

logger = logging.getLogger("actorproc")

_OWNER_LOOK = 0.05
"""Seconds between tries to own a directory that another owner is to give up."""
_List = list
"""`ProcedureManager.list` hides the builtin inside the class."""


class ProcedureManager(
    ScheduleVerbs,
    RepairVerbs,
    OperatorVerbs,
    SignalVerbs,
    MaintenanceVerbs,
    ScaleVerbs,
    ReloadVerbs,
    RegisterVerbs,
    AsyncLife,
    Succession,
):
    """Runs procedures in worker processes and remembers every step in a directory.

    The constructor touches nothing: use ``with`` or `start`. All methods may be called from any thread.

    Args:
        path: The directory. A relative one is seen from the working directory of this moment.
        procedures: Classes and `procedure` functions to register at once. Default: none.
        workers: Number of worker processes, 1 to 999. Default: one for each processor this program may use, by its
            affinity and its control group. With a store in a database 0 is a manager that leads, or waits for that,
            and whose steps other machines run.
        max_workers: Greatest number of worker processes while all are stuck in long steps and work waits
            (`Config.stuck_after`), at most 999. Default: twice ``workers``.
        labels: Labels that this machine offers to steps with ``Limits(on=…)``. Default: none.
        resources: Amounts by name that this machine offers to steps with ``Limits(resources=…)``. Default: none.
        lead: Lead the store if no other manager does. False, for a store in a database: follow only, with the workers
            of this machine at the service of the manager that leads. Default: True.
        store: A store in place of the one on disk; then ``path`` and ``durability`` are not used. Default: None.
        config: All other settings. Default: ``Config()``.
        environment: A factory called once in each worker; its result is ``ctx.env``. A generator function yields it,
            and closes behind that what it opened, at the orderly end of the worker. Default: None.
        preload: Names of modules that each worker imports before its first step. Default: none.
        around_step: A function of the step's `Context`, as ``"module:function"``, which each worker imports. The
            context manager that it makes is entered around each attempt. Default: none.
        around_step_errors: "log" (what that raises is logged, and the step goes on) or "fail" (the step fails with
            it). Default: "log".
        on_fatal: Called with the error when no worker can be started any more, or a bug stopped the engine. Default:
            None.
        on_event: Called with each `ProcedureEvent` and `WorkerEvent`, on the manager's thread for callbacks. Its errors
            are logged; events that it cannot take in time are dropped and counted. Default: None.
        tracing: A `Tracing` that records the work of this manager as spans of OpenTelemetry. Default: None.
        durability: "power" (a commit survives a power cut) or "process" (it survives any kill, not a power cut).
            Default: "power".
        clock: A clock in place of the system's. Default: None.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: A number is too small, the path is empty, a label or a resource makes no sense, or
            ``around_step`` is no name of a function. Or ``durability`` or ``around_step_errors`` is no such word.
        UsageError: A class cannot be run, or the path is a URL.
        DuplicateType: Two classes have one type name.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        procedures: Iterable[type | ProcedureFunction[..., Any]] = (),
        workers: int | None = None,
        max_workers: int | None = None,
        labels: Sequence[str] = (),
        resources: Mapping[str, float] | None = None,
        lead: bool = True,
        store: ProcedureStore | None = None,
        config: Config | None = None,
        environment: Callable[[], Any] | None = None,
        preload: Sequence[str] = (),
        around_step: str | None = None,
        around_step_errors: Literal["log", "fail"] = "log",
        on_fatal: Callable[[ActorprocError], None] | None = None,
        on_event: Callable[[LifecycleEvent], object] | None = None,
        tracing: Tracing | None = None,
        durability: Durability = "power",
        clock: Clock | None = None,
    ) -> None:
        super().__init__()
        check_parts(store, clock)
        self._config = config if config is not None else Config()
        self._home = home_of(path)
        self._path = self._home.words
        self._check_longest(store)
        if workers is not None:
            check_workers(workers, least=0 if store is None and not self._home.is_near and lead else 1)
        self._slots = workers if workers is not None else min(usable_processors(), MOST_WORKERS)
        self._max_slots = checked_max_workers(max_workers, self._slots)
        self._offer = _offer(labels, resources)
        if not self._slots and (self._offer is not None or self._max_slots):
            msg = "workers=0: a manager that runs no steps has neither max_workers nor labels and resources to offer"
            raise UsageError(msg)
        self._given_store = store
        if not lead and not self._is_shared:
            msg = "lead=False needs a store in a database (postgresql://…): in a directory no other manager can lead"
            raise UsageError(msg)
        self._may_lead = lead
        check_wiring(self._config, durability, environment=environment, on_fatal=on_fatal, on_event=on_event)
        permit_size(self._config.max_state)
        permit_calls(self._config.max_call)
        self._environment = environment
        self._preload = checked_modules(preload)
        self._around_step = checked_around_step(around_step, around_step_errors)
        self._on_fatal = [on_fatal] if on_fatal is not None else []
        self._on_event = on_event
        self._tracing = checked_tracing(tracing)
        self._durability = durability
        self._clock = clock if clock is not None else getattr(store, "clock", None) or self._home.clock()
        self._types = Registration(
            self._home if store is None else None, self._config.signing_key, max_frame=self._config.max_frame
        )
        self._starting = threading.Lock()
        self._starter: int | None = None
        """The thread that is starting the engine."""
        self._is_service = False
        """The process does nothing else: it has loaded the modules of its classes for the facts in them alone."""
        self._given_up = False
        """It was stopped while it was being started."""
        self._tree: EngineTree | SharedEngine | None = None
        self._shared: SharedEngine | None = None
        """The engine of a store that several machines share, from the moment when it is made."""
        self._pid = 0
        self._shut = shut_here()
        """The import that keeps this manager shut in this process."""
        self._asked: bool | None = None
        """It was asked to start, gated or not, while it was shut."""
        for procedure_class in checked_classes(procedures):
            self.register(procedure_class)

    def _check_longest(self, store: ProcedureStore | None) -> None:
        most = self._home.largest_value
        if store is None and most is not None and self._config.max_state > most:
            msg = f"Config.max_state is {self._config.max_state}; with a store in a database it is {most} at most"
            raise UsageError(msg)

    # ------------------------------------------------------------ life
    def start(self, gated: bool = False, *, wait: float | timedelta = 0.0) -> Self:
        """Own the directory, recover what was unfinished, and start the workers.

        Starting a started manager does nothing. An interactive session (IPython, the REPL) may have made another one on
        the directory in an earlier statement: that one is stopped first, and goes on through this one. At the top of a
        module that a worker imports a start does nothing: a manager that an import made stays shut there.

        Args:
            gated: Hold everything back until `open`. Everything is recovered, locks are held and submits are accepted,
                but nothing runs: for when what the procedures need is not up yet. Default: False.
            wait: Seconds, or a timedelta, for another owner of the directory to stop, such as the service that this one
                replaces. Default: 0, it is refused at once.

        Returns:
            The manager.

        Raises:
            StoreInUse: Another manager or a command owns the directory; the message has its pid.
            StoreFormat: The store is of a newer format, or the directory holds something else.
            StoreDamaged: The store cannot be read.
            WorkerBootFailed: No worker can start; the message has the traceback of one.
            EngineError: Something else is wrong with the directory; the message says what.
            ManagerStopped: The manager was stopped meanwhile.
            UsageError: A step starts a manager that an import made.
            TypeError: ``wait`` is no duration.
            ValueError: ``wait`` makes no sense.
        """
        if self._stays_shut(gated) or self._is_succeeded():
            return self
        if self._tree is not None and self._tree.is_closing_here:
            raise ManagerStopped(
                "the manager is just being stopped, by this very thread; start it when `stop` has returned"
            )
        until = time.monotonic() + in_seconds(wait, "wait")
        with self._starting:
            if self._tree is not None:
                if not self._tree.closed:
                    self._check_fork()
                    return self
                if os.getpid() == self._pid:  # in a forked child no thread goes on to close it
                    self._tree.wait_until_closed()
            self._pid = os.getpid()
            # Before the engine is loaded, which takes a while: a signal handler may want it stopped by then.
            self._given_up, self._starter = False, threading.get_ident()
            try:
                with self._succeeding():
                    tree: EngineTree | SharedEngine
                    tree = self._begin_shared(gated, until) if self._is_shared else self._begin_within(gated, until)
            finally:
                self._starter = None
            if self._given_up:
                tree.stop(drain=False, timeout=self._config.stop_timeout)
                msg = "the manager was stopped while it started"
                raise ManagerStopped(msg)
        return self

    def _stays_shut(self, gated: bool) -> bool:
        """A start is to do nothing, because an import makes it where the program does not run.

        Raises `UsageError` when a step starts what an import made.
        """
        if self._tree is not None and not self._tree.closed:
            return False
        shut = shut_here()
        if shut is not None:
            self._shut, self._asked = self._shut or shut, gated
            return True
        if self._shut is not None and self._shut.holds():
            raise UsageError(self._shut.reason("manager", self._path))
        self._shut = None
        return False

    def _opened_late(self) -> RunningEngine | None:
        if self._shut is None:
            return None
        if self._shut.holds():
            raise UsageError(self._shut.reason("manager", self._path))
        if self._asked is not None:
            self.start(self._asked)
        return self._tree

    @property
    def _is_shared(self) -> bool:
        """Managers on several machines may want the store: one leads, and the others follow."""
        return self._given_store is None and not self._home.is_near

    @property
    def _serves_leader(self) -> bool:
        """The workers of this machine run steps for another manager that leads."""
        return bool(self._slots)

    _sends_modules = False
    """Another manager that leads is sent the types that modules have, too."""

    def _make_store(self) -> ProcedureStore:
        config = self._config
        return self._home.store(
            durability=self._durability, allow_any_filesystem=config.allow_any_filesystem, lease=config.lease
        )

    def _make_engine(self, gated: bool, store: ProcedureStore) -> EngineTree:
        from actorproc.api.home import assembly  # noqa: PLC0415 - not loaded without a start, as it says

        refuse_patched_threads(self._path)
        cap = min(self._config.commit_backoff_cap, self._home.backoff_cap)
        tree = assembly.EngineTree(
            store=store,
            make_pool=self._make_pool,
            slots=self._slots,
            max_slots=self._max_slots,
            config=replace(self._config, commit_backoff_cap=cap),
            clock=self._clock,
            on_fatal=self._tell_failure,
            on_event=self._on_event,
            offer=self._offer,
            gated=gated,
        )
        tree.tracing = self._tracing
        tree.spans_folder = self._home.spool if self._given_store is None else None
        return tree

    def _begin_within(self, gated: bool, until: float) -> EngineTree:
        """Begin once no other owner has the directory. Raises its `StoreInUse` when it still has it at `until`."""
        while True:
            try:
                given = self._given_store
                tree = self._make_engine(gated, given if given is not None else self._make_store())
                self._begin(tree, self._entrance())
                self._attach(tree)
                self._tree = tree
            except StoreInUse as error:
                if self._given_up:
                    msg = "the manager was stopped while it waited for the owner of its directory"
                    raise ManagerStopped(msg) from error
                if time.monotonic() >= until:
                    raise
                time.sleep(min(_OWNER_LOOK, max(0.0, until - time.monotonic())))
            else:
                return tree

    def _begin_shared(self, gated: bool, until: float) -> SharedEngine:
        """Lead, or follow the one that does; from then on whichever it comes to."""
        from actorproc.api.home import assembly  # noqa: PLC0415
        from actorproc.api.home.shared_engine import SharedEngine  # noqa: PLC0415 - a directory needs no links and no TLS

        hooks = assembly.EventHooks(self._on_event, lambda errand: engine.post(errand))  # noqa: PLW0108 - it is made below

        def lead(
            store: SharedStore, entrance: LinkEntrance | None, prepare: Callable[[EngineTree], None]
        ) -> EngineTree:
            tree = self._make_engine(gated, store)
            prepare(tree)
            self._begin(tree, entrance)
            return tree

        engine = SharedEngine(
            self._home,
            self._config,
            make_store=lambda: cast("SharedStore", self._make_store()),
            lead=lead,
            make_host=self._make_host,
            runs_steps=self._serves_leader,
            may_lead=self._may_lead,
            definitions=self._definitions,
            on_change=lambda kind, epoch: hooks.put(
                LeaderEvent(kind=kind, at=self._clock.wall(), epoch=epoch, store=self._path)
            ),
        )
        engine.sends_modules = self._sends_modules
        self._shared = engine
        engine.start(until)
        self._attach(engine)
        self._tree = engine
        return engine

    def _make_host(self, workers: int | None = None) -> HostSide:
        """The workers of this machine, all or so many, for a manager that leads elsewhere."""
        from actorproc.api.home.host_side import HostSide  # noqa: PLC0415 - for stores of several machines

        offer, config = self._offer, self._config
        return HostSide(
            self._home,
            self._pools().for_host,
            workers=self._slots if workers is None else workers,
            labels=offer.labels if offer is not None else (),
            resources=offer.resources if offer is not None else {},
            code=config.code or "",
            digests={known.meta.type_name: known.digest for known in self._types.known() if known.digest},
            stop_timeout=config.stop_timeout,
        )

    def _begin(self, tree: EngineTree, entrance: Entrance | None) -> None:
        """Start an engine, and let other processes in."""
        tree.start(self._definitions)
        try:
            tree.changed_code = self._types.code.warn
            tree.before_reload.append(self._check_reload)
            tree.after_reload.append(self._reloaded)
            if entrance is not None:
                self._serve(tree, entrance)
        except BaseException:
            tree.stop(drain=False, timeout=self._config.stop_timeout)
            raise

    def _entrance(self) -> Entrance | None:
        """The socket for other processes of this user, when there is a directory for it."""
        if self._given_store is not None or not self._config.control:
            return None
        from actorproc.api.home import assembly  # noqa: PLC0415

        assert self._home.door is not None
        return assembly.UnixEntrance(self._home.door)

    def _serve(self, tree: EngineTree, entrance: Entrance) -> None:
        from actorproc.api.home import assembly  # noqa: PLC0415

        server = assembly.ControlServer(tree, entrance, self._config)
        server.start()
        tree.at_close.append(server.close)
        tree.at_end.append(server.join)
        if tree.closed:  # by the host, in the moment before: then nothing closes this
            server.close()
            server.join()

    def _at_failure(self, listener: Callable[[ActorprocError], None]) -> None:
        """Have this called as well as ``on_fatal``, and before it; for code that runs a manager it did not make."""
        self._on_fatal.insert(0, listener)

    def _tell_failure(self, error: ActorprocError) -> None:
        for listener in tuple(self._on_fatal):
            try:
                listener(error)
            except Exception:
                logger.exception("on_fatal raised")

    def _make_pool(self, epoch: int) -> WorkerPool:
        return self._pools().for_engine(epoch, self._shared.own_number if self._shared is not None else 0)

    def _pools(self) -> WorkerPools:
        from actorproc.api.home import assembly  # noqa: PLC0415

        home = self._home if self._given_store is None else None
        around, fails = self._around_step
        return assembly.WorkerPools(
            self._config, home, self._preload, self._environment, around_step=around, around_step_fails=fails
        )

    def _give_up_start(self) -> None:
        """Have a start that is under way end with `ManagerStopped`. For signal handlers: it takes no lock."""
        if self._starter is not None:
            self._given_up = True

    def stop(self, drain: bool = True, timeout: float | timedelta | None = None) -> None:
        """Stop the engine; procedures that have not ended go on at the next start.

        A caller that waits for a handle gets `ManagerStopped`. Stopping a stopped manager does nothing. A second call
        while one stops the manager waits for that, and ends its wait for steps when the second call's time is up first.
        A manager that is being started stops as soon as it has started, and its ``start`` raises `ManagerStopped`.
        Signal handlers may call this. A store that refuses writes is waited for `Config.stop_timeout` seconds at most.

        Args:
            drain: Wait for the running steps; not for their procedures. Default: True.
            timeout: Seconds, or a timedelta, after which running steps are killed; they run again at the next start.
                Default: None, as long as they take.

        Raises:
            TypeError: ``timeout`` is no duration.
            ValueError: ``timeout`` makes no sense.
        """
        patience = waiting_seconds(timeout)
        self._asked = None
        starter = self._starter
        if starter is not None and os.getpid() == self._pid:
            self._given_up = True  # `start` sees it at its end
            if starter != threading.get_ident():
                if not self._starting.acquire(timeout=-1 if patience is None else patience):
                    return
                self._starting.release()
        tree = self._tree
        if tree is not None and os.getpid() == self._pid:
            tree.stop(drain=drain, timeout=patience)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Ctrl-C and SystemExit mean now; other exceptions are no reason to interrupt steps.
        self.stop(drain=kind is None or issubclass(kind, Exception), timeout=self._config.stop_timeout)

    # ------------------------------------------------------------ health
    def health(self) -> Health:
        """Health of the engine; never raises, also when it is stopped or broken."""
        tree = self._tree
        if tree is not None and self._is_succeeded() and os.getpid() == self._pid:
            tree = cast("EngineTree | SharedEngine", self._running())
        if tree is None or os.getpid() != self._pid or (tree.closed and tree.failure is None):
            return Health.stopped()
        health_of_shared = getattr(tree, "health_here", None)
        if health_of_shared is not None:
            shared: Health = health_of_shared()
            return shared
        if tree.closed and isinstance(tree.failure, StoreInUse | StoreFormat | StoreDamaged):
            return Health.stopped(str(tree.failure))
        return Queries(cast("EngineTree", tree)).health(tree.failure)


def _offer(labels: Sequence[str], resources: Mapping[str, float] | None) -> HostAdded | None:
    """The offer of this machine to steps that ask for labels or resources; None: nothing."""
    named = checked_labels(labels, "labels=…")
    amounts = checked_resources({} if resources is None else resources, "resources=…")
    return HostAdded("", named, amounts) if named or amounts else None
