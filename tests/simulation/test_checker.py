"""The checker itself: each of its rules speaks when a history breaks it. A rule that cannot would be worth nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from actorproc.testing.histories.evidence import StoreDump, Violation
from tests.simulation.doctored import CHANGES, Left
from tests.simulation.test_seeded_bugs import BUGS
from tests.simulator.core_sim.simulation import Simulation, simulate
from tests.simulator.generators import asks, debounces, hosts, schedules
from tests.simulator.generators.editions import FIRST_SEED
from tests.simulator.generators.requests import FIRST_REPORTS, FIRST_RESTARTS
from tests.simulator.rules.invariants import check

RULES = Path(__file__).parents[1] / "simulator" / "rules"
SEEDS = (
    *range(1, 401),
    *(
        first + number
        for first in (FIRST_SEED, FIRST_RESTARTS, FIRST_REPORTS, hosts.FIRST_SEED)
        for number in range(100)
    ),
)
"""Among these histories is one of every kind that is needed."""
_WITH_SCHEDULES = range(schedules.FIRST_SEED, schedules.FIRST_SEED + 60)
_DEBOUNCED = range(debounces.FIRST_SEED, debounces.FIRST_SEED + 60)
_ASKED = range(asks.FIRST_SEED, asks.FIRST_SEED + 60)
RARE = {
    "an ask is answered twice": _ASKED,
    "a reply is of no step": _ASKED,
    "a reply goes without its procedure": _ASKED,
    "a reply is left out": _ASKED,
    "an ask goes to another wait": _ASKED,
    "an ask is taken again": _ASKED,
    "another reply is told": _ASKED,
    "an end is told instead of a reply": _ASKED,
    "a debounced submit counts twice": _DEBOUNCED,
    "a debounced root waits longer": _DEBOUNCED,
    "a debounced root begins early": _DEBOUNCED,
    "two debounced roots wait for a key": _DEBOUNCED,
    "a debounced root begins with an earlier state": _DEBOUNCED,
    "a debounced submit is answered with another run": _DEBOUNCED,
    "a firing comes twice": _WITH_SCHEDULES,
    "a firing comes without its schedule": _WITH_SCHEDULES,
    "a schedule fires behind itself": _WITH_SCHEDULES,
    "a schedule fires between its instants": _WITH_SCHEDULES,
    "a watermark goes back": _WITH_SCHEDULES,
    "a step is alone beside another": range(hosts.FIRST_LONE + 210, hosts.FIRST_LONE + 1000),
    "a step runs where the code is another": range(hosts.FIRST_LONE, hosts.FIRST_LONE + 100),
}
"""Histories among which is one for a change that few others allow."""
PLANTED = 10
"""Histories with each seeded bug."""


@cache
def left_by(seed: int) -> Left:
    """What the history of a seed left, in which nothing is wrong."""
    simulation = Simulation(seed, check_every=1000)
    history = simulation.run()
    assert history.violations == []
    scenario = simulation.world.scenario
    dump = StoreDump.of(simulation.world.store)
    return Left(history.journal, dump, scenario.bystander, scenario.scheduling)


def judged(left: Left) -> list[Violation]:
    return check(left.journal, left.dump, bystander=left.bystander, scheduling=left.scheduling)


@cache
def said_of(name: str) -> list[Violation]:
    """What the checker says of the first history that can be changed so."""
    changed = next(filter(None, map(CHANGES[name][2], map(left_by, RARE.get(name, SEEDS)))))
    return judged(changed)


@pytest.mark.parametrize("name", CHANGES)
def test_a_promise_that_is_broken_on_purpose_is_seen_to_be(name: str) -> None:
    number, words, _ = CHANGES[name]

    assert [violation for violation in said_of(name) if violation.number == number and words in violation.text]


def rules() -> Iterator[tuple[str, int, re.Pattern[str]]]:
    """Each place at which a rule of the checker speaks: where, the number of the promise, and what it says."""
    for path in sorted(RULES.glob("*_rules.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(
                    func=ast.Attribute(attr="say") | ast.Name("Violation"), args=[ast.Constant(number), text]
                ):
                    parts = text.values if isinstance(text, ast.JoinedStr) else [text]
                    words = (re.escape(part.value) if isinstance(part, ast.Constant) else ".*" for part in parts)
                    yield f"{path.name}:{node.lineno}", number, re.compile("".join(words), re.DOTALL)


def test_every_rule_was_seen_to_speak(monkeypatch: pytest.MonkeyPatch) -> None:
    said = [violation for name in CHANGES for violation in said_of(name)]
    for plant in BUGS.values():
        with monkeypatch.context() as patch:
            plant(patch)
            for seed in range(1, PLANTED + 1):
                said += simulate(seed, check_every=1000).violations
    places = list(rules())

    assert len(places) > 60
    silent = [
        f"{place}: {number}: {words.pattern}"
        for place, number, words in places
        if not any(violation.number == number and words.fullmatch(violation.text) for violation in said)
    ]
    assert silent == []
