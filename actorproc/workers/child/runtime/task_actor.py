"""The live procedure of an asynchronous class in a worker."""

from __future__ import annotations

import time
from typing import Any, ClassVar

from actorproc.model.ids import Mode
from actorproc.model.messages.outcomes import Failed, Outcome
from actorproc.model.trace_context import is_sampled
from actorproc.procedure.authoring.async_context import AsyncContext
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.encoding.state import StateRefused
from actorproc.procedure.runtime.async_steps import run_async
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.support import trace_scope
from actorproc.workers.child.runtime.actor import ProcedureActor
from actorproc.workers.child.runtime.step_line import AsyncStepLine, StepLine
from actorproc.workers.protocol.frames import Run

__all__ = ["TaskActor"]

_now = time.monotonic


class TaskActor(ProcedureActor):
    """A `ProcedureActor` without an inbox: it runs its step as a task, and answers it when it is told to."""

    _context_class: ClassVar[type[Context]] = AsyncContext
    _line_class: ClassVar[type[StepLine]] = AsyncStepLine
    context: AsyncContext | None = None
    """The context of the step."""
    _ready: tuple[TypeRuntime, float] | None = None

    async def attempt(self, run: Run) -> tuple[Outcome, tuple[type, ...]] | None:
        """Run one step; None: it cannot be run here. The host hears of it by `answer`."""
        worker_runtime, began = self._worker_runtime, _now()
        self._ready = self.context = None
        self._began = time.time() if run.trace and is_sampled(run.trace) else 0.0
        if run.trace:
            trace_scope.enter(run.trace, run.root)  # in the context of the task, which ends with it
        try:
            runtime = await self._runtime_of(run.type_name)
            began = _now()
            is_ready = self._restore(run, runtime)
        except (StateRefused, MemoryError) as error:
            refusal = self._refusal(run, error, began)
            return None if refusal is None else (refusal, ())
        if not is_ready:
            self.lacks_state = True
            self._stop()
            return None
        self._ready = runtime, began
        if run.tells_begin:
            worker_runtime.code_begins(run)
        step: Any = self._run_once(run, runtime, run.token.step, run.children_step, run.event)
        ended: tuple[Outcome, tuple[type, ...]] = await step
        self._note_fence()
        if worker_runtime.guard.is_copy:
            outcome = ended[0]
            worker_runtime.guard.leave_if_forked(outcome.error.traceback if type(outcome) is Failed else None)
        return ended

    def answer(self, run: Run, outcome: Outcome, classes: tuple[type, ...]) -> None:
        """Tell the host how the step ended."""
        if self._ready is None:
            self._answer(run, outcome)
        else:
            runtime, began = self._ready
            self._conclude(run, runtime, outcome, classes, began)

    def _note_fence(self) -> None:
        if self.context is not None and self.context._asked_for_fence:
            self._is_fenced = True

    async def _runtime_of(self, type_name: str) -> TypeRuntime:
        """The class, which is imported on a thread: that may take long."""
        types = self._worker_runtime.types
        if types.is_loaded(type_name):
            return types.runtime(type_name)
        import asyncio  # noqa: PLC0415 - workers without async steps do not load it

        return await asyncio.to_thread(types.runtime, type_name)

    def _run_code(self, live: Any, run: Run, runtime: TypeRuntime, context: Any, event: bytes | None) -> Any:
        """The step as a coroutine, in the place of its outcome."""
        own = runtime if type(live) is runtime.procedure_class else runtime.runtime_of(live)
        context._around = self._worker_runtime.around_async
        self.context = context
        return run_async(own, live, context, Mode(run.token.mode), run.unit, event)
