"""Machines with agents: they start, join, are cut off, drain, are killed, and start again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from actorproc.model.crash_report import HOST_LOST, CrashReport
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.workers.base import PoolEvent, PoolSettings, WorkerBooted, WorkerDied, WorkerExceeded, WorkerPool
from actorproc.workers.hosts import admission, agent, host_workers, joined_hosts
from actorproc.workers.hosts.agent import HostAgent, HostOffer
from actorproc.workers.link.stream import LinkStream
from actorproc.workers.protocol.frames import FromWorker, Run
from tests.simulator.actor_sim import rules
from tests.simulator.actor_sim.clockwork import SimulatedClock
from tests.simulator.actor_sim.fleet.links import PlayedSession, Wire, connected
from tests.simulator.actor_sim.hazards import Hazards
from tests.simulator.actor_sim.pool import SimulatedPool
from tests.simulator.actor_sim.workers import is_task
from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.core_sim.world import HostCrash, World
from tests.simulator.generators import scripts

if TYPE_CHECKING:
    from tests.simulator.actor_sim.host import SimulatedHost

__all__ = ["Fleet"]

_PATIENCE = 10.0
_SOON = 0.001
"""Seconds by which a limit is passed that is to be seen as passed."""
_WORKERS = 2
_CUT_FOR = 16.0
"""Seconds at most for which a machine that is cut off reaches no leader: longer than the patience, or not."""
_LOST_ON_THE_WAY = 0.1
"""Chance that the answer to a hello is lost."""


class _HostPool(SimulatedPool):
    """The pool of an agent. What its leader sent and asked for was noted by the leader's pool."""

    def __init__(self, machine: _Machine) -> None:
        super().__init__(machine.fleet.world, machine.fleet.hazards, _Reporter(machine, self))
        self.sink: Callable[[PoolEvent], None] = lambda _: None
        self.said: dict[WorkerId, list[FromWorker]] = {}
        """All that each worker has said."""

    def open(self, sink: Callable[[PoolEvent], None]) -> None:
        """Begin."""
        self.sink = sink

    def kill(self, worker: WorkerId, *, kind: str = "", **how: Any) -> None:
        """It dies later; one that is killed for the sake of its host runs nothing from now on."""
        found = self.workers.get(worker)
        super().kill(worker, kind=kind, **how)
        if found is not None and kind == HOST_LOST:
            found.cut_short()

    def close(self, timeout: float) -> None:
        """End all workers."""
        del timeout
        for worker in list(self.workers.values()):
            worker.cut_short()
            worker.doom = worker.doom or CrashReport(kind="stopped", message="its host has ended")
            while worker.id in self.workers and self.workers[worker.id] is worker:
                worker.die()

    def _note_sent(self, worker: Any, run: Run) -> None:
        worker.given[run.token] = self.owner.command_of(run.token)

    def _note(self, entry: tuple[object, ...]) -> None:
        """The leader's pool has noted it."""

    def _judge_task(self, worker: Any, blamed: StepToken, kind: str) -> None:
        """The leader's pool has judged it, when it was asked for."""

    def exceed(self) -> None:
        """A running step uses more than it may."""
        token, step = next(item for worker in self.workers.values() for item in worker.running.items())
        self.world.journal.append(("exceeded", token))
        # Memory is that of a whole worker, and no limit of an async step; the number of its processes is one.
        kind, what = (
            ("process-limit", "too many processes") if is_task(step.run) else ("memory-limit", "too much memory")
        )
        self.sink(WorkerExceeded(token.worker, token, kind, f"{token.procedure} uses {what}"))

    @property
    def is_busy(self) -> bool:
        """A step runs."""
        return any(worker.running for worker in self.workers.values())


class _Reporter:
    """The agent of a pool, as the pool sees it."""

    has_started = True

    def __init__(self, machine: _Machine, pool: _HostPool) -> None:
        self._machine = machine
        self._pool = pool

    def tell(self, event: Any) -> None:
        """What a worker said, or its death."""
        if not isinstance(event, WorkerDied):
            self._pool.said.setdefault(event.worker, []).extend(event.messages)
        self._pool.sink(event)

    def tell_ready(self, event: WorkerBooted, died: WorkerDied | None) -> None:
        """A worker is ready."""
        if died is not None:
            self._pool.sink(died)
        self._pool.sink(event)

    def command_of(self, token: StepToken) -> RunStep:
        """The command of a step, as a leader sent it."""
        return self._machine.fleet.commands[token]

    def unheard(self, worker: WorkerId) -> Iterator[FromWorker]:
        """All that the worker said: its leader may not have heard any of it when it asked for a kill."""
        yield from self._pool.said.get(worker, ())


class _Machine:
    """A machine whose agent is started whenever it has none."""

    def __init__(self, fleet: Fleet, offer: scripts.HostOffer) -> None:
        self.fleet = fleet
        self.offer = offer
        self.agent: HostAgent | None = None
        self.pools: list[_HostPool] = []
        self.cut_until = 0.0
        """Monotonic seconds until which it reaches no leader."""
        self._looked_at = 0.0
        self._is_asking = False
        """Its agent waits for the answer to its hello."""

    # ------------------------------------------------------------ life
    def start(self) -> None:
        """Start an agent."""
        self.fleet.world.journal.append(("agent-started", self.offer.name))
        offer = HostOffer(
            name=self.offer.name,
            version="simulated",
            workers=_WORKERS,
            labels=self.offer.labels,
            resources=dict(self.offer.resources),
        )
        self.agent = HostAgent(offer, connect=self._dial, seen_epoch=lambda: 0, make_pool=self._make_pool)
        self._looked_at = self.fleet.clock.monotonic()

    def _make_pool(self, settings: PoolSettings, epoch: int) -> WorkerPool:
        del settings, epoch
        pool = _HostPool(self)
        self.pools.append(pool)
        return pool

    def kill(self) -> None:
        """SIGKILL of the agent: its workers die with it, and no answer of them is heard any more."""
        assert self.agent is not None
        self.fleet.world.journal.append(("agent-killed", self.offer.name))
        for pool in self.pools:
            pool.sink = lambda _: None
            pool.close(0.0)
        session = self.agent._session
        if session is not None:
            session.close()
        self._forget()

    def end(self) -> None:
        """The agent ends as it was told to."""
        assert self.agent is not None
        self.fleet.world.journal.append(("agent-ended", self.offer.name))
        if self.agent._failure is not None:
            self.fleet.world.violate(rules.ENDS, f"an agent gave up: {self.agent._failure}")
        self.agent._finish()
        for pool in self.pools:
            pool.close(0.0)
        self._forget()

    def _forget(self) -> None:
        self.fleet.jobs = [job for job in self.fleet.jobs if job[0] not in {self.agent, *self.pools}]
        self.agent, self.pools = None, []

    # ------------------------------------------------------------ the way to the leader
    def _dial(self) -> LinkStream:
        fleet = self.fleet
        if fleet.clock.monotonic() < self.cut_until:
            raise ConnectionRefusedError("there is no way to the leader")
        own, theirs = connected(fleet.world, fleet.clock)
        fleet.wires.append(own.wire)
        leader = fleet.leader

        def answer() -> None:
            assert leader.hosts is not None
            leader.hosts.come(theirs, "played")  # type: ignore[arg-type]
            if leader is not fleet.leader or fleet.hazards.fires(FaultKind.LINK_CUT, _LOST_ON_THE_WAY):
                own.wire.cut()
                own.data.clear()

        own.answered = answer
        return own  # type: ignore[return-value]

    def ask(self) -> None:
        """Look for the leader, and ask it to let this host in."""
        assert self.agent is not None
        self._is_asking = True
        try:
            self.agent._joined()
        finally:
            self._is_asking = False

    # ------------------------------------------------------------ moves
    def moves(self) -> list[Callable[[], None]]:
        """What may happen here next."""
        if self.agent is None:
            return [self.start]
        found = [move for pool in self.pools for worker in pool.workers.values() for move in worker.moves()]
        if not self._is_asking:
            if self.agent._must_end():
                found.append(self.end)
            elif self.agent._is_broken and self.fleet.clock.monotonic() >= self.cut_until:
                found += [self.ask] * 2
        return found

    def disturb(self) -> None:
        """Its connection breaks, it is cut off, its agent is killed or drains, or a step of it uses too much."""
        fleet = self.fleet
        if self.agent is None or self._is_asking:
            return
        if any(pool.is_busy for pool in self.pools) and fleet.hazards.fires(FaultKind.EXCEEDED):
            next(pool for pool in self.pools if pool.is_busy).exceed()
        elif fleet.hazards.fires(FaultKind.LINK_CUT):
            self.cut_until = fleet.clock.monotonic() + (
                _CUT_FOR * fleet.world.random() if fleet.world.random() < 0.6 else 0
            )
            fleet.world.journal.append(("link-cut", self.offer.name))
            session = self.agent._session
            if session is not None:
                session.hang_up()
        elif fleet.hazards.fires(FaultKind.AGENT_KILLED):
            self.kill()
        elif self.agent._drain_reason is None and fleet.hazards.fires(FaultKind.HOST_DRAINED):
            fleet.world.journal.append(("drained", self.offer.name))
            leader = fleet.leader.hosts
            assert leader is not None
            if fleet.world.random() < 0.5 or not leader.drain(self.offer.name, "an operator asked for it"):
                self.agent.drain("its machine is needed")

    # ------------------------------------------------------------ time
    def due(self) -> list[float]:
        """Monotonic times of what happens here by itself."""
        if self.agent is None:
            return []
        now = self.fleet.clock.monotonic()
        found = [self.cut_until] if self.agent._is_broken and self.cut_until > now else []
        if self.agent._ends_at is not None:
            found.append(self.agent._ends_at + _SOON)
        unheard = self.agent._unheard_for(now)
        workers = self.agent._workers
        if unheard > 0 and any(worker not in workers._ending for worker in workers.held.busy()):
            found.append(now - unheard + agent._ALONE * self.agent._patience + _SOON)
        return [at for at in found if at > now]

    def look(self) -> None:
        """A round of the agent's guard. It has made many since time was looked at."""
        if self.agent is not None:
            self._looked_at = self.agent._look(self.fleet.clock.monotonic())


class Fleet:
    """All machines of a history but the manager's own."""

    patience = _PATIENCE

    def __init__(self, world: World, hazards: Hazards, clock: SimulatedClock, go_on: Callable[[], None]) -> None:
        self.world = world
        self.hazards = hazards
        self.clock = clock
        self.go_on = go_on
        """Lets something else happen while a thread waits."""
        self.commands: dict[StepToken, RunStep] = {}
        """Commands by which steps were handed to hosts."""
        self.wires: list[Wire] = []
        self.jobs: list[tuple[object, Callable[[], object]]] = []
        """Threads that have not run, each with the part that started it."""
        self.leader: SimulatedHost
        self._machines = [_Machine(self, offer) for offer in world.scenario.hosts]

    def meet(self, leader: SimulatedHost) -> None:
        """The manager before is gone, and all of its connections with it."""
        self.leader = leader
        for wire in self.wires:
            wire.cut()
            wire.unnoticed = [session for session in wire.unnoticed if self._is_of_an_agent(session)]

    def _is_of_an_agent(self, session: object) -> bool:
        return any(machine.agent is not None and machine.agent._session is session for machine in self._machines)

    # ------------------------------------------------------------ moves
    def moves(self) -> list[Callable[[], None]]:
        """What may happen next on machines and on their connections."""
        self.wires = [wire for wire in self.wires if wire.is_alive or wire.unnoticed]
        found = [move for machine in self._machines for move in machine.moves()]
        found += [move for wire in self.wires for move in wire.moves()]
        if self.jobs:
            found.append(self._run)
        return found

    def _run(self) -> None:
        _, job = self.jobs.pop(self.world.pick(len(self.jobs)))
        job()

    def disturb(self) -> None:
        """The manager may die, or something goes wrong with a machine."""
        if self.hazards.fires(FaultKind.LEADER_KILLED):
            raise HostCrash
        self._machines[self.world.pick(len(self._machines))].disturb()

    # ------------------------------------------------------------ time
    def next_due(self) -> float | None:
        """Monotonic time of the next thing that happens by itself; None: there is none."""
        now = self.clock.monotonic()
        found = [at for machine in self._machines for at in machine.due()]
        leader = self.leader.hosts
        if leader is not None:
            for host in leader.hosts:
                silent = min(host.session.silent_for, now - host.arrived_at)
                if host.session.silent_for > 0:
                    found.append(now - silent + self.patience + _SOON)
        return min((at for at in found if at > now), default=None)

    def time_has_passed(self) -> None:
        """Agents look at their leaders, and the leader at its hosts."""
        for machine in self._machines:
            machine.look()
        for wire in self.wires:
            for session in wire.sessions:
                if session.wire is wire:
                    session.beat()
        if self.leader.hosts is not None:
            self.leader.hosts._look(self.clock.monotonic())

    # ------------------------------------------------------------ what the engine's parts are given
    @contextmanager
    def played(self) -> Iterator[None]:
        """Sessions, threads and time of agents and of the leader's pool are played meanwhile."""
        seconds = SimpleNamespace(monotonic=self.clock.monotonic, time=self.clock.wall, sleep=lambda _: None)
        threads = SimpleNamespace(**{name: getattr(threading, name) for name in ("RLock", "Condition", "Event")})
        nothing, job = SimpleNamespace(start=lambda: None), self._job
        changes: list[tuple[Any, str, object]] = [
            *((module, "time", seconds) for module in (admission, agent, host_workers, joined_hosts)),
            *((module, "LinkSession", self._session) for module in (admission, agent)),
            (agent, "container_memory", lambda: None),
            (joined_hosts, "threading", SimpleNamespace(**vars(threads), Thread=lambda **_: nothing)),
            *((module, "threading", SimpleNamespace(**vars(threads), Thread=job)) for module in (agent, host_workers)),
        ]
        before = [(module, name, getattr(module, name)) for module, name, _ in changes]
        try:
            for module, name, value in changes:
                setattr(module, name, value)
            yield
        finally:
            for module, name, value in before:
                setattr(module, name, value)

    def _session(
        self, hear: Callable[[bytes], None], on_break: Callable[[OSError], None], *, silence: float, name: str
    ) -> PlayedSession:
        del silence, name
        return PlayedSession(hear, on_break, self.clock)

    def _job(self, *, target: Callable[..., object], args: tuple[Any, ...], name: str, daemon: bool) -> SimpleNamespace:
        del name, daemon
        owner = getattr(target, "__self__", None)
        return SimpleNamespace(start=lambda: self.jobs.append((owner, partial(target, *args))))
