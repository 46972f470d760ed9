"""Messages of a session between the manager that leads and the agent of a host: envelopes around the frames of workers.

The hello and its answer, with which each connection begins, are in `handshake`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from actorproc.model.crash_report import HOST_LOST, CrashReport
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.policies import StepLimits
from actorproc.workers.base import WorkerInfo
from actorproc.workers.hosts.codec import decoder_of
from actorproc.workers.link.resume import LinkFault
from actorproc.workers.protocol.frames import FromWorker, LogLine, ToWorker
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = [
    "BootedOnHost",
    "CloseOut",
    "Died",
    "DrainHost",
    "Draining",
    "Exceeded",
    "Farewell",
    "ForgetSpares",
    "FromHost",
    "HostAnswer",
    "HostQuestion",
    "KillOnHost",
    "Launch",
    "Left",
    "Opened",
    "PoolLost",
    "Said",
    "Send",
    "StopOnHost",
    "ToHost",
    "WatchOnHost",
    "decode_from_host",
    "decode_to_host",
    "lane_of",
    "may_be_dropped",
    "must_arrive",
]


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


# ---------------------------------------------------------------- leader to host
class Launch(_Message, frozen=True, array_like=True, tag="launch", gc=False):
    """Start a worker; ends in `BootedOnHost` or `Died`."""

    worker: WorkerId
    replace: bool = False
    """A spare may take its place when it dies in a step."""


class Send(_Message, frozen=True, array_like=True, tag="send", gc=False):
    """Messages for a worker. For a dead or unknown one they are dropped."""

    worker: WorkerId
    messages: list[ToWorker]


class StopOnHost(_Message, frozen=True, array_like=True, tag="stop", gc=False):
    """Ask a worker for an orderly end after the running step."""

    worker: WorkerId


class KillOnHost(_Message, frozen=True, array_like=True, tag="kill", gc=False):
    """Kill a worker, as `WorkerPool.kill` does."""

    worker: WorkerId
    grace: float = 0.0
    blamed: StepToken | None = None
    reason: str = ""
    kind: str = ""
    ask: bool = True


class WatchOnHost(_Message, frozen=True, array_like=True, tag="watch", gc=False):
    """Sample what a running step uses, as `WorkerPool.watch` does."""

    worker: WorkerId
    token: StepToken
    limits: StepLimits


class ForgetSpares(_Message, frozen=True, array_like=True, tag="forget spares", gc=False):
    """End the processes that wait to replace a worker."""


class HostQuestion(_Message, frozen=True, array_like=True, tag="question", gc=False):
    """A question to the host; `HostAnswer` repeats the number."""

    number: int
    kind: str
    """"stack" of a step, "facts" of all workers, "logs" of a procedure."""
    token: StepToken | None = None
    procedure: str = ""
    timeout: float = 5.0


class DrainHost(_Message, frozen=True, array_like=True, tag="drain", gc=False):
    """Leave: no further step comes, and the agent ends when the leader has closed it out."""

    reason: str = ""


class Farewell(_Message, frozen=True, array_like=True, tag="farewell", gc=False):
    """This leader leads no more: keep the workers, and look for the next one."""

    reason: str = ""


class CloseOut(_Message, frozen=True, array_like=True, tag="close out", gc=False):
    """Stop all workers in order, and kill those that are left after the timeout; ends in `Left`."""

    timeout: float


# ---------------------------------------------------------------- host to leader
class Opened(_Message, frozen=True, array_like=True, tag="opened", gc=False):
    """First message of a new session: the host takes workers from now on."""

    limits: str
    """Enforcement of memory limits: "cgroup", "rlimit" or "none"."""
    process_limits: str
    """Protection against a fork bomb: "cgroup", "rlimit", "sampling" or "none"."""


class BootedOnHost(_Message, frozen=True, array_like=True, tag="booted", gc=False):
    """A worker is ready."""

    worker: WorkerId
    pid: int


class Said(_Message, frozen=True, array_like=True, tag="said", gc=False):
    """Messages of a worker, in order."""

    worker: WorkerId
    messages: list[FromWorker]


class Died(_Message, frozen=True, array_like=True, tag="died", gc=False):
    """A worker is reaped, and all that it said was sent before."""

    worker: WorkerId
    report: CrashReport
    booted: bool
    successor: WorkerId | None = None
    """A spare that took its place at once; its `BootedOnHost` follows."""


class Exceeded(_Message, frozen=True, array_like=True, tag="exceeded", gc=False):
    """A watched step uses more than it may."""

    worker: WorkerId
    token: StepToken
    kind: str
    why: str


class PoolLost(_Message, frozen=True, array_like=True, tag="pool lost", gc=False):
    """The pool of the host failed by a bug: its workers are dead, none of them is told of."""

    why: str


class HostAnswer(_Message, frozen=True, array_like=True, tag="answer", gc=False):
    """Answer to a `HostQuestion`."""

    number: int
    stack: str = ""
    facts: list[tuple[WorkerId, WorkerInfo]] = []
    logs: list[LogEntry] = []


class Draining(_Message, frozen=True, array_like=True, tag="draining", gc=False):
    """The host wants to leave: it was told to end. Hand out no further step, and close it out."""

    reason: str


class Left(_Message, frozen=True, array_like=True, tag="left", gc=False):
    """The last message of a host that was closed out."""

    reason: str = ""


ToHost = (
    Launch
    | Send
    | StopOnHost
    | KillOnHost
    | WatchOnHost
    | ForgetSpares
    | HostQuestion
    | DrainHost
    | Farewell
    | CloseOut
)
FromHost = Opened | BootedOnHost | Said | Died | Exceeded | PoolLost | HostAnswer | Draining | Left

decode_to_host: Callable[[bytes], ToHost] = decoder_of(ToHost)
"""A message of the leader; raises `LinkFault`."""
decode_from_host: Callable[[bytes], FromHost] = decoder_of(FromHost)
"""A message of an agent; raises `LinkFault`."""


def lane_of(message: Any) -> int:
    """Lane of the link on which a message goes: those of one worker slot keep their order.

    Args:
        message: A message in either direction.

    Returns:
        The number of the lane; 0 for what concerns no worker.
    """
    worker = getattr(message, "worker", None)
    return 0 if worker is None else worker.slot + 1


def may_be_dropped(message: FromHost) -> bool:
    """True for what may be lost where a link takes too little: log records.

    Args:
        message: The message.
    """
    return type(message) is Said and all(type(part) is LogLine for part in message.messages)


def must_arrive(data: bytes) -> bool:
    """True for what a host that ends must not take along: answers of steps with their notes and values, and crashes.

    Silence tells the leader all the rest.

    Args:
        data: A message to the leader; a part of one, which is long, must arrive.
    """
    try:
        message = decode_from_host(data)
    except LinkFault:
        return True
    if isinstance(message, Died):
        return message.report.kind != HOST_LOST
    return isinstance(message, Said) and not may_be_dropped(message)
