"""One life of the simulated host: the two actors, told of each other, and what they are given to work with."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future

from actorproc.config import Config
from actorproc.core.coordinator import Coordinator
from actorproc.engine.manager_actor import ManagerActor
from actorproc.engine.manager_parts import ManagerParts
from actorproc.engine.messages import (
    AddHost,
    Begin,
    Booted,
    ClaimHost,
    DrainHostSlots,
    LaunchAll,
    OpenGate,
    RegisterType,
    RemoveHost,
    SlotParked,
    Succeeded,
)
from actorproc.engine.pipeline.commit_cache import CommitCache
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.reply_router import ReplyRouter
from actorproc.engine.runtime.callback_thread import CallbackThread
from actorproc.engine.supervisor_actor import SupervisorActor, SupervisorParts
from actorproc.engine.workers.successions import Successions
from actorproc.errors import EngineError, InternalError
from actorproc.model.crash_report import HOST_LOST
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import ReloadBegan
from actorproc.model.policies import TypeMeta
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.slots import host_of, is_dedicated
from actorproc.report.changes import HostEvent, LifecycleEvent
from actorproc.workers.base import (
    HostDrains,
    HostJoined,
    HostLeft,
    PoolEvent,
    WorkerBooted,
    WorkerDied,
    WorkerMessages,
)
from actorproc.workers.protocol.frames import FromWorker
from tests.simulator.actor_sim import rules
from tests.simulator.actor_sim.clockwork import HeldAlarm, SimulatedClock
from tests.simulator.actor_sim.disk import HeldStorePort, unreliable
from tests.simulator.actor_sim.fleet.leader_pool import LeaderPool
from tests.simulator.actor_sim.fleet.machines import Fleet
from tests.simulator.actor_sim.hazards import Hazards
from tests.simulator.actor_sim.pool import SimulatedPool
from tests.simulator.core_sim.world import HostCrash, World
from tests.simulator.generators.features import changed_meta
from tests.simulator.generators.scripts import Scenario

__all__ = ["SimulatedHost"]

_SHORT = 0.001
"""Seconds that each step is expected to take: so little that workers are given several at a time."""
_LATE = 0.05
"""Chance that a class is registered only when nothing else is to be done, by a host that starts again."""


class SimulatedHost:
    """Two real actors whose threads were never started: each handles a message when it is told to."""

    def __init__(
        self, world: World, hazards: Hazards, clock: SimulatedClock, *, first: bool, fleet: Fleet | None = None
    ) -> None:
        self.world = world
        scenario = world.scenario
        epoch = world.store.own()
        snapshot = world.store.load(whole=False)
        self.alarm = HeldAlarm(clock)
        self.replies = ReplyRouter()
        self.disk = HeldStorePort(world, hazards, epoch, self.tell)
        self.pool = SimulatedPool(world, hazards, self)
        self.hosts = LeaderPool(self, fleet, epoch) if fleet is not None else None
        """Pool over the worker hosts; None: the history has none."""
        self._is_deposed = False
        self.broken: InternalError | None = None
        """A bug stopped an actor: this is what it raised."""
        self._clock = clock
        self._hazards = hazards
        self._metas: dict[str, TypeMeta] = {name: program.meta for name, program in scenario.programs.items()}
        self._late = [name for name in self._metas if not first and world.random() < _LATE]
        """Classes that are not registered in this life."""
        if self._late:
            world.journal.append(("unregistered", *self._late))
        registered = [self._definition(name) for name in self._metas if name not in self._late]
        config = _config(scenario)
        self.manager = ManagerActor(self._manager_parts(config, snapshot, registered))
        self.supervisor = SupervisorActor(self._supervisor_parts(config))
        self._core: Coordinator | None = None
        self._successions = Successions()
        self._told: list[WorkerId] = []
        """Workers that the manager was told of, and that live as far as it knows."""
        self._expect_short_steps()
        # In the order of `actorproc.engine.engine`.
        for definition in registered:
            self.tell(RegisterType(definition))
        self.tell(Begin())
        self.tell_supervisor(LaunchAll(Future()))

    def _manager_parts(self, config: Config, snapshot: RecoverySnapshot, registered: list[Definition]) -> ManagerParts:
        scenario = self.world.scenario
        return ManagerParts(
            config=config,
            clock=self._clock,
            alarm=self.alarm,
            store=unreliable(self.world.store, self._hazards, self.disk.read_failed),
            store_port=self.disk,
            pool=self.hosts or self.pool,
            on_event=self._happened,
            replies=self.replies,
            newest=CommitCache(),
            callback_thread=_NoCallbackThread(),
            snapshot=snapshot,
            definitions=registered,
            scheduling=scenario.scheduling,
            on_gone=self.tell_supervisor,
            to_supervisor=self.tell_supervisor,
            on_broken=self._broke,
            on_store_lost=self._lost_store,
            on_stopped=lambda: None,
            gated=scenario.is_gated,
        )

    def _supervisor_parts(self, config: Config) -> SupervisorParts:
        return SupervisorParts(
            config=config,
            clock=self._clock,
            alarm=self.alarm,
            pool=self.hosts or self.pool,
            slots=self.world.scenario.scheduling.workers,
            replies=self.replies,
            on_failed=lambda _: None,
            on_slot=self._slot,
            on_recovered=lambda: None,
            on_broken=self._broke,
        )

    # ------------------------------------------------------------ what there is to see
    @property
    def pipeline(self) -> CommitPipeline:
        """The manager's."""
        return self.manager._pipeline

    @property
    def has_started(self) -> bool:
        """Every slot's first worker was heard of: until then `start` waits."""
        return self.supervisor._starting is None

    @property
    def is_quiet(self) -> bool:
        """The manager has nothing to do, and nothing is on its way to the disk."""
        return self.pipeline.idle and self.manager.actor_inbox.empty()

    @property
    def is_busy(self) -> bool:
        """Something in memory has something to do now."""
        state = self.pipeline.core._state
        return bool(state.queues.run_queue.cold) or any(
            not (tree.is_finished or tree.is_cold) for tree in state.residents.trees.values()
        )

    def moves(self) -> list[Callable[[], None]]:
        """Moves that may come next; often there, often drawn."""
        found: list[Callable[[], None]] = []
        if not self.manager.actor_inbox.empty():
            found += [self._deliver] * 3
        if not self.supervisor.actor_inbox.empty():
            found += [self._deliver_to_supervisor] * 2
        if self.disk.is_asked:
            found.append(self.disk.go_on)
        for worker in self.pool.workers.values():
            found += worker.moves()
        return found

    # ------------------------------------------------------------ told from outside
    def tell(self, message: object) -> None:
        """A message for the manager."""
        self.manager.actor_ref.tell(message)

    def tell_supervisor(self, message: object) -> None:
        """A message for the supervisor."""
        self.supervisor.actor_ref.tell(message)

    def open_gate(self) -> None:
        """Let steps run."""
        self.tell(OpenGate(Future()))

    def register(self, type_name: str) -> None:
        """A class is registered, for the first time or again."""
        if type_name in self._late:
            self._late.remove(type_name)
        self.tell(RegisterType(self._definition(type_name)))

    def register_late(self) -> bool:
        """Register a class that is missing; False when none is."""
        if self._late:
            self.register(self._late[0])
            return True
        return False

    def change(self, type_name: str, trait: str) -> None:
        """A class is registered anew with one trait changed, as `changed_meta` says."""
        if type_name not in self._late:
            self._metas[type_name] = changed_meta(self._metas[type_name], trait)
            self.register(type_name)

    # ------------------------------------------------------------ told or asked by the pool
    def worker_event(self, event: PoolEvent) -> None:
        """What a host, or a worker there, said, as `actorproc.engine.engine.EngineTree` passes it on."""
        journal = self.world.journal
        if isinstance(event, HostJoined):
            journal.append(("host", event.name, event.labels, event.resources))
            journal.extend(("worker-on", worker, event.name) for worker, _, _ in event.living)
            self.tell(event)
            self.tell_supervisor(AddHost(event.host, event.slots, tuple(worker for worker, _, _ in event.living)))
        elif isinstance(event, HostDrains):
            self.tell(event)
            self.tell_supervisor(DrainHostSlots(event.host))
        elif isinstance(event, HostLeft):
            self.tell(event)
            self.tell_supervisor(RemoveHost(event.host))
        elif isinstance(event, WorkerDied):
            for death in self._successions.died(event):
                journal.append(("worker-gone", death.worker, death.report.kind == HOST_LOST))
                self.tell(death)
        elif isinstance(event, WorkerBooted):
            journal.append(("worker-on", event.worker, f"h{host_of(event.worker.slot)}"))
            told = self._successions.booted(event)
            if isinstance(told, Succeeded):
                died = told.died
                journal.append(("worker-gone", died.worker, died.report.kind == HOST_LOST))
            self.tell(told)
            if not is_dedicated(event.worker.slot):
                self.tell_supervisor(Booted(event.worker))
        else:
            self.tell(event)

    def _happened(self, event: LifecycleEvent) -> None:
        if isinstance(event, HostEvent):
            self.world.journal.append((event.kind, event.name, event.steps))

    def tell_ready(self, event: WorkerBooted, died: WorkerDied | None) -> None:
        """A worker is ready, maybe in the place of one that died: both actors hear of it, as from the tree."""
        self.tell(event if died is None else Succeeded(died, event))
        if not is_dedicated(event.worker.slot):
            self.tell_supervisor(Booted(event.worker))

    def command_of(self, token: StepToken) -> RunStep:
        """Command of a step that is being sent, from the manager's in-flight table."""
        if self.pipeline.gated:
            self.world.violate(rules.GATED, f"{token} was handed out before the gate was opened")
        return self.manager._in_flight.entries[token.worker].queue[token]

    def unheard(self, worker: WorkerId) -> Iterator[FromWorker]:
        """Messages of a worker that wait in the manager's inbox."""
        for envelope in self.manager.actor_inbox._messages:
            message = envelope.message
            if isinstance(message, WorkerMessages) and message.worker == worker:
                yield from message.messages

    # ------------------------------------------------------------ moves
    def _deliver(self) -> None:
        message = self.manager.actor_inbox.get().message
        self._note(message)
        self.manager.on_receive(message)
        if isinstance(message, ClaimHost) and message.future.exception() is None:
            self._told += message.future.result()[0]
        if self._is_deposed:
            raise HostCrash  # its process may live on, but for the store it is as dead as if it had been killed
        self._expect_short_steps()

    def _note(self, message: object) -> None:
        """Note what the manager is told of its workers, and which of them have old code when it hears of a reload."""
        if isinstance(message, Succeeded):
            self._note(message.died)
            self._note(message.booted)
        elif isinstance(message, WorkerBooted):
            self._told.append(message.worker)
        elif isinstance(message, WorkerDied):
            self._told.remove(message.worker) if message.worker in self._told else None
        elif isinstance(message, ReloadBegan):
            self.world.journal.append(("reload", () if message.is_over else tuple(self._told)))

    def _deliver_to_supervisor(self) -> None:
        self.supervisor.on_receive(self.supervisor.actor_inbox.get().message)

    # ------------------------------------------------------------ inside
    def _expect_short_steps(self) -> None:
        """As if a core that was made anew had seen many answers of all types: else few workers had steps that wait."""
        core = self.pipeline.core
        if core is not self._core:
            self._core = core
            core._state.workers.table._expected.update(dict.fromkeys(self._metas, _SHORT))

    def _definition(self, type_name: str) -> Definition:
        return Definition(meta=self._metas[type_name], module="played", qualname=type_name)

    def _slot(self, message: object) -> None:
        if isinstance(message, SlotParked):
            self.world.journal.append(("slot-parked", message.worker))
        self.tell(message)

    def _lost_store(self, error: EngineError) -> None:
        self.world.journal.append(("deposed", str(error)))
        self._is_deposed = True

    def _broke(self, error: InternalError) -> None:
        self.broken = error


class _NoCallbackThread(CallbackThread):
    """Errands for the host's callbacks, run where they are posted."""

    def post(self, errand: Callable[[], object]) -> None:
        """Run it now."""
        errand()


def _config(scenario: Scenario) -> Config:
    quotas, retention = scenario.quotas, scenario.retention
    return Config(
        max_depth=quotas.depth,
        max_children=quotas.children,
        max_tree=quotas.tree,
        max_dedicated=quotas.dedicated,
        keep_steps=quotas.steps,
        retain_for=retention.seconds,
        retain_count=retention.count,
        retain_failed_for=retention.failed_seconds,
        retain_acknowledged=retention.acknowledged_seconds,
        sweep_interval=5.0,
        parked_grace=0.5,
    )
