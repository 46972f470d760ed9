"""Signatures over what is pickled; they are checked before anything is decoded, for unpickling runs code.

A signature is HMAC-SHA256 with a key of this store, over what the bytes are for and the bytes: ``state`` of a type and
a procedure, ``result`` or ``exception`` of a call. Before it stands the id of the key, so that a new key can sign while
what an old one signed is still accepted. It does not say when something was signed: an older state of the same
procedure, put in the place of a newer one, has a signature that is right.
"""

from __future__ import annotations

import functools
import pickle
import struct
from collections.abc import Sequence
from typing import Any

import msgspec

from actorproc.errors import StateNotEncodable
from actorproc.procedure.codec import check_size
from actorproc.procedure.failures import in_words
from actorproc.procedure.pickles import LARGE, pickled, unpicklable
from actorproc.procedure.state import StateRefused

__all__ = ["SigningKey", "content_of", "opened", "seal", "signed_state", "verified"]

SigningKey = bytes | tuple[bytes, ...]
"""One key, or several, of which the first signs and all verify."""

_ID_SIZE = 8
_SIZE = _ID_SIZE + 32
"""An id and an HMAC-SHA256."""
_BIN_32 = struct.Struct(">BI")
_BIN_32_CODE = 0xC6
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode


def signed_state(values: dict[str, Any], type_name: str, procedure: str, key: SigningKey | None) -> bytes:
    """The msgpack of the pickled fields behind their signature. Raises `StateNotEncodable` or `StateTooLarge`."""
    try:
        parts = pickled(values, values.values())
    except Exception as error:
        # __reduce__ and __getstate__ are user code and raise what they like.
        field = unpicklable(values)
        msg = f"{type_name if field is None else f'{type_name}.{field}'} cannot be pickled: {in_words(error)}"
        raise StateNotEncodable(msg) from error
    size = sum(map(len, parts))
    check_size(size, type_name)
    signature = _sign(parts, _state_of(type_name, procedure), key)
    if size < LARGE:
        return _encode(signature + b"".join(parts))
    return b"".join((_BIN_32.pack(_BIN_32_CODE, _SIZE + size), signature, *parts))


def verified(state: bytes, type_name: str, procedure: str, key: SigningKey | None) -> Any:
    """The fields of a signed state. Raises `StateRefused`, without decoding, when the signature does not match."""
    if not key:
        msg = f"the state of {type_name} is pickled, and this manager has no signing key"
        raise StateRefused(msg)
    body = _checked(_signed_in(state), _state_of(type_name, procedure), key, f"pickled state of {type_name}")
    return pickle.loads(body)  # noqa: S301 - signed by us, checked above


def content_of(state: bytes) -> memoryview:
    """What is signed, without the signature, which is another one with every key. It is not checked, nor decoded."""
    return _signed_in(state)[_SIZE:]


def seal(body: bytes, purpose: str, key: SigningKey | None) -> bytes:
    """Bytes behind a signature that holds for this purpose only (a result of one call is none of another)."""
    return _sign((body,), purpose, key) + body


def opened(sealed: object, purpose: str, key: SigningKey | None) -> memoryview:
    """The bytes of `seal`. Raises `StateRefused` when the signature does not match."""
    if not key or not isinstance(sealed, bytes):
        msg = f"the {purpose} is not signed, or there is no key to check it with"
        raise StateRefused(msg)
    return _checked(memoryview(sealed), purpose, key, purpose)


def _signed_in(state: bytes) -> memoryview:
    """The signed bytes in a state, uncopied when there are many; nothing when it holds none."""
    if len(state) > LARGE and _BIN_32.unpack_from(state) == (_BIN_32_CODE, len(state) - _BIN_32.size):
        return memoryview(state)[_BIN_32.size :]
    decoded = _decode(state)
    return memoryview(decoded if isinstance(decoded, bytes) else b"")


def _state_of(type_name: str, procedure: str) -> str:
    # Neither name can hold NUL, and no other purpose does: no two purposes are written the same.
    return f"state\0{type_name}\0{procedure}"


def _sign(parts: Sequence[bytes], purpose: str, key: SigningKey | None) -> bytes:
    assert key, purpose
    newest = key if isinstance(key, bytes) else key[0]
    return _id_of(newest) + _signature(parts, purpose, newest)


def _checked(sealed: memoryview, purpose: str, key: SigningKey, words: str) -> memoryview:
    import hmac  # noqa: PLC0415 - as in `child_id`: most procedures are not pickled

    if len(sealed) >= _SIZE:
        body = sealed[_SIZE:]
        keys = (key,) if isinstance(key, bytes) else key
        signer = next((each for each in keys if _id_of(each) == sealed[:_ID_SIZE]), None)
        if signer and hmac.compare_digest(sealed[_ID_SIZE:_SIZE], _signature((body,), purpose, signer)):
            return body
    msg = (
        f"the {words} has a wrong signature: it was changed, belongs to another procedure, or was signed with a key "
        "that this store does not have"
    )
    raise StateRefused(msg)


@functools.lru_cache(maxsize=64)
def _id_of(key: bytes) -> bytes:
    import hashlib  # noqa: PLC0415

    return hashlib.sha256(b"actorproc key id\0" + key).digest()[:_ID_SIZE]


def _signature(parts: Sequence[bytes | memoryview], purpose: str, key: bytes) -> bytes:
    import hmac  # noqa: PLC0415

    name = purpose.encode() + b"\0"
    if len(parts) == 1 and len(parts[0]) < LARGE:
        # Not hmac.digest: that gives the interpreter lock away, which costs more than the signature among busy threads.
        return hmac.new(key, name + parts[0], "sha256").digest()
    signing = hmac.new(key, name, "sha256")
    for part in parts:
        signing.update(part)
    return signing.digest()
