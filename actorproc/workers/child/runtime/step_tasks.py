"""Steps of a worker that run as tasks on its event loop."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, Protocol

from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import StepToken
from actorproc.model.messages.outcomes import Failed, Outcome, Stopped
from actorproc.workers.child.output import stacks
from actorproc.workers.child.runtime.crash_marks import CrashMarks
from actorproc.workers.child.runtime.event_loop import EventLoop
from actorproc.workers.child.runtime.task_actor import TaskActor
from actorproc.workers.protocol.frames import CancelBegan, CancelStep, Run

if TYPE_CHECKING:
    from actorproc.workers.child.runtime.actor import ProcedureActor
    from actorproc.workers.child.runtime.worker_runtime import WorkerRuntime

__all__ = ["StepTasks"]

logger = logging.getLogger("actorproc.worker")

_AGAIN = 1.0
"""Seconds between two cancellations of a task: one may be swallowed."""
_GRACE = 1.0
"""Seconds for the tasks that a step leaves behind, where its limits say nothing."""
_BLOCKED = 1.0
"""Seconds without a turn of the loop after which a warning names the step that holds it up."""


class _ActorHome(Protocol):
    """The live procedures of the worker."""

    def task_actor(self, procedure: str, kind: type[ProcedureActor]) -> ProcedureActor:
        """The live actor for an async step."""
        ...

    def task_ended(self, run: Run, actor: ProcedureActor) -> None:
        """An async step was answered."""
        ...


class _StepTask:
    """One step that runs as a task."""

    def __init__(self, run: Run, number: int) -> None:
        self.run = run
        self.number = number
        self.tasks: set[asyncio.Task[Any]] = set()
        """The step's own task and those that it started, while they run."""
        self.pooled: set[Future[Any]] = set()
        """Work that it has given to pools of threads, until that has ended."""
        self.task: asyncio.Task[tuple[Outcome, tuple[type, ...]] | None] | None = None
        self.order: CancelStep | None = None
        """It is to end; None: it may run."""


class StepTasks:
    """The tasks of a worker. `give`, `cancel` and `stack_of` are for any thread."""

    def __init__(self, worker_runtime: WorkerRuntime, home: _ActorHome) -> None:
        self._worker_runtime = worker_runtime
        self._home = home
        self._numbers = itertools.count(1)
        self._steps: dict[StepToken, _StepTask] = {}
        self._orders: dict[StepToken, CancelStep] = {}
        """For steps that have not come to the loop yet."""
        self._serving: set[asyncio.Task[None]] = set()
        self._given = 0
        self._idle = threading.Condition()
        marks = worker_runtime.marks
        self.loop = EventLoop(CrashMarks(marks), worker_runtime.mark_thread, follow=marks is not None)
        self._over = threading.Event()
        self._watching = threading.Thread(target=self._watch, name="actorproc-loop-watch", daemon=True)
        self._watching.start()

    # ------------------------------------------------------------------ any thread
    def give(self, run: Run) -> None:
        """Run this step beside the others."""
        with self._idle:
            self._given += 1
        self.loop.post(self._begin, run)

    def cancel(self, order: CancelStep) -> None:
        """End this step if it runs."""
        self.loop.post(self._cancel, order)

    def wait_until_idle(self) -> None:
        """Return when no step runs."""
        with self._idle:
            while self._given:
                self._idle.wait()

    def close(self) -> None:
        """End the loop."""
        self._over.set()
        self.loop.close()

    def stack_of(self, token: StepToken | None) -> str:
        """The stacks of the tasks of a step, or of all that run, as text; "" when it does not run."""
        texts = []
        for step in list(self._steps.values()):
            if token is None or step.run.token == token:
                if self.loop.current is step:
                    texts.append(stacks.text_of({step.run.token: self.loop.thread.ident or 0}, step.run.token))
                texts += [stacks.text_of_task(task) for task in _ordered(step) if self.loop.current is not step]
        return "\n".join(filter(None, texts))

    def _watch(self) -> None:
        """Say which step holds the loop up. On a thread of its own."""
        seen = told = -1
        while not self._over.wait(_BLOCKED / 2):
            turns, step = self.loop.turns, self.loop.current
            if step is None or turns != seen:
                seen = turns
            elif turns != told:
                told = turns
                self._warn_of_blocker(step.run)

    def _warn_of_blocker(self, run: Run) -> None:
        token = run.token
        stack = stacks.text_of({token: self.loop.thread.ident or 0}, token)
        self._worker_runtime.mark_thread(run)
        try:
            logger.warning(
                "step %s of %s blocks the event loop of its worker and the steps beside it; await what it waits for, "
                "or give it to asyncio.to_thread\n%s",
                run.step_name or token.step,
                token.procedure,
                stack,
            )
        finally:
            self._worker_runtime.mark_thread(None)

    # ------------------------------------------------------------------ the loop's thread
    def _begin(self, run: Run) -> None:
        serving = self.loop.loop.create_task(self._serve(run))
        self._serving.add(serving)
        serving.add_done_callback(self._serving.discard)

    def _cancel(self, order: CancelStep) -> None:
        step = self._steps.get(order.token)
        if step is None:
            if order.token in self._worker_runtime.running:  # on its way here
                self._orders[order.token] = order
            return
        self._worker_runtime.channel.send([CancelBegan(order.token)])
        if step.order is None and step.task is not None and not step.task.done():
            step.order = order
            self._request(step)

    def _request(self, step: _StepTask) -> None:
        assert step.task is not None
        if not step.task.done():
            step.task.cancel(step.order.reason if step.order is not None else None)
            self.loop.loop.call_later(_AGAIN, self._request, step)

    async def _serve(self, run: Run) -> None:
        worker_runtime, step = self._worker_runtime, _StepTask(run, next(self._numbers))
        actor: Any = self._home.task_actor(run.token.procedure, TaskActor)
        try:
            worker_runtime.began_as_task(run, step.number)
            self._steps[run.token] = step
            step.task = self.loop.start(step, actor.attempt(run), _name_of(run))
            if (order := self._orders.pop(run.token, None)) is not None:
                self._cancel(order)
            await asyncio.wait((step.task,))
            await self._end_left_behind(step, actor)
            if step.order is not None and actor.context is not None:
                await _end_in_pools(step)
            self._answer(step, actor)
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            worker_runtime.broken = error
        finally:
            self._steps.pop(run.token, None)
            self._home.task_ended(run, actor)
            with self._idle:
                self._given -= 1
                self._idle.notify_all()

    def _answer(self, step: _StepTask, actor: TaskActor) -> None:
        assert step.task is not None
        if step.order is None:
            ended = step.task.result()
            if ended is not None:
                actor.answer(step.run, *ended)
            return
        actor.answer(step.run, Stopped(report=_report(step)), ())

    async def _end_left_behind(self, step: _StepTask, actor: TaskActor) -> None:
        """Cancel the tasks that a step has started and not awaited: they must not act after its end."""
        loop, limits = self.loop.loop, step.run.limits
        until = loop.time() + (_GRACE if limits is None else limits.grace)
        if step.order is not None:  # the host ends a worker in which what is to end does not
            until = math.inf
        left: dict[asyncio.Task[Any], float] = {}
        """Tasks, each with the time of its last cancellation. One that is cancelled may start others."""
        while (running := [task for task in step.tasks if not task.done()]) and (now := loop.time()) < until:
            for task in running:
                if not _closes_generator(task) and now - left.get(task, -math.inf) >= _AGAIN:
                    left[task] = now
                    task.cancel(f"{_name_of(step.run)} is over")
            await asyncio.wait(running, timeout=min(_AGAIN, until - now), return_when=asyncio.FIRST_COMPLETED)
        if not left:
            return
        if actor.context is not None:
            names = ", ".join(_place_of(task) for task in left)
            end = "goes on in spite of that, so the worker is replaced" if running else "was cancelled"
            actor.context.log.warning("the step left work behind that it did not await, which %s: %s", end, names)
        if running:
            self._worker_runtime.worn = "a task of a step does not end"


async def _end_in_pools(step: _StepTask) -> None:
    """Return when nothing of a step that was to end acts on a thread: that cannot be cancelled once it runs."""
    while running := [future for future in list(step.pooled) if not future.cancel() and not future.done()]:
        await asyncio.gather(*map(asyncio.wrap_future, running), return_exceptions=True)


def _ordered(step: _StepTask) -> Iterable[asyncio.Task[Any]]:
    """The tasks of a step, its own first."""
    return sorted(step.tasks, key=lambda task: task is not step.task)


def _name_of(run: Run) -> str:
    return f"{run.token.procedure}:{run.step_name or run.token.step}"


def _closes_generator(task: asyncio.Task[Any]) -> bool:
    """It is the loop's own, for an asynchronous generator that was left by a ``break``: that is to be closed."""
    return getattr(task.get_coro(), "__name__", "") == "async_generator_athrow"


def _place_of(task: asyncio.Task[Any]) -> str:
    code = getattr(task.get_coro(), "cr_code", None)
    name = task.get_name()
    return name if code is None else f"{name} ({code.co_qualname}, {code.co_filename}:{code.co_firstlineno})"


def _report(step: _StepTask) -> CrashReport:
    """The order, and where the step was when it was cancelled."""
    assert step.order is not None
    assert step.task is not None
    stack = ""
    if not step.task.cancelled() and step.task.exception() is None:
        ended = step.task.result()
        if ended is not None and isinstance(ended[0], Failed):
            stack = ended[0].error.traceback
    return CrashReport(kind=step.order.kind, message=step.order.reason, stack=stack)
