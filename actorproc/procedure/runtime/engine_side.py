"""The engine's side of the authoring layer, in one place: runtimes, their registry, and values as bytes."""

from __future__ import annotations

from typing import Any

from actorproc.procedure.encoding.payload import encode_payload, plain_payload
from actorproc.procedure.encoding.state import StateRefused
from actorproc.procedure.runtime.registry import TypeRegistry
from actorproc.procedure.runtime.type_runtime import TypeRuntime
from actorproc.procedure.values.codec import PLAIN

__all__ = ["StateRefused", "TypeRegistry", "TypeRuntime", "decode_value", "encode_payload", "plain_payload"]


def decode_value(data: bytes) -> Any:
    """The value of bytes without classes of a user; None for no bytes. Raises `ValueNotDecodable`."""
    return PLAIN.decode(data) if data else None
