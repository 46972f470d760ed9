"""Async steps of a random scenario: classes whose steps run beside each other on the event loop of a worker.

Drawn from a stream of its own, and only for some seeds, so that seeds that were kept before there was any of this mean
what they meant.
"""

from __future__ import annotations

from random import Random

import msgspec

from tests.simulator.generators.scripts import Operation, Program, Scenario

__all__ = ["FIRST_ON_HOSTS", "FIRST_SEED", "add_tasks", "has_tasks"]

FIRST_SEED, _LAST_SEED = 62_000_000_000, 64_999_999_999
"""Seeds of histories that have them."""
FIRST_ON_HOSTS, _LAST_ON_HOSTS = 82_000_000_000, 84_999_999_999
"""Seeds of histories that have them and, every second time, worker hosts."""
_SHARE = 0.6
"""Chance that a class is asynchronous."""
_MOST = 3
"""Steps that may run beside each other, at most."""
_HANGS = 0.15


def has_tasks(seed: int) -> bool:
    """True if the history of this seed has them."""
    return FIRST_SEED <= seed <= _LAST_SEED or FIRST_ON_HOSTS <= seed <= _LAST_ON_HOSTS


def add_tasks(scenario: Scenario, random: Random) -> Scenario:
    """The scenario with asynchronous classes, of which more steps hang: those are cancelled."""
    programs = dict(scenario.programs)
    others = {scenario.roots[scenario.bystander].meta.type_name} if scenario.bystander is not None else set()
    for name in sorted(programs.keys() - others):
        if random.random() < _SHARE:
            programs[name] = _asynchronous(programs[name], random)
    return msgspec.structs.replace(scenario, programs=programs)


def _asynchronous(program: Program, random: Random) -> Program:
    # CPU time and memory are of a whole worker, and so is one that a procedure has for itself.
    meta = msgspec.structs.replace(program.meta, tasks=1 + int(random.random() * _MOST), threads=1, dedicated=False)
    operations = tuple(_hanging(operation, random) for operation in program.operations)
    return msgspec.structs.replace(program, meta=meta, operations=operations)


def _hanging(operation: Operation, random: Random) -> Operation:
    if operation.kind == "go" and random.random() < _HANGS:
        return msgspec.structs.replace(operation, hangs=max(1, operation.hangs))
    return operation
