"""Simulated workers: two channels, a queue in between, the objects of what ran last, and sudden death.

A worker does what a real one does with each message (`actorproc.workers.protocol.frames`), one thing at a time, when the history
says so: it reads, begins, ends, speaks, leaves, dies. What it has said when it dies is heard before its death.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.outcomes import Advanced, Finished, Outcome, Refused
from actorproc.model.names import LAST_HEARTBEAT
from actorproc.workers.base import WorkerMessages
from actorproc.workers.protocol.frames import (
    AbortAsked,
    Ask,
    Began,
    Ended,
    Exposed,
    FromWorker,
    Heartbeat,
    Leaving,
    NeedState,
    Returned,
    Run,
    StepAnswer,
    Stop,
    TakeBackSteps,
    ToWorker,
)
from tests.simulator.actor_sim.hazards import Hazards
from tests.simulator.core_sim.fake_workers import NO_PLACE, REPORTED, has_note, reports
from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.core_sim.world import World, children_seen
from tests.simulator.generators.scripts import listens, placed_elsewhere, play

__all__ = ["SimulatedStep", "SimulatedWorker", "is_threaded"]

_BOOT_FAILS = 0.1
_HANGS = 0.05
_WEARS_OUT = 0.02
_FORGETS = 0.4
"""Chance that the object of a step is evicted before the next one."""


def is_threaded(run: Run) -> bool:
    """True if the step may run beside others like it."""
    return run.limits is not None and run.limits.threads > 1


class SimulatedStep:
    """One step that has begun."""

    __slots__ = ("asked", "hanging", "run", "state")

    def __init__(self, run: Run, state: bytes) -> None:
        self.run = run
        self.state = state
        self.hanging = False
        """It ends only with its worker."""
        self.asked: int | None = None
        """Number of the request it waits for."""


class Listener(Protocol):
    """The host of a pool, as far as workers speak to it."""

    def tell(self, event: WorkerMessages, /) -> None:
        """Hand over what a worker said."""
        ...


class WorkerHome(Protocol):
    """The pool of a worker, as the worker sees it."""

    world: World
    hazards: Hazards

    @property
    def owner(self) -> Listener:
        """The listener to what workers say."""
        ...

    @property
    def may_fail_to_boot(self) -> bool:
        """True if the history goes on when this boot fails."""
        ...

    def next_request(self) -> int:
        """A number for what a step asks."""
        ...

    def is_ready(self, worker: SimulatedWorker, /) -> None:
        """A worker takes steps."""
        ...

    def bury(self, worker: SimulatedWorker, report: CrashReport, /) -> None:
        """A worker is dead."""
        ...


class SimulatedWorker:
    """One life of one slot."""

    def __init__(self, pool: WorkerHome, id: WorkerId, *, replace: bool) -> None:
        self._pool = pool
        self._world = pool.world
        self._hazards = pool.hazards
        self.id = id
        self.replace = replace
        """A spare may take its place."""
        self.booted = False
        self.wire: deque[ToWorker] = deque()
        """Messages that the host sent and the worker has not read."""
        self.queue: deque[Run] = deque()
        self.running: dict[StepToken, SimulatedStep] = {}
        self.out: deque[FromWorker] = deque()
        """Messages of the worker that the host has not heard."""
        self.given: dict[StepToken, RunStep] = {}
        """As the host knows it: steps that were sent and not answered."""
        self.put_off: set[StepToken] = set()
        """Steps whose states it asked for, and that it has not answered since."""
        self.objects: dict[str, bytes] = {}
        """State of the live object of each procedure that ran here last."""
        self.is_told_to_stop = False
        self._stopping = False
        self._leaving = False
        self.doom: CrashReport | None = None
        """It is being killed: what its death will be called."""

    # ------------------------------------------------------------ what it may do next
    def moves(self) -> list[Callable[[], None]]:
        """Each is as likely as often as it is here: mouths and ears are quicker than steps."""
        found = self._moves() if self.booted else [self.boot]
        if self.doom is not None:
            found.append(self.die)
        return found

    def _moves(self) -> list[Callable[[], None]]:
        found: list[Callable[[], None]] = [self.read] * 2 if self.wire else []
        if self._stopping and not self.running:
            return [*found[:1], self.leave]
        if self.out:
            found += [self.speak] * 2
        if self.queue and self._has_room():
            found.append(self.begin)
        if any(not step.hanging and step.asked is None for step in self.running.values()):
            found.append(self.end)
        return found

    def _has_room(self) -> bool:
        running = self.running.values()
        return not running or (is_threaded(self.queue[0]) and all(is_threaded(step.run) for step in running))

    # ------------------------------------------------------------ moves
    def boot(self) -> None:
        """It is ready, or its boot fails."""
        if self.doom is None and self._pool.may_fail_to_boot and self._hazards.strikes(_BOOT_FAILS):
            self._world.journal.append(("boot-failed", self.id))
            self._pool.bury(self, CrashReport(kind="boot", message="its boot is to fail"))
            return
        self.booted = True
        self._pool.is_ready(self)

    def read(self) -> None:
        """Take the next message of the host."""
        message = self.wire.popleft()
        if isinstance(message, Run):
            self.queue.append(message)
            if self._leaving:
                self._give_back((message.token,))
        elif isinstance(message, TakeBackSteps):
            self._give_back(message.tokens)
        elif isinstance(message, Stop):
            self._give_back(tuple(run.token for run in self.queue))
            self._stopping = True
        elif isinstance(message, StepAnswer):
            for step in self.running.values():
                if step.asked == message.request:
                    step.asked = None
        elif isinstance(message, AbortAsked) and message.token in self.running:
            step = self.running[message.token]
            step.hanging = step.hanging and not listens(message.token)

    def speak(self) -> None:
        """Something of what it said is heard: one message, or all that there are come together."""
        self._say(len(self.out) if self._world.random() < 0.5 else 1)

    def begin(self) -> None:
        """The first step of the queue begins, if its state is here."""
        if self._hazards.fires(FaultKind.WORKER_BEFORE):
            self.crash()
            return
        run = self.queue.popleft()
        state = run.state if run.state is not None else self.objects.get(run.token.procedure)
        if state is None:
            self._world.journal.append(("need-state", run.token))
            self.put_off.add(run.token)
            self.out.append(NeedState(run.token))
            return
        step = self.running[run.token] = SimulatedStep(run, state)
        self._note_begin(step)
        if is_threaded(run):
            self.out.append(Began(run.token, 100 + len(self.running)))
        if run.tells_begin:
            self.out.append(Began(run.token, 100 + len(self.running), in_code=True))
        if self._hazards.fires(FaultKind.WORKER_DURING):
            self.crash()
            return
        self._report(run.token)
        if run.token.mode is Mode.EXECUTE:
            self._hold_up(step)

    def end(self) -> None:
        """A step ends, and its worker may die, or want to leave."""
        able = [step for step in self.running.values() if not step.hanging and step.asked is None]
        step = able[self._world.pick(len(able))]
        token = step.run.token
        del self.running[token]
        outcome = self._outcome(step)
        self._keep_object(token, outcome)
        self._world.journal.append(("exit", token, self.given[token].unit, outcome))
        self.out.append(Ended(token, outcome))
        if self._hazards.fires(FaultKind.ANSWER_TWICE):
            self._world.journal.append(("said-twice", token))
            self.out.append(Ended(token, outcome))
        if self._hazards.fires(FaultKind.WORKER_AFTER):
            self.crash()
        elif not self._leaving and self._hazards.strikes(_WEARS_OUT):
            self._leaving = True
            self._world.journal.append(("leaving", self.id))
            self.out.append(Leaving("it ran long enough"))
            self._give_back(tuple(run.token for run in self.queue))

    def leave(self) -> None:
        """It was told to stop, and has nothing more to do."""
        self._world.journal.append(("worker-left", self.id))
        self._pool.bury(self, CrashReport(kind="stopped", message="stopped as asked", code=0))

    def die(self) -> None:
        """The kill strikes."""
        assert self.doom is not None
        self._cut(self.doom)

    def crash(self) -> None:
        """It dies by itself."""
        self._cut(CrashReport(kind="signal", message="killed by signal 9 (SIGKILL)", signal="SIGKILL"))

    def cut_short(self) -> None:
        """It is killed and does nothing more; its death is told later."""
        self._world.journal.extend(("cut", token) for token in self.running)
        self.running.clear()
        self.queue.clear()
        self.wire.clear()
        self.replace = False

    # ------------------------------------------------------------ inside
    def say_all(self) -> None:
        """All that it said is heard."""
        self._say(len(self.out))

    def _say(self, count: int) -> None:
        messages = [self.out.popleft() for _ in range(count)]
        for message in messages:
            if isinstance(message, Ended | Returned):
                self.given.pop(message.token, None)
                self.put_off.discard(message.token)
        if messages:
            self._pool.owner.tell(WorkerMessages(self.id, messages))

    def _give_back(self, tokens: tuple[StepToken, ...]) -> None:
        for token in tokens:
            for run in [run for run in self.queue if run.token == token]:
                self.queue.remove(run)
                self._world.journal.append(("returned", token))
                self.out.append(Returned(token))

    def _note_begin(self, step: SimulatedStep) -> None:
        run, journal = step.run, self._world.journal
        token, since = run.token, run.children_step
        journal.append(("enter", token, run.unit, step.state, self.given[token].record, run.state is None, since))
        if since and token.mode is Mode.EXECUTE:
            journal.append(("children", token, since, children_seen(self._world.store, token.procedure, since)))

    def _report(self, token: StepToken) -> None:
        """Show values, of which the last one counts, and send heartbeats, of which the last one has no details."""
        if not self._world.reports or not reports(token):
            return
        self._world.journal.append(("report", token, REPORTED, LAST_HEARTBEAT))
        said = b"%d.%d" % (token.step, token.attempt)
        self.out.extend(Exposed(token, REPORTED, value) for value in (b"before", said))
        self.out.append(Heartbeat(token, 0.5, None, said, LAST_HEARTBEAT, token.step))
        self.out.append(Heartbeat(token, 0.6, None))

    def _hold_up(self, step: SimulatedStep) -> None:
        """Act of a forward step before it can answer: hang, or make a note and wait until it is durable."""
        world, token = self._world, step.run.token
        program = world.scenario.programs[step.run.type_name]
        operation = program.operations[int(step.state.split(b":", 1)[0])]
        # Only what is killed at its wall time may hang for nothing.
        hangs = program.meta.wall_time is not None and not self._hazards.is_over and world.random() < _HANGS
        if hangs or token.attempt <= operation.hangs:
            step.hanging = True
        elif operation.note and not has_note(world.store, token):
            step.asked = self._pool.next_request()
            self.out.append(Ask(step.asked, token, "remember", "note", b"%d" % token.attempt, token.step))

    def _outcome(self, step: SimulatedStep) -> Outcome:
        run, token = step.run, step.run.token
        if token.mode in {Mode.EXECUTE, Mode.ROLLBACK} and self._hazards.fires(FaultKind.REFUSED):
            is_passing = token.mode is Mode.EXECUTE and (token.step + token.attempt) % 2 == 0
            return Refused(reason="not today", is_passing=is_passing)
        program = self._world.scenario.programs[run.type_name]
        if token.mode is Mode.EXECUTE:
            if self._hazards.fires(FaultKind.UNBEGUN):
                return Refused(reason=NO_PLACE, is_passing=token.attempt % 2 == 0, is_unbegun=True)
            placed = placed_elsewhere(program, token.procedure, step.state, leaves_out=token.step % 2 == 0)
            if placed is not None and self._hazards.fires(FaultKind.PLACED):
                return placed
        return play(program, token.procedure, step.state, token.mode, run.unit, token.attempt)

    def _keep_object(self, token: StepToken, outcome: Outcome) -> None:
        """A worker lets go of what waits, failed, or ended; now and then it evicts what it should have."""
        goes_on = isinstance(outcome, Advanced) or (isinstance(outcome, Finished) and token.mode is Mode.ROLLBACK)
        if goes_on and self._world.random() >= _FORGETS:
            self.objects[token.procedure] = outcome.state
        else:
            self.objects.pop(token.procedure, None)

    def _cut(self, report: CrashReport) -> None:
        journal = self._world.journal
        journal.extend(("cut", token) for token in self.running)
        journal.append(("worker-died", self.id))
        self._pool.bury(self, report)
