"""The opt-in "pickle" codec: signed, and the signature is checked before anything is decoded.

Unpickling runs code, so a state is unpickled only when its HMAC-SHA256, over the type's name and the bytes, was made
with the key of this manager.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from actorproc.errors import StateNotEncodable, StateTooLarge
from actorproc.procedure.codec import MAX_STATE
from actorproc.procedure.pickles import LARGE, pickled
from actorproc.procedure.state import StateRefused

__all__ = ["opened", "seal", "signature_in", "signed_state", "verified"]

_SIZE = hashlib.sha256().digest_size
_BIN_32 = struct.Struct(">BI")
_BIN_32_CODE = 0xC6
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def signed_state(values: dict[str, Any], type_name: str, key: bytes | None) -> bytes:
    """The msgpack of the pickled fields behind their signature. Raises `StateNotEncodable` or `StateTooLarge`."""
    assert key is not None, type_name
    try:
        parts = pickled(values, values.values())
    except Exception as error:
        # __reduce__ and __getstate__ are user code and raise what they like.
        msg = f"{type_name} cannot be pickled: {error}"
        raise StateNotEncodable(msg) from error
    size = sum(map(len, parts))
    if size > MAX_STATE:
        msg = f"{type_name} takes {size} bytes; the limit is {MAX_STATE}"
        raise StateTooLarge(msg)
    signature = _signature(parts, type_name, key)
    if size < LARGE:
        return _encode(signature + b"".join(parts))
    return b"".join((_BIN_32.pack(_BIN_32_CODE, _SIZE + size), signature, *parts))


def signature_in(state: bytes) -> bytes:
    """The beginning of a long state, its length and its signature, which nothing else has; b"" for a short one."""
    return state[: _BIN_32.size + _SIZE] if len(state) > LARGE and state[0] == _BIN_32_CODE else b""


def verified(state: bytes, type_name: str, key: bytes | None) -> Any:
    """The fields of a signed state. Raises `StateRefused`, without decoding, when the signature does not match."""
    if key is None:
        msg = f"the state of {type_name} is pickled, and this manager has no signing key"
        raise StateRefused(msg)
    signed: Any = None
    if len(state) > LARGE and _BIN_32.unpack_from(state) == (_BIN_32_CODE, len(state) - _BIN_32.size):
        signed = memoryview(state)[_BIN_32.size :]
    else:
        decoded = _decode(state)
        signed = memoryview(decoded) if isinstance(decoded, bytes) else None
    if signed is None or not hmac.compare_digest(signed[:_SIZE], _signature((signed[_SIZE:],), type_name, key)):
        msg = f"the pickled state of {type_name} has a wrong signature: it was changed, or signed with another key"
        raise StateRefused(msg)
    return pickle.loads(signed[_SIZE:])  # noqa: S301 - signed by us, checked above


def seal(body: bytes, purpose: str, key: bytes | None) -> bytes:
    """Bytes behind a signature that holds for this purpose only (a result of one call is none of another)."""
    assert key is not None, purpose
    return _signature((body,), purpose, key) + body


def opened(sealed: object, purpose: str, key: bytes | None) -> memoryview:
    """The bytes of `seal`. Raises `StateRefused` when the signature does not match."""
    if key is None or not isinstance(sealed, bytes):
        msg = f"the {purpose} is not signed, or there is no key to check it with"
        raise StateRefused(msg)
    body = memoryview(sealed)[_SIZE:]
    if not hmac.compare_digest(sealed[:_SIZE], _signature((body,), purpose, key)):
        msg = f"the {purpose} has a wrong signature: it was changed, or signed with another key"
        raise StateRefused(msg)
    return body


def _signature(parts: Sequence[bytes | memoryview], type_name: str, key: bytes) -> bytes:
    name = type_name.encode() + b"\0"
    if len(parts) == 1 and len(parts[0]) < LARGE:
        # Not hmac.digest: that gives the interpreter lock away, which costs more than the signature among busy threads.
        return hmac.new(key, name + parts[0], "sha256").digest()
    signing = hmac.new(key, name, "sha256")
    for part in parts:
        signing.update(part)
    return signing.digest()
