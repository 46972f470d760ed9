"""The live procedures of a worker, and the loop that runs their steps."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from actorproc.procedure.authoring.context import StopStep
from actorproc.procedure.values.error_text import in_words
from actorproc.workers.child.runtime.actor import ProcedureActor
from actorproc.workers.child.runtime.dispatcher import Dispatcher
from actorproc.workers.child.runtime.step_threads import StepThreads
from actorproc.workers.child.runtime.worker_runtime import WorkerRuntime
from actorproc.workers.protocol.frames import NeedState, Returned, Run

if TYPE_CHECKING:
    from actorproc.workers.child.runtime.step_tasks import StepTasks

__all__ = ["LiveProcedures"]


class LiveProcedures:
    """Actors by procedure id, the least recently used first; at most `warm_limit` of them outlive their step.

    Steps run on the main thread, one after the other. Those of procedures with ``Limits.threads`` above 1 run beside
    each other on step threads, each actor with a dispatcher of its own. Async ones run on an event loop. The host
    never mixes the three.
    """

    def __init__(
        self, worker_runtime: WorkerRuntime, warm_limit: int, not_alone: Callable[[], None] = lambda: None
    ) -> None:
        """``not_alone`` is called before a step runs on a step thread, which may have to wake us."""
        self._not_alone = not_alone
        self._worker_runtime = worker_runtime
        self._warm_limit = warm_limit
        self._dispatcher = Dispatcher(passing=(StopStep,))
        self._actors: dict[str, ProcedureActor] = {}
        self._lock = threading.Lock()
        self._step_threads = StepThreads(self._run_beside_others)
        self._tasks: StepTasks | None = None

    def serve(self) -> None:
        """Run steps on this thread until the worker is to stop. Raises `StopStep`, and what broke the machinery."""
        try:
            self._serve()
            self._step_threads.wait_until_idle()
            if self._tasks is not None:
                self._tasks.wait_until_idle()
        finally:
            self._step_threads.dismiss()
            if self._tasks is not None:
                self._tasks.close()
        if self._worker_runtime.broken is not None:
            raise self._worker_runtime.broken

    def _serve(self) -> None:
        worker_runtime, main = self._worker_runtime, threading.get_ident()
        while (run := worker_runtime.take(main)) is not None:
            if run.limits is not None and run.limits.beside > 1:
                self._not_alone()
                if run.limits.tasks:
                    self._event_loop().give(run)
                else:
                    self._step_threads.give(run)
                continue
            if run.limits is not None and run.limits.tasks:
                self._run_alone(run)
                continue
            self._run(run, self._dispatcher)
            if worker_runtime.broken is not None:
                return
            worker_runtime.restore()
            if worker_runtime.worn:
                worker_runtime.leave(worker_runtime.worn)

    def _event_loop(self) -> StepTasks:
        """The tasks of this worker; a worker without any never loads `asyncio`."""
        if self._tasks is None:
            from actorproc.workers.child.runtime.step_tasks import StepTasks  # noqa: PLC0415 - as the text above says

            self._tasks = self._worker_runtime.tasks = StepTasks(self._worker_runtime, self)
        return self._tasks

    def _run_alone(self, run: Run) -> None:
        """Run an async step to its end before anything else runs."""
        self._not_alone()
        tasks = self._event_loop()
        tasks.give(run)
        tasks.wait_until_idle()

    def task_actor(self, procedure: str, kind: type[ProcedureActor]) -> ProcedureActor:
        """The live actor for an async step."""
        return self._actor_of(procedure, None, kind)

    def task_ended(self, run: Run, actor: ProcedureActor) -> None:
        """An async step was answered."""
        self._over(run, actor, lacks_state=actor.lacks_state, has_other_code=actor.has_other_code)
        self._look_after()

    def _run_beside_others(self, run: Run) -> None:
        """On a step thread."""
        worker_runtime = self._worker_runtime
        worker_runtime.began_beside_others(run)
        try:
            self._run(run, None)
        except StopStep:
            return  # the worker is a thread that was told to be dead
        except BaseException as error:  # noqa: BLE001 - the main thread raises it
            worker_runtime.broken = error
        self._look_after()

    def _look_after(self) -> None:
        """A step that ran beside others is over."""
        worker_runtime = self._worker_runtime
        if worker_runtime.broken is not None:
            worker_runtime.wake()
            worker_runtime.leave(
                f"a fault of its own: {in_words(worker_runtime.broken)}"
            )  # the steps beside it may take long to end
        elif not worker_runtime.running:
            worker_runtime.restore()
            if worker_runtime.worn:
                worker_runtime.leave(worker_runtime.worn)

    def _run(self, run: Run, dispatcher: Dispatcher | None) -> None:
        actor = self._actor_of(run.token.procedure, dispatcher)
        if dispatcher is not None:
            actor.receive(run)
            lacks_state, has_other_code = actor.lacks_state, actor.has_other_code
        else:
            # An answer may bring the next step before the thread that gave it is back from the actor: one at a time.
            with actor.turn:
                actor.receive(run)
                lacks_state, has_other_code = actor.lacks_state, actor.has_other_code
        self._over(run, actor, lacks_state=lacks_state, has_other_code=has_other_code)

    def _over(self, run: Run, actor: ProcedureActor, *, lacks_state: bool, has_other_code: bool) -> None:
        """A step was answered, or is given back."""
        self._worker_runtime.finished(run)
        if actor.stopped.is_on or len(self._actors) > self._warm_limit:
            self._passivate(run.token.procedure)
        if lacks_state:  # last: the same step comes again with its state, and may begin on another thread
            self._worker_runtime.channel.send([NeedState(run.token)])
        elif has_other_code:
            self._worker_runtime.channel.send([Returned(run.token, run.type_name)])

    def _actor_of(
        self, procedure: str, dispatcher: Dispatcher | None, kind: type[ProcedureActor] = ProcedureActor
    ) -> ProcedureActor:
        """The live actor, now the most recently used; without a dispatcher it has one of its own."""
        with self._lock:
            actor = self._actors.pop(procedure, None)
            is_fit = type(actor) is kind and (actor.dispatcher is self._dispatcher) is (dispatcher is not None)
            if actor is None or not is_fit or actor.stopped.is_on:
                own = dispatcher if dispatcher is not None else Dispatcher(passing=(StopStep,))
                actor = kind.create(own, self._worker_runtime, procedure)
            self._actors[procedure] = actor
        return actor

    def _passivate(self, procedure: str) -> None:
        """Forget the actor that has just stopped, and the least recently used ones beyond the limit."""
        with self._lock:
            actors = self._actors
            actor = actors.get(procedure)  # once its step is over, another thread may have dropped it
            if actor is not None and actor.stopped.is_on:
                del actors[procedure]
            spare = len(actors) - self._warm_limit
            if spare <= 0:
                return
            busy = {
                token.procedure for token in list(self._worker_runtime.running)
            }  # on other threads: they are in use
            dropped = [actors.pop(name) for name in [name for name in actors if name not in busy][:spare]]
        for actor in dropped:
            actor.stop()
            actor.dispatcher.run()
