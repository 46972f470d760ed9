"""The kinds of values that the "data" codec writes as msgpack extensions: their codes and their payloads."""

from __future__ import annotations

import struct
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from pathlib import PosixPath, PurePath, PurePosixPath, PureWindowsPath, WindowsPath
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec

from actorproc.procedure.values.secrets.secret import Secret

__all__ = [
    "ADAPTED",
    "COUNTER",
    "DEFAULTDICT",
    "DEQUE",
    "DICT",
    "ENUM",
    "FACTORIES",
    "FROZENSET",
    "IP_ADDRESS",
    "LEFT_OUT",
    "LIBRARY_SECRET",
    "MODEL",
    "NDARRAY",
    "NESTED",
    "NUMPY_SCALAR",
    "OBJECT",
    "ORDERED",
    "PACK",
    "PICKLED",
    "RANGE",
    "SCALARS",
    "SECRET",
    "SECRETS",
    "SECRET_FIELD",
    "SET",
    "TUPLE",
    "UNPACK",
    "UNSET",
    "URL",
    "WITHHELD",
    "CannotKeep",
    "Ext",
    "encode",
    "is_text",
    "pairs_of",
    "scalar",
]

SCALARS = frozenset({type(None), bool, int, float, str, bytes})
"""Types that msgpack holds by itself; subclasses are none of them."""
Ext = msgspec.msgpack.Ext
LEFT_OUT = "its secrets were left out when it was exported"
"""Begins the refusal of a value that an export withheld."""
encode = msgspec.msgpack.Encoder().encode

FACTORIES: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(list, dict, set, frozenset, tuple, int, float, complex, bool, str, bytes, bytearray),
        *(deque, Counter, OrderedDict, defaultdict, Decimal, Fraction),
    )
}
"""Factories that a `defaultdict` may have, beside a class of the codec's table."""
_PATHS: dict[str, type[PurePath]] = {
    cls.__name__: cls for cls in (PosixPath, WindowsPath, PurePosixPath, PureWindowsPath)
}

# Extension codes. They are stored: never give one a new meaning.
(
    _BIGINT,
    _TEXT,
    _BYTEARRAY,
    TUPLE,
    SET,
    FROZENSET,
    DICT,
    _COMPLEX,
    _DATETIME,
    _DATE,
    _TIME,
    _TIMEDELTA,
    _UUID,
    _DECIMAL,
    _FRACTION,
    _PATH,
    ENUM,
    OBJECT,
    DEQUE,
    ORDERED,
    SECRET,
    SECRET_FIELD,
    WITHHELD,
    COUNTER,
    DEFAULTDICT,
    RANGE,
    _ZONE,
    IP_ADDRESS,
    NUMPY_SCALAR,
    NDARRAY,
    MODEL,
    ADAPTED,
    LIBRARY_SECRET,
    URL,
    PICKLED,
    _UNSET,
) = range(1, 37)

NESTED = frozenset(
    {TUPLE, SET, FROZENSET, DICT, ENUM, OBJECT, DEQUE, ORDERED, COUNTER, DEFAULTDICT, RANGE, MODEL, ADAPTED}
)
"""Extensions whose payload is msgpack with values in it, which may be extensions again."""
SECRETS = frozenset({SECRET, SECRET_FIELD, LIBRARY_SECRET})


class Unset:
    """In the place of the value of a declared field that has none; `UNSET` is the only one."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "UNSET"

    def __reduce__(self) -> str:
        return "UNSET"


UNSET = Unset()


class CannotKeep(Exception):
    """A value that cannot be kept; ``path`` grows on the way out."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path: list[str] = []


def is_text(value: str) -> bool:
    """UTF-8 can hold it: it has no lone surrogates."""
    if value.isascii():
        return True
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def scalar(value: Any) -> Any:
    """A None, bool, int, float, str or bytes as msgspec writes it back unchanged."""
    kind = type(value)
    if kind is int and not -(2**63) <= value < 2**64:
        return _integer(value)
    if kind is str and not is_text(value):
        return Ext(_TEXT, value.encode("utf-8", "surrogatepass"))
    return value


def _integer(value: int) -> Any:
    if -(2**63) <= value < 2**64:
        return value
    return Ext(_BIGINT, value.to_bytes(value.bit_length() // 8 + 1, "big", signed=True))


# ---------------------------------------------------------------- time zones
def _zone(zone: Any) -> Any:
    if zone is None:
        return None
    if type(zone) is timezone:
        offset, *name = zone.__getinitargs__()  # type: ignore[attr-defined]
        return [offset.days, offset.seconds, offset.microseconds, *name]
    if type(zone) is ZoneInfo and zone.key is not None:
        return zone.key
    if type(zone).__name__ == "TzInfo" and type(zone).__module__.partition(".")[0] == "pydantic_core":
        return [zone.utcoffset(None) // timedelta(seconds=1)]
    raise CannotKeep(f"the time zone {zone!r} cannot be kept; use zoneinfo.ZoneInfo or datetime.timezone")


def _unzone(stored: Any) -> Any:
    if stored is None:
        return None
    if isinstance(stored, str):
        return ZoneInfo(stored)
    if len(stored) == 1:  # as pydantic parses "2024-01-01T12:00:00Z"
        from pydantic_core import TzInfo  # noqa: PLC0415 - only where such a value was stored

        return TzInfo(stored[0])
    days, seconds, microseconds, *name = stored
    offset = timedelta(days, seconds, microseconds)
    return timezone(offset, *name) if name or offset else UTC


def _pack_datetime(value: datetime) -> Any:
    day = (value.year, value.month, value.day)
    clock = (value.hour, value.minute, value.second, value.microsecond, value.fold)
    return Ext(_DATETIME, encode([*day, *clock, _zone(value.tzinfo)]))


def _unpack_datetime(payload: memoryview, decode: Callable[[memoryview], Any]) -> datetime:
    year, month, day, hour, minute, second, microsecond, fold, zone = decode(payload)
    return datetime(year, month, day, hour, minute, second, microsecond, _unzone(zone), fold=fold)


def _pack_time(value: time) -> Any:
    clock = (value.hour, value.minute, value.second, value.microsecond, value.fold)
    return Ext(_TIME, encode([*clock, _zone(value.tzinfo)]))


def _unpack_time(payload: memoryview, decode: Callable[[memoryview], Any]) -> time:
    hour, minute, second, microsecond, fold, zone = decode(payload)
    return time(hour, minute, second, microsecond, _unzone(zone), fold=fold)


# ---------------------------------------------------------------- tables
def _pack_path(value: PurePath) -> Any:
    return Ext(_PATH, encode([type(value).__name__, scalar(str(value))]))


def _pack_delta(value: timedelta) -> Any:
    return Ext(_TIMEDELTA, encode([value.days, value.seconds, value.microseconds]))


def _pack_zone(value: Any) -> Any:
    return Ext(_ZONE, encode(_zone(value)))


def _pack_fraction(value: Fraction) -> Any:
    return Ext(_FRACTION, encode([_integer(value.numerator), _integer(value.denominator)]))


PACK: dict[type, Callable[[Any], Any]] = {
    bytearray: lambda value: Ext(_BYTEARRAY, bytes(value)),
    complex: lambda value: Ext(_COMPLEX, struct.pack(">dd", value.real, value.imag)),
    datetime: _pack_datetime,
    date: lambda value: Ext(_DATE, struct.pack(">HBB", value.year, value.month, value.day)),
    time: _pack_time,
    timedelta: _pack_delta,
    UUID: lambda value: Ext(_UUID, value.bytes),
    Decimal: lambda value: Ext(_DECIMAL, str(value).encode()),
    Fraction: _pack_fraction,
    range: lambda value: Ext(RANGE, encode([_integer(value.start), _integer(value.stop), _integer(value.step)])),
    ZoneInfo: _pack_zone,
    Unset: lambda _: Ext(_UNSET, b""),
    timezone: _pack_zone,
    **dict.fromkeys(_PATHS.values(), _pack_path),
}


def pairs_of(flat: list[Any]) -> Iterable[tuple[Any, Any]]:
    """Keys and values that stand in turn, as pairs."""
    return zip(flat[::2], flat[1::2], strict=True)


def _unpack_deque(payload: memoryview, decode: Callable[[memoryview], Any]) -> deque[Any]:
    maxlen, items = decode(payload)
    return deque(items, maxlen)


def _unpack_counter(payload: memoryview, decode: Callable[[memoryview], Any]) -> Counter[Any]:
    return Counter(dict(pairs_of(decode(payload))))


def _unpack_path(payload: memoryview, decode: Callable[[memoryview], Any]) -> PurePath:
    name, text = decode(payload)
    return _PATHS[name](text)


def _unpack_withheld(_payload: memoryview, _decode: Callable[[memoryview], Any]) -> Any:
    msg = f"{LEFT_OUT}; export it with --reveal to have them"
    raise ValueError(msg)


UNPACK: dict[int, Callable[[memoryview, Callable[[memoryview], Any]], Any]] = {
    _BIGINT: lambda payload, _: int.from_bytes(payload, "big", signed=True),
    _TEXT: lambda payload, _: bytes(payload).decode("utf-8", "surrogatepass"),
    _BYTEARRAY: lambda payload, _: bytearray(payload),
    TUPLE: lambda payload, decode: tuple(decode(payload)),
    SET: lambda payload, decode: set(decode(payload)),
    FROZENSET: lambda payload, decode: frozenset(decode(payload)),
    DICT: lambda payload, decode: dict(pairs_of(decode(payload))),
    ORDERED: lambda payload, decode: OrderedDict(pairs_of(decode(payload))),
    DEQUE: _unpack_deque,
    _COMPLEX: lambda payload, _: complex(*struct.unpack(">dd", payload)),
    _DATETIME: _unpack_datetime,
    _DATE: lambda payload, _: date(*struct.unpack(">HBB", payload)),
    _TIME: _unpack_time,
    _TIMEDELTA: lambda payload, decode: timedelta(*decode(payload)),
    _UUID: lambda payload, _: UUID(bytes=bytes(payload)),
    _DECIMAL: lambda payload, _: Decimal(bytes(payload).decode()),
    _FRACTION: lambda payload, decode: Fraction(*decode(payload)),
    _PATH: _unpack_path,
    COUNTER: _unpack_counter,
    RANGE: lambda payload, decode: range(*decode(payload)),
    _ZONE: lambda payload, decode: _unzone(decode(payload)),
    SECRET: lambda payload, decode: Secret(decode(payload)),
    SECRET_FIELD: lambda payload, decode: decode(payload),
    WITHHELD: _unpack_withheld,
    _UNSET: lambda _payload, _decode: UNSET,
}
