"""World of one simulated history, shared by its parts: chance, time, faults, the store, the inbox and the journal."""

from __future__ import annotations

from collections import deque
from random import Random
from typing import Literal

from actorproc.model.ids import StepToken
from actorproc.model.messages.events import Event
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.store.base import ProcedureStore
from actorproc.store.memory import MemoryStore
from tests.simulator.core_sim.faults import FaultPlan
from tests.simulator.generators import asks, debounces, editions, hosts, schedules
from tests.simulator.generators.extras import enrich
from tests.simulator.generators.features import add_features
from tests.simulator.generators.groups import FIRST_SEED, add_groups
from tests.simulator.generators.programs import make_scenario
from tests.simulator.generators.requests import FIRST_REPORTS
from tests.simulator.generators.scripts import Scenario
from tests.simulator.rules.invariants import Entry, Violation

__all__ = ["EPOCH_START", "Drawn", "HostCrash", "World", "children_seen", "ending_of"]

Drawn = Literal["plain", "extras", "all"]
"""Share of a history that is drawn: old seeds mean what they meant when they were kept."""

EPOCH_START = 1_000_000.0
"""Virtual wall clock at the beginning, in seconds."""


class HostCrash(BaseException):
    """The host process dies here. Nothing that handles errors may go on after it."""


def ending_of(store: ProcedureStore, head: ProcedureRecord) -> tuple[str, ProcedureState, bytes]:
    """Id, state and output of a procedure that has ended, as a reader of the store sees them."""
    closing = store.step(head.id, head.records) if head.state is ProcedureState.SUCCESS else None
    return head.id, head.state, b"" if closing is None else closing.output


def children_seen(store: ProcedureStore, parent: str, since: int) -> tuple[tuple[str, ProcedureState, bytes], ...]:
    """Children as a step sees them, as the manager answers it: those that had finished when it was woken."""
    above = store.procedure(parent)
    assert above is not None
    rows = []
    for link in store.children(parent):
        head = store.procedure(link.child) if link.step >= since else None
        if head is not None and 0 < head.ended_as <= above.seen:
            rows.append(ending_of(store, head))
    return tuple(rows)


def _draw(random: Random, seed: int, drawn: Drawn) -> Scenario:
    scenario = make_scenario(random)
    if drawn != "plain":
        scenario = enrich(scenario, Random(f"extras of {seed}"))
    if drawn == "all" and seed >= FIRST_SEED:
        scenario = add_groups(scenario, Random(f"groups of {seed}"))
    if drawn == "all":
        scenario = add_features(scenario, Random(f"features of {seed}"), Random(f"cancelling of {seed}"))
    if drawn == "all" and seed >= editions.FIRST_SEED:
        scenario = editions.add_editions(scenario, Random(f"editions of {seed}"))
    if drawn == "all" and seed >= hosts.FIRST_SEED:
        scenario = hosts.add_hosts(scenario, Random(f"hosts of {seed}"), hunted=seed >= hosts.FIRST_LONE)
    if drawn == "all" and schedules.FIRST_SEED <= seed < debounces.FIRST_SEED:
        scenario = schedules.add_schedules(scenario, Random(f"schedules of {seed}"))
    if drawn == "all" and seed >= debounces.FIRST_SEED:
        scenario = debounces.add_debounces(scenario, Random(f"debounces of {seed}"))
    if drawn == "all" and asks.FIRST_SEED <= seed <= asks.LAST_SEED:
        scenario = asks.add_asks(scenario, Random(f"asks of {seed}"))
    return scenario


class World:
    """Everything outside the engine's memory. `random` is the only source of chance.

    Without a `scenario` and a `plan` both are drawn by chance: a ``plain`` scenario, one with ``extras``, or one with
    ``all`` features, which an operator disturbs as well.
    """

    def __init__(
        self, seed: int, scenario: Scenario | None = None, plan: FaultPlan | None = None, *, drawn: Drawn = "all"
    ) -> None:
        self.rng = Random(seed)
        self.random = self.rng.random
        self.scenario: Scenario = _draw(self.rng, seed, drawn) if scenario is None else scenario
        self.plan = FaultPlan(self.rng) if plan is None else plan
        if drawn == "all" and seed >= editions.FIRST_SEED:
            editions.arm(self.plan, Random(f"new code of {seed}"))
        self.reports = scenario is not None or (drawn == "all" and seed >= FIRST_REPORTS)
        """Steps show values, and send heartbeats with details."""
        self.now = EPOCH_START
        self.store = MemoryStore()
        self.inbox: deque[Event] = deque()
        self.late: list[Event] = []
        """Answers that arrive when they are not expected any more."""
        self.journal: list[Entry] = []
        self.note_demands()
        self.violations: list[Violation] = []
        self.went_back = False
        """The store has lost durable commits: what the journal says of them holds no more."""
        self.fences: dict[str, tuple[int, StepToken]] = {}
        """By procedure: the last fence that a step of it was sent with."""

    def note_demands(self) -> None:
        """Note labels and resources that classes ask for."""
        for program in self.scenario.programs.values():
            if program.meta.on or program.meta.resources:
                self.journal.append(("demand", program.meta.type_name, program.meta.on, program.meta.resources))

    def violate(self, number: int, text: str) -> None:
        """Record a broken promise that only the simulation can see."""
        self.violations.append(Violation(number, text))

    def read(self) -> None:
        """Read how everything that has ended did end."""
        ended = (head for head in self.store.scan() if head.state in TERMINAL)
        self.journal.append(("read", tuple(ending_of(self.store, head) for head in ended)))

    def pick(self, length: int) -> int:
        """A place in a sequence of this length."""
        return int(self.random() * length)
