"""A fake manager actor: the real core and a store, driven by the shell's rules, dying where a fault says so.

Rules: events are handled one by one into an open batch; at most one commit is in flight and the next batch is
decided meanwhile; nothing is acted on before its commit; a failed commit drops memory, re-reads the store and
handles the kept events again under the same epoch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import StepToken, WorkerId, debounced_key
from actorproc.model.messages.commands import (
    AddWorker,
    AnswerWorker,
    AskAbort,
    Command,
    Decision,
    KillWorker,
    Reply,
    Resolve,
    ResolveAsk,
    RetireWorker,
    RunStep,
    StartWorker,
    StopWorker,
    TakeBack,
)
from actorproc.model.messages.events import (
    Acknowledged,
    DeleteRequested,
    Event,
    NoteMade,
    ReloadBegan,
    RemovalContinued,
    Resized,
    ResultsTaken,
    SignalsExpired,
    StepDelayed,
    StepEnded,
    StepReported,
    StepReturned,
    Tick,
    TreesExpired,
    TypeRegistered,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.policies import TypeMeta
from actorproc.model.rows.cold_trees import is_alone
from actorproc.model.rows.snapshot import FinishedTree, RecoverySnapshot
from actorproc.model.rows.writes import DeleteProcedure, Write
from actorproc.support.recurrence import rule_of
from actorproc.testing.histories.image import Image
from tests.simulator.core_sim.fake_reload import FakeReload
from tests.simulator.core_sim.fake_workers import FakeWorkers
from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.core_sim.restored import compare_loads, compare_with_restored
from tests.simulator.core_sim.world import HostCrash, World, ending_of
from tests.simulator.generators.features import changed_meta
from tests.simulator.generators.requests import Call, described

__all__ = ["FakeShell", "SimulatedBatch"]

_SAID_BY_WORKERS = (StepEnded, StepReturned, StepDelayed, NoteMade, StepReported, WorkerLeaving)
_PART = 2
"""Members of a tree that are removed at once; so few that most trees leave in parts."""


class SimulatedBatch:
    """Batch of decisions made since the last batch was closed."""

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

    core: Coordinator
    takes = True
    """Plain ends are taken, and decided about with the next event."""

    def __init__(self, world: World, *, first: bool, check_every: int = 1) -> None:
        self.world = world
        self.check_every = check_every
        self.epoch = world.store.own()
        self.workers = FakeWorkers(world)
        self.known: dict[WorkerId, tuple[WorkerReady, dict[StepToken, int]]] = {}
        """Workers told of in settled events, with the steps really sent to them and not answered in one."""
        self.is_gated = world.scenario.is_gated
        self.scheduling = world.scenario.scheduling
        """As the last resize that was settled left it."""
        self.batch = SimulatedBatch()
        self.in_flight: SimulatedBatch | None = None
        self.registered: list[str] = []
        self.unregistered: list[str] = []
        self.changed: dict[str, TypeMeta] = {}
        """Classes that are others now than in the scenario."""
        self.callers: dict[int, Call] = {}
        self.reload = FakeReload(self)
        self.commits = 0
        self.numbered = 0
        self._actions: dict[type[Command], Callable[[Any], None]] = {
            RunStep: self._run_step,
            TakeBack: self.workers.take_back,
            AnswerWorker: self.workers.answer,
            KillWorker: self._kill_worker,
            Reply: self._reply,
            Resolve: self._resolve,
            ResolveAsk: self._resolve_ask,
            AskAbort: self._ask_abort,
            StartWorker: lambda command: self.workers.hire(command.procedure, command.host),
            StopWorker: lambda command: self.workers.stop(command.worker),
            AddWorker: lambda _: self.workers.add(),
            RetireWorker: self._retire_worker,
        }
        world.inbox.clear()
        for type_name in world.scenario.programs:
            late = not first and world.random() < 0.05
            (self.unregistered if late else self.registered).append(type_name)
        self._restore(world.store.load(), ())
        self._tell_types()

    @property
    def is_busy(self) -> bool:
        """A caller waits, or something in memory has something to do now."""
        if self.callers or self.core._state.queues.run_queue.cold:
            return True
        return any(not (tree.is_finished or tree.is_cold) for tree in self.core._state.residents.trees.values())

    # ------------------------------------------------------------ moves the loop makes
    def tell(self, event: Call) -> None:
        """A caller asks and waits for the answer."""
        self.callers[event.reply] = event
        words = described(event)
        if words is not None:
            self.world.journal.append(("call", event.reply, *words))
        self.world.inbox.append(event)

    def register(self, type_name: str) -> None:
        """A class is registered, for the first time or again."""
        self.registered.append(type_name)
        self.world.inbox.append(TypeRegistered(self._meta_of(type_name)))

    def change(self, type_name: str, trait: str) -> None:
        """A class is registered anew with one trait changed, as `changed_meta` says."""
        if type_name not in self.registered:
            return
        self.changed[type_name] = changed_meta(self._meta_of(type_name), trait)
        self.register(type_name)

    def deliver(self) -> None:
        """Handle the next event of the inbox, and after a plain end what workers say next, as if it came together."""
        inbox = self.world.inbox
        event = inbox.popleft()
        while self.takes and type(event) is StepEnded and self.core.take(event, self.world.now):
            self.batch.events.append(event)
            if not inbox or not isinstance(inbox[0], _SAID_BY_WORKERS):
                self._add(self.core.decide())
                return
            event = inbox.popleft()
        if isinstance(event, Acknowledged | DeleteRequested | ResultsTaken):
            event = self._completed(event)
        elif isinstance(event, ReloadBegan):
            self.reload.decided(event)
        store = self.world.store
        for name in self.core.missing(event, self.world.now):
            key = debounced_key(name)
            id = name if key is None else store.newest_debounced(key)
            if id is None:
                continue
            head = store.procedure(id, removed=bool(self.core.removals))
            if head is not None and head.root in self.core.removals:
                members, _ = store.removed_members(head.root, None)
                self._handle(RemovalContinued(head.root, tuple(members), more=False))
            elif head is not None and self.core.view(id) is None:
                tree = store.tree(head.root)
                self.core.load(*tree)
                if self.core.view(id) is not None:
                    self.image.adopt(*tree)
            if key is not None:
                self.core.note_debounced(key, id)
        self._handle(event)

    def open_gate(self) -> None:
        """Let steps run."""
        self.is_gated = self.core.gated = False
        self.world.inbox.append(Tick())

    def sweep(self) -> bool:
        """Have finished trees judged, and go on with those that are half removed; whether that led to anything.

        A slice of the real sweeper, which too waits for the one before to be durable.
        """
        core, store = self.core, self.world.store
        if core.is_removing:
            return False
        writes = len(self.batch.writes)
        for root in core.removals:
            members, more = store.removed_members(root, _PART)
            self._handle(RemovalContinued(root, tuple(members), more))
            return True
        count = self.world.scenario.retention.count
        roots = [root for root, _ in store.finished(reverse=True) if core.view(root) is None]
        trees = [(place, store.finished_tree(root, _PART)) for place, root in enumerate(roots)]
        found = tuple(replace(tree, surplus=count is not None and place >= count) for place, tree in trees if tree)
        if found:
            self._handle(TreesExpired(found, self.world.now))
        old = core.too_old(core.published(), self.world.now)
        if old:
            self._handle(SignalsExpired(old, self.world.now))
        return len(self.batch.writes) > writes

    def close(self) -> None:
        """Close the open batch; without writes it is acted on at once."""
        batch, self.batch = self.batch, SimulatedBatch()
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
    def _meta_of(self, type_name: str) -> TypeMeta:
        return self.changed.get(type_name) or self.world.scenario.programs[type_name].meta

    def _handle(self, event: Event) -> None:
        self.batch.events.append(event)
        self._add(self.core.handle(event, self.world.now))

    def _completed(self, event: Acknowledged | DeleteRequested | ResultsTaken) -> Event:
        """The event with what is stored of the procedure, as the sweeper does it."""
        store = self.world.store
        if isinstance(event, ResultsTaken):
            found = (store.procedure(name) for name in event.ids)
            return replace(event, trees=tuple(FinishedTree((head,)) for head in found if head and is_alone(head)))
        head = store.procedure(event.id)
        if isinstance(event, Acknowledged):
            return replace(event, head=head)
        if head is None:
            return event
        tree = store.finished_tree(head.id, _PART) if head.parent is None else FinishedTree((head,))
        return replace(event, tree=tree)

    def _restore(
        self, stored: RecoverySnapshot, workers: tuple[tuple[WorkerReady, tuple[StepToken, ...]], ...]
    ) -> None:
        """Memory anew from all that is stored."""
        store, scenario = self.world.store, self.world.scenario
        self.image = Image(stored)
        snapshot = store.load(whole=False)
        if snapshot != stored:  # else nothing was left in the store, and both make the same memory
            text = compare_loads(store, self.world.now, scenario.scheduling)
            if text is not None:
                self.world.violate(0, text)
        before = self.core if self.known or self.workers.hosts.present else None
        self.core, decision = Coordinator.restore(
            snapshot,
            self.world.now,
            workers=workers,
            quotas=scenario.quotas,
            scheduling=self.scheduling,
            retention=scenario.retention,
            types=map(self._meta_of, self.registered),
            gated=self.is_gated,
            before=before,
            rules=rule_of,
        )
        if self.world.scenario.is_prefetching:
            # As if the core had seen many answers of these types, all of them quick.
            self.core._state.workers.table._expected.update(dict.fromkeys(self.world.scenario.programs, 0.001))
        self._add(decision)

    def _add(self, decision: Decision) -> None:
        if decision.writes:
            self.image.apply(decision.writes)
            self.batch.writes += decision.writes
            if self.world.late:
                self._forget_late(decision.writes)
        self.batch.commands += decision.commands

    def _forget_late(self, writes: list[Write]) -> None:
        """Real workers answer once. An answer that is made to come again must not be one for another procedure.

        It would be, under the id of one that was removed: with the same step and attempt, in the same worker.
        """
        gone = {write.record.id for write in writes if type(write) is DeleteProcedure}
        late = self.world.late
        late[:] = [event for event in late if not (isinstance(event, StepEnded) and event.token.procedure in gone)]

    def _compare(self) -> None:
        text = compare_with_restored(self.core, self.image)
        if text is not None:
            self.world.violate(0, text)

    def _commit_failed(self, batch: SimulatedBatch, *, applied: bool) -> None:
        self.world.journal.append(("commit-failed", applied))
        kept = self.batch.events
        self.in_flight = None
        self.batch = SimulatedBatch()
        self.world.store.reopen()
        stored = self.world.store.load()
        if stored.batch == batch.number:
            self._act(batch)
        else:
            kept = batch.events + kept
        known = self.known.values()
        beside = (replace(ready, threads=min(tokens.values(), default=1)) for ready, tokens in known)
        self._restore(stored, tuple(zip(beside, (tuple(tokens) for _, tokens in known), strict=True)))
        self.world.inbox.extendleft(reversed(kept))
        self._tell_types()

    def _tell_types(self) -> None:
        """As the engine does after memory was made anew: what was parked for lack of a class goes on."""
        self.world.inbox.extendleft(TypeRegistered(self._meta_of(name)) for name in reversed(self.registered))

    def _settle(self, batch: SimulatedBatch) -> None:
        self.core.settle(batch.sealed)
        self._act(batch)

    def _act(self, batch: SimulatedBatch) -> None:
        known = self.known
        for event in batch.events:
            if isinstance(event, (StepEnded, StepReturned)):
                if event.token.worker in known:
                    known[event.token.worker][1].pop(event.token, None)
            elif isinstance(event, Resized):
                most = max(self.scheduling.max_workers, event.workers)
                self.scheduling = replace(self.scheduling, workers=event.workers, max_workers=most)
            elif isinstance(event, WorkerReady):
                known[event.worker] = (event, {})
            elif isinstance(event, WorkerLeaving):
                if event.worker in known:
                    ready, tokens = known[event.worker]
                    known[event.worker] = (replace(ready, leaving=True), tokens)
            elif isinstance(event, WorkerLost):
                known.pop(event.worker, None)
        fires, while_acting = self.world.plan.fires, FaultKind.HOST_WHILE_ACTING
        for place, command in enumerate(batch.commands):
            if place and fires(while_acting):
                raise HostCrash
            self._actions[type(command)](command)

    # ------------------------------------------------------------ commands
    def _run_step(self, command: RunStep) -> None:
        if self.is_gated:
            self.world.violate(21, f"{command.token} was handed out before the gate was opened")
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
        if worker.id in self.known:
            self.known[worker.id][1][command.token] = 1 if command.limits is None else command.limits.threads
        self.workers.hand_out(worker, command, state)

    def _retire_worker(self, command: RetireWorker) -> None:
        self.workers.stop(command.worker, retire=True)
        if command.worker in self.known:
            ready, tokens = self.known[command.worker]
            self.known[command.worker] = (replace(ready, leaving=True), tokens)

    def _kill_worker(self, command: KillWorker) -> None:
        self.world.journal.append(("kill", command.token, command.reason))
        worker = self.workers.live.get(command.worker)
        if worker is not None:
            self.workers.kill(worker, command.kind or "timeout", blamed=command.token)

    def _reply(self, command: Reply) -> None:
        call = self.callers.pop(command.reply, None)
        if isinstance(call, ReloadBegan) and not call.is_over:
            self.reload.begin()
        self.world.journal.append(("reply", command.reply, command.value, command.error))

    def _resolve(self, command: Resolve) -> None:
        head = self.world.store.procedure(command.id)
        output = b"" if head is None else ending_of(self.world.store, head)[2]
        self.world.journal.append(("resolve", command.id, command.state, output))

    def _resolve_ask(self, command: ResolveAsk) -> None:
        self.world.journal.append(("resolve-ask", command.id, command.ask, command.value))

    def _ask_abort(self, command: AskAbort) -> None:
        self.world.journal.append(("ask-abort", command.token))
        self.workers.tell_of_abort(command.token)
