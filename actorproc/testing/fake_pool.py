"""A `WorkerPool` of threads: real procedure actors and real messages, no processes.

For tests of what stands above the pool. A step cannot be killed here: a worker that is killed or crashed falls
silent, its thread ends with the step. `crash` plays every death the real pool knows.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import traceback
from collections.abc import Callable, Sequence

from actorproc.errors import UsageError
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.events import CrashReport
from actorproc.procedure.authoring.context import StopStep
from actorproc.testing.no_processes import NoProcesses
from actorproc.workers.base import HostJoined, PoolEvent, WorkerBooted, WorkerDied, WorkerInfo, WorkerMessages
from actorproc.workers.child.output import stacks
from actorproc.workers.child.runtime.live_procedures import LiveProcedures
from actorproc.workers.child.runtime.worker_runtime import WorkerRuntime
from actorproc.workers.protocol.frames import FromWorker, Stop, ToWorker

__all__ = ["FakePool"]

logger = logging.getLogger("actorproc.testing")


class FakePool(NoProcesses):
    """Workers as threads of this program.

    Args:
        warm_limit: Live procedure objects that a worker keeps between steps. Default: 1024.
        boot_failures: Number of workers that die before they are ready; then all boot. Default: 0.
    """

    def __init__(self, *, warm_limit: int = 1024, boot_failures: int = 0) -> None:
        self._warm_limit = warm_limit
        self._boot_failures = boot_failures
        self._workers: dict[WorkerId, _FakeWorker] = {}
        self._lock = threading.RLock()
        """Events go out under it, so nothing is heard of a worker after its death."""
        self._sink: Callable[[PoolEvent], None] | None = None
        self._closed = False

    def open(self, sink: Callable[[PoolEvent], None]) -> None:
        """Events go to `sink`, on the threads of the workers."""
        self._sink = sink
        sink(HostJoined(0))

    def launch(self, worker: WorkerId, *, replace: bool = False) -> None:
        """Start a thread that plays this worker; it is never replaced by itself."""
        del replace
        with self._lock:
            if self._sink is None or worker in self._workers:
                msg = f"the pool is not open, or worker {worker.slot}.{worker.incarnation} lives already"
                raise UsageError(msg)
            fake = self._workers[worker] = _FakeWorker(self, worker, self._warm_limit)
            self._prepare(fake.worker_runtime)
            if self._closed:
                self._bury(worker, CrashReport(kind="stopped", message="stopped before it was started"), booted=False)
                return
            if self._boot_failures > 0:
                self._boot_failures -= 1
                self._bury(worker, CrashReport(kind="boot", message="the test wants this boot to fail"), booted=False)
                return
            fake.start()

    def _prepare(self, worker_runtime: WorkerRuntime) -> None:
        """For subclasses: a worker is about to be started."""

    def _begin(self, worker: WorkerId, worker_runtime: WorkerRuntime) -> None:
        """For subclasses: this thread is the worker's. An exception is the reason why the worker does not boot."""

    def send(self, worker: WorkerId, messages: Sequence[ToWorker]) -> None:
        """Hand messages over at once."""
        fake = self._workers.get(worker)
        if fake is not None:
            for message in messages:
                fake.worker_runtime.take_in(message)

    def forget_spares(self) -> None:
        """There are none."""

    def stop(self, worker: WorkerId) -> None:
        """Orderly end after the running step."""
        self.send(worker, [Stop()])

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
        """The worker is dead at once; `grace` is not waited for."""
        del grace, ask
        kind = kind or ("stopped" if blamed is None else "timeout")
        self.crash(worker, CrashReport(kind=kind, message=reason or "the worker pool ended it", signal="SIGKILL"))

    def crash(self, worker: WorkerId, report: CrashReport | None = None) -> None:
        """Let a worker die.

        Args:
            worker: The worker.
            report: The manner of its death. Default: None, by SIGKILL from outside.
        """
        if report is None:
            report = CrashReport(kind="signal", message="killed by signal 9 (SIGKILL)", signal="SIGKILL")
        self._bury(worker, report, booted=True)

    def facts(self, timeout: float = 5.0) -> dict[WorkerId, WorkerInfo]:
        """Live workers; they have no process to measure.

        Args:
            timeout: Not needed.

        Returns:
            The facts of each.
        """
        del timeout
        now = time.monotonic()
        return {
            worker: WorkerInfo(
                slot=worker.slot, incarnation=worker.incarnation, pid=0, state=fake.state, age=now - fake.started
            )
            for worker, fake in list(self._workers.items())
        }

    def stack(self, token: StepToken, timeout: float = 5.0) -> str:
        """The stack of the thread that plays the worker of a step.

        Args:
            token: The step.
            timeout: Not needed.

        Returns:
            The stack as text; "" when the step does not run.
        """
        del timeout
        fake = self._workers.get(token.worker)
        return stacks.text_of(fake.worker_runtime.running, token) if fake is not None else ""

    def close(self, timeout: float) -> None:
        """Stop all workers. Idempotent.

        Args:
            timeout: Seconds after which the rest is dead.
        """
        deadline = time.monotonic() + timeout
        with self._lock:
            self._closed = True
            workers = list(self._workers.items())
        for worker, fake in workers:
            self.stop(worker)
            if fake is not threading.current_thread():
                fake.join(max(0.0, deadline - time.monotonic()))
            self.crash(worker, CrashReport(kind="stopped", message="it did not stop in time", signal="SIGKILL"))

    # ------------------------------------------------------------------ called by the workers
    def _emit(self, fake: _FakeWorker, event: PoolEvent) -> None:
        with self._lock:
            if self._workers.get(fake.worker) is fake and self._sink is not None:
                self._sink(event)

    def _bury(self, worker: WorkerId, report: CrashReport, *, booted: bool) -> None:
        with self._lock:
            fake = self._workers.get(worker)
            if fake is not None:
                fake.terminating = True
                fake.worker_runtime.stop()
                self._emit(fake, WorkerDied(worker, report, booted))
                del self._workers[worker]


class _FakeWorker(threading.Thread):
    """One worker; also its own channel and its own guard, as far as threads can have one."""

    def __init__(self, pool: FakePool, worker: WorkerId, warm_limit: int) -> None:
        super().__init__(name=f"fake-worker-{worker.slot}", daemon=True)
        self.worker = worker
        self.started = time.monotonic()
        self.booted = False
        self.terminating = False
        self.is_copy = False
        self.worker_runtime = WorkerRuntime(self, self)
        self._pool = pool
        self._warm_limit = warm_limit

    @property
    def state(self) -> str:
        return "idle" if self.worker_runtime.current is None else "busy"

    def run(self) -> None:
        try:
            self._pool._begin(self.worker, self.worker_runtime)
        except BaseException as error:  # noqa: BLE001 - user code; a sys.exit() in it is a boot failure as well
            report = CrashReport(kind="boot", message=str(error), stderr=traceback.format_exc())
            self._pool._bury(self.worker, report, booted=False)
            return
        self._pool._emit(self, WorkerBooted(self.worker, 0))
        self.booted = True
        try:
            LiveProcedures(self.worker_runtime, self._warm_limit).serve()
            report = CrashReport(kind="stopped", message="stopped as asked", code=0)
        except StopStep:
            return
        except BaseException as error:
            logger.debug("a fake worker failed", exc_info=True)
            report = CrashReport(kind="exit", message=f"failed in its own machinery: {error!r}")
        self._pool._bury(self.worker, report, booted=True)

    def send(self, messages: Sequence[FromWorker]) -> None:
        if not self.terminating:
            self._pool._emit(self, WorkerMessages(self.worker, list(messages)))

    def allow_interrupt(self) -> None:
        if self.terminating:
            raise StopStep

    def forbid_interrupt(self) -> None:
        """Threads cannot be interrupted."""

    def leave_if_forked(self, error: str | None) -> None:
        """A fake worker is a thread: its steps must not fork."""

    def restore(self) -> str:
        """Restore nothing: what a step does to this process stays done."""
        return ""

    def keep_changes(self) -> contextlib.AbstractContextManager[None]:
        """Everything stays, in any case."""
        return contextlib.nullcontext()

    def remember_process_state(self) -> None:
        """It is not to be restored."""
