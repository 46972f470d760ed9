"""Asks: signals that wait for a reply, and the replies. An ask has its name and id before its payload.

So an ask is kept, taken, lost and found as every signal is, wherever its payload goes. `enclosed` puts the name and the
id before the payload, and `opened` takes them off.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

import msgspec

__all__ = ["AskKey", "ReplyRecord", "ask_of", "enclosed", "is_sound", "opened", "rewritten", "settled"]

_START = b"\xc1"
"""A byte that begins no msgpack, and so no payload."""
_HEADER = struct.Struct(">cBHH")
_OPEN, _SETTLED = 1, 2


class AskKey(NamedTuple):
    """Identity of an ask to a procedure."""

    name: str
    """The event that the procedure has to wait for so as to take it."""
    id: str
    """Text by which it is known when it comes again; without NUL."""

    @property
    def mark(self) -> str:
        """Text that no other ask to the procedure has, and no signal with an id."""
        return f"\0{self.id}\0{self.name}"


class ReplyRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The reply to an ask, stored with the success of the step that took it."""

    procedure: str
    name: str
    ask: str
    """Id of the ask."""
    value: bytes
    """The encoded value; "": the step gave none."""
    at: float = 0.0
    """Epoch seconds: time of the decision to store it."""
    step: int = 0
    """Number of the step that took the ask."""

    @property
    def mark(self) -> str:
        """As `AskKey.mark`."""
        return AskKey(self.name, self.ask).mark


def enclosed(ask: AskKey, payload: bytes) -> bytes:
    """The payload of an ask as it is stored."""
    name, id_ = ask.name.encode(), ask.id.encode()
    return b"".join((_HEADER.pack(_START, _OPEN, len(name), len(id_)), name, id_, payload))


def opened(payload: bytes) -> tuple[AskKey | None, bytes]:
    """The ask that a stored payload is of, and the payload as it was sent; None: of a mere signal, or of an event.

    One that is cut short or damaged is of none, so that its readers say that it cannot be decoded.
    """
    start = _HEADER.size
    if not payload.startswith(_START) or len(payload) < start:
        return None, payload
    _, _, name, id_ = _HEADER.unpack_from(payload)
    middle, end = start + name, start + name + id_
    try:
        ask = AskKey(payload[start:middle].decode(), payload[middle:end].decode())
    except UnicodeDecodeError:
        return None, payload
    return (ask, payload[end:]) if len(payload) >= end else (None, payload)


def is_sound(payload: bytes) -> bool:
    """True if a payload from elsewhere can be opened: one of ours always can."""
    ask, value = opened(payload)
    if ask is None:
        return not payload.startswith(_START)
    is_whole = enclosed(ask, value) == payload[:1] + bytes((_OPEN,)) + payload[2:]
    return is_whole and bool(ask.name and ask.id) and "\0" not in ask.id


def ask_of(payload: bytes | None) -> AskKey | None:
    """The ask that the step with this payload has to answer; None: it has none, or has answered it before."""
    if payload is None or not payload.startswith(bytes((*_START, _OPEN))):
        return None
    return opened(payload)[0]


def settled(payload: bytes | None) -> bytes | None:
    """The payload for a step that runs once more although its first reply counts."""
    if payload is None or not payload.startswith(_START):
        return payload
    return payload[:1] + bytes((_SETTLED,)) + payload[2:]


def rewritten(payload: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The stored payload with another value in it, of the same ask."""
    ask, value = opened(payload) if payload else (None, payload)
    if ask is None:
        return change(payload)
    return payload[: len(payload) - len(value)] + change(value)
