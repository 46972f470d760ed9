"""The beginning of a connection between a host and the manager that leads: a hello and its answer.

A connection begins with one `HostHello` and its answer, `HostWelcome` or `HostRefused`. All that follows goes through a
session of the link (`messages`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from actorproc.model.ids import StepToken, WorkerId
from actorproc.workers.base import PoolSettings
from actorproc.workers.hosts.codec import decoder_of

__all__ = [
    "HOST_PROTOCOL",
    "LARGEST_HELLO",
    "HeldWorker",
    "HostHello",
    "HostRefused",
    "HostWelcome",
    "decode_hello",
    "decode_reply",
]

HOST_PROTOCOL = 1
"""Version of the messages between hosts and leaders and of the frames in them; both ends must have the same."""
LARGEST_HELLO = 16 * 1024 * 1024
"""Bytes of the first message of each end at most."""


class _Message(msgspec.Struct, frozen=True, array_like=True, gc=False):
    pass


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


decode_hello: Callable[[bytes], HostHello] = decoder_of(HostHello)
"""The first message of an agent; raises `LinkFault`."""
decode_reply: Callable[[bytes], HostWelcome | HostRefused] = decoder_of(HostWelcome | HostRefused)
"""The first message of a leader; raises `LinkFault`."""
