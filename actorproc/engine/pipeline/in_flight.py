"""Steps in flight: each step that was handed to a worker and is still unanswered.

Two views of the same steps are kept apart. `queue` is the present: sent and not answered; it says which step
runs now, and for how long. `held` is the durable view: sent, and no answer of it has been committed; it is what
the core is told after a failed commit.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from actorproc.engine.messages import WorkerStatus
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import Event, StepEnded, StepReturned, WorkerLost, WorkerReady

__all__ = ["InFlightTable", "WorkerEntry"]


class WorkerEntry:
    """One live worker as the manager sees it."""

    __slots__ = (
        "begun",
        "dead",
        "held",
        "killed",
        "kind",
        "known",
        "lacking",
        "queue",
        "ready",
        "retired",
        "said",
        "since",
        "types",
        "why",
    )

    def __init__(self, ready: WorkerReady) -> None:
        self.ready = ready
        self.queue: dict[StepToken, RunStep] = {}
        self.lacking: dict[StepToken, RunStep] = {}
        """Steps whose states the worker asked for while none could be read: those in `queue` run, and these do not."""
        self.held: dict[StepToken, int] = {}
        """With how many steps like it may run beside each other."""
        self.types: dict[str, int] = {}
        """Revision of each class definition this worker has."""
        self.since = 0.0
        """Monotonic time when the first of `queue` became the first."""
        self.retired = False
        """It was told to leave with its slot."""
        self.known = False
        """Its `WorkerReady` has been committed."""
        self.dead = False
        self.killed: StepToken | None = None
        """The step it is being killed for."""
        self.why = ""
        """In words, when it is killed for a limit."""
        self.kind = ""
        """Name of the limit, as in the crash report."""
        self.begun: dict[StepToken, tuple[int, float]] = {}
        """Steps that run beside each other: their threads, and the monotonic times when they began."""
        self.said: dict[StepToken, tuple[float | None, str | None]] = {}
        """Progress that unanswered steps told last, as a number and in words."""

    @property
    def running(self) -> RunStep | None:
        """The first unanswered step; it has begun, or will as soon as the worker reads it."""
        return next(iter(self.queue.values()), None)

    @property
    def is_threaded(self) -> bool:
        """True if the steps in `queue` run at once, on threads of the worker."""
        first = self.running
        return first is not None and first.limits is not None and first.limits.threads > 1

    def step_on(self, thread: int) -> StepToken | None:
        """The step that runs on this thread of the worker."""
        return next((token for token, (ident, _) in self.begun.items() if ident == thread), None)

    def started(self, token: StepToken) -> float:
        """Monotonic time when a step began, as far as is known."""
        begun = self.begun.get(token)
        return begun[1] if begun is not None else self.since


class InFlightTable:
    """The lines of all workers. Needs the manager's turn (`CombiningInbox`)."""

    def __init__(self) -> None:
        self.lines: dict[WorkerId, WorkerEntry] = {}
        self._limited = 0
        """Unanswered steps with a wall time: without any there is nothing to watch."""
        self._sampled = 0
        """Unanswered steps with limits that are sampled."""

    def join(self, ready: WorkerReady) -> None:
        """A worker booted."""
        self.lines[ready.worker] = WorkerEntry(ready)

    def hand_out(self, command: RunStep, now: float) -> WorkerEntry | None:
        """Note a step as sent; None when its worker is dead, then it must not be sent."""
        token = command.token
        line = self.lines.get(token.worker)
        if line is None or line.dead:
            return None
        if not line.queue:
            line.since = now
        line.queue[token] = command
        line.held[token] = 1 if command.limits is None else command.limits.threads
        if command.wall_time is not None or command.limits is not None:
            self._count(command, 1)
        return line

    def answered(self, token: StepToken, now: float) -> RunStep | None:
        """A step was answered or given back; None when it was not in a queue (stale, or seen before)."""
        line = self.lines.get(token.worker)
        if line is None:
            return None
        command = line.queue.pop(token, None)
        if command is not None:
            line.since = now
            if line.said:
                line.said.pop(token, None)
            if line.begun:
                line.begun.pop(token, None)
            if (command.wall_time is not None or command.limits is not None) and not line.dead:
                self._count(command, -1)
        return command

    def _count(self, command: RunStep, one: int) -> None:
        """One more, or less, of the steps that have limits."""
        if command.wall_time is not None:
            self._limited += one
        if command.limits is not None:
            self._sampled += one * _is_sampled(command)

    def lacks(self, token: StepToken, now: float) -> None:
        """A worker goes on with the steps behind this one, which has no state yet: `delayed` is to follow."""
        command = self.answered(token, now)
        if command is not None:
            self.lines[token.worker].lacking[token] = command

    def delayed(self, token: StepToken, now: float) -> RunStep | None:
        """A worker goes on with the steps behind this one, which is to be sent again; None when it has no such step."""
        self.lacks(token, now)
        line = self.lines.get(token.worker)
        command = line.lacking.pop(token, None) if line is not None else None
        if line is None or command is None:
            return None
        if not line.dead:
            self._count(command, 1)
        if not line.queue:
            line.since = now
        line.queue[token] = command
        if token in line.held:
            line.held[token] = line.held.pop(token)
        return command

    def die(self, worker: WorkerId) -> WorkerEntry | None:
        """A worker is dead: nothing is sent to it any more. Its line stays until that is committed."""
        line = self.lines.get(worker)
        if line is not None:
            line.dead = True
            for command in line.queue.values():
                self._count(command, -1)
        return line

    def committed(self, events: list[Event]) -> None:
        """These events are durable: bring the durable view up to them."""
        lines = self.lines
        for event in events:
            kind = type(event)
            if kind is StepEnded or kind is StepReturned:
                token = event.token  # type: ignore[union-attr]
                line = lines.get(token.worker)
                if line is not None:
                    line.held.pop(token, None)
            elif kind is WorkerReady:
                line = lines.get(event.worker)  # type: ignore[union-attr]
                if line is not None:
                    line.known = True
            elif kind is WorkerLost:
                lines.pop(event.worker, None)  # type: ignore[union-attr]

    def handed_out(self) -> list[tuple[WorkerReady, tuple[StepToken, ...]]]:
        """Every worker of the durable view with the steps it holds, for `Coordinator.restore`."""
        found = []
        for line in self.lines.values():
            if line.known:
                threads = min(line.held.values(), default=1)
                ready = replace(line.ready, leaving=line.ready.leaving or line.retired, threads=threads)
                found.append((ready, tuple(line.held)))
        return found

    def busy(self, *, lacking: bool = True) -> bool:
        """Some live worker has an unanswered step; without ``lacking`` one whose state it has."""
        return any((line.queue or (lacking and line.lacking)) and not line.dead for line in self.lines.values())

    def waiting_behind(self) -> Iterator[tuple[WorkerId, tuple[StepToken, ...]]]:
        """Per live worker the steps sent that it has probably not begun."""
        for worker, line in self.lines.items():
            behind = tuple(line.queue)[max(1, line.ready.threads) :]
            if behind and not line.dead and not line.is_threaded:
                yield worker, behind

    def next_limit(self) -> float | None:
        """Monotonic time when the next running step exceeds its wall time."""
        if not self._limited:
            return None
        return min((limit for _, _, limit in self._limits()), default=None)

    def overdue(self, now: float) -> list[tuple[WorkerEntry, RunStep]]:
        """Running steps past their wall time whose workers are not being killed yet."""
        if not self._limited:
            return []
        return [(line, command) for line, command, limit in self._limits() if limit <= now]

    def forgive(self, seconds: float) -> None:
        """The program stood still for so long: that time counts for no step's limit."""
        for line in self.lines.values():
            line.since += seconds
            for token, (thread, at) in line.begun.items():
                line.begun[token] = (thread, at + seconds)

    def running(self) -> tuple[StepToken, ...]:
        """The steps that run now, as far as can be told from here."""
        found: list[StepToken] = []
        for line in self.lines.values():
            if line.queue and not line.dead:
                found += line.begun if line.is_threaded else list(line.queue)[:1]
        return tuple(found)

    def sampled(self) -> list[tuple[WorkerEntry, RunStep]]:
        """Running steps whose use of CPU and memory is limited, in workers that are not being killed."""
        if not self._sampled:
            return []
        return [
            (line, first)
            for line in self.lines.values()
            if not line.dead and line.killed is None and (first := line.running) is not None and _is_sampled(first)
        ]

    def _limits(self) -> Iterator[tuple[WorkerEntry, RunStep, float]]:
        for line in self.lines.values():
            if line.killed is not None or line.dead:
                continue
            if line.is_threaded:
                for token, command in line.queue.items():
                    if command.wall_time is not None and token in line.begun:
                        yield line, command, line.started(token) + command.wall_time
            elif (first := line.running) is not None and first.wall_time is not None:
                yield line, first, line.since + first.wall_time

    def progress(self, procedure: str) -> tuple[float | None, str | None]:
        """Progress that the running step of a procedure told last, as a number and in words."""
        for line in self.lines.values():
            for token, said in line.said.items():
                if token.procedure == procedure:
                    return said
        return None, None

    def status(self, now: float) -> tuple[WorkerStatus, ...]:
        """Every live worker and the step in it."""
        return tuple(self._status(line, now) for line in self.lines.values() if not line.dead)

    @staticmethod
    def _status(line: WorkerEntry, now: float) -> WorkerStatus:
        first = line.running
        progress, message = line.said.get(first.token, (None, None)) if first else (None, None)
        return WorkerStatus(
            worker=line.ready.worker,
            procedure=first.token.procedure if first else None,
            type_name=first.type_name if first else None,
            step=first.token.step if first else None,
            attempt=first.token.attempt if first else None,
            step_name=first.step_name if first else None,
            queued=max(0, len(line.queue) - 1),
            step_age=now - line.since if first else None,
            progress=progress,
            message=message,
        )


def _is_sampled(command: RunStep) -> bool:
    return command.limits is not None and command.limits.is_watched
