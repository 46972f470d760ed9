"""Hosts of a random scenario beside everything else: labels and resources that they offer, and that classes ask for.

Drawn from a stream of its own, and only for seeds from `FIRST_SEED` on, so that seeds that were kept before there were
any hosts mean what they meant.
"""

from __future__ import annotations

from random import Random

import msgspec

from tests.simulator.generators.scripts import HostOffer, Scenario

__all__ = ["FIRST_LONE", "FIRST_SEED", "add_hosts", "with_hosts"]

FIRST_SEED = 80_000_000_000
"""The first seed of a history that has them."""
FIRST_LONE = 85_000_000_000
"""The first seed of a history in which a procedure loses host after host, so that it runs alone on one."""
_LOSSES = 24
_DIVIDED = 0.4
"""Chance that hosts in such a history have other code of some types now and then."""
_OFFERS = (
    HostOffer("cpus"),
    HostOffer("gpus", ("gpu",), {"gpu": 2.0, "disk": 1.0}),
    HostOffer("one-gpu", ("gpu", "ssd"), {"gpu": 1.0}),
    HostOffer("disks", ("ssd",), {"disk": 0.5}),
)
_EACH = 2
"""Workers of a host, at least."""
_DEMANDS: tuple[tuple[tuple[str, ...], dict[str, float]], ...] = (
    (("gpu",), {}),
    (("gpu",), {"gpu": 1.0}),
    (("gpu",), {"gpu": 2.0}),
    (("gpu", "ssd"), {"gpu": 0.3}),
    ((), {"disk": 0.5}),
    (("ssd",), {}),
)
"""Each is offered by a host of `_OFFERS[1:3]`."""


def add_hosts(scenario: Scenario, random: Random, *, hunted: bool = False) -> Scenario:
    """The scenario, every second time with hosts, all workers spread over them, and classes that ask for some.

    Where a procedure is hunted there are always hosts.
    """
    if random.random() < 0.5 and not hunted:
        return scenario
    offers = _OFFERS[1:3] if hunted else _OFFERS  # few, so that others are beside the one that is to run alone
    slots = max(0 if hunted else scenario.slots, _EACH * len(offers))
    programs = dict(scenario.programs)
    others = {scenario.roots[scenario.bystander].meta.type_name} if scenario.bystander is not None else set()
    for name in sorted(programs.keys() - others):
        if random.random() < (0.2 if hunted else 0.5):
            on, resources = _DEMANDS[int(random.random() * len(_DEMANDS))]
            meta = msgspec.structs.replace(programs[name].meta, on=on, resources=resources)
            programs[name] = msgspec.structs.replace(programs[name], meta=meta)
    # Each host keeps its workers: their number is no matter of the core.
    scheduling = msgspec.structs.replace(scenario.scheduling, workers=0, max_workers=0)
    actions = tuple(action for action in scenario.actions if action.kind != "resize")
    return msgspec.structs.replace(
        scenario,
        actions=actions,
        slots=slots,
        scheduling=scheduling,
        programs=programs,
        hosts=offers,
        departures=_LOSSES if hunted else int(random.random() * 4),
        hunted=hunted,
        divided=tuple(sorted(programs.keys() - others)) if hunted and random.random() < _DIVIDED else (),
    )


def with_hosts(scenario: Scenario, random: Random) -> Scenario:
    """The scenario with two or three worker hosts beside the manager's own machine, and classes that ask for some.

    The manager's machine keeps the workers that it has, which may be none.
    """
    programs = dict(scenario.programs)
    others = {scenario.roots[scenario.bystander].meta.type_name} if scenario.bystander is not None else set()
    for name in sorted(programs.keys() - others):
        if random.random() < 0.4:
            on, resources = _DEMANDS[int(random.random() * len(_DEMANDS))]
            meta = msgspec.structs.replace(programs[name].meta, on=on, resources=resources)
            programs[name] = msgspec.structs.replace(programs[name], meta=meta)
    offers = _OFFERS[1 : 3 + (random.random() < 0.5)]
    return msgspec.structs.replace(scenario, programs=programs, hosts=offers)
