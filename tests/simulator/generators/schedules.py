"""Schedules of a random scenario: declared, changed, paused, resumed and removed while everything else goes on.

Drawn from a stream of its own, and only for seeds from `FIRST_SEED` on, so that seeds that were kept before there was
any of this mean what they meant.
"""

from __future__ import annotations

from random import Random
from typing import Literal, cast

import msgspec

from actorproc.model.messages.events import ScheduleDeclared, ScheduleSteered
from actorproc.model.rows.schedules import FIRING_TAG, CatchUp, Overlap, ScheduleRecord
from tests.simulator.generators.scripts import ClientAction, Scenario, program_of

__all__ = ["FIRST_SEED", "LONGEST", "add_schedules", "call_of_schedule"]

FIRST_SEED = 90_000_000_000
"""The first seed of a history that has them."""
LONGEST = 3600.0
"""Seconds after which schedules are removed."""
_OVERLAPS = ("skip", "queue", "cancel-running")
_CATCH_UPS = ("last", "all", "none")


def add_schedules(scenario: Scenario, random: Random) -> Scenario:
    """The scenario with one or two schedules, each of which ends after some instants."""
    actions = list(scenario.actions)
    roots = [name for name in scenario.roots if name != scenario.bystander]
    draw = random.random
    for number in range(1 + int(draw() * 2)):
        root, name = roots[int(draw() * len(roots))], f"schedule{number}"
        overlap, catch_up = _OVERLAPS[int(draw() * 3)], _CATCH_UPS[int(draw() * 3)]
        every, times = str(2 + int(draw() * 30)), str(1 + int(draw() * 5))
        options = (name, root, every, times, overlap, catch_up)
        declared = [ClientAction("schedule", options)]
        if draw() < 0.3:  # again, or with another rule
            changed = every if draw() < 0.5 else str(2 + int(draw() * 30))
            declared.append(ClientAction("schedule", (name, root, changed, *options[3:])))
        verbs = [verb for verb in ("pause", "resume", "remove") if draw() < 0.2]
        declared += [ClientAction("schedule", (name, verb)) for verb in verbs]
        for action in declared:
            naps = [ClientAction("nap", ())] * int(draw() * 4)
            actions += [*naps, action]
        if "pause" in verbs and "remove" not in verbs:
            actions.append(ClientAction("schedule", (name, "resume")))
    return msgspec.structs.replace(scenario, actions=tuple(actions))


def call_of_schedule(
    scenario: Scenario, action: ClientAction, reply: int, now: float
) -> ScheduleDeclared | ScheduleSteered:
    """The call of an action about a schedule."""
    name, what, *options = action.targets
    if not options:
        verb = cast("Literal['pause', 'resume', 'remove']", what)
        return ScheduleSteered(name, verb, reply, "in a test")
    every, times, overlap, catch_up = options
    new = msgspec.structs.replace(
        program_of(name, scenario.roots[what], now=now),
        due_at=None,
        deadline=None,
        trace=None,
        tags=(FIRING_TAG + name,),
    )
    record = ScheduleRecord(
        id=name,
        spec=f"every {every}",
        new=new,
        overlap=cast("Overlap", overlap),
        catch_up=cast("CatchUp", catch_up),
        until=now + float(every) * float(times) + 1.0,
    )
    return ScheduleDeclared(record, reply)
