"""The torture of several processes on a database: a short one in every run, its plans, its judge and planted bugs."""

from __future__ import annotations

import os

import msgspec
import pytest

pytest.importorskip("psycopg", reason="needs the extra postgres")
pytest.importorskip("cryptography", reason="needs the extra postgres")

from actorproc.testing.torture.campaign import judge_folder, play
from actorproc.testing.torture.cluster.plan import ClusterFault, ClusterPlan, Strike
from actorproc.testing.torture.cluster.seeded_bugs import CLUSTER_BUGS
from actorproc.testing.torture.plan import Plan, Root
from actorproc.testing.torture.seeded_bugs import SEEDED_BUGS
from tests.databases import database_or_skip

pytestmark = [pytest.mark.processes, pytest.mark.timeout(400)]

SLOW = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 0.7}] * 3}
LONG = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 8.0}]}
LONGER = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 13.0}]}
BRIEF = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 2.0}]}
QUICK = {"type": "errand", "keys": [], "orders": [{"do": "work", "seconds": 0.02}] * 60}
TREE = {
    "type": "errand",
    "keys": [["w", "town/a"]],
    "orders": [
        {"do": "fan", "named": True, "children": [{"type": "journey", "keys": [], "orders": [{"do": "work", "seconds": 0.1}] * 4}] * 2},
        {"do": "work"},
    ],
}  # fmt: skip
PLANTED = bool(os.environ.get("ACTORPROC_PLANTED"))
"""Look for planted bugs, as at night: each takes a dozen seconds."""
TRIES = 3


@pytest.fixture(autouse=True)
def database():
    database_or_skip()


def plan_of(*strikes: Strike, work=SLOW, many: int = 6, agents: int = 2, **options) -> Plan:
    """Some procedures of one kind on two candidates and some hosts."""
    roots = tuple(Root(f"root-{number}", work, ("SUCCESS",)) for number in range(many))
    return Plan(seed=46, roots=roots, lives=(), workers=2, cluster=ClusterPlan(2, agents, strikes), **options)


def test_a_leader_and_a_host_are_killed_and_links_cut_and_no_promise_is_broken(tmp_path):
    strikes = (
        Strike(ClusterFault.LINK_CUT, after=0.3),
        Strike(ClusterFault.LEADER_KILL, after=0.6, seconds=0.1),
        Strike(ClusterFault.AGENT_KILL, after=1.2, seconds=0.1, draw=0.9),
        Strike(ClusterFault.BASE_CRASH, after=1.6),
    )
    plan = plan_of(*strikes)
    plan = msgspec.structs.replace(plan, roots=(*plan.roots[:4], Root("tree", TREE, ("SUCCESS",))))

    episode = play(plan, tmp_path / "episode")

    assert episode.violations == []
    assert {kind for kind, _ in episode.tally.hits} >= {strike.kind for strike in strikes[:2]}
    assert judge_folder(tmp_path / "episode").violations == []


# ------------------------------------------------------------ planted bugs
MIXED = plan_of(Strike(ClusterFault.LINK_BLOCKED, 1.0, 8.0))
MIXED = msgspec.structs.replace(
    MIXED,
    roots=tuple(Root(f"root-{number}", LONG if number < 3 else BRIEF, ("SUCCESS",)) for number in range(6)),
)
BUGS = {
    "a leader does not wait for hosts that it has not met": (
        plan_of(Strike(ClusterFault.LEADER_KILL, 1.0, 0.5), work=LONG),
        {8},
    ),
    "an agent goes on when no leader hears it": (MIXED, {8, 6}),
    "an agent goes on with steps that its leader does not know": (
        plan_of(Strike(ClusterFault.MACHINE_STOP, 1.0, 6.0), work=LONGER, agents=1),
        {8},
    ),
    "a host forgets its answers with their leader": (
        plan_of(Strike(ClusterFault.LEADER_STOP, 1.0, 3.0), work=SLOW, many=8),
        {6, 15},
    ),
    "a leader that stood still may commit": (
        plan_of(Strike(ClusterFault.LEADER_STOP, 1.0, 4.0), work=SLOW, many=10, agents=1),
        {29},
    ),
    "steps are handed out before the commit": (plan_of(work=QUICK, many=8, agents=1), {5, 6}),
}


def test_all_planted_bugs_have_an_episode():
    assert CLUSTER_BUGS.keys() <= BUGS.keys() <= CLUSTER_BUGS.keys() | SEEDED_BUGS.keys()


@pytest.mark.skipif(not PLANTED, reason="at night, with ACTORPROC_PLANTED=1")
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug, tmp_path):
    plan, expected = BUGS[bug]
    plan = msgspec.structs.replace(plan, bug=bug, patience=20.0)
    numbers: set[int] = set()
    for number in range(TRIES):
        episode = play(plan, tmp_path / f"episode-{number}")
        numbers = {violation.number for violation in episode.violations}
        if numbers:
            break
    assert numbers & expected, numbers
    print(f"{bug}: found in episode {number + 1}, as promise {sorted(numbers)}")  # noqa: T201 - shown by -rP


@pytest.mark.skipif(not PLANTED, reason="at night, with ACTORPROC_PLANTED=1")
@pytest.mark.parametrize("bug", BUGS)
def test_without_the_bug_the_same_episode_breaks_no_promise(bug, tmp_path):
    plan, _ = BUGS[bug]
    assert play(plan, tmp_path / "episode").violations == []
