"""Messages between the manager that leads and the agent of a host: envelopes around the frames of workers.

A connection begins with one `HostHello` and its answer, `HostWelcome` or `HostRefused`. All that follows goes through a
session of the link. All of it is typed msgpack: neither end unpickles anything of the other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec

from actorproc.link.resume import LinkFault
from actorproc.model.exact import as_plain
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.events import CrashReport
from actorproc.model.policies import StepLimits
from actorproc.workers.base import WorkerInfo
from actorproc.workers.protocol.frames import DEFAULT_MAX_FRAME, FromWorker, LogLine, ToWorker
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = [
    "HOST_PROTOCOL",
    "LARGEST_HELLO",
    "BootedOnHost",
    "CloseOut",
    "Died",
    "DrainHost",
    "Draining",
    "Exceeded",
    "Farewell",
    "ForgetSpares",
    "FromHost",
    "HeldWorker",
    "HostAnswer",
    "HostHello",
    "HostQuestion",
    "HostRefused",
    "HostWelcome",
    "KillOnHost",
    "Launch",
    "Left",
    "Opened",
    "PoolLost",
    "PoolSettings",
    "Said",
    "Send",
    "StopOnHost",
    "ToHost",
    "WatchOnHost",
    "decode_from_host",
    "decode_hello",
    "decode_reply",
    "decode_to_host",
    "encode_message",
    "lane_of",
    "may_be_dropped",
]

HOST_PROTOCOL = 1
"""Version of these messages and of the frames in them; both ends must have the same."""
LARGEST_HELLO = 16 * 1024 * 1024
"""Bytes of the first message of each end at most."""


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


# ---------------------------------------------------------------- the beginning of a connection
class HeldWorker(_Message, frozen=True, array_like=True, gc=False):
    """A live worker of a host, and the steps that it was given by this leader or an earlier one."""

    worker: WorkerId
    pid: int
    booted: bool
    running: tuple[StepToken, ...] = ()
    """Steps that are not answered; the first one runs, or is about to."""
    answered: tuple[StepToken, ...] = ()
    """Steps whose answer the host still has: the leader that it was sent to may not have stored it."""


class HostHello(_Message, frozen=True, array_like=True, tag="host hello", gc=False):
    """First message of an agent on each connection."""

    protocol: int
    version: str
    """Version of actorproc, for people."""
    python: str
    """Major and minor version of Python, such as "3.11"."""
    instance: str
    """Random text of this start of the agent: the same machine has another one each time."""
    name: str
    """Name of the machine, for people."""
    pid: int
    epoch: int
    """Highest epoch of a leader that it has seen."""
    workers: int
    """Number of workers that it offers."""
    labels: tuple[str, ...] = ()
    resources: dict[str, float] = {}
    code: str = ""
    """Revision of the code as the user names it (`Config.code`); "": the digests of the files say it."""
    digests: dict[str, str] = {}
    """SHA-256 of the file of each type that it knows, by the type's name; a type without a file is not in it."""
    notes: dict[str, str] = {}
    """Facts for people, such as variables of the environment that change what a step finds."""
    draining: bool = False
    session: bytes = b""
    """Session that it wants to resume; empty: none."""
    received: int = 0
    """Frames of this session that it has received."""
    number: int = 0
    """Number that an earlier leader gave to this instance; 0: none."""
    held: tuple[HeldWorker, ...] = ()


class PoolSettings(_Message, frozen=True, array_like=True, gc=False):
    """Settings of the leader that hold for the workers of all hosts, as `LocalPool` has them."""

    max_frame: int = DEFAULT_MAX_FRAME
    max_state: int = 0
    max_call: int = 0
    warm_limit: int = 1024
    log_level: int = 20
    recycle_steps: int | None = None
    recycle_age: float | None = None
    recycle_memory: int | None = None


class HostWelcome(_Message, frozen=True, array_like=True, tag="host welcome", gc=False):
    """Answer of a leader that lets a host in."""

    session: bytes
    resumed: bool
    """The session of the hello goes on. False: a new one begins."""
    received: int
    """Frames of the session that the leader has received; 0 in a new one."""
    number: int
    """Number of the host."""
    name: str
    """Name of the host as people see it."""
    epoch: int
    patience: float
    """Seconds of silence after which the leader takes the host for lost (`Config.host_patience`)."""
    settings: PoolSettings = PoolSettings()
    keep: tuple[WorkerId, ...] = ()
    """In a new session: workers of the hello that live on. The others are killed, without a word."""
    adopted: tuple[StepToken, ...] = ()
    """In a new session: steps of them that count. Another one that runs is killed with its worker, one that waits is
    given back, and an answer of one is forgotten. A kept answer of an adopted one is sent again."""


class HostRefused(_Message, frozen=True, array_like=True, tag="host refused", gc=False):
    """Answer of a leader that does not let a host in."""

    why: str
    kind: str
    """Short name of the reason: "protocol", "python" …"""
    final: bool = False
    """This agent need not ask again."""


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

_T = TypeVar("_T")
_encode = msgspec.msgpack.Encoder(enc_hook=as_plain).encode
_to_host = msgspec.msgpack.Decoder(ToHost)
_from_host = msgspec.msgpack.Decoder(FromHost)
_hello = msgspec.msgpack.Decoder(HostHello)
_reply = msgspec.msgpack.Decoder(HostWelcome | HostRefused)
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_message(message: ToHost | FromHost | HostHello | HostWelcome | HostRefused) -> bytes:
    """A message as bytes.

    Args:
        message: The message.

    Returns:
        The bytes, which the function for its direction decodes.

    Raises:
        LinkFault: It holds what msgpack cannot say, such as a lone surrogate.
    """
    try:
        return _encode(message)
    except (TypeError, ValueError, OverflowError) as error:
        msg = f"a message between host and leader cannot be encoded: {error}"
        raise LinkFault(msg) from error


def decode_to_host(data: bytes) -> ToHost:
    """A message of the leader.

    Args:
        data: The bytes.

    Returns:
        The message.

    Raises:
        LinkFault: They are none.
    """
    found: ToHost = _decoded(_to_host.decode, data)
    return found


def decode_from_host(data: bytes) -> FromHost:
    """A message of an agent.

    Args:
        data: The bytes.

    Returns:
        The message.

    Raises:
        LinkFault: They are none.
    """
    found: FromHost = _decoded(_from_host.decode, data)
    return found


def decode_hello(data: bytes) -> HostHello:
    """The first message of an agent.

    Args:
        data: The bytes.

    Returns:
        The message.

    Raises:
        LinkFault: They are none.
    """
    return _decoded(_hello.decode, data)


def decode_reply(data: bytes) -> HostWelcome | HostRefused:
    """The first message of a leader.

    Args:
        data: The bytes.

    Returns:
        The message.

    Raises:
        LinkFault: They are none.
    """
    found: HostWelcome | HostRefused = _decoded(_reply.decode, data)
    return found


def _decoded(decode: Callable[[bytes], _T], data: bytes) -> _T:
    try:
        return decode(data)
    except _UNREADABLE as error:
        msg = f"{len(data)} bytes of the other end are no message between host and leader: {error}"
        raise LinkFault(msg) from None


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
