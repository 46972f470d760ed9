"""Fake hosts: they join, drain and leave, with the workers that are on them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import HostAdded, HostDraining, HostRemoved

if TYPE_CHECKING:
    from tests.simulator.core_sim.fake_workers import FakeWorkers
    from tests.simulator.core_sim.world import World

__all__ = ["FakeHosts"]


_DIFFERS = 0.4
"""Chance that a host that joins has other code of a type."""


class FakeHosts:
    """Hosts of one life of the manager. Without hosts in the scenario all workers are on the one without a name."""

    def __init__(self, world: World, workers: FakeWorkers) -> None:
        self._world = world
        self._workers = workers
        self._offers = {offer.name: offer for offer in world.scenario.hosts}
        self.present: dict[str, bool] = {}
        """By name: it drains."""
        self.outdated: dict[str, tuple[str, ...]] = {}
        """Hosts that are there and have other code of some types."""
        self._asked: dict[WorkerId, str] = {}
        """Hosts that the core chose for workers."""
        self._departures = world.scenario.departures

    def of(self, worker: WorkerId) -> str:
        """The host that a worker is on, or is to come up on."""
        names = list(self._offers)
        return self._asked.get(worker) or (names[worker.slot % len(names)] if names else "")

    def choose(self, worker: WorkerId, host: str) -> None:
        """The core wants a worker on this host."""
        if host:
            self._asked[worker] = host

    def starts_on(self, host: str) -> bool:
        """Workers can be started on this host; on one that has left meanwhile they cannot, which the core will hear."""
        return not host or host in self.present

    def is_chosen(self, worker: WorkerId) -> bool:
        """The core has chosen the host of this worker."""
        return worker in self._asked

    def takes(self, worker: WorkerId) -> bool:
        """The host of a worker is there and starts workers."""
        return not self._offers or self.present.get(self.of(worker)) is False

    @property
    def absent(self) -> list[str]:
        """Hosts that are not there."""
        return [name for name in self._offers if name not in self.present]

    def join(self) -> None:
        """One of the absent hosts is there."""
        names = self.absent
        offer = self._offers[names[self._world.pick(len(names))]]
        self.present[offer.name] = False
        self._world.journal.append(("host", offer.name, offer.labels, offer.resources))
        self._world.inbox.append(HostAdded(offer.name, offer.labels, offer.resources, self._other_code(offer.name)))

    def _other_code(self, name: str) -> tuple[str, ...]:
        """Types of which a host that joins has other code."""
        divided = self._world.scenario.divided
        if not divided:
            return ()
        types = tuple(each for each in divided if self._world.random() < _DIFFERS)
        self._world.journal.append(("code", name, types))
        if types:
            self.outdated[name] = types
        return types

    def upgrade(self) -> None:
        """A host gets the manager's code in its place."""
        name = next(iter(self.outdated))
        del self.outdated[name]
        offer = self._offers[name]
        self._world.journal.append(("code", name, ()))
        self._world.inbox.append(HostAdded(name, offer.labels, offer.resources))

    @property
    def can_depart(self) -> bool:
        """A host may leave, or begin to drain."""
        if self._departures <= 0 or False not in self.present.values():
            return False
        return not self._world.scenario.hunted or self._hunted is not None

    @property
    def _hunted(self) -> str | None:
        """The host of the procedure that loses one after the other: the first one that runs, but the bystander."""
        bystander = self._world.scenario.bystander
        running = [
            (worker.running[0].token.procedure, self.of(id))
            for id, worker in self._workers.live.items()
            if worker.running is not None
            and worker.running[0].token.procedure != bystander
            and self.present.get(self.of(id)) is False
        ]
        return min(running)[1] if running else None

    def depart(self) -> None:
        """One of the hosts leaves at once, or is to drain."""
        self._departures -= 1
        names = [name for name, drains in self.present.items() if not drains]
        name = self._hunted if self._world.scenario.hunted else names[self._world.pick(len(names))]
        assert name is not None
        if self._world.random() < (0.05 if self._world.scenario.hunted else 0.5):
            self.present[name] = True
            self._world.inbox.append(HostDraining(name))
            return
        there = [worker for worker in self._workers.live.values() if self.of(worker.id) == name]
        self._leave(name)
        for worker in there:
            self._workers.kill(worker, "host-lost", crashed=worker.running is not None)

    def drained(self) -> str | None:
        """A host that drains and has no worker any more."""
        there = {self.of(worker) for worker in self._workers.live}
        return next((name for name, drains in self.present.items() if drains and name not in there), None)

    def end_drain(self) -> None:
        """A host that has drained leaves."""
        name = self.drained()
        assert name is not None
        self._leave(name)

    def _leave(self, name: str) -> None:
        del self.present[name]
        self.outdated.pop(name, None)
        self._workers.forget_hired(name)
        self._world.inbox.append(HostRemoved(name))
