"""A fake manager actor: the real core and a store, driven by the shell's rules, dying where a fault says so.

Rules: events are handled one by one into an open batch; at most one commit is in flight and the next batch is
decided meanwhile; nothing is acted on before its commit; a failed commit drops memory, re-reads the store and
handles the kept events again under the same epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actorproc.core.coordinator import Coordinator
from actorproc.model.commands import (
    AnswerWorker,
    AskAbort,
    Command,
    Decision,
    KillWorker,
    Reply,
    Resolve,
    RunStep,
    TakeBack,
)
from actorproc.model.events import (
    AbortRequested,
    Event,
    Signalled,
    StepEnded,
    StepReturned,
    Submitted,
    TypeRegistered,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.writes import Write
from actorproc.testing.fake_workers import FakeWorkers
from actorproc.testing.faults import FaultKind
from actorproc.testing.image import Image, compare_with_restored
from actorproc.testing.world import HostCrash, World

__all__ = ["Batch", "FakeShell"]

Call = Submitted | AbortRequested | Signalled
"""What a caller waits for an answer to."""


class Batch:
    """What was decided since the last batch was closed."""

    __slots__ = ("commands", "events", "number", "sealed", "writes")

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.writes: list[Write] = []
        self.commands: list[Command] = []
        self.number = 0
        self.sealed = 0

    @property
    def is_open(self) -> bool:
        """Something happened since it was opened."""
        return bool(self.events or self.writes or self.commands)


class FakeShell:
    """One life of the host, from its start to its death. `check_every`: compare memory at every n-th commit."""

    def __init__(self, world: World, *, first: bool, check_every: int = 1) -> None:
        self.world = world
        self.check_every = check_every
        self.epoch = world.store.own()
        self.workers = FakeWorkers(world)
        self.known: dict[WorkerId, dict[StepToken, None]] = {}
        """Workers told of in settled events, with the steps really sent to them and not answered in one."""
        self.batch = Batch()
        self.in_flight: Batch | None = None
        self.registered: list[str] = []
        self.unregistered: list[str] = []
        self.callers: dict[int, Call] = {}
        self.commits = 0
        self.numbered = 0
        self._actions: dict[type[Command], Callable[[Any], None]] = {
            RunStep: self._run_step,
            TakeBack: self.workers.take_back,
            AnswerWorker: self.workers.answer,
            KillWorker: self._kill_worker,
            Reply: self._reply,
            Resolve: self._resolve,
            AskAbort: self._ask_abort,
        }
        world.inbox.clear()
        self._restore(())
        for type_name in world.scenario.programs:
            if not first and world.random() < 0.05:
                self.unregistered.append(type_name)
            else:
                self.register(type_name)

    @property
    def is_busy(self) -> bool:
        """A caller waits, or a tree in memory has something to do now."""
        if self.callers:
            return True
        return any(not (tree.is_finished or tree.is_cold) for tree in self.core._book.trees.values())

    # ------------------------------------------------------------ moves the loop makes
    def tell(self, event: Call) -> None:
        """A caller asks and waits for the answer."""
        self.callers[event.reply] = event
        self.world.inbox.append(event)

    def register(self, type_name: str) -> None:
        """A class is registered, for the first time or again."""
        self.registered.append(type_name)
        self.world.inbox.append(TypeRegistered(self.world.scenario.programs[type_name].meta))

    def deliver(self) -> None:
        """Handle the next event of the inbox."""
        event = self.world.inbox.popleft()
        store = self.world.store
        for id in self.core.missing(event, self.world.now):  # noqa: A001 - the name in the vocabulary
            head = store.procedure(id)
            if head is not None:
                self.core.load(*store.tree(head.root))
        self.batch.events.append(event)
        self._add(self.core.handle(event, self.world.now))

    def close(self) -> None:
        """Close the open batch; without writes it is acted on at once."""
        batch, self.batch = self.batch, Batch()
        batch.sealed = self.core.seal()
        if not batch.writes:
            self._settle(batch)
            return
        self.numbered += 1
        batch.number = self.numbered
        if self.world.plan.fires(FaultKind.HOST_BEFORE_COMMIT):
            raise HostCrash
        self.in_flight = batch

    def commit(self) -> None:
        """The commit in flight ends, well or not."""
        world, batch = self.world, self.in_flight
        assert batch is not None
        if world.plan.fires(FaultKind.COMMIT_LOST):
            self._commit_failed(batch, applied=False)
            return
        world.store.commit(batch.writes, self.epoch, batch.number)
        world.journal.append(("commit", self.epoch, batch.writes))
        self.commits += 1
        if self.commits % self.check_every == 0:
            self._compare()
        if world.plan.fires(FaultKind.HOST_AFTER_COMMIT):
            raise HostCrash
        if world.plan.fires(FaultKind.COMMIT_UNKNOWN):
            self._commit_failed(batch, applied=True)
            return
        self.in_flight = None
        self._settle(batch)
        if self.batch.is_open:
            self.close()

    # ------------------------------------------------------------ inside
    def _restore(self, workers: tuple[tuple[WorkerReady, tuple[StepToken, ...]], ...]) -> None:
        snapshot = self.world.store.load()
        self.image = Image(snapshot)
        self.core, decision = Coordinator.restore(snapshot, self.world.now, workers=workers)
        if self.world.scenario.is_prefetching:
            # As if the core had seen many answers of these types, all of them quick.
            self.core._book.staff._expected.update(dict.fromkeys(self.world.scenario.programs, 0.001))
        self._add(decision)

    def _add(self, decision: Decision) -> None:
        if decision.writes:
            self.image.apply(decision.writes)
            self.batch.writes += decision.writes
        self.batch.commands += decision.commands

    def _compare(self) -> None:
        text = compare_with_restored(self.core, self.image)
        if text is not None:
            self.world.violate(0, text)

    def _commit_failed(self, batch: Batch, *, applied: bool) -> None:
        self.world.journal.append(("commit-failed", applied))
        kept = self.batch.events
        self.in_flight = None
        self.batch = Batch()
        self.world.store.reopen()
        if self.world.store.load().batch == batch.number:
            self._act(batch)
        else:
            kept = batch.events + kept
        self._restore(tuple((WorkerReady(worker), tuple(tokens)) for worker, tokens in self.known.items()))
        self.world.inbox.extendleft(reversed(kept))
        programs = self.world.scenario.programs
        self.world.inbox.extendleft(TypeRegistered(programs[name].meta) for name in reversed(self.registered))

    def _settle(self, batch: Batch) -> None:
        self.core.settle(batch.sealed)
        self._act(batch)

    def _act(self, batch: Batch) -> None:
        known = self.known
        for event in batch.events:
            if isinstance(event, (StepEnded, StepReturned)):
                known.get(event.token.worker, {}).pop(event.token, None)
            elif isinstance(event, WorkerReady):
                known[event.worker] = {}
            elif isinstance(event, WorkerLost):
                known.pop(event.worker, None)
        for place, command in enumerate(batch.commands):
            if place and self.world.plan.fires(FaultKind.HOST_WHILE_ACTING):
                raise HostCrash
            self._actions[type(command)](command)

    # ------------------------------------------------------------ commands
    def _run_step(self, command: RunStep) -> None:
        worker = self.workers.live.get(command.token.worker)
        if worker is None:
            return  # its death will be told
        state = None
        if not command.warm:
            record = self.world.store.step(command.token.procedure, command.record)
            if record is None:
                self.world.violate(5, f"{command.token} was handed out before record {command.record} was stored")
                return
            state = record.state
        self.known.get(worker.id, {})[command.token] = None
        self.workers.hand_out(worker, command, state)

    def _kill_worker(self, command: KillWorker) -> None:
        worker = self.workers.live.get(command.worker)
        if worker is not None:
            self.workers.kill(worker, "timeout", blamed=command.token)

    def _reply(self, command: Reply) -> None:
        self.callers.pop(command.reply, None)
        self.world.journal.append(("reply", command.reply, command.value, command.error))

    def _resolve(self, command: Resolve) -> None:
        self.world.journal.append(("resolve", command.id, command.state))

    def _ask_abort(self, command: AskAbort) -> None:
        self.world.journal.append(("ask-abort", command.token))
