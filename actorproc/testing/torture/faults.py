"""Faults of an episode, and the places in the engine's work that they may strike."""

from __future__ import annotations

from enum import StrEnum

import msgspec

__all__ = [
    "HOST_POINTS",
    "IN_TROUBLE",
    "LOG_POINTS",
    "WORKER_POINTS",
    "ClusterFault",
    "ClusterPlan",
    "Fault",
    "FaultPhase",
    "Strike",
    "TortureFault",
]


class TortureFault(StrEnum):
    """One way an episode is disturbed. The values are the rows of the table."""

    WORKER_KILL = "worker killed, any instant"
    WORKER_POINT = "worker killed, named point"
    WORKER_STOP = "worker stopped, continued"
    ANSWER_TWICE = "answer sent twice"
    ANSWER_LATE = "old answer sent again"
    HOST_KILL = "host killed, any instant"
    HOST_POINT = "host killed, named point"
    HOST_STOP = "host stopped, continued"
    BOTH_KILL = "host and workers killed"
    STORM = "host killed while it recovers"
    RESTARTS = "restart storm, each kill"
    EIO_LOST = "commit fails, not applied"
    EIO_APPLIED = "commit fails, yet applied"
    EIO_READ = "read of the store fails"
    DISK_FULL = "disk full for a while"
    SLOW_DISK = "slow disk"
    CLOCK = "wall clock jumps"
    OPERATOR_KILL = "attempt killed by an operator"
    RELOAD = "workers replaced one by one"


class FaultPhase(StrEnum):
    """Phase of the engine when a fault struck. The values are the columns of the table."""

    STARTING = "starting"
    RECOVERING = "recovering"
    EXECUTING = "executing"
    ANSWERING = "answering"
    """A step has ended in its worker, and the host has not heard of it."""
    HEARD = "heard"
    """The host has heard of a result and does not commit it yet."""
    COMMITTING = "committing"
    ACTING = "acting"
    """A commit is durable; what follows from it is on its way."""
    UNDOING = "undoing"
    WAITING = "waiting"
    """Work is there, no step runs: it sleeps, waits for an event, for a lock or for a worker."""
    TROUBLE = "trouble"
    """A commit or a read failed, and the store is being opened again."""
    STOPPING = "stopping"
    IDLE = "idle"
    """Nothing was hit: the fault does not count."""


WORKER_POINTS = ("before", "begin", "mid", "end", "half-answer", "answered")
"""Before the step does anything, at its begin, after its effect, at its end, half-way through the answer, after it."""

HOST_POINTS = (
    "owned",
    "loaded",
    "heard",
    "before-commit",
    "after-commit",
    "before-send",
    "after-send",
    "reopening",
    "stopping",
)
"""After the store was owned or read; at a result; around a commit, or the sending of steps; while a failed store is
opened again; during an orderly stop."""

LOG_POINTS = ("appended", "checkpoint-begun", "checkpoint-half", "checkpoint-done")
"""After a commit was put into the log, before its sync; before and after a checkpoint writes its rows, and after it."""


IN_TROUBLE = "in trouble"
"""Of a worker's kill from outside: as soon as a commit has failed, while the store is opened again."""


class Fault(msgspec.Struct, frozen=True, omit_defaults=True):
    """One planned fault of one life."""

    kind: TortureFault
    after: float = 0.0
    """Seconds after the host is up; of `STORM` and `RESTARTS`: after the store is owned."""
    point: str = ""
    nth: int = 0
    """Of faults in the host: at which passage of the point, commit or read, counted in this life."""
    seconds: float = 0.0
    """Seconds that a stop, a full disk, or one commit of a slow disk lasts; of a clock: the size of its jump."""
    times: int = 1
    """Commits of a slow disk."""
    draw: float = 0.0
    """Chooses the victim among those there are: from 0 to 1."""


# ------------------------------------------------------------ several processes on a database
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
