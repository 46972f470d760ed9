"""Digest of the initial state, alike for equal states: tells whether two submits under one id are the same.

A mapping is equal to one that was filled in another order, and comes back in the order it was filled in. So it is
stored as it is, and sorted for the digest only. So are others: ranges that count the same, counters with and without
zeros, arrays in rows and in columns. A class, a `defaultdict`'s factory and a deque's longest length always count.
"""

from __future__ import annotations

from typing import Any

import msgspec

from actorproc.procedure.encoding.pickles import LARGE
from actorproc.procedure.encoding.signing import content_of, digest_in
from actorproc.procedure.values.codec import DataCodec
from actorproc.procedure.values.kinds.base import (
    COUNTER,
    DEFAULTDICT,
    DICT,
    FROZENSET,
    MODEL,
    NDARRAY,
    NESTED,
    RANGE,
    SCALARS,
    SECRETS,
    SET,
    UNPACK,
    Ext,
    pairs_of,
)
from actorproc.procedure.values.kinds.numpy import canonical

__all__ = ["are_alike", "digest_of"]

_SIZE = 16
_encode = msgspec.msgpack.Encoder(order="deterministic").encode
_encode_in_order = msgspec.msgpack.Encoder().encode
_enveloped = msgspec.msgpack.Decoder(tuple[Any, msgspec.Raw])


def are_alike(name: str, one: dict[str, Any], other: dict[str, Any], codec: DataCodec | None) -> bool:
    """Two states have equal values of a field, as its codec sees it; without one, as the values see it themselves."""
    if name not in one or name not in other:
        return False
    if codec is None:
        return bool(one[name] == other[name])
    values = (codec.encode({name: fields[name]}, name) for fields in (one, other))
    first, second = (digest_of("data", value, positioned=False, ordered=False) for value in values)
    return first == second


def digest_of(codec: str, state: bytes, *, positioned: bool, ordered: bool) -> bytes:
    """Of a stored state: 16 bytes.

    `positioned`: the state is a pair, of where the procedure is and the rest; only the rest counts, for code that puts
    another step first means the same submit. `ordered`: the fields always have the same order, because the class
    declares them.
    """
    import hashlib  # noqa: PLC0415 - as in `child_id`

    if codec == "pickle" and not positioned and (known := digest_in(state)) is not None:
        return known[:_SIZE]
    parts = _parts(codec, state, positioned=positioned, ordered=ordered)
    if len(state) <= LARGE:
        return hashlib.blake2b(b"".join(parts), digest_size=_SIZE).digest()
    # Processors have instructions for SHA-256: a long state takes a third of the time, a short one more.
    found = hashlib.sha256()
    for part in parts:
        found.update(part)
    return found.digest()[:_SIZE]


def _parts(codec: str, state: bytes, *, positioned: bool, ordered: bool) -> tuple[bytes | memoryview, ...]:
    """Parts that are hashed, one after the other."""
    payload = _enveloped.decode(state)[1] if positioned else state
    if codec == "pickle":
        # What is signed, for signatures differ.
        return codec.encode(), content_of(bytes(payload))
    return codec.encode(), _sorted(payload, ordered=ordered)


def _sorted(content: bytes | msgspec.Raw, *, ordered: bool) -> bytes:
    """The same bytes when no mapping is in them."""
    value = _decode(content)
    if ordered and isinstance(value, dict):
        if SCALARS.issuperset(map(type, value.values())):
            return bytes(content)  # as most states: nothing in them could be in another order
        return _encode_in_order({name: msgspec.Raw(_encode(field)) for name, field in value.items()})
    return _encode(value)


def _sorted_extension(code: int, payload: memoryview) -> Any:
    if code == NDARRAY:
        return Ext(code, _encode(canonical(_decode(payload), _decode)))
    if code not in NESTED and code not in SECRETS:
        return Ext(code, bytes(payload))
    inside = _decode(payload)
    if code in {SET, FROZENSET}:
        inside = sorted(inside, key=_encode)
    elif code == DICT:
        inside = _sorted_pairs(inside)
    elif code == COUNTER:
        inside = [pair for pair in _sorted_pairs(inside) if pair[1] != 0]
    elif code == DEFAULTDICT:
        inside = [inside[0], _sorted_pairs(inside[1])]
    elif code == RANGE:
        inside = _range_parts(payload)
    elif code == MODEL:
        key, values, extra, _fields_set, private = inside  # two models are equal whichever fields were given
        inside = [key, values, extra, private]
    return Ext(code, _encode(inside))


def _sorted_pairs(flat: list[Any]) -> list[tuple[Any, Any]]:
    return sorted(pairs_of(flat), key=lambda pair: _encode(pair[0]))


def _range_parts(payload: memoryview) -> list[bytes]:
    """First, last and step of what a range counts, as far as it has them: by these, ranges are equal."""
    counted: range = UNPACK[RANGE](payload, _decode_numbers)
    parts = [counted[0], counted[-1], counted.step] if counted else []  # not len(…), which has a limit
    if parts and parts[0] == parts[1]:
        del parts[1:]
    return [str(part).encode() for part in parts]


def _number(code: int, payload: memoryview) -> Any:
    return UNPACK[code](payload, _decode_numbers)


_decode_numbers = msgspec.msgpack.Decoder(ext_hook=_number).decode
_decode = msgspec.msgpack.Decoder(ext_hook=_sorted_extension).decode
