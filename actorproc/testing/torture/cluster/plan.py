"""Plan of an episode of several processes: candidates, hosts, and what happens to them and between them."""

from __future__ import annotations

from enum import StrEnum
from random import Random
from typing import Any

import msgspec

__all__ = ["HOST_PATIENCE", "LEASE", "TESTIMONY", "ClusterFault", "ClusterPlan", "Strike", "draw_cluster", "draw_slow"]

LEASE = 1.5
"""`Config.lease` of the candidates, in seconds."""
HOST_PATIENCE = 4.0
"""`Config.host_patience` of the candidates, in seconds."""

TESTIMONY = "testimony"
"""File of an episode with what the witness in the database wrote."""


class ClusterFault(StrEnum):
    """One way an episode is disturbed. The values are the rows of the table."""

    LEADER_KILL = "leader killed"
    LEADER_STOP = "leader stopped, continued"
    LEADER_IN_COMMIT = "leader stopped inside a commit"
    FOLLOWER_KILL = "follower killed"
    FOLLOWER_STOP = "follower stopped, continued"
    AGENT_KILL = "agent killed"
    AGENT_STOP = "agent stopped, continued"
    MACHINE_STOP = "agent and workers stopped"
    WORKER_KILL = "worker killed"
    WORKER_STOP = "worker stopped, continued"
    LINK_CUT = "links cut"
    LINK_SLOW = "links slow"
    LINK_BLOCKED = "links blocked, both ways"
    LINK_HALF = "links blocked, one way"
    BASE_CRASH = "database crashed, restarted"
    BASE_AWAY = "database away for a while"
    BASE_SESSIONS = "sessions of the database ended"
    BASE_BLOCKED = "leader cut off from the database"
    BASE_SLOW = "database slow for the leader"
    HOST_DRAIN = "host drained, another joins"
    STEP_DOWN = "leader steps down"
    RELOAD = "workers replaced one by one"


class Strike(msgspec.Struct, frozen=True, omit_defaults=True):
    """One planned fault."""

    kind: ClusterFault
    after: float
    """Seconds after the cluster is up."""
    seconds: float = 0.0
    """Seconds that it lasts; of what is killed: until it is started again."""
    draw: float = 0.0
    """Chooses the victim among those there are: from 0 to 1."""


class ClusterPlan(msgspec.Struct, frozen=True, omit_defaults=True):
    """Processes of an episode, and the faults that strike them."""

    candidates: int
    agents: int
    strikes: tuple[Strike, ...] = ()


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


def draw_cluster(chance: Random, seconds: float) -> ClusterPlan:
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


def draw_slow(chance: Random) -> dict[str, Any]:
    """A procedure of steps so long that faults meet them."""
    many = chance.randint(2, 4)
    orders = [{"do": "work", "seconds": round(chance.uniform(0.2, 2.5), 3)} for _ in range(many)]
    return {"type": "errand", "orders": orders, "keys": []}
