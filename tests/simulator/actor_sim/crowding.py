"""More work for fewer workers: steps are to wait in workers' hands, where orders cross each other."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from tests.simulator.generators.scripts import ClientAction, Scenario

__all__ = ["crowded"]

_CROWDS = 0.6
"""Chance that a history is crowded."""
_MOST_COPIES = 2


def crowded(scenario: Scenario, random: Random) -> Scenario:
    """The scenario, mostly with further roots of the same programs, and with fewer workers for them."""
    if random.random() >= _CROWDS:
        return scenario
    roots, actions = dict(scenario.roots), list(scenario.actions)
    for name, program in scenario.roots.items():
        if name == scenario.bystander:
            continue
        for number in range(1 + random.randrange(_MOST_COPIES)):
            copy = f"{name}{number}"
            roots[copy] = program
            actions.insert(random.randrange(len(actions) + 1), ClientAction("submit", (copy,)))
    workers = min(scenario.scheduling.workers, 1 + random.randrange(2))
    scheduling = replace(scenario.scheduling, workers=workers)
    return replace(scenario, roots=roots, actions=tuple(actions), scheduling=scheduling)
