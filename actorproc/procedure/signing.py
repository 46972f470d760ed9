"""The opt-in "pickle" codec: signed, and the signature is checked before anything is decoded.

Unpickling runs code, so a state is unpickled only when its HMAC-SHA256, over the type's name and the bytes, was made
with the key of this manager.
"""

from __future__ import annotations

import hashlib
import hmac
import pickle
from typing import Any

from actorproc.errors import StateNotEncodable, StateTooLarge
from actorproc.procedure.codec import MAX_STATE
from actorproc.procedure.state import StateRefused

__all__ = ["opened", "seal", "sign", "verified"]

_SIZE = hashlib.sha256().digest_size


def sign(values: dict[str, Any], type_name: str, key: bytes | None) -> bytes:
    """The pickled fields behind their signature. Raises `StateNotEncodable` or `StateTooLarge`."""
    assert key is not None, type_name
    try:
        body = pickle.dumps(values, protocol=5)
    except Exception as error:
        # __reduce__ and __getstate__ are user code and raise what they like.
        msg = f"{type_name} cannot be pickled: {error}"
        raise StateNotEncodable(msg) from error
    if len(body) > MAX_STATE:
        msg = f"{type_name} takes {len(body)} bytes; the limit is {MAX_STATE}"
        raise StateTooLarge(msg)
    return _signature(body, type_name, key) + body


def verified(signed: object, type_name: str, key: bytes | None) -> Any:
    """The fields of a signed state. Raises `StateRefused`, without decoding, when the signature does not match."""
    if key is None:
        msg = f"the state of {type_name} is pickled, and this manager has no signing key"
        raise StateRefused(msg)
    if not isinstance(signed, bytes) or not hmac.compare_digest(
        signed[:_SIZE], _signature(signed[_SIZE:], type_name, key)
    ):
        msg = f"the pickled state of {type_name} has a wrong signature: it was changed, or signed with another key"
        raise StateRefused(msg)
    return pickle.loads(signed[_SIZE:])  # noqa: S301 - signed by us, checked above


def seal(body: bytes, purpose: str, key: bytes | None) -> bytes:
    """Bytes behind a signature that holds for this purpose only (a result of one call is none of another)."""
    assert key is not None, purpose
    return _signature(body, purpose, key) + body


def opened(sealed: object, purpose: str, key: bytes | None) -> bytes:
    """The bytes of `seal`. Raises `StateRefused` when the signature does not match."""
    if key is None or not isinstance(sealed, bytes):
        msg = f"the {purpose} is not signed, or there is no key to check it with"
        raise StateRefused(msg)
    body = sealed[_SIZE:]
    if not hmac.compare_digest(sealed[:_SIZE], _signature(body, purpose, key)):
        msg = f"the {purpose} has a wrong signature: it was changed, or signed with another key"
        raise StateRefused(msg)
    return body


def _signature(body: bytes, type_name: str, key: bytes) -> bytes:
    # Not hmac.digest: that gives the interpreter lock away, which costs more than the signature among busy threads.
    return hmac.new(key, type_name.encode() + b"\0" + body, "sha256").digest()
