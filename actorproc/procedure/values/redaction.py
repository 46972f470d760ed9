"""Stored values without their secrets, by those who have the bytes and not the classes."""

from __future__ import annotations

from typing import Any

import msgspec

from actorproc.procedure.values.kinds.base import NESTED, SECRETS, WITHHELD, Ext, encode

__all__ = ["redacted"]


def redacted(data: bytes, mask: str | None = None) -> bytes:
    """The same value with each secret replaced by a mark that it was left out; bytes without any are given back.

    With `mask` by this text.

    Raw bytes that a user's own `dump` made, and pickles, are opaque: what is in them stays.
    """
    if not data:
        return data
    try:
        walk = _Walk(mask)
        value = msgspec.msgpack.Decoder(ext_hook=walk.ext).decode(data)
        return encode(value) if walk.found else data
    except (ValueError, RecursionError, TypeError):  # no value of ours: no secret can be read out of it either
        return data


class _Walk:
    def __init__(self, mask: str | None) -> None:
        self.found = False
        self._mask = mask

    def ext(self, code: int, payload: memoryview) -> Any:
        """Text in the place of an extension."""
        if code in SECRETS:
            self.found = True
            return Ext(WITHHELD, b"") if self._mask is None else self._mask
        if code in NESTED:
            inside = msgspec.msgpack.Decoder(ext_hook=self.ext).decode(payload)
            return Ext(code, encode(inside))
        return Ext(code, bytes(payload))
