"""Plan of an episode of several processes, drawn from its seed: work, candidates, hosts, and the faults that strike."""

from __future__ import annotations

from random import Random
from typing import Any

import msgspec

from actorproc.testing.torture.faults import ClusterFault, ClusterPlan, Strike
from actorproc.testing.torture.orders.enqueueing import draw_enqueued
from actorproc.testing.torture.orders.tagging import tagged
from actorproc.testing.torture.plan import Plan, Root, draw_root, with_padding

__all__ = ["HOST_PATIENCE", "LEASE", "TESTIMONY", "draw_cluster_plan"]

LEASE = 1.5
"""`Config.lease` of the candidates, in seconds."""
HOST_PATIENCE = 4.0
"""`Config.host_patience` of the candidates, in seconds."""

TESTIMONY = "testimony"
"""File of an episode with what the witness in the database wrote."""


_FREEZES = {
    ClusterFault.LEADER_STOP,
    ClusterFault.LEADER_IN_COMMIT,
    ClusterFault.FOLLOWER_STOP,
    ClusterFault.AGENT_STOP,
    ClusterFault.MACHINE_STOP,
    ClusterFault.LINK_BLOCKED,
    ClusterFault.LINK_HALF,
    ClusterFault.BASE_BLOCKED,
}
"""Faults that are noticed by silence: they last shorter or longer than it takes to be noticed."""
_RATES = {
    ClusterFault.LEADER_KILL: 5,
    ClusterFault.LEADER_STOP: 3,
    ClusterFault.LEADER_IN_COMMIT: 2,
    ClusterFault.FOLLOWER_KILL: 1,
    ClusterFault.FOLLOWER_STOP: 1,
    ClusterFault.AGENT_KILL: 3,
    ClusterFault.AGENT_STOP: 2,
    ClusterFault.MACHINE_STOP: 2,
    ClusterFault.WORKER_KILL: 4,
    ClusterFault.WORKER_STOP: 1,
    ClusterFault.LINK_CUT: 4,
    ClusterFault.LINK_SLOW: 1,
    ClusterFault.LINK_BLOCKED: 3,
    ClusterFault.LINK_HALF: 3,
    ClusterFault.BASE_CRASH: 2,
    ClusterFault.BASE_AWAY: 1,
    ClusterFault.BASE_SESSIONS: 2,
    ClusterFault.BASE_BLOCKED: 2,
    ClusterFault.BASE_SLOW: 1,
    ClusterFault.HOST_DRAIN: 2,
    ClusterFault.STEP_DOWN: 2,
    ClusterFault.RELOAD: 1,
}
"""Weight of each in the draw."""


def draw_cluster_plan(seed: int, *, bug: str = "", patience: float = 90.0) -> Plan:
    """The plan of a seed for several processes on a database, always the same."""
    chance = Random(f"cluster of {seed}")
    seconds = round(chance.uniform(2.0, 8.0), 3)
    roots = [draw_root(chance, number, is_small=False) for number in range(chance.randint(3, 6))]
    roots += [Root(f"slow-{number}", _slow(chance), ("SUCCESS",)) for number in range(chance.randint(2, 4))]
    roots = [
        msgspec.structs.replace(root, after=round(chance.uniform(0.0, 0.8 * seconds), 3), insists=True)
        for root in roots
    ]
    tags = Random(f"tags of {seed}")
    roots = [msgspec.structs.replace(root, spec=tagged(tags, root.spec)) for root in roots]
    enqueued = _enqueued(Random(f"enqueued of {seed}"), seconds)
    return Plan(
        seed=seed,
        roots=(*with_padding(chance, tuple(roots)), *enqueued),
        lives=(),
        workers=chance.randint(1, 2),
        bug=bug,
        patience=patience,
        cluster=_cluster(chance, seconds),
    )


def _cluster(chance: Random, seconds: float) -> ClusterPlan:
    """Processes and faults of one episode, in which faults strike for so many seconds."""
    strikes = [_strike(chance, seconds) for _ in range(chance.randint(3, 8))]
    return ClusterPlan(
        candidates=chance.choice((2, 2, 3)),
        agents=chance.choice((2, 2, 3)),
        strikes=tuple(sorted(strikes, key=lambda strike: strike.after)),
    )


def _strike(chance: Random, seconds: float) -> Strike:
    kind = chance.choices(list(_RATES), list(_RATES.values()))[0]
    lasts = chance.uniform(0.1, 1.0)
    if kind in _FREEZES and chance.random() < 0.6:
        lasts = chance.uniform(LEASE, 2 * HOST_PATIENCE)
    return Strike(
        kind, after=round(chance.uniform(0.0, seconds), 3), seconds=round(lasts, 3), draw=round(chance.random(), 4)
    )


def _enqueued(chance: Random, seconds: float) -> list[Root]:
    """Roots that applications enqueue; drawn apart, so a plan stays what its seed gave before."""
    roots = []
    for number in range(chance.randint(3, 10)):
        spec, terms = draw_enqueued(chance)
        after = round(chance.uniform(0.0, 0.8 * seconds), 3)
        roots.append(Root(f"enqueued-{number}", spec, ("SUCCESS",), after, enqueue=terms))
    return roots


def _slow(chance: Random) -> dict[str, Any]:
    """A procedure of steps so long that faults meet them."""
    many = chance.randint(2, 4)
    orders = [{"do": "work", "seconds": round(chance.uniform(0.2, 2.5), 3)} for _ in range(many)]
    return {"type": "errand", "orders": orders, "keys": []}
