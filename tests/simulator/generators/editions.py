"""Editions of a random scenario beside everything else: new code while procedures are under way.

Workers are replaced one by one, sagas are placed before other steps or find no place, and programs take the results of
calls, which are removed then. Drawn from a stream of its own, and only for seeds from `FIRST_SEED` on, so that seeds
that were kept before there was any of this mean what they meant.
"""

from __future__ import annotations

from random import Random

import msgspec

from tests.simulator.core_sim.faults import FaultKind, FaultPlan
from tests.simulator.generators.scripts import ClientAction, Scenario

__all__ = ["FIRST_SEED", "add_editions", "arm"]

FIRST_SEED = 20_000_000_000
"""The first seed of a history that has them."""
_OPPORTUNITIES = 12
"""A saga is placed anew before this many answers at the latest."""


def add_editions(scenario: Scenario, random: Random) -> Scenario:
    """The scenario with reloads, and with results that are taken."""
    actions = list(scenario.actions)
    roots = [name for name in scenario.roots if name != scenario.bystander]
    for _ in range(int(random.random() * 3)):
        place = 1 + int(random.random() * len(actions))
        actions.insert(place, ClientAction("reload", ()))
    for _ in range(int(random.random() * 4)):
        naps = [ClientAction("nap", ())] * int(random.random() * 10)
        actions += [*naps, ClientAction("taken", (roots[int(random.random() * len(roots))],))]
    return msgspec.structs.replace(scenario, actions=tuple(actions))


def arm(plan: FaultPlan, random: Random) -> None:
    """Sagas of most histories are placed anew, or find no place, at one of their first answers."""
    for kind in (FaultKind.PLACED, FaultKind.UNBEGUN):
        if random.random() < 0.7:
            plan.arm(kind, int(random.random() * _OPPORTUNITIES))
