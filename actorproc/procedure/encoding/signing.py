"""Signatures over what is pickled; they are checked before anything is decoded, for unpickling runs code.

A signature is HMAC-SHA256 with a key of this store, over what the bytes are for and the bytes: ``state`` of a type and
a procedure, ``result`` or ``exception`` of a call. Before it stands the id of the key, so that a new key can sign while
what an old one signed is still accepted. It does not say when something was signed: an older state of the same
procedure, put in the place of a newer one, has a signature that is right.

A long state is signed by its digest, which stands behind the signature. Two submits of an id are compared by the same
digest, so a submit hashes its state once.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from actorproc.errors import StateNotEncodable
from actorproc.procedure.encoding.pickles import LARGE, pickled, unpicklable
from actorproc.procedure.encoding.state import StateRefused
from actorproc.procedure.values.codec import check_size
from actorproc.procedure.values.error_text import in_words
from actorproc.support.digests import (
    BIN_32,
    BIN_32_CODE,
    BY_DIGEST,
    DIGEST_SIZE,
    HEAD_SIZE,
    SIGNATURE_SIZE,
    content_at,
    digest_of_parts,
    is_by_digest,
    sealed_in,
)

if TYPE_CHECKING:
    import hmac

__all__ = ["SigningKey", "content_of", "digest_in", "opened", "seal", "signed_for_another", "signed_state", "verified"]

SigningKey = bytes | tuple[bytes, ...]
"""One key, or several, of which the first signs and all verify."""

_ID_SIZE = 8
_DIGEST_AT = HEAD_SIZE - DIGEST_SIZE
_OF_DIGEST = "sha256 of "
"""Begins the purpose of such a signature, and no other one: it holds for no pickle, whatever that looks like."""
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder().decode
_enveloped = msgspec.msgpack.Decoder(tuple[Any, msgspec.Raw])
_PAIR = b"\x92"
"""First byte of a position and the rest."""


def signed_state(
    values: dict[str, Any], type_name: str, procedure: str, key: SigningKey | None, tail: str = ""
) -> bytes:
    """The msgpack of the pickled fields behind their signature. Raises `StateNotEncodable` or `StateTooLarge`.

    `tail` names a field of bytes that stands behind the pickle, as it is, when it is long, or a tuple of them.
    """
    try:
        parts = _with_tail(values, tail) if tail else pickled(values, values.values())
    except Exception as error:
        # __reduce__ and __getstate__ are user code and raise what they like.
        field = unpicklable(values)
        msg = f"{type_name if field is None else f'{type_name}.{field}'} cannot be pickled: {in_words(error)}"
        raise StateNotEncodable(msg) from error
    check_size(sum(map(len, parts)), type_name, of_call=bool(tail))
    return _signed(parts, _state_of(type_name, procedure), key)


def signed_for_another(state: bytes, type_name: str, procedure: str, other: str, key: SigningKey | None) -> bytes:
    """The state of a procedure, signed as that of the procedure `other`. It is checked, and not decoded.

    Raises `StateRefused`.
    """
    if not key:
        msg = f"the state of {type_name} is pickled, and there is no signing key here"
        raise StateRefused(msg)
    if state[:1] == _PAIR:
        position, payload = _enveloped.decode(state)
        inner = signed_for_another(bytes(payload), type_name, procedure, other, key)
        return _encode((position, msgspec.Raw(inner)))
    body = _checked(_signed_in(state), _state_of(type_name, procedure), key, f"pickled state of {type_name}")
    return _signed([bytes(body)], _state_of(type_name, other), key)


def _signed(parts: Sequence[bytes], purpose: str, key: SigningKey | None) -> bytes:
    size = sum(map(len, parts))
    if size < LARGE:
        return _encode(_sign(parts, purpose, key) + b"".join(parts))
    digest = digest_of_parts(parts)
    head = BY_DIGEST + _sign((digest,), _OF_DIGEST + purpose, key) + digest
    return b"".join((BIN_32.pack(BIN_32_CODE, len(head) + size), head, *parts))


def verified(
    state: bytes | memoryview,
    type_name: str,
    procedure: str,
    key: SigningKey | None,
    tail: str = "",
) -> Any:
    """The fields of a signed state. Raises `StateRefused`, without decoding, when the signature does not match.

    The field `tail` may be a `memoryview`.
    """
    if not key:
        msg = f"the state of {type_name} is pickled, and this manager has no signing key"
        raise StateRefused(msg)
    body = _checked(_signed_in(state), _state_of(type_name, procedure), key, f"pickled state of {type_name}")
    values = pickle.loads(body)  # noqa: S301 - signed by us, checked above
    if tail and type(values[tail]) is int:
        values[tail] = body[len(body) - values[tail] :]
    return values


def content_of(state: bytes | memoryview) -> memoryview:
    """Signed content without the signature, which differs with every key. It is not checked, nor decoded."""
    return _behind_signature(_signed_in(state))


def digest_in(state: bytes | memoryview) -> bytes | None:
    """Digest that a state was signed by, when it is that of its content. It is not checked."""
    at = content_at(state)
    return None if at is None else bytes(state[at - DIGEST_SIZE : at])


def seal(body: bytes | Sequence[bytes], purpose: str, key: SigningKey | None) -> bytes:
    """Bytes, or parts, behind a signature that holds for this purpose only (one call's result is none of another)."""
    parts = (body,) if isinstance(body, bytes) else body
    return b"".join((_sign(parts, purpose, key), *parts))


def opened(sealed: object, purpose: str, key: SigningKey | None) -> memoryview:
    """The bytes of `seal`. Raises `StateRefused` when the signature does not match."""
    if not key or not isinstance(sealed, bytes | memoryview):
        msg = f"the {purpose} is not signed, or there is no key to check it with"
        raise StateRefused(msg)
    return _checked(memoryview(sealed), purpose, key, purpose)


def _with_tail(values: dict[str, Any], tail: str) -> list[bytes]:
    """The pickle of the fields; that of a long tail, which may be in parts, has its length in its place."""
    last = values[tail]
    if type(last) is not tuple:
        if len(last) < LARGE:
            return pickled(values, values.values())
        last = (last,)
    return [*pickled(values | {tail: sum(map(len, last))}, values.values()), *last]


def _signed_in(state: bytes | memoryview) -> memoryview:
    """The signed bytes in a state, uncopied when there are many; nothing when it holds none."""
    sealed = sealed_in(state)
    if sealed is not None:
        return sealed
    decoded = _decode(state)
    return memoryview(decoded if isinstance(decoded, bytes) else b"")


def _behind_signature(sealed: memoryview) -> memoryview:
    return sealed[HEAD_SIZE if is_by_digest(sealed) else SIGNATURE_SIZE :]


def _state_of(type_name: str, procedure: str) -> str:
    # Neither name can hold NUL, and no other purpose does: no two purposes are written the same.
    return f"state\0{type_name}\0{procedure}"


def _sign(parts: Sequence[bytes], purpose: str, key: SigningKey | None) -> bytes:
    assert key, purpose
    newest = key if isinstance(key, bytes) else key[0]
    return _id_of(newest) + _signature(parts, purpose, newest)


def _checked(sealed: memoryview, purpose: str, key: SigningKey, words: str) -> memoryview:
    body = _behind_signature(sealed)
    if is_by_digest(sealed):
        digest = sealed[_DIGEST_AT:HEAD_SIZE]
        is_signed = _is_signed(digest, sealed[len(BY_DIGEST) : _DIGEST_AT], _OF_DIGEST + purpose, key)
        is_right = is_signed and digest == digest_of_parts((body,))
    else:
        is_right = len(sealed) >= SIGNATURE_SIZE and _is_signed(body, sealed[:SIGNATURE_SIZE], purpose, key)
    if is_right:
        return body
    msg = (
        f"the {words} has a wrong signature: it was changed, belongs to another procedure, or was signed with a key "
        "that this store does not have"
    )
    raise StateRefused(msg)


def _is_signed(body: memoryview, signature: memoryview, purpose: str, key: SigningKey) -> bool:
    import hmac  # noqa: PLC0415 - as in `child_id`: most procedures are not pickled

    keys = (key,) if isinstance(key, bytes) else key
    signer = next((each for each in keys if _id_of(each) == signature[:_ID_SIZE]), None)
    return signer is not None and hmac.compare_digest(signature[_ID_SIZE:], _signature((body,), purpose, signer))


@functools.lru_cache(maxsize=64)
def _id_of(key: bytes) -> bytes:
    import hashlib  # noqa: PLC0415

    return hashlib.sha256(b"actorproc key id\0" + key).digest()[:_ID_SIZE]


def _signature(parts: Sequence[bytes | memoryview], purpose: str, key: bytes) -> bytes:
    signing = _begun_with(key).copy()
    signing.update(purpose.encode() + b"\0")
    for part in parts:
        signing.update(part)
    return signing.digest()


@functools.lru_cache(maxsize=64)
def _begun_with(key: bytes) -> hmac.HMAC:
    """A signature that has seen its key, to be copied: to begin anew would take twice as long as a short one."""
    import hmac  # noqa: PLC0415 - as in `child_id`: most procedures are not pickled

    # Not hmac.digest: that gives the interpreter lock away, which costs more than the signature among busy threads.
    return hmac.new(key, digestmod="sha256")
