"""Outputs, notes and payloads of one procedure class as bytes, by the codec that the class asks for.

Under ``codec = "pickle"`` they are pickles, signed for what they are and for the procedure. Plain values (texts,
numbers, lists and mappings of them) are written as typed data by every class, so that every class can read them.
The bytes say which of the two they are: a class that changes its codec still reads what it wrote before.
"""

from __future__ import annotations

import pickle
from typing import Any

from actorproc.errors import StateNotEncodable, ValueNotDecodable
from actorproc.procedure.encoding.signing import SigningKey, opened, seal
from actorproc.procedure.encoding.state import StateRefused
from actorproc.procedure.shipping.origins import loads_returned
from actorproc.procedure.values.codec import MAX_DEPTH, PLAIN, DataCodec, check_size, is_plain
from actorproc.procedure.values.error_text import in_words
from actorproc.procedure.values.kinds.base import PICKLED, Ext, encode

__all__ = ["NOTE", "OUTPUT", "PAYLOAD", "PLAIN_VALUES", "REPLY", "ValueCodec"]

OUTPUT = "output of "
NOTE = "note of "
PAYLOAD = "payload to "
REPLY = "reply of "
_CODE_AT = {0xC7: 2, 0xC8: 3, 0xC9: 5}
"""Place of an extension's code, by the first byte of its msgpack; shorter ones hold no signature."""


class ValueCodec:
    """Encodes and decodes values for a class; `purpose` is what a pickle is signed for, the same on both sides."""

    __slots__ = ("_key", "_pickles", "data")

    def __init__(self, data: DataCodec, key: SigningKey | None = None, *, pickles: bool = False) -> None:
        self.data = data
        """The codec of typed data."""
        self._key = key
        self._pickles = pickles

    @property
    def pickles(self) -> bool:
        """Values that typed data cannot hold are pickled."""
        return self._pickles

    def encode(self, value: object, where: str, purpose: str) -> bytes:
        """The bytes of a value. Raises `StateNotEncodable` naming the place, or `StateTooLarge`."""
        if not self._pickles or is_plain(value, MAX_DEPTH):
            return self.data.encode(value, where)
        try:
            body = pickle.dumps(value, protocol=5)
        except Exception as error:
            # __reduce__ and __getstate__ are user code and raise what they like.
            msg = f"{where} cannot be pickled: {in_words(error)}"
            raise StateNotEncodable(msg) from error
        check_size(len(body), where)
        return encode(Ext(PICKLED, seal(body, purpose, self._key)))

    def decode(self, data: bytes, purpose: str) -> Any:
        """The value of these bytes. Raises `ValueNotDecodable`."""
        at = _CODE_AT.get(data[0]) if data else None
        if at is None or len(data) <= at or data[at] != PICKLED:
            return self.data.decode(data)
        try:
            return loads_returned(opened(bytes(data[at + 1 :]), purpose, self._key))
        except StateRefused as error:
            raise ValueNotDecodable(error.reason) from error
        except Exception as error:
            # Classes do what they like when their objects are made again.
            msg = f"the stored pickle cannot be read: {in_words(error)}"
            raise ValueNotDecodable(msg) from error


PLAIN_VALUES = ValueCodec(PLAIN)
"""For values whose class is not at hand."""
