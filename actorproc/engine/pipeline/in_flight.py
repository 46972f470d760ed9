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

__all__ = ["LOADS_WITHIN", "Cancellation", "InFlightTable", "WorkerEntry"]

LOADS_WITHIN = 60.0
"""Seconds for the class and the state of a step, before the limit of its silence begins."""


class Cancellation:
    """An order to an async step to end."""

    __slots__ = ("is_heard", "kill_at", "kind", "why")

    def __init__(self, kind: str, why: str, kill_at: float) -> None:
        self.kind = kind
        """Kind of the report; "": the core knows why it ends."""
        self.why = why
        """In words."""
        self.kill_at = kill_at
        """Monotonic time at which its worker is killed."""
        self.is_heard = False
        """The event loop of the worker has come to it."""


class WorkerEntry:
    """One live worker as the manager sees it."""

    __slots__ = (
        "begun",
        "dead",
        "heard",
        "held",
        "is_blocked",
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
        self.is_blocked = False
        """The event loop has not come to the order to end the step for which it is killed."""
        self.why = ""
        """In words, when it is killed for a limit."""
        self.kind = ""
        """Name of the limit, as in the crash report."""
        self.begun: dict[StepToken, tuple[int, float]] = {}
        """Steps that run beside each other: their threads or numbers, and the monotonic times when they began."""
        self.said: dict[StepToken, tuple[float | None, str | None]] = {}
        """Progress that unanswered steps told last, as a number and in words."""
        self.heard: dict[StepToken, float] = {}
        """Monotonic times of the last heartbeats of steps with a limit of the time between them, or of their begin."""

    @property
    def running(self) -> RunStep | None:
        """The first unanswered step; it has begun, or will as soon as the worker reads it."""
        return next(iter(self.queue.values()), None)

    @property
    def is_threaded(self) -> bool:
        """True if the steps in `queue` run at once, on threads of the worker or on its event loop."""
        first = self.running
        return first is not None and first.limits is not None and first.limits.beside > 1

    def step_on(self, thread: int) -> StepToken | None:
        """The step that runs on this thread of the worker, or as the task of this number."""
        return next((token for token, (ident, _) in self.begun.items() if ident == thread), None)

    def started(self, token: StepToken) -> float:
        """Monotonic time when a step began, as far as is known."""
        begun = self.begun.get(token)
        return begun[1] if begun is not None else self.since


class InFlightTable:
    """The entries of all workers. Needs the manager's turn (`CombiningInbox`)."""

    def __init__(self) -> None:
        self.entries: dict[WorkerId, WorkerEntry] = {}
        self.cancelled: dict[StepToken, Cancellation] = {}
        """Unanswered async steps that were told to end."""
        self._limited = 0
        """Unanswered steps with a limit of time: without any there is nothing to watch."""
        self._sampled = 0
        """Unanswered steps with limits that are sampled."""

    def join(self, ready: WorkerReady) -> None:
        """A worker booted."""
        self.entries[ready.worker] = WorkerEntry(ready)

    def expect(self, ready: WorkerReady, tokens: tuple[StepToken, ...]) -> None:
        """An earlier leader has handed these steps to a host that is to join: its absent worker has them."""
        entry = self.entries[ready.worker] = WorkerEntry(ready)
        entry.known = entry.dead = True  # nothing can be sent to it
        entry.held = dict.fromkeys(tokens, 1)

    def adopt(self, ready: WorkerReady, commands: tuple[RunStep, ...], now: float) -> None:
        """A worker of a host lives on, with these steps. Nothing of that is stored, so it counts at once."""
        entry = self.entries.get(ready.worker)
        if entry is None:
            self.join(ready)
            self.entries[ready.worker].known = True
        for command in commands:
            if entry is None or command.token not in entry.queue:
                self.hand_out(command, now)

    def hand_out(self, command: RunStep, now: float) -> WorkerEntry | None:
        """Note a step as sent; None when its worker is dead, then it must not be sent."""
        token = command.token
        entry = self.entries.get(token.worker)
        if entry is None or entry.dead:
            return None
        if not entry.queue:
            entry.since = now
        entry.queue[token] = command
        entry.held[token] = 1 if command.limits is None else command.limits.beside
        if command.wall_time is not None or command.heartbeat is not None or command.limits is not None:
            self._count(command, 1)
        return entry

    def answered(self, token: StepToken, now: float) -> RunStep | None:
        """A step was answered or given back; None when it was not in a queue (stale, or seen before)."""
        entry = self.entries.get(token.worker)
        if entry is None:
            return None
        command = entry.queue.pop(token, None)
        if command is not None:
            entry.since = now
            if entry.said:
                entry.said.pop(token, None)
            if entry.heard:
                entry.heard.pop(token, None)
            if entry.begun:
                entry.begun.pop(token, None)
            if self.cancelled:
                self.cancelled.pop(token, None)
            if not entry.dead and (
                command.wall_time is not None or command.heartbeat is not None or command.limits is not None
            ):
                self._count(command, -1)
        return command

    def _count(self, command: RunStep, one: int) -> None:
        """One more, or less, of the steps that have limits."""
        if command.wall_time is not None or command.heartbeat is not None:
            self._limited += one
        if command.limits is not None:
            self._sampled += one * _is_sampled(command)

    def lacks(self, token: StepToken, now: float) -> None:
        """A worker goes on with the steps behind this one, which has no state yet: `delayed` is to follow."""
        command = self.answered(token, now)
        if command is not None:
            self.entries[token.worker].lacking[token] = command

    def delayed(self, token: StepToken, now: float) -> RunStep | None:
        """A worker goes on with the steps behind this one, which is to be sent again; None when it has no such step."""
        self.lacks(token, now)
        entry = self.entries.get(token.worker)
        command = entry.lacking.pop(token, None) if entry is not None else None
        if entry is None or command is None:
            return None
        if not entry.dead:
            self._count(command, 1)
        if not entry.queue:
            entry.since = now
        entry.queue[token] = command
        if token in entry.held:
            entry.held[token] = entry.held.pop(token)
        return command

    def disown(self) -> list[WorkerEntry]:
        """Give up all steps that were handed out; returns their workers, which are to be killed.

        None of the steps is charged for that: each worker is killed for a step that is in no queue.
        """
        found = []
        for entry in self.entries.values():
            token = next(iter((*entry.queue, *entry.lacking, *entry.held)), None)
            if token is not None and not entry.dead:
                entry.held.clear()
                entry.lacking.clear()
                entry.ready = replace(entry.ready, leaving=True)
                entry.killed = replace(token, step=0)
                found.append(entry)
        return found

    def die(self, worker: WorkerId) -> WorkerEntry | None:
        """A worker is dead: nothing is sent to it any more. Its entry stays until that is committed."""
        entry = self.entries.get(worker)
        if entry is not None:
            entry.dead = True
            for command in entry.queue.values():
                self._count(command, -1)
        return entry

    def heard(self, token: StepToken) -> None:
        """The event loop of its worker has come to the order to end a step."""
        order = self.cancelled.get(token)
        if order is not None:
            order.is_heard = True

    def forget_orders(self, entry: WorkerEntry) -> dict[StepToken, Cancellation]:
        """The orders to the tasks of a worker that is dead: there are none any more."""
        mine = [token for token in self.cancelled if token in entry.queue]
        return {token: self.cancelled.pop(token) for token in mine}

    def committed(self, events: list[Event]) -> None:
        """These events are durable: bring the durable view up to them."""
        entries = self.entries
        for event in events:
            kind = type(event)
            if kind is StepEnded or kind is StepReturned:
                token = event.token  # type: ignore[union-attr]
                entry = entries.get(token.worker)
                if entry is not None:
                    entry.held.pop(token, None)
            elif kind is WorkerReady:
                entry = entries.get(event.worker)  # type: ignore[union-attr]
                if entry is not None:
                    entry.known = True
            elif kind is WorkerLost:
                entries.pop(event.worker, None)  # type: ignore[union-attr]

    def handed_out(self) -> list[tuple[WorkerReady, tuple[StepToken, ...]]]:
        """Every worker of the durable view with the steps it holds, for `Coordinator.restore`."""
        found = []
        for entry in self.entries.values():
            if entry.known:
                threads = min(entry.held.values(), default=1)
                ready = replace(entry.ready, leaving=entry.ready.leaving or entry.retired, threads=threads)
                found.append((ready, tuple(entry.held)))
        return found

    def busy(self, *, lacking: bool = True) -> bool:
        """Some live worker has an unanswered step; without ``lacking`` one whose state it has."""
        return any((entry.queue or (lacking and entry.lacking)) and not entry.dead for entry in self.entries.values())

    def waiting_behind(self) -> Iterator[tuple[WorkerId, tuple[StepToken, ...]]]:
        """Per live worker the steps sent that it has probably not begun."""
        for worker, entry in self.entries.items():
            behind = tuple(entry.queue)[max(1, entry.ready.threads) :]
            if behind and not entry.dead and not entry.is_threaded:
                yield worker, behind

    def next_limit(self) -> float | None:
        """Monotonic time when the next running step exceeds its wall time, or the time between its heartbeats."""
        if not self._limited and not self.cancelled:
            return None
        return min((*(limit for _, _, limit, _ in self._limits()), *self._kills()), default=None)

    def overdue(self, now: float) -> list[tuple[WorkerEntry, RunStep, bool]]:
        """Running steps past a limit of time whose workers are not being killed yet, and whether they are silent."""
        if not self._limited:
            return []
        return [(entry, command, is_silent) for entry, command, limit, is_silent in self._limits() if limit <= now]

    def _kills(self) -> Iterator[float]:
        """Monotonic times at which workers are killed whose tasks have not ended."""
        for token, order in self.cancelled.items():
            entry = self.entries.get(token.worker)
            if entry is not None and entry.killed is None and not entry.dead:
                yield order.kill_at

    def forgive(self, seconds: float) -> None:
        """The program stood still for so long: that time counts for no step's limit."""
        for entry in self.entries.values():
            entry.since += seconds
            for token, (thread, at) in entry.begun.items():
                entry.begun[token] = (thread, at + seconds)
            for token, at in entry.heard.items():
                entry.heard[token] = at + seconds
        for order in self.cancelled.values():
            order.kill_at += seconds

    def running(self) -> tuple[StepToken, ...]:
        """The steps that run now, as far as can be told from here."""
        found: list[StepToken] = []
        for entry in self.entries.values():
            if entry.queue and not entry.dead:
                found += entry.begun if entry.is_threaded else list(entry.queue)[:1]
        return tuple(found)

    def sampled(self) -> list[tuple[WorkerEntry, RunStep]]:
        """Running steps whose use of CPU and memory is limited, in workers that are not being killed."""
        if not self._sampled:
            return []
        return [
            (entry, first)
            for entry in self.entries.values()
            if not entry.dead and entry.killed is None and (first := entry.running) is not None and _is_sampled(first)
        ]

    def _limits(self) -> Iterator[tuple[WorkerEntry, RunStep, float, bool]]:
        """Running steps with the end of the time they have, and whether that is the time to the next heartbeat."""
        for entry in self.entries.values():
            if entry.killed is not None or entry.dead:
                continue
            if entry.is_threaded:
                for token, command in entry.queue.items():
                    if token in entry.begun and token not in self.cancelled:
                        yield from _limits_of(entry, command, entry.started(token))
            elif (first := entry.running) is not None and first.token not in self.cancelled:
                yield from _limits_of(entry, first, entry.since)

    def progress(self, procedure: str) -> tuple[float | None, str | None]:
        """Progress that the running step of a procedure told last, as a number and in words."""
        for entry in self.entries.values():
            for token, said in entry.said.items():
                if token.procedure == procedure:
                    return said
        return None, None

    def status(self, now: float) -> tuple[WorkerStatus, ...]:
        """Every live worker and the step in it."""
        return tuple(self._status(entry, now) for entry in self.entries.values() if not entry.dead)

    @staticmethod
    def _status(entry: WorkerEntry, now: float) -> WorkerStatus:
        first = entry.running
        progress, message = entry.said.get(first.token, (None, None)) if first else (None, None)
        return WorkerStatus(
            worker=entry.ready.worker,
            procedure=first.token.procedure if first else None,
            type_name=first.type_name if first else None,
            step=first.token.step if first else None,
            attempt=first.token.attempt if first else None,
            step_name=first.step_name if first else None,
            queued=max(0, len(entry.queue) - 1),
            step_age=now - entry.since if first else None,
            progress=progress,
            message=message,
        )


def _limits_of(
    entry: WorkerEntry, command: RunStep, begun: float
) -> Iterator[tuple[WorkerEntry, RunStep, float, bool]]:
    if command.wall_time is not None:
        yield entry, command, begun + command.wall_time, False
    if command.heartbeat is not None:
        # It is not silent while its class is imported and its state is loaded.
        yield entry, command, entry.heard.get(command.token, begun + LOADS_WITHIN) + command.heartbeat, True


def _is_sampled(command: RunStep) -> bool:
    return command.limits is not None and command.limits.is_watched
