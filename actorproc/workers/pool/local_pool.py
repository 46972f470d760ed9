"""Workers as child processes of this program, fed and watched by one thread (`pool_thread`).

No signal handlers, no SIGCHLD, no ``waitpid(-1)``, no atexit hook: these belong to the host program. When the
host dies without `close`, the kernel closes the lifelines and kills the workers.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial

from actorproc.errors import UsageError
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.policies import StepLimits
from actorproc.workers.base import HostJoined, PoolEvent, WorkerInfo
from actorproc.workers.os.cgroups import Cgroups, find_cgroups
from actorproc.workers.os.frozen import check_not_multiplying
from actorproc.workers.os.interpreter import boot_bytes, default_executable, found_from_anywhere, host_path
from actorproc.workers.os.usage import cpu_and_rss, is_above_rlimits
from actorproc.workers.output.log_buffer import LogBuffer, LogEntry
from actorproc.workers.pool.crash_reports import oom_kills
from actorproc.workers.pool.pool_thread import PoolThread, Recipe
from actorproc.workers.pool.worker_ear import WorkerEar
from actorproc.workers.pool.worker_link import WorkerLink
from actorproc.workers.protocol.attachments import in_pieces
from actorproc.workers.protocol.frames import (
    DEFAULT_MAX_FRAME,
    Define,
    FrameError,
    Prepare,
    Run,
    ToWorker,
    encode_frame,
)
from actorproc.workers.protocol.host_program import StartPlace, host_program

__all__ = ["LocalPool"]

_KILLED_MUST_DIE = 5.0
"""Seconds `close` waits beyond its timeout for killed processes (one may hang in the kernel)."""


class LocalPool:
    """The `WorkerPool` of local processes. The constructor has no side effects; `open` starts the thread.

    Every worker begins with the directory, environment, arguments, umask and warning filters that this program has at
    the time of `open`.

    Args:
        spares: Warm processes that wait to replace a dead one.
        preload: Modules that every worker imports before its first step.
        environment: The cloudpickled factory of `ctx.env`.
        warm_limit: Number of live procedure objects that a worker keeps.
        log_level: The level from which workers forward log records.
        sys_path: Default: this program's module path at the time of `open`.
        executable: Default: the interpreter that `multiprocessing` would start, else this program's.
        use_pidfd: False: each process is watched with a thread instead, as systems without pidfds do anyway.
        around_step: The function that makes a context manager for each attempt, as ``module:function``.
        around_step_fails: Errors of it fail the step.
    """

    def __init__(
        self,
        *,
        epoch: int = 0,
        spares: int = 1,
        preload: Sequence[str] = (),
        environment: bytes | None = None,
        max_frame: int = DEFAULT_MAX_FRAME,
        max_state: int = 0,
        max_call: int = 0,
        staging: str = "",
        withheld: Sequence[str] = (),
        warm_limit: int = 1024,
        log_level: int = logging.INFO,
        sys_path: Sequence[str] | None = None,
        executable: str | None = None,
        use_pidfd: bool = True,
        recycle_steps: int | None = None,
        recycle_age: float | None = None,
        recycle_memory: int | None = None,
        log_buffer: LogBuffer | None = None,
        around_step: str | None = None,
        around_step_fails: bool = False,
    ) -> None:
        self._around_step = (around_step or "", around_step_fails)
        self._recycling = (recycle_steps, recycle_age, recycle_memory)
        self._log_buffer = log_buffer if log_buffer is not None else LogBuffer()
        self._epoch = epoch
        self._spares = spares
        self._preload = tuple(preload)
        self._environment = environment
        self._max_frame = max_frame
        self._max_state = max_state
        self._max_call = max_call
        self._staging = staging
        self._withheld = tuple(withheld)
        self._warm_limit = warm_limit
        self._log_level = log_level
        self._sys_path = None if sys_path is None else tuple(sys_path)
        self._executable = executable if executable is not None else default_executable()
        self._use_pidfd = use_pidfd
        self._cgroups = Cgroups()
        self._links: dict[WorkerId, WorkerLink] = {}
        self._lock = threading.Lock()
        self._thread: PoolThread | None = None
        self._pid = 0
        self._closed = False

    def open(self, sink: Callable[[PoolEvent], None]) -> None:
        """Start the pool's thread; every event goes to `sink`, on that thread or the one that listens at its ear."""
        if not self._executable:
            msg = (
                "this program has no sys.executable to start workers with; name a Python interpreter: "
                "ProcedureManager(…, config=Config(executable=…))"
            )
            raise UsageError(msg)
        check_not_multiplying(self._executable)
        with self._lock:
            if self._thread is not None or self._closed:
                msg = "a LocalPool is opened once; make a new one"
                raise UsageError(msg)
            path = self._sys_path if self._sys_path is not None else host_path()
            self._cgroups = find_cgroups()
            prepare = Prepare(
                self._preload,
                self._environment,
                self._max_frame,
                self._warm_limit,
                self._log_level,
                *self._recycling,
                process_cgroup="" if self._cgroups.pids is None else str(self._cgroups.pids.folder),
                max_state=self._max_state,
                max_call=self._max_call,
                staging=os.fsencode(self._staging),
                program=host_program(),
                around_step=self._around_step[0],
                around_step_fails=self._around_step[1],
            )
            recipe = Recipe(
                executable=found_from_anywhere(self._executable),
                first_bytes=boot_bytes(path) + encode_frame([prepare], self._max_frame),
                epoch=self._epoch,
                max_frame=self._max_frame,
                spares=self._spares,
                use_pidfd=self._use_pidfd,
                staging=self._staging,
                place=StartPlace(self._withheld),  # last: it holds a descriptor
            )
            self._pid = os.getpid()
            # Known before it runs: Ctrl-C may raise while it starts, and `close` must find it.
            thread = self._thread = PoolThread(recipe, self._links, sink, self._log_buffer, self._cgroups)
            sink(HostJoined(0, "rlimit" if self._cgroups.memory is None else "cgroup", _process_limits(self._cgroups)))
            try:
                thread.start()
            except RuntimeError:
                self._thread = None
                raise

    @property
    def ear(self) -> WorkerEar | None:
        """The ear at which another thread can listen to the workers; None: the pool is not open."""
        return None if self._thread is None else self._thread.ear

    def launch(self, worker: WorkerId, *, replace: bool = False) -> None:
        """Start this worker; ends in `WorkerBooted` or `WorkerDied`. Raises `UsageError` when it lives already."""
        thread = self._opened()
        link = WorkerLink(worker, self._max_frame)
        link.replace = replace
        with self._lock:
            if worker in self._links:
                msg = f"worker {worker.slot}.{worker.incarnation} lives already; give a new one the next incarnation"
                raise UsageError(msg)
            self._links[worker] = link
        thread.post(partial(thread.launch, link))

    def send(self, worker: WorkerId, messages: Sequence[ToWorker]) -> None:
        """Queue messages in order. Raises `FrameError` when one message alone is longer than `max_frame`."""
        link = self._links.get(worker)
        if link is None or link.dead or not messages:
            return
        for message in messages:
            if type(message) is Run:
                link.given[message.token] = (message.root, message.type_name, message.step_name)
            elif type(message) is Define:
                self._opened().learn(message.definition)
        try:
            pieces = in_pieces(messages, self._max_frame)
        except FrameError:
            pieces = [piece for message in messages for piece in in_pieces([message], self._max_frame)]
        if link.send(*pieces):
            thread = self._opened()
            thread.post(partial(thread.watch_for_room, link))

    def stop(self, worker: WorkerId) -> None:
        """Ask for an orderly end after the running step; steps that it has not begun are returned."""
        thread = self._opened()
        thread.post(partial(thread.stop, worker))

    def forget_spares(self) -> None:
        """End the spare processes: they have loaded what was on disk when they started. Others are started."""
        thread = self._opened()
        thread.post(thread.forget_spares)

    def kill(
        self,
        worker: WorkerId,
        *,
        grace: float = 0.0,
        blamed: StepToken | None = None,
        reason: str = "",
        kind: str = "",
        ask: bool = True,
    ) -> None:
        """Stack dump and SIGTERM, `grace` seconds, then SIGKILL of the group and of descendants seen alive.

        The report's `kind` is "timeout" when a step is blamed and none is given, else "stopped". A process that left
        the worker's session and its process tree (a double fork with setsid) escapes.
        """
        thread = self._opened()
        kind = kind or ("stopped" if blamed is None else "timeout")
        thread.post(partial(thread.kill, worker, grace, kind, reason, ask=ask))

    def facts(self, timeout: float = 5.0) -> dict[WorkerId, WorkerInfo]:
        """Facts from psutil about every worker that has a process; `timeout` is not needed."""
        del timeout
        now, oom_count = time.monotonic(), oom_kills()
        facts = {}
        for worker, link in list(self._links.items()):
            process = link.process
            if process is None or link.dead:
                continue
            cpu, rss = cpu_and_rss(process.pid)
            link.note(rss, oom_count)
            facts[worker] = WorkerInfo(
                slot=worker.slot,
                incarnation=worker.incarnation,
                pid=process.pid,
                state=link.state,
                age=now - link.started,
                cpu=cpu,
                rss=rss,
            )
        return facts

    def watch(self, worker: WorkerId, token: StepToken, limits: StepLimits) -> None:
        """Sample what a running step uses ten times a second, until it is answered."""
        thread = self._opened()
        thread.post(partial(thread.sample, worker, token, limits))

    def stack(self, token: StepToken, timeout: float = 5.0) -> str:
        """The Python stack of a running step; "" when it does not run any more.

        The worker tells it itself; one whose GIL is held by C code is made to write the stacks of all its threads.
        """
        thread = self._opened()
        number, future = thread.stacks.open()
        thread.post(partial(thread.ask_stack, token.worker, token, number))
        try:
            return future.result(timeout)
        except TimeoutError:
            return ""

    def logs(self, procedure: str, timeout: float = 5.0) -> list[LogEntry]:
        """Prints and log records of a procedure, as far as they are kept; `timeout` is not needed."""
        del timeout
        return self._log_buffer.lines(procedure)

    def close(self, timeout: float) -> None:
        """Stop all workers, kill what is left after `timeout` seconds, reap all. A second call may shorten it."""
        self._closed = True
        thread = self._thread
        if thread is None or os.getpid() != self._pid:
            return
        thread.post(partial(thread.close, timeout))
        if threading.current_thread() is not thread.thread and thread.thread.is_alive():
            thread.thread.join(timeout + _KILLED_MUST_DIE)

    def _opened(self) -> PoolThread:
        if self._thread is None:
            msg = "the LocalPool is not open"
            raise UsageError(msg)
        if os.getpid() != self._pid:
            msg = "this is a forked copy of the program that opened the LocalPool; its workers cannot be used here"
            raise UsageError(msg)
        return self._thread


def _process_limits(cgroups: Cgroups) -> str:
    """Protection against a fork bomb before it is seen; "none" where processes are not even counted (not Linux)."""
    if sys.platform != "linux":
        return "none"
    if cgroups.pids is not None:
        return "cgroup"
    return "sampling" if is_above_rlimits() else "rlimit"
