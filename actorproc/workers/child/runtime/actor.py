"""One live procedure in a worker."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from actorproc.errors import UsageError
from actorproc.model.ids import Mode, StepToken
from actorproc.model.messages.outcomes import Advanced, Failed, Finished, Outcome, Refused
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.trace_context import is_sampled
from actorproc.procedure.authoring.context import Context, StopStep
from actorproc.procedure.encoding.state import StateRefused
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.procedure.values.error_text import error_info, in_words, passing_cause
from actorproc.support import trace_scope
from actorproc.support.staged_files import LONG, write_staged
from actorproc.workers.child.runtime.dispatcher import DispatchedActor, Dispatcher
from actorproc.workers.child.runtime.step_line import StepLine
from actorproc.workers.child.runtime.type_cache import CodeRefused
from actorproc.workers.protocol.frames import Definition, Ended, FrameError, Run

if TYPE_CHECKING:
    from actorproc.procedure.authoring.procedure import Procedure
    from actorproc.workers.child.runtime.worker_runtime import WorkerRuntime

__all__ = ["ProcedureActor"]

_CHAIN_SECONDS = 0.05
"""Seconds for which steps that need no record may follow one another before the host hears of them."""
_set = msgspec.structs.force_setattr
_now = time.monotonic


class ProcedureActor(DispatchedActor):
    """Restores a state, runs one step, dumps the state, answers; keeps the live object for the next step.

    It stops itself when the procedure has nothing to do for now: finished, suspended, asleep, waiting, parked or
    failed. The next attempt then starts from persisted bytes, never from what a failed step left in memory.
    """

    _context_class: ClassVar[type[Context]] = Context
    _line_class: ClassVar[type[StepLine]] = StepLine

    def __init__(self, dispatcher: Dispatcher, worker_runtime: WorkerRuntime, procedure: str) -> None:
        super().__init__(dispatcher)
        self.procedure = procedure
        self.turn = threading.Lock()
        """Held by the thread that has it work."""
        self.lacks_state = False
        """It stopped, as the state of its step has to be sent first; the caller of the step asks for that."""
        self.has_other_code = False
        """It stopped, as the step is for a host that has the manager's code; the caller gives it back."""
        self._worker_runtime = worker_runtime
        self._live: Procedure | None = None
        self._runtime: TypeRuntime | None = None
        self._began = 0.0
        """Epoch seconds at which the step began; 0: its trace is not recorded."""
        self._is_fenced = False
        """A step of this answer asked for its fence."""

    def on_receive(self, run: Run) -> None:
        """Run one step and answer it before anything else runs."""
        worker_runtime, began = self._worker_runtime, _now()
        self._began = time.time() if run.trace and is_sampled(run.trace) else 0.0
        try:
            runtime = worker_runtime.types.runtime(run.type_name)
            # To load a large state is work as well: who hands out steps must know how much there is in a queue.
            began = _now()
            is_ready = self._restore(run, runtime)
        except (StateRefused, MemoryError) as error:
            refusal = self._refusal(run, error, began)
            if refusal is not None:
                self._answer(run, refusal)
            return
        if not is_ready:
            self.lacks_state = True
            self._stop()
            return
        outcome, classes = self._step(run, runtime, began)
        self._conclude(run, runtime, outcome, classes, began)

    def _refusal(self, run: Run, error: StateRefused | MemoryError, began: float) -> Outcome | None:
        """The answer where there is no live object for a step; None: the step is for another host."""
        if isinstance(error, CodeRefused):
            self.has_other_code = True
            self._stop()
            return None
        if isinstance(error, StateRefused):
            cause = passing_cause(error)
            if isinstance(cause, ImportError | SyntaxError):
                # What was imported before the files were whole is kept by this process for good.
                self._worker_runtime.worn = f"{run.type_name} could not be imported"
            return Refused(reason=error.reason, elapsed=_now() - began, is_passing=cause is not None)
        # Nothing is wrong with the state: elsewhere, or later, there may be room for it.
        self._worker_runtime.worn = f"there was no memory to load a state of {run.type_name}"
        info = error_info(error, procedure=run.token.procedure, step=run.token.step)
        return Failed(error=info, retryable=True, elapsed=_now() - began)

    def _conclude(
        self, run: Run, runtime: TypeRuntime, outcome: Outcome, classes: tuple[type, ...], began: float
    ) -> None:
        """Answer a step that has run."""
        worker_runtime = self._worker_runtime
        _set(outcome, "elapsed", _now() - began)
        # The class may be replaced in the host while its step runs: the state is this one's.
        live = self._live
        assert live is not None
        meta = runtime.meta if type(live) is runtime.procedure_class else runtime.dumps_as(live)
        _set(outcome, "version", meta.version)
        _set(outcome, "codec", meta.codec)
        if self._is_fenced:
            self._is_fenced = False
            _set(outcome, "fence", run.fence)
        if worker_runtime.guard.terminating and isinstance(outcome, Failed):
            # User code turned the interruption into some failure of its own; the kill is the truth, not that.
            worker_runtime.guard.allow_interrupt()
        try:
            definitions = worker_runtime.types.announce(classes, runtime) if classes else ()
        except BaseException as error:  # noqa: BLE001 - shipping a class runs user code (__reduce__), exits included
            self._answer(run, _unanswerable(run.token, error))
            return
        if self._answer(run, outcome, definitions) and classes:
            worker_runtime.types.told(classes)

    def on_failure(self, _type: Any, error: BaseException | None, _traceback: Any) -> None:
        """User code cannot get here: this is the worker's own machinery."""
        self._worker_runtime.broken = error

    def on_stop(self) -> None:
        """Let go of the live object."""
        self._live = None
        self._runtime = None

    def _restore(self, run: Run, runtime: TypeRuntime) -> bool:
        """Have the live object for this step; False when its state must be sent first."""
        if run.state is None:
            return self._live is not None and self._runtime is runtime and not run.file
        guard = self._worker_runtime.guard
        guard.allow_interrupt()
        try:
            self._live = runtime.load(run.state, run.codec, run.version, run.token.procedure)
        except (StateRefused, StopStep, MemoryError):
            raise
        except BaseException as error:  # load is user code; a sys.exit() in it is a refusal as well
            msg = f"{run.type_name} cannot load its state: {in_words(error)}"
            raise StateRefused(msg) from error
        finally:
            guard.forbid_interrupt()
        self._runtime = runtime
        return True

    def _step(self, run: Run, runtime: TypeRuntime, began: float) -> tuple[Outcome, tuple[type, ...]]:
        """Run the step, and those after it that need no record of their own."""
        token = run.token
        if run.tells_begin:
            self._worker_runtime.code_begins(run)
        outcome, classes = self._run_once(run, runtime, token.step, run.children_step, run.event)
        steps = 1
        while (
            type(outcome) is Advanced
            and not outcome.persist
            and self._may_chain(run, outcome)
            and _now() - began < _CHAIN_SECONDS
        ):
            outcome, classes = self._run_once(run, runtime, token.step + steps, 0, None)
            if isinstance(outcome, Failed | Refused):
                return outcome, classes
            steps += 1
        if steps > 1:
            _set(outcome, "steps", steps)
        return outcome, classes

    def _may_chain(self, run: Run, outcome: Advanced) -> bool:
        """True if the next step may run at once: nothing has to be stored before it, such as a key that it poisons."""
        return (
            run.token.mode is Mode.EXECUTE  # what comes after another method is a step
            and not run.is_timed
            and not (outcome.unit or outcome.yield_ or outcome.after or outcome.acquire or outcome.no_return)
            and not outcome.poisons
            and (outcome.requests is None or outcome.requests.are_of_state)
            and not self._worker_runtime.is_wanted(run.token)
        )

    def _run_once(
        self, run: Run, runtime: TypeRuntime, step: int, children_step: int, event: bytes | None
    ) -> tuple[Outcome, tuple[type, ...]]:
        token, worker_runtime = run.token, self._worker_runtime
        assert self._live is not None
        context = self._context_class(
            self._line_class(worker_runtime, token),
            token.procedure,
            run.type_name,
            run.root,
            step - run.begun,
            token.attempt,
            token.mode,
            run.unit,
            run.parent,
            run.deadline,
            run.replayed,
            run.recovered and step == token.step,
            children_step,
            worker_runtime.env,
            runtime.values,
            worker_runtime.types.values_of,
            worker_runtime.log_level,
            generation=run.generation,
            _begun=run.begun,
            _fence=run.fence,
            _around=worker_runtime.around,
        )
        if children_step and children_step == step - 1:
            context._before = run.state
        limits, limiter = run.limits, worker_runtime.limiter
        try:  # inside, the step's limits hold and SIGTERM interrupts
            if limits is None or limiter is None:
                ended = self._run_code(self._live, run, runtime, context, event)
            else:
                with limiter.around(limits):
                    ended = self._run_code(self._live, run, runtime, context, event)
        except (MemoryError, UsageError) as error:  # no memory even for words; or the system refuses a limit
            ended = runtime.failed(error, context, token.mode, self._live), ()
        if context._asked_for_fence:
            self._is_fenced = True
        if worker_runtime.guard.is_copy:
            outcome = ended[0]
            worker_runtime.guard.leave_if_forked(outcome.error.traceback if type(outcome) is Failed else None)
        return ended

    def _run_code(
        self, live: Procedure, run: Run, runtime: TypeRuntime, context: Context, event: bytes | None
    ) -> tuple[Outcome, tuple[type, ...]]:
        guard = self._worker_runtime.guard
        before = trace_scope.enter(run.trace, run.root) if run.trace else None
        guard.allow_interrupt()
        try:
            return runtime.run(live, context, run.token.mode, run.unit, event)
        finally:
            guard.forbid_interrupt()
            if before is not None:
                trace_scope.leave(before)

    def _answer(self, run: Run, outcome: Outcome, definitions: tuple[Definition, ...] = ()) -> bool:
        """Send this answer; False when it is too long, and that was answered."""
        # The actor changes before the answer leaves: with the answer the host may send the next step.
        kind = type(outcome)  # nothing is stored of what `abort` did to the object
        if kind is not Advanced and not (kind is Finished and run.token.mode is Mode.ROLLBACK):
            self._stop()
        try:
            name, size = "", 0
            if kind is Finished and self._worker_runtime.staging and len(outcome.output) >= LONG:  # type: ignore[union-attr]
                outcome, name, size = _in_file(outcome, self._worker_runtime.staging)  # type: ignore[arg-type]
            self._worker_runtime.channel.send([Ended(run.token, outcome, definitions, name, size, self._began)])
        except FrameError as error:
            self._stop()
            self._worker_runtime.channel.send([Ended(run.token, _unanswerable(run.token, error))])
            return False
        return True


def _in_file(outcome: Finished, staging: str) -> tuple[Finished, str, int]:
    """The outcome without its output, which stands in a file of this name and length; as it is when it cannot."""
    try:
        name = write_staged(staging, outcome.output)
    except Exception:  # noqa: BLE001 - no such directory yet, no space, or what a step put in place of functions here
        return outcome, "", 0
    return msgspec.structs.replace(outcome, output=b""), name, len(outcome.output)


def _unanswerable(token: StepToken, error: BaseException) -> Failed:
    message = f"the step's result cannot be sent to the host: {in_words(error)}"
    info = ErrorInfo("usage", type(error).__qualname__, message, procedure=token.procedure, step=token.step)
    return Failed(error=info)
