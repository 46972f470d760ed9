"""Bytes of the messages between a leader and the agent of a host: typed msgpack, of which nothing is unpickled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from actorproc.model.exact import as_plain
from actorproc.workers.link.resume import LinkFault

__all__ = ["decoder_of", "encode_message"]

_encode = msgspec.msgpack.Encoder(enc_hook=as_plain).encode
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def encode_message(message: msgspec.Struct) -> bytes:
    """A message as bytes.

    Args:
        message: One of `handshake` or `messages`.

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


def decoder_of(kind: Any) -> Callable[[bytes], Any]:
    """A function that decodes messages, and raises `LinkFault` for bytes that are none.

    Args:
        kind: The class of the messages, or a union of classes.

    Returns:
        The function.
    """
    decode = msgspec.msgpack.Decoder(kind).decode

    def decoded(data: bytes) -> Any:
        try:
            return decode(data)
        except _UNREADABLE as error:
            msg = f"{len(data)} bytes of the other end are no message between host and leader: {error}"
            raise LinkFault(msg) from None

    return decoded
