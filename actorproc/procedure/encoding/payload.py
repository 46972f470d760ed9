"""Payloads of signals and events as bytes: whatever a state may hold, when the class that will take it is not at hand.

The bytes name the classes of a payload. Only the classes of whichever procedure takes it are looked up to decode them,
so a payload is data like any other, and nothing it names is ever imported.
"""

from __future__ import annotations

from enum import Enum

from actorproc.errors import StateNotEncodable
from actorproc.procedure.values.codec import PLAIN, DataCodec
from actorproc.procedure.values.fields import declared_fields

__all__ = ["encode_payload", "plain_payload"]

_WHAT = "payload"


def encode_payload(value: object) -> bytes:
    """A payload as bytes, for a procedure whose class is not known. Raises `StateNotEncodable` or `StateTooLarge`.

    Classes whose values a state may hold are written by name: dataclasses, attrs classes, msgspec Structs, named
    tuples, enums.
    """
    data = plain_payload(value)
    return _OpenCodec().encode(value, _WHAT) if data is None else data


def plain_payload(value: object) -> bytes | None:
    """A payload without classes of a user as bytes; None for any other. Raises `StateTooLarge`."""
    try:
        return PLAIN.encode(value, _WHAT)
    except StateNotEncodable:
        return None


class _OpenCodec(DataCodec):
    """Learns each class when it first meets a value of it. For one value: it would keep the classes of all."""

    def key_of(self, cls: type) -> str:
        if cls not in self.classes and (issubclass(cls, Enum) or declared_fields(cls) is not None):
            DataCodec.__init__(self, self.owner, (*self.classes, cls))  # made anew, with one class more
        return super().key_of(cls)
