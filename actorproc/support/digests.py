"""The digest that a long pickled state carries: a hash of all its bytes costs more than to write them, so there is one.

It is what the signature of the state is over, and what two submits of one id are compared by.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

__all__ = [
    "BIN_32",
    "BIN_32_CODE",
    "BY_DIGEST",
    "DIGEST_SIZE",
    "HEAD_SIZE",
    "SIGNATURE_SIZE",
    "content_at",
    "digest_of_parts",
    "is_by_digest",
    "sealed_in",
]

BY_DIGEST = b"ap-dgst1"
"""Place of a key's id in other signed bytes, where no key has such an id: a signature and the digest follow."""
SIGNATURE_SIZE = 8 + 32
"""Bytes: the id of a key, and an HMAC-SHA256."""
DIGEST_SIZE = 32
HEAD_SIZE = len(BY_DIGEST) + SIGNATURE_SIZE + DIGEST_SIZE
BIN_32 = struct.Struct(">BI")
BIN_32_CODE = 0xC6
"""First byte of msgpack for bytes of more than 64 KiB; their number follows."""


def sealed_in(state: bytes | memoryview) -> memoryview | None:
    """The bytes that a state is in msgpack, uncopied, when it begins as more than 64 KiB do."""
    if len(state) < BIN_32.size or BIN_32.unpack_from(state) != (BIN_32_CODE, len(state) - BIN_32.size):
        return None
    return memoryview(state)[BIN_32.size :]


def is_by_digest(sealed: memoryview) -> bool:
    """A digest stands in front of what is signed."""
    return len(sealed) >= HEAD_SIZE and sealed[: len(BY_DIGEST)] == BY_DIGEST


def content_at(state: bytes | memoryview) -> int | None:
    """Place in a stored state where the content of its digest begins, 32 bytes behind it; None: it has none."""
    sealed = sealed_in(state)
    return None if sealed is None or not is_by_digest(sealed) else BIN_32.size + HEAD_SIZE


def digest_of_parts(parts: Sequence[bytes | memoryview]) -> bytes:
    """A SHA-256 of these bytes in a row, however they are divided: 32 bytes."""
    import hashlib  # noqa: PLC0415 - as in `child_id`: most procedures are not pickled

    # Begun as `procedure.digest` does for a state that has no position.
    found = hashlib.sha256(b"pickle\xc0")
    for part in parts:
        found.update(part)
    return found.digest()
