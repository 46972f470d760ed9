"""The pool of the simulated manager that leads: the real one, whose sending and killing leaves a journal."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from actorproc.engine.messages import Claimed, ClaimHost
from actorproc.model.ids import HeldSteps, StepToken, WorkerId
from actorproc.model.slots import host_of, is_dedicated
from actorproc.workers.base import PoolSettings
from actorproc.workers.hosts.pool import HostedPool
from actorproc.workers.hosts.remote_host import RemoteHost
from actorproc.workers.protocol.frames import AbortAsked, CancelStep, Run, ToWorker
from tests.simulator.actor_sim.pool import judge_kill_of_task, note_cancelled, note_fence, note_sent

if TYPE_CHECKING:
    from tests.simulator.actor_sim.fleet.machines import Fleet
    from tests.simulator.actor_sim.host import SimulatedHost

__all__ = ["LeaderPool"]

_LATE = 0.1
"""Chance that the answer to the claim of a host comes too late."""


class LeaderPool(HostedPool):
    """Workers of the manager's own machine and of the hosts that have joined it."""

    def __init__(self, host: SimulatedHost, fleet: Fleet, epoch: int) -> None:
        super().__init__(host.pool, epoch=epoch, settings=PoolSettings(), patience=fleet.patience)
        self._host = host
        self._fleet = fleet
        self.claims = self._claim
        self.open(host.worker_event)

    def _claim(self, number: int, slots: int, held: tuple[HeldSteps, ...]) -> Claimed:
        """As the engine asks the manager, while everything else goes on."""
        answer: Future[Claimed] = Future()
        self._host.tell(ClaimHost(number, slots, f"h{number}", held, answer))
        while not answer.done():
            self._fleet.go_on()
        if self._fleet.hazards.strikes(_LATE):
            self._fleet.world.journal.append(("claim-late", number))
            raise TimeoutError("the manager did not answer in time")
        keep, adopted = answer.result()
        self._fleet.world.journal.append(("claimed", number, keep, adopted))
        return keep, adopted

    def _arrived(self, host: RemoteHost) -> bool:
        is_there = super()._arrived(host)
        host.arrived_at = self._fleet.clock.monotonic()
        return is_there

    # ------------------------------------------------------------ what the journal tells
    def launch(self, worker: WorkerId, *, replace: bool = False) -> None:
        """Start a worker on the machine of its slot."""
        if host_of(worker.slot) and is_dedicated(worker.slot):
            self._fleet.world.journal.append(("hired", worker))
        super().launch(worker, replace=replace)

    def send(self, worker: WorkerId, messages: Sequence[ToWorker]) -> None:
        """Send messages to a worker."""
        if self._has(worker):
            journal = self._fleet.world.journal
            for message in messages:
                if isinstance(message, Run):
                    command = self._fleet.commands[message.token] = self._host.command_of(message.token)
                    note_fence(self._fleet.world, message)
                    note_sent(self._fleet.world, command, message)
                elif isinstance(message, AbortAsked):
                    journal.append(("ask-abort", message.token))
                elif isinstance(message, CancelStep):
                    note_cancelled(self._fleet.world, journal.append, message)
        super().send(worker, messages)

    def _has(self, worker: WorkerId) -> bool:
        """A host that is there has this worker: else what is sent to it is dropped."""
        host = self._hosts.get(host_of(worker.slot))
        return host is not None and worker in host.workers

    def kill(self, worker: WorkerId, *, blamed: StepToken | None = None, reason: str = "", **how: Any) -> None:
        """Have a worker killed by its machine."""
        if blamed is not None and self._has(worker):
            self._fleet.world.journal.append(("kill", blamed, reason))
            judge_kill_of_task(self._fleet.world, self._fleet.commands.get(blamed), how.get("kind", ""))
        super().kill(worker, blamed=blamed, reason=reason, **how)
