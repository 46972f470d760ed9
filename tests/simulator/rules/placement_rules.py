"""Promises about hosts: no step runs on one without its labels, and none gives more than it has (27)."""

from __future__ import annotations

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["PlacementRules"]


class PlacementRules(Judge):
    """Judges by what hosts offered when they joined, what classes ask for, and which worker was on which host."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.demands: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {}
        """Labels and resources by class."""
        self.hosts: dict[str, tuple[tuple[str, ...], dict[str, float]]] = {}
        self.place: dict[WorkerId, str] = {}
        self.running: dict[str, tuple[StepToken, str, dict[str, float]]] = {}
        """Steps that run, by procedure, with their hosts and what they take there."""

    def on_demand(self, type_name: str, on: tuple[str, ...], resources: dict[str, float]) -> None:
        self.demands[type_name] = on, resources

    def on_host(self, name: str, labels: tuple[str, ...], resources: dict[str, float]) -> None:
        self.hosts[name] = labels, resources

    def on_worker_on(self, worker: WorkerId, host: str) -> None:
        self.place[worker] = host

    def on_enter(self, token: StepToken, *_: object) -> None:
        head = self.facts.heads.get(token.procedure)
        demand = self.demands.get(head.type_name) if head is not None else None
        if demand is None or token.mode is Mode.ASK_ABORT:
            return
        on, needs = demand
        host = self.place.get(token.worker, "")
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

    def on_cut(self, token: StepToken) -> None:
        self.running.pop(token.procedure, None)

    def on_host_died(self) -> None:
        self.running.clear()
        self.place.clear()
