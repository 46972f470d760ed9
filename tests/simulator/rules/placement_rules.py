"""Promises about hosts: no step runs on one without its labels, and none gives more than it has (27).

One that was lost with three hosts in a row runs with no other on its host, and none runs on a host that has other code
of its type (27 as well).
"""

from __future__ import annotations

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.slots import host_of
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["PlacementRules"]

_ALONE_FROM = 3
"""Hosts in a row that a step was lost with when it is to run alone."""


class PlacementRules(Judge):
    """Judges by what hosts offered when they joined, what classes ask for, and which worker was on which host."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.demands: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {}
        """Labels and resources by class."""
        self.hosts: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {}
        self.other_code: dict[str, tuple[str, ...]] = {}
        """Types of which a host has other code."""
        self.place: dict[WorkerId, str] = {}
        self.running: dict[str, tuple[StepToken, str, dict[str, float]]] = {}
        """Steps that run, by procedure, with their hosts and what they take there."""
        self.alone: set[str] = set()
        """Procedures of them whose step is to have its host for itself."""

    def on_demand(self, type_name: str, on: tuple[str, ...], resources: dict[str, float]) -> None:
        self.demands[type_name] = on, resources

    def on_host(self, name: str, labels: tuple[str, ...], resources: dict[str, float]) -> None:
        self.hosts[name] = labels, resources

    def on_code(self, name: str, types: tuple[str, ...]) -> None:
        self.other_code[name] = types

    def on_worker_on(self, worker: WorkerId, host: str) -> None:
        self.place[worker] = host

    def on_enter(self, token: StepToken, *_: object) -> None:
        head = self.facts.heads.get(token.procedure)
        if head is None or token.mode is Mode.ASK_ABORT or not self.hosts:
            return
        host = self.place.get(token.worker, "")
        if head.host_losses >= _ALONE_FROM:
            self.alone.add(token.procedure)
        beside = [name for name, other in self.running.items() if other[1] == host and name != token.procedure]
        if beside and self.alone.intersection((token.procedure, *beside)):
            self.say(27, f"{token} and {beside} run on {host!r}, and one of them is to have it for itself")
        if head.type_name in self.other_code.get(host, ()):
            self.say(27, f"{token} runs on {host!r}, which has other code of {head.type_name}")
        on, needs = self.demands.get(head.type_name, ((), {}))
        labels, offered = self.hosts.get(host, ((), {}))
        if not set(on) <= set(labels):
            self.say(27, f"{token} runs on {host!r}, which offers {labels}, and asks for {on}")
        self.running[token.procedure] = token, host, needs
        for name in needs:
            taken = sum(other[2].get(name, 0.0) for other in self.running.values() if other[1] == host)
            if taken > offered.get(name, 0.0) + 1e-6:
                self.say(27, f"with {token} steps take {taken} {name} of {host!r}, which offers {offered}")

    def on_exit(self, token: StepToken, *_: object) -> None:
        self.running.pop(token.procedure, None)
        self.alone.discard(token.procedure)

    def on_cut(self, token: StepToken) -> None:
        self.running.pop(token.procedure, None)
        self.alone.discard(token.procedure)

    def on_host_died(self) -> None:
        """The manager's own machine and its workers are gone; other hosts outlive it."""
        self.running = {id: run for id, run in self.running.items() if host_of(run[0].worker.slot)}
        self.alone.intersection_update(self.running)
        self.place = {worker: host for worker, host in self.place.items() if host_of(worker.slot)}
