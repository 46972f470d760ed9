"""Runtime that all actors of a worker share: the channel, the classes, the steps in hand, the requests under way.

Two threads meet here. The main thread runs steps; what the host sends is put in by the reader thread, or by the main
thread while it has nothing to run (`channel_reader`). A step belongs to the thread that takes its token from
`_waiting`: the main thread to run it, or the reading one to give it back. Taking a key out of a dict is atomic, so no
step is both.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import SimpleQueue
from typing import Any, Protocol, assert_never

import msgspec

from actorproc.errors import ActorprocError, NotAllowed
from actorproc.model.ids import StepToken
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.declaring import unsubmitted
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.procedure.values.error_text import in_words
from actorproc.support.staged_files import mapped
from actorproc.workers.child.output import stacks
from actorproc.workers.child.output.streams import Streams
from actorproc.workers.child.process_state.limits import Limiter
from actorproc.workers.child.process_state.recycling import Recycling
from actorproc.workers.child.runtime.type_cache import TypeCache
from actorproc.workers.protocol.frames import (
    AbortAsked,
    Ask,
    Began,
    CancelStep,
    Define,
    Exposed,
    FrameError,
    FromWorker,
    Leaving,
    Prepare,
    Returned,
    Run,
    Stack,
    StackWanted,
    StepAnswer,
    Stop,
    TakeBackSteps,
    ToWorker,
    WarmUp,
    WorkerHello,
)
from actorproc.workers.protocol.markers import UNOWNED, OutputOwner

__all__ = ["AnswerEvent", "Around", "PendingQuestion", "WorkerRuntime"]

Around = Callable[[Context, Callable[[], Any]], Any]
"""Runs an attempt, a call without arguments, inside of the program's own context manager."""

_RETURNED = 32
"""Steps named in one frame: ids may have 255 bytes."""


class Listening(Protocol):
    """Main thread's wait for its next step, and for answers while it runs one."""

    def next_step(self) -> Run | None:
        """The next step for this worker, waiting for it."""
        ...

    def ask(self) -> None:
        """A question was sent."""
        ...


class TasksInHand(Protocol):
    """Async steps that run. For any thread."""

    def cancel(self, order: CancelStep) -> None:
        """End this step if it runs."""
        ...

    def stack_of(self, token: StepToken | None) -> str:
        """The stack of a step, or of all that run, as text; "" when it does not run."""
        ...


class StepSender(Protocol):
    """Exit for messages to the host."""

    def send(self, messages: Sequence[FromWorker]) -> None:
        """Send one frame, whole. Raises `FrameError` when it is too long."""
        ...


class Interrupts(Protocol):
    """Switch for requests to end: they may interrupt the thread that runs steps, or not."""

    @property
    def terminating(self) -> bool:
        """The worker was asked to end at once."""
        ...

    @property
    def is_copy(self) -> bool:
        """This process is a forked copy of the worker."""
        ...

    def allow_interrupt(self) -> None:
        """From here it may raise `StopStep`."""
        ...

    def forbid_interrupt(self) -> None:
        """From here it waits."""
        ...

    def leave_if_forked(self, error: str | None) -> None:
        """In a forked copy, whose step is over now, do not come back."""
        ...

    def restore(self) -> str:
        """Undo what a step did to the process; what could not be undone, "" for nothing."""
        ...

    def keep_changes(self) -> AbstractContextManager[None]:
        """Inside, what user code changes of the process stays."""
        ...

    def remember_process_state(self) -> None:
        """Note the present state as the one that `restore` goes back to."""
        ...


class WorkerRuntime:
    """State of a running worker."""

    def __init__(self, channel: StepSender, guard: Interrupts, limiter: Limiter | None = None) -> None:
        unsubmitted.watch(TypeRuntime.run)
        self.channel = channel
        self.guard = guard
        self.limiter = limiter
        """None: this worker is a thread of a program, whose limits are not ours."""
        self.streams: Streams | None = None
        self.recycling: Recycling | None = None
        self.types = TypeCache()
        self.env: Any = None
        self.around: Around | None = None
        """None: the program has no context manager of its own around steps."""
        self.around_async: Around | None = None
        """The same for async steps."""
        self.log_level = 20
        self.tasks: TasksInHand | None = None
        """None: no async step has run here."""
        self.marks: int | None = None
        """Descriptor of the file for `CrashMarks`; None: no host reads it."""
        self.running: dict[StepToken, int] = {}
        """The steps that are running, with their threads."""
        self.broken: BaseException | None = None
        """An exception in the worker's own code, not the user's: the worker must end."""
        self.reading: Listening | None = None
        """None: another thread takes in whatever comes."""
        self.queue: SimpleQueue[Run | None] = SimpleQueue()
        """Steps to run, and None for the end."""
        self._waiting: dict[StepToken, Run] = {}
        self._abort_asked: set[StepToken] = set()
        self._requests = itertools.count(1)
        self.asked: dict[int, PendingQuestion] = {}
        """The questions that wait for an answer, by number."""
        self._here = threading.local()
        self._newest: Run | None = None
        """The step that the main thread took last, while it runs."""
        self._is_leaving = False
        self.staging = ""
        """Directory for files with long outputs; "": there is none."""
        self.worn = ""
        """Reason why this process should be replaced after the step; "" when it need not be."""

    @property
    def current(self) -> StepToken | None:
        """The step that is running, the one that began first if there are several."""
        return next(iter(self.running), None)

    def current_here(self) -> StepToken | None:
        """The step that the calling thread belongs to; None when that cannot be told."""
        token: StepToken | None = getattr(self._here, "token", None)
        return token if token is not None or len(self.running) != 1 else self.current

    def output_owner(self) -> OutputOwner:
        """The step that what the calling thread prints belongs to."""
        token = self.current_here()
        if token is None:
            return UNOWNED
        run = getattr(self._here, "run", None) or self._newest
        if run is None or run.token != token:  # of a thread that was started by another step than the newest
            return OutputOwner(token.procedure, token.step, token.attempt)
        return OutputOwner(token.procedure, token.step, token.attempt, run.root, run.type_name, run.step_name or "")

    # ------------------------------------------------------------------ the reading thread
    def take_in(self, message: ToWorker) -> None:
        """Act on a message of the host; never waits."""
        match message:
            case Run():
                self.put(message)
            case StepAnswer():
                self.answer(message)
            case TakeBackSteps(tokens):
                self.give_back(tokens)
            case Define(definition):
                self.types.define(definition)
            case AbortAsked(token):
                self.ask_to_abort(token)
            case CancelStep():
                self.cancel(message)
            case StackWanted(request, token):
                self.channel.send([Stack(request, self.stack_of(token))])
            case Stop():
                self.stop()
            case Prepare() | WorkerHello() | WarmUp():
                msg = f"{type(message).__name__} came to a worker that has booted"
                raise FrameError(msg)
            case _:
                assert_never(message)

    def put(self, run: Run) -> None:
        """A step to run after those before it."""
        if run.file:
            msgspec.structs.force_setattr(run, "state", mapped(run.file, run.size))
        self._waiting[run.token] = run
        if run.aborting:
            self.ask_to_abort(run.token)  # in a step before, which refused it, or in an attempt that died
        if self._is_leaving:
            self.give_back((run.token,))
        else:
            self.queue.put(run)

    def give_back(self, tokens: Iterable[StepToken]) -> None:
        """Return those of these steps that have not begun."""
        returned = [Returned(token) for token in tokens if self._waiting.pop(token, None) is not None]
        self._abort_asked.difference_update(back.token for back in returned)
        # Not in one frame: hundreds with long names may be more than a frame can hold.
        for start in range(0, len(returned), _RETURNED):
            self.channel.send(returned[start : start + _RETURNED])

    def stop(self) -> None:
        """Return all steps that have not begun; `take` ends after the running one."""
        self.give_back(list(self._waiting))
        self.queue.put(None)

    def leave(self, reason: str) -> None:
        """Run no further step: give back what waits and what comes, until the host says stop."""
        if self._is_leaving:
            return
        self._is_leaving = True
        self.channel.send([Leaving(reason)])
        self.give_back(list(self._waiting))

    def wake(self) -> None:
        """Have `take` return None: something is broken."""
        self.queue.put(None)

    def ask_to_abort(self, token: StepToken) -> None:
        """Let the step see that an abort was asked."""
        if token in self.running or token in self._waiting:
            self._abort_asked.add(token)

    def cancel(self, order: CancelStep) -> None:
        """Have the task of a step cancelled, or give the step back if it has not begun."""
        if order.token in self._waiting:
            self.give_back((order.token,))
        if self.tasks is not None:
            self.tasks.cancel(order)

    def stack_of(self, token: StepToken | None) -> str:
        """The stack of a step, or of all that run, as text; "" when it does not run."""
        text = self.tasks.stack_of(token) if self.tasks is not None else ""
        return text or stacks.text_of(self.running, token)  # of a plain step, though async ones have run here before

    def answer(self, answer: StepAnswer) -> None:
        """Wake the thread that asked."""
        pending = self.asked.pop(answer.request, None)
        if pending is not None:
            pending.answer = answer
            pending.arrived.set()

    # ------------------------------------------------------------------ main thread
    def take(self, main: int) -> Run | None:
        """The next step, waiting for it; None when the worker is to stop. `main` names the calling thread."""
        while True:
            self.guard.allow_interrupt()
            run = self.queue.get() if self.reading is None else self.reading.next_step()
            self.guard.forbid_interrupt()
            if run is None:
                return None
            self.running[run.token] = main
            if self._waiting.pop(run.token, None) is not None:
                self._newest = run
                return run
            del self.running[run.token]

    def began_beside_others(self, run: Run) -> None:
        """The calling thread runs this step, others may run more."""
        self._here.token, self._here.run = run.token, run
        self.running[run.token] = threading.get_ident()
        self.channel.send([Began(run.token, threading.get_ident())])

    def began_as_task(self, run: Run, number: int) -> None:
        """The calling thread, which is that of the event loop, runs this step among others."""
        self.running[run.token] = threading.get_ident()
        self.channel.send([Began(run.token, number)])

    def mark_thread(self, run: Run | None) -> None:
        """Have prints and log records of the calling thread belong to this step; None: to none."""
        self._here.token, self._here.run = (None, None) if run is None else (run.token, run)

    def code_begins(self, run: Run) -> None:
        """The class and the state of a step are there, and its code is next: told for a step that asks for it."""
        self.channel.send([Began(run.token, threading.get_ident(), in_code=True)])

    def finished(self, run: Run) -> None:
        """The step was answered."""
        self._here.token = self._here.run = self._newest = None
        self.running.pop(run.token, None)
        if run.file:  # or its mapping would keep its space on the disk until the next step
            msgspec.structs.force_setattr(run, "state", None)
        if self._abort_asked:
            self._abort_asked.discard(run.token)
        if self.asked:
            self._give_up_questions(run.token)
        if self.streams is not None and self.streams.has_owners:
            self.streams.finished(run.token.procedure)
        reason = self.worn or (self.limiter.worn if self.limiter is not None else "")
        if self.recycling is not None:
            reason = reason or self.recycling.after_step()
        if reason:
            self.leave(reason)

    def _give_up_questions(self, token: StepToken) -> None:
        """The host answers none that came after the end of their step."""
        for number, pending in list(self.asked.items()):
            if pending.token == token and self.asked.pop(number, None) is not None:
                pending.arrived.set()

    def remember_process_state(self) -> None:
        """The process is ready for its first step: what is now is what `restore` goes back to."""
        self.guard.remember_process_state()
        if self.streams is not None:
            self.streams.remember()

    def restore(self) -> None:
        """Undo what steps did to the process; `worn` says what cannot be undone. When none runs."""
        try:
            worn = self.guard.restore()
            if worn:
                self.worn = worn
            if self.streams is not None:
                self.streams.restore()
        except Exception as error:  # noqa: BLE001 - a step may have replaced the very functions that are asked here
            self.worn = f"what a step did to the process cannot be undone: {in_words(error)}"

    @contextmanager
    def keep_changes(self) -> Iterator[None]:
        """Inside, what user code changes of the process stays: `restore` goes back to that."""
        limiter = self.limiter
        with limiter.suspended() if limiter is not None else nullcontext(), self.guard.keep_changes():
            yield

    def is_wanted(self, token: StepToken) -> bool:
        """Something waits for this step to end: an abort was asked, other steps queue, or SIGTERM came."""
        return bool(self._waiting) or token in self._abort_asked or self.guard.terminating

    # ------------------------------------------------------------------ threads of user code
    def is_abort_asked(self, token: StepToken) -> bool:
        """An abort was asked while this step waited or ran."""
        return token in self._abort_asked

    def request(self, token: StepToken, kind: str, key: str, value: bytes, step: int) -> bytes | None:
        """Ask the host and wait for its answer. Raises what the host refused with."""
        arrived = threading.Event()
        with self.asking(token, (kind, key, value, step), arrived) as pending:
            arrived.wait()
        return pending.value(kind)

    @contextmanager
    def asking(
        self, token: StepToken, asked: tuple[str, str, bytes, int], arrived: AnswerEvent
    ) -> Iterator[PendingQuestion]:
        """Inside, a question is asked: `arrived` is set when it is answered, or is not going to be."""
        kind, key, value, step = asked
        self._check_is_here(token, kind)
        number = next(self._requests)
        pending = self.asked[number] = PendingQuestion(token, arrived)
        try:
            if token not in self.running:  # once more: who ends the step gives up what is asked by then
                raise _is_over(token)
            self.channel.send([Ask(number, token, kind, key, value, step)])
            if self.reading is not None:
                self.reading.ask()
            yield pending
        finally:
            self.asked.pop(number, None)

    def expose(self, token: StepToken, key: str, value: bytes) -> None:
        """Send a value that the step shows; does not wait."""
        self._check_is_here(token, "expose")
        self.channel.send([Exposed(token, key, value)])

    def _check_is_here(self, token: StepToken, kind: str) -> None:
        if token not in self.running:
            raise _is_over(token)
        if self.guard.is_copy:
            msg = f"{kind!r} was asked in a forked copy of the worker, which cannot ask; do it in the step itself"
            raise NotAllowed(msg)


class AnswerEvent(Protocol):
    """Event that an answer sets."""

    def set(self) -> None:
        """It is there. For the thread that reads."""
        ...


class PendingQuestion:
    """A question of a step to the host."""

    __slots__ = ("answer", "arrived", "token")

    def __init__(self, token: StepToken, arrived: AnswerEvent) -> None:
        self.token = token
        self.arrived = arrived
        self.answer: StepAnswer | None = None

    def value(self, kind: str) -> bytes | None:
        """The answer. Raises what the host refused with."""
        answer = self.answer
        if answer is None:
            raise _is_over(self.token)
        if answer.error is not None:
            msg = f"the host refused {kind!r}: {answer.error}"
            raise ActorprocError(msg)
        return answer.value


def _is_over(token: StepToken) -> NotAllowed:
    return NotAllowed(f"the step {token.step} of {token.procedure} is over; its context cannot be used any more")
