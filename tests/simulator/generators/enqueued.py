"""Procedures that an application of a random scenario enqueues, in transactions that commit in any order."""

from __future__ import annotations

from random import Random

import msgspec

from actorproc.model.rows.enqueued import EnqueuedRecord, waiting_key
from actorproc.model.rows.records import IdReuse
from tests.simulator.generators.scripts import ClientAction, Scenario, program_of

__all__ = ["ENQUEUED_TAG", "add_enqueued", "enqueued_row"]

ENQUEUED_TAG = "enqueued"
"""Tag of what is enqueued, and of nothing else."""
_LATEST = 100.0
"""Seconds that a transaction takes at most from its row to its commit."""


def add_enqueued(scenario: Scenario, random: Random) -> Scenario:
    """The scenario with some enqueued procedures among its actions, each with the age of its row."""
    actions = list(scenario.actions)
    roots = [name for name in scenario.roots if name != scenario.bystander]
    draw = random.random
    for number in range(3 + int(draw() * 8)):
        root = roots[int(draw() * len(roots))]
        action = ClientAction("enqueue", (f"enqueued{number}", root, f"{draw() * _LATEST:.3f}"))
        actions.insert(int(draw() * (len(actions) + 1)), action)
    return msgspec.structs.replace(scenario, actions=tuple(actions))


def enqueued_row(scenario: Scenario, action: ClientAction, now: float) -> EnqueuedRecord:
    """The row that an action of this kind writes: that of a transaction which began a while ago."""
    name, root, age = action.targets
    token = name.encode().ljust(8, b"\0")[-8:]
    new = msgspec.structs.replace(
        program_of(name, scenario.roots[root], now=now),
        due_at=None,
        deadline=None,
        trace=None,
        tags=(ENQUEUED_TAG,),
        reuse=IdReuse("error", token),
    )
    at = now - float(age)
    return EnqueuedRecord(key=waiting_key(at, token), at=at, new=new)
