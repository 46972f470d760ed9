"""Asks of a random scenario: roots wait for them, answer most, and are asked again under the same ids.

Drawn from a stream of its own, and only for seeds from `FIRST_SEED` to `LAST_SEED`, so that seeds that were kept before there was
any of this mean what they meant.
"""

from __future__ import annotations

from random import Random

import msgspec

from tests.simulator.generators.scripts import ClientAction, Operation, Program, Scenario

__all__ = ["FIRST_SEED", "LAST_SEED", "add_asks"]

FIRST_SEED, LAST_SEED = 65_000_000_000, 69_999_999_999
"""Seeds of histories that have them."""
_NAMES = ("ask0", "ask1")
_UNSURE = 0.2
"""Chance that the step which takes an ask gives no reply."""


def add_asks(scenario: Scenario, random: Random) -> Scenario:
    """The scenario with roots that wait for asks behind their first step, and with asks to them."""
    draw = random.random
    roots, programs = dict(scenario.roots), dict(scenario.programs)
    names = [name for name in roots if name != scenario.bystander]
    for name in names:
        before = roots[name]
        roots[name] = changed = _asked(before, random)
        if programs.get(before.meta.type_name) is before:
            programs[before.meta.type_name] = changed
    actions = list(scenario.actions)
    ids = [f"{number}" for number in range(4)]
    for _ in range(3 + int(draw() * 8)):
        target, event = names[int(draw() * len(names))], _NAMES[int(draw() * len(_NAMES))]
        asks = [ClientAction("ask", (target, event, ids[int(draw() * len(ids))]))]
        if draw() < 0.1:
            asks.append(ClientAction("withdraw", (target, "id")))
        place = int(draw() * (len(actions) + 1))
        actions[place:place] = [*[ClientAction("nap", ())] * int(draw() * 3), *asks]
    for _ in range(2 + int(draw() * 5)):  # late ones, and the same once more when they may have been answered
        ask = ClientAction("ask", (names[int(draw() * len(names))], _NAMES[int(draw() * 2)], ids[int(draw() * 4)]))
        actions += [ask, *[ClientAction("nap", ())] * (1 + int(draw() * 3)), *([ask] if draw() < 0.7 else [])]
    steps = sum(len(program.operations) for program in programs.values())
    return msgspec.structs.replace(scenario, roots=roots, programs=programs, steps=steps, actions=tuple(actions))


def _asked(program: Program, random: Random) -> Program:
    operations, place = program.operations, 1
    while place < len(operations) and operations[place].unit == operations[0].unit not in {None, ""}:
        place += 1  # no step stands between the repeats of one
    if len(operations) > 6 or place == len(operations):  # names of children have one digit for their step
        return program
    before, asked = operations[0], []
    for number, name in enumerate(_NAMES):
        labels = (before.unit,) * 2 if before.unit in {None, ""} else (f"a{2 * number}", f"a{2 * number + 1}")
        flaky = int(random.random() * 2) if random.random() < 0.3 else 0
        asked += [
            Operation("wait", labels[0], event=name, seconds=0.0 if number else 20.0),
            Operation("go", labels[1], replies=random.random() >= _UNSURE, flaky=flaky),
        ]
    return msgspec.structs.replace(
        program, operations=(*operations[:place], *asked, *operations[place:]), timeout_goes_on=True
    )
