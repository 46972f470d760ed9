"""`ProcedureExecutor`, a `concurrent.futures.Executor` whose calls are procedures."""

from __future__ import annotations

import functools
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor
from datetime import timedelta
from types import TracebackType
from typing import Any, Literal, NoReturn, ParamSpec, Self, TypeVar

from actorproc.api.manager import ProcedureManager
from actorproc.api.verbs.submit import checked_reuse
from actorproc.config import Config
from actorproc.engine.arguments import checked_on_existing, checked_priority, checked_tags
from actorproc.engine.runtime.clock import waiting_seconds
from actorproc.errors import ManagerStopped, UsageError
from actorproc.executor.futures import DurableFuture, is_called_back_by
from actorproc.executor.leaving import finish_dropped, finish_later, finish_or_leave, leave, watch_for_exit
from actorproc.executor.mapping import chunks_of, flat, in_order
from actorproc.executor.options import CallOptions, Submit, check_arguments, manager_for, name_of
from actorproc.executor.queue import CallQueue
from actorproc.model.ids import check_id, new_id
from actorproc.model.policies import OnExisting
from actorproc.model.rows.records import IdReuse
from actorproc.procedure.authoring.call import Call, call_chunk, pickled_call, pickled_initializer
from actorproc.procedure.declaring.policies import Limits, RetryPolicy
from actorproc.procedure.declaring.submit_options import Tags
from actorproc.procedure.shipping.importing import shut_here

__all__ = ["ProcedureExecutor"]

P = ParamSpec("P")
T = TypeVar("T")


class ProcedureExecutor(Executor):
    """A `concurrent.futures.Executor` whose calls are procedures: durable, and not broken by a dead worker.

    With a path, the executor starts a manager of its own there, and stops it in `shutdown`. It starts at the first
    call, or at the ``with``, so an executor may be made at the top of a module. In a worker that imports the module it
    stays shut, and using it raises `UsageError`.

    Functions and arguments are pickled in the thread that submits, by cloudpickle where plain pickle does not reach
    (lambdas, functions of a script). A call whose worker dies is made again, three times at most, so a function should
    be safe to call twice. An exception is a result, and is tried again only where ``retry`` says so.

    Args:
        manager: A started `ProcedureManager`, or the path of a directory for a manager of its own.
        max_workers: Number of processes of a manager of its own. Default: the processors this program may use.
        mp_context: A "spawn" or "forkserver" context, which is what the workers are like anyway. Default: None.
        initializer: Called once in each worker process before its first call of this executor. When it fails, calls and
            later submits raise `CallBroken`. Its changes of the process (limits, environment, working directory, umask,
            signal handlers) stay for the worker's life with a manager of its own. With another's they are put back
            after that call, as all changes of a step. Default: None.
        initargs: Arguments of ``initializer``. Default: none.
        max_tasks_per_child: ``Config(recycle_steps=…)`` of a manager of its own. Default: None.
        priority: Priority of all calls, as of `ProcedureManager.submit`. Default: 0.
        tags: Tags of all calls, as of `ProcedureManager.submit`. Default: None.
        limits: `Limits` of each call. Default: None, no limits.
        retry: Errors of a function that are tried again, a `RetryPolicy`. Default: None, no error is.
        config: `Config` of a manager of its own. Default: None.
        retain: Seconds, or a timedelta: ``Config.retain_for`` of a manager of its own. Default: None.

    Raises:
        ValueError: ``max_workers``, ``max_tasks_per_child``, ``config`` or ``retain`` is given with another's manager.
            Or a number is too small, or ``mp_context`` forks.
        TypeError: An argument is of the wrong kind.
    """

    def __init__(
        self,
        manager: ProcedureManager | str | os.PathLike[str],
        max_workers: int | None = None,
        mp_context: Any = None,
        initializer: Callable[..., object] | None = None,
        initargs: Iterable[Any] = (),
        *,
        max_tasks_per_child: int | None = None,
        priority: int = 0,
        tags: Tags | None = None,
        limits: Limits | None = None,
        retry: RetryPolicy | None = None,
        config: Config | None = None,
        retain: float | timedelta | None = None,
    ) -> None:
        check_arguments(max_workers, mp_context, initializer, max_tasks_per_child)
        self._options = CallOptions.of(limits, retry)
        labels, weight = checked_tags(tags), checked_priority(priority)
        is_own = not isinstance(manager, ProcedureManager)
        setup = pickled_initializer(initializer, tuple(initargs), is_kept=is_own)
        self._manager = manager_for(manager, max_workers, max_tasks_per_child, config, retain)
        self._owned = self._manager if is_own else None
        self._max_workers = self._manager._slots
        self._pid = os.getpid()
        self._queue = CallQueue(
            self._manager,
            setup,
            weight,
            labels,
            is_own=self._owned is not None,
            watch=functools.partial(watch_for_exit, owned=self._owned),
        )
        self._state = threading.RLock()  # a signal handler may submit in the middle of a submit
        self._has_begun = False
        self._is_shut_down = False

    _engine_stays_here = (
        "belongs to its process and cannot be stored or sent to a worker: a call that needs other calls returns, and "
        "its caller submits them"
    )

    def __reduce__(self) -> NoReturn:
        msg = f"a ProcedureExecutor {self._engine_stays_here}"
        raise TypeError(msg)

    def __repr__(self) -> str:
        life = "shut down" if self._is_shut_down else "open"
        return f"<ProcedureExecutor {self._manager._path!r} {life}>"

    @property
    def manager(self) -> ProcedureManager:
        """The manager that runs the calls, started."""
        if not self._has_begun and not self._is_shut_down:
            self._begin()
        return self._manager

    def __enter__(self) -> Self:
        if not self._has_begun and shut_here() is None:
            self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        if kind is None or not issubclass(kind, KeyboardInterrupt) or not self._has_begun or os.getpid() != self._pid:
            self.shutdown(wait=True)
            return False
        with self._state:
            was_open, self._is_shut_down = not self._is_shut_down, True
        if was_open or (self._queue.unfinished and not self._queue.is_left):
            self._queue.dropped = None
            leave(self._queue, self._owned)
        return False

    def _begin(self) -> None:
        """Start a manager of its own, in the process of the first call: that may be a fork of the one that made it.

        Raises `UsageError` where the executor stays shut, and what `ProcedureManager.start` raises.
        """
        with self._state:
            self._check_not_shut_down()
            shut = self._manager._shut
            if shut is not None and shut.holds():
                raise UsageError(shut.reason("executor", self._manager._path))
            self._pid = self._queue.pid = os.getpid()
            if self._owned is not None:
                if self._owned._starter == threading.get_ident():
                    return  # a signal handler in the middle of the lines below: the sender waits for the start
                self._owned.start()
            self._has_begun = True
            # As the executors of the standard library: one that is dropped finishes what it has, and ends. Not by
            # weakref.finalize, which registers an exit hook.
            self._queue.dropped = weakref.ref(
                self, functools.partial(finish_dropped, self._queue, self._owned, self._pid)
            )

    # ------------------------------------------------------------ calls
    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> DurableFuture[T]:
        """Queue ``fn(*args, **kwargs)``; returns at once. ``future.durable()`` waits until it is on disk.

        Args:
            fn: The function.
            *args: Its arguments.
            **kwargs: Its keyword arguments.

        Returns:
            The future of the call. If the call cannot be pickled, the future has the error.

        Raises:
            RuntimeError: The executor is shut down.
            CallBroken: The initializer has failed.
            UsageError: A worker has imported the module that made the executor, which stays shut there.
            ManagerStopped: This is a forked child, or the manager does not run.
        """
        return self._put(new_id(), self._options, fn, args, kwargs, alone=False)

    def submit_as(self, id: str, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> DurableFuture[T]:
        """Queue a call, as `submit`, under an id of yours.

        A call that has this id already, also of an earlier run of the program, is not made again: its future is
        returned.

        Args:
            id: The id.
            fn: The function.
            *args: Its arguments.
            **kwargs: Its keyword arguments.

        Returns:
            The future of the call.

        Raises:
            InvalidId: The id is no id.
            UsageError: The id is that of a procedure which is no call.
            RuntimeError: The executor is shut down.
            CallBroken: The initializer has failed.
        """
        return self._named(id, self._options, fn, args, kwargs)

    def submit_with(
        self,
        *,
        limits: Limits | None = None,
        retry: RetryPolicy | None = None,
        timeout: float | timedelta | None = None,
        id: str | None = None,
        on_existing: OnExisting = "same",
    ) -> Submit:
        """`submit` with options of its own: ``executor.submit_with(timeout=5)(fn, *args)``.

        Args:
            limits: Resources that the call may use, a `Limits`. Default: the executor's ``limits``.
            retry: Errors of the function that are tried again, a `RetryPolicy`. Default: the executor's ``retry``.
            timeout: Seconds, or a timedelta, after which an attempt of the call is stopped and its worker killed:
                ``Limits.wall_time``, which replaces that of the limits. The time in the queue does not count.
            id: A name for the call, as of `submit_as`.
            on_existing: Policy for an id that a call has already: "same" (default) returns the future of that one;
                "restart-failed" makes the call again if it failed, "restart" whatever its end was, "error" never.
                The future raises `NotAllowed` or `DuplicateProcedure` for what the policy does not take.

        Returns:
            A function of the same arguments as `submit`. It may be called many times, but with an ``id`` all of its
            calls are that one. A call that was killed for its time raises `CallTimeout`, a builtin `TimeoutError`.

        Raises:
            TypeError: An option is of the wrong kind.
            ValueError: A time makes no sense.
            InvalidId: The id is no id.
        """
        name = None if id is None else check_id(id)
        options = self._options.changed(limits, retry, timeout)
        if checked_on_existing(on_existing) != "same" and name is None:
            msg = f"on_existing={on_existing!r} is about the call that has the id: give an id as well"
            raise ValueError(msg)

        def submit(fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> DurableFuture[Any]:
            if name is not None:
                return self._named(name, options, fn, args, kwargs, on_existing)
            return self._put(new_id(), options, fn, args, kwargs, alone=False)

        return submit

    def _named(
        self,
        id: str,
        options: CallOptions,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        on_existing: OnExisting = "same",
    ) -> DurableFuture[Any]:
        name = check_id(id)
        self._check_open()
        reuse = checked_reuse(on_existing)
        if reuse is not None:
            return self._put(name, options, fn, args, kwargs, alone=True, reuse=reuse)
        if self.manager._running().store.procedure(name) is not None:
            return self.get(name)
        return self._put(name, options, fn, args, kwargs, alone=True)

    def get(self, id: str) -> DurableFuture[Any]:
        """A future of a call that is stored, also of an earlier run of the program.

        Args:
            id: The id of the call.

        Returns:
            The future.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
            UsageError: The id is that of a procedure which is no call.
            RuntimeError: The executor is shut down.
        """
        if self.manager.info(id).type_name != Call.type_name:
            msg = f"{id} is no call of an executor; ask manager.get({id!r}) for it"
            raise UsageError(msg)
        with self._state:
            self._check_not_shut_down()  # its end would reach no caller
            return self._queue.attach(id)

    def map(
        self,
        fn: Callable[..., T],
        *iterables: Iterable[Any],
        timeout: float | timedelta | None = None,
        chunksize: int = 1,
        **options: Any,
    ) -> Iterator[T]:
        """``map(fn, *iterables)`` in the workers, with results in order.

        If the iterator is dropped, the calls whose results are left in it are cancelled soon after.

        Args:
            fn: The function.
            *iterables: Its arguments, one iterable each; the shortest decides.
            timeout: Seconds, or a timedelta, from this call to the last result. Default: None, without limit.
            chunksize: Number of calls that make one procedure, at least 1. Default: 1.
            **options: Those of the standard library (``buffersize``, Python 3.14).

        Returns:
            An iterator of results. It raises what a call raised, and the builtin `TimeoutError` when the time is up.

        Raises:
            ValueError: ``chunksize`` is less than 1.
            RuntimeError: The executor is shut down.
            CallBroken: The initializer has failed.
        """
        if chunksize < 1:
            msg = "chunksize must be >= 1."
            raise ValueError(msg)
        patience = waiting_seconds(timeout)
        end = None if patience is None else time.monotonic() + patience
        calls = zip(*iterables)  # noqa: B905 - as map: the shortest one decides
        if chunksize > 1:
            chunks = chunks_of(calls, chunksize)
            if options:
                return flat(super().map(functools.partial(call_chunk, fn), chunks, timeout=patience, **options))
            lists = [self.submit(functools.partial(call_chunk, fn), chunk) for chunk in chunks]
            return flat(in_order(self._queue, lists, end))
        if options:
            return super().map(fn, *iterables, timeout=patience, **options)
        return in_order(self._queue, [self.submit(fn, *args) for args in calls], end)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take no more calls, and stop a manager of its own when its last call has ended.

        On some threads it never waits: inside a callback of one of its futures, and in a signal handler in the middle
        of a submit. There, and without ``wait``, another thread does the rest; the interpreter waits for that thread at
        its exit. Ctrl-C while it waits, or inside the ``with``, leaves within a second. Calls that have not ended stay
        stored, and go on when an executor or a manager is started on that directory.

        Args:
            wait: Return when all calls have ended. Default: True.
            cancel_futures: Cancel calls that no worker has. Default: False.

        Raises:
            StorageUnavailable: The store was removed meanwhile.
        """
        if os.getpid() != self._pid:
            self._is_shut_down = True
            return
        with self._state:
            is_first = not self._is_shut_down
            self._is_shut_down = True
        if cancel_futures:
            self._queue.cancel_waiting()
        if is_first:
            self._queue.dropped = None
        # In a callback, or a signal handler in the middle of a submit: who is waited for would wait for this thread.
        must_not_wait = is_called_back_by(self._queue) or self._queue.is_interrupted or self._is_interrupted
        if wait and not must_not_wait:
            finish_or_leave(self._queue, self._owned, is_first=is_first)
        elif is_first:
            finish_later(self._queue, self._owned)

    # ------------------------------------------------------------ parts
    def _put(
        self,
        id: str,
        options: CallOptions,
        fn: Callable[..., T],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        *,
        alone: bool,
        reuse: IdReuse | None = None,
    ) -> DurableFuture[T]:
        if not self._has_begun:
            self._check_not_shut_down()
            self._begin()
        elif self._is_shut_down or os.getpid() != self._pid:
            self._check_open()  # before what pickling would say, and before any lock that a fork may have copied
        try:
            call = pickled_call(fn, args, kwargs, options.retry)
        except Exception as error:  # noqa: BLE001 - __reduce__ is user code; executors tell by the future
            unsent: DurableFuture[T] = DurableFuture(id, self._queue, None)
            unsent.refused(error)
            unsent.set_exception(error)
            return unsent
        with self._state:
            self._check_open()
            return self._queue.put(id, call, name_of(fn), options.stored, alone=alone, reuse=reuse)

    @property
    def _is_interrupted(self) -> bool:
        return bool(self._state._is_owned())  # type: ignore[attr-defined]  # as conditions ask it

    def _check_not_shut_down(self) -> None:
        if self._is_shut_down:
            msg = "cannot schedule new futures after shutdown"
            raise RuntimeError(msg)

    def _check_open(self) -> None:
        self._check_not_shut_down()
        if not threading.main_thread().is_alive():
            msg = "cannot schedule new futures after interpreter shutdown"
            raise RuntimeError(msg)
        if (broken := self._queue.receiver.broken) is not None:
            raise broken
        if self._has_begun and os.getpid() != self._pid:
            msg = f"this executor belongs to process {self._pid} and cannot be used in its forked child"
            raise ManagerStopped(msg)
