"""The pool of simulated workers, as the engine sees it: everything it is told is remembered, and happens later."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.slots import is_dedicated
from actorproc.testing.no_processes import NoProcesses
from actorproc.workers.base import PoolEvent, WorkerBooted, WorkerDied, WorkerInfo
from actorproc.workers.protocol.frames import AbortAsked, CancelStep, FromWorker, Run, Stop, ToWorker
from tests.simulator.actor_sim import rules
from tests.simulator.actor_sim.hazards import Hazards
from tests.simulator.actor_sim.workers import SimulatedWorker
from tests.simulator.core_sim.world import World
from tests.simulator.rules.judge import Entry

__all__ = ["PoolOwner", "SimulatedPool", "judge_kill_of_task", "note_cancelled", "note_fence", "note_sent"]

_AT_ONCE = frozenset({"process-limit"})
"""Kinds of limits for which a worker is killed without a grace."""
_SUCCEEDED = 0.5
"""Chance that a spare is there for a worker that dies in a step."""


class PoolOwner(Protocol):
    """The host of a pool, as the pool sees it."""

    @property
    def has_started(self) -> bool:
        """Every slot's first worker was heard of."""
        ...

    def tell(self, event: PoolEvent, /) -> None:
        """Tell the manager what a worker said, or that it died."""
        ...

    def tell_ready(self, event: WorkerBooted, died: WorkerDied | None) -> None:
        """Tell those who keep workers that one is ready, maybe in the place of one that died."""
        ...

    def command_of(self, token: StepToken) -> RunStep:
        """The command that a message to a worker was made of, as the manager's in-flight table has it."""
        ...

    def unheard(self, worker: WorkerId) -> Iterable[FromWorker]:
        """Messages of a worker that wait in the manager's inbox."""
        ...


class SimulatedPool(NoProcesses):
    """A `WorkerPool` whose workers move when the history says so. Judges each kill when it is asked for."""

    def __init__(self, world: World, hazards: Hazards, owner: PoolOwner) -> None:
        self.world = world
        self.hazards = hazards
        self.owner = owner
        self.workers: dict[WorkerId, SimulatedWorker] = {}
        self._requests = itertools.count(1)

    # ------------------------------------------------------------ told by the engine
    def open(self, sink: Callable[[PoolEvent], None]) -> None:
        """Events go where the host has said."""

    def launch(self, worker: WorkerId, *, replace: bool = False) -> None:
        """It boots later."""
        assert worker not in self.workers, f"{worker} was started twice"
        self.workers[worker] = SimulatedWorker(self, worker, replace=replace)
        if is_dedicated(worker.slot):
            self._note(("hired", worker))

    def send(self, worker: WorkerId, messages: Sequence[ToWorker]) -> None:
        """Onto the wire, in order."""
        found = self.workers.get(worker)
        if found is None:
            return
        for message in messages:
            if isinstance(message, Run):
                self._note_sent(found, message)
            elif isinstance(message, AbortAsked):
                self._note(("ask-abort", message.token))
            elif isinstance(message, CancelStep):
                note_cancelled(self.world, self._note, message)
            found.wire.append(message)

    def forget_spares(self) -> None:
        """There are none."""

    def stop(self, worker: WorkerId) -> None:
        """It ends when it has read this; one that is not ready is killed."""
        found = self.workers.get(worker)
        if found is None or found.is_told_to_stop:
            return
        found.is_told_to_stop = True
        if found.booted:
            found.wire.append(Stop())
        else:
            self.kill(worker, reason="it was stopped before it was ready", kind="stopped")

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
        """It dies later: with `grace` it may end its step before. A second kill adds nothing."""
        del grace, ask
        if blamed is not None:
            self._note(("kill", blamed, reason))
        found = self.workers.get(worker)
        if found is None or found.doom is not None:
            return
        if blamed is not None:
            self._judge_task(found, blamed, kind)
            self._judge(found, blamed)
        kind = kind or ("stopped" if blamed is None else "timeout")
        found.doom = CrashReport(kind=kind, message=reason, signal="SIGKILL")

    def stack(self, token: StepToken, timeout: float = 5.0) -> str:
        """Steps have no stack."""
        del token, timeout
        return ""

    def facts(self, timeout: float = 5.0) -> dict[WorkerId, WorkerInfo]:
        """Facts are not asked for in the actor simulation."""
        del timeout
        return {}

    def close(self, timeout: float) -> None:
        """A simulated host dies, and closes nothing."""

    # ------------------------------------------------------------ what there is to see
    def at_odds(self) -> set[str]:
        """Procedures whose steps are with workers that put one of them off: the order there has changed."""
        workers = (worker for worker in self.workers.values() if worker.put_off and len(worker.given) > 1)
        return {token.procedure for worker in workers for token in worker.given}

    @property
    def may_fail_to_boot(self) -> bool:
        """A start whose workers cannot boot fails as a whole, and the history with it."""
        return self.owner.has_started

    # ------------------------------------------------------------ told by the workers
    def next_request(self) -> int:
        """A number for what a step asks."""
        return next(self._requests)

    def is_ready(self, worker: SimulatedWorker, died: WorkerDied | None = None) -> None:
        """It takes steps, maybe in the place of one that died."""
        self.owner.tell_ready(WorkerBooted(worker.id, 1), died)

    def bury(self, worker: SimulatedWorker, report: CrashReport) -> None:
        """A worker is dead: what it said is heard, then its death; a spare may have its place at once."""
        worker.say_all()
        del self.workers[worker.id]
        died = WorkerDied(worker.id, report, worker.booted)
        is_succeeded = worker.replace and worker.booted and worker.given and not worker.is_told_to_stop
        if is_succeeded and self.world.random() < _SUCCEEDED:
            name = WorkerId(worker.id.slot, worker.id.incarnation + 1)
            spare = self.workers[name] = SimulatedWorker(self, name, replace=True)
            spare.booted = True
            self.world.journal.append(("succeeded", worker.id))
            self.is_ready(spare, WorkerDied(worker.id, report, worker.booted, name))
        else:
            self.owner.tell(died)

    # ------------------------------------------------------------ inside
    def _note_sent(self, worker: SimulatedWorker, run: Run) -> None:
        token = run.token
        if token in worker.given:
            behind = len(worker.given) > 1
            self.world.journal.append(("sent-again", token, behind))
        note_fence(self.world, run)
        command = worker.given[token] = self.owner.command_of(token)
        note_sent(self.world, command, run)

    def _note(self, entry: Entry) -> None:
        """Note what the engine wants of a worker."""
        self.world.journal.append(entry)

    def _judge_task(self, worker: SimulatedWorker, blamed: StepToken, kind: str) -> None:
        judge_kill_of_task(self.world, worker.given.get(blamed), kind)

    def _judge(self, worker: SimulatedWorker, blamed: StepToken) -> None:
        unheard = [*worker.out, *self.owner.unheard(worker.id)]
        for rule in (rules.strikes_another, rules.misses):
            text = rule(worker, blamed, unheard)
            if text is not None:
                self.world.violate(rules.AIMED, text)


def note_cancelled(world: World, note: Callable[[Entry], None], order: CancelStep) -> None:
    """Note that an async step is to end, and since when. It is the same promise as that of a kill."""
    note(("kill", order.token, order.reason))
    world.told_to_end.setdefault(order.token, world.elapsed)


def judge_kill_of_task(world: World, command: RunStep | None, kind: str) -> None:
    """A worker is killed for an async step only if that was told to end, and has not done so within its grace."""
    if command is None or command.limits is None or not command.limits.tasks or kind in _AT_ONCE:
        return
    world.journal.append(("kill-of-task", command.token))
    text = rules.kills_too_soon(command, world.told_to_end.get(command.token), world.elapsed)
    if text is not None:
        world.violate(rules.CANCELLED, text)


def note_sent(world: World, command: RunStep, run: Run) -> None:
    """Note that a step is sent, and of an async one how many may run in a worker."""
    if run.limits is not None and run.limits.tasks:
        world.journal.append(("task", run.token, run.limits.tasks))
    world.journal.append(("sent", run.token, command.record, run.state is None))


def note_fence(world: World, run: Run) -> None:
    """Note the fence with which a step is sent; it is greater than all before."""
    token = run.token
    fence, last = world.fences.get(token.procedure, (-1, token))
    if run.fence < fence or (run.fence == fence and token != last):
        world.violate(rules.FENCED, f"{token} has the fence {run.fence:x}, and {last} had {fence:x}")
    world.fences[token.procedure] = run.fence, token
