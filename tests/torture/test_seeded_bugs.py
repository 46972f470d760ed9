"""The torture proves itself: bugs seeded in store, wire, threads and workers of a real engine must be found."""

from __future__ import annotations

import os
from collections.abc import Callable

import msgspec
import pytest

from actorproc.testing.torture.campaign import play
from actorproc.testing.torture.plan import Plan
from actorproc.testing.torture.seeded_bugs import SEEDED_BUGS

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

TRIES = 4
"""Episodes a bug may survive: which worker is faster is not in our hands."""
PATIENCE = 4.0
"""Seconds until work that does not end counts as stuck, and until a host is killed that does not come to its end."""
EXPECTED = {
    "asks that come again count anew": {20},
    "old tags stay in the index of lists": {35},
    "each debounced submit begins a run": {33},
    "attempts that operators kill count as crashes": {22},
    "the end of an earlier generation is told": {14},
    "submits are acknowledged before the commit": {1},
    "steps are handed out before the commit": {5, 6},
    "some commits are never written": {1, 4, 9, 15},
    "a failed commit counts as done": {4, 5, 9},
    "stale answers count": {3, 6, 9},
    "answers are given to other steps": {3, 9, 11, 14, 15},
    "the ends of children are lost": {15},
    "locks are forgotten at a restart": {10},
    "records of one commit are swapped": {4, 9, 15},
    "a refused submit is done all the same": {20},
    "a worker that comes while the disk is full is heard of before the death": {15},
    "a worker goes on with the memory of a failed attempt": {9, 14},
    "workers outlive their host": {18, 15},
    "running steps are not told of their undo": {22},
    "steps that outstay their abort_grace are not killed": {22},
}
"""The promises one of which must be seen broken: what it is first depends on whom the faults meet."""


PLANS = {
    "each debounced submit begins a run": "debounced",
    "old tags stay in the index of lists": "asked",
    "asks that come again count anew": "asked",
    "attempts that operators kill count as crashes": "operated",
    "the end of an earlier generation is told": "operated",
    "a refused submit is done all the same": "refusing",
    "a worker that comes while the disk is full is heard of before the death": "troubled",
    "running steps are not told of their undo": "cancelled",
    "steps that outstay their abort_grace are not killed": "cancelled",
}
"""Fixtures of those that the short episode does not provoke."""


@pytest.mark.parametrize("bug", SEEDED_BUGS)
def test_a_planted_bug_is_found(
    bug: str, request: pytest.FixtureRequest, tmp_path, record_property: Callable[[str, object], None]
) -> None:
    drawn: Plan = request.getfixturevalue(PLANS.get(bug, "short"))
    lives = tuple(msgspec.structs.replace(life, seconds=min(life.seconds, PATIENCE)) for life in drawn.lives)
    plan = msgspec.structs.replace(drawn, bug=bug, patience=PATIENCE, lives=lives)
    faults, numbers = 0, set()

    for number in range(TRIES):
        episode = play(plan, tmp_path / f"episode-{number}")
        faults += episode.tally.faults
        numbers = {violation.number for violation in episode.violations}
        if numbers:
            break

    assert numbers, f"survived {faults} effective faults in {TRIES} episodes"
    assert numbers & EXPECTED[bug]
    print(f"{bug}: found after {faults} effective faults, as promise {sorted(numbers)}")  # noqa: T201 - shown by -rP
    record_property("faults", faults)


def test_no_plant_is_near_a_production_process() -> None:
    assert not [name for name in os.environ if name.startswith("ACTORPROC_TORTURE")]
    assert len(SEEDED_BUGS) >= 6
