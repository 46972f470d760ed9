"""numpy's arrays and scalars as declared data: the type of the elements, the shape, and the elements' bytes.

numpy is not loaded before a value of it is there, or is read. A structured array is written field by field, so that
what lies between its fields is no part of it, and equal arrays have equal bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from actorproc.procedure.values.kinds.base import NDARRAY, NUMPY_SCALAR, CannotKeep, Ext, encode, scalar

__all__ = ["canonical", "packed", "unpacked_array", "unpacked_scalar"]

_IN_COLUMNS = 1
_READ_ONLY = 2
_X87 = 63
"""Bits of the mantissa of an extended float, whose 10 bytes stand in 12 or 16."""


def packed(value: Any) -> Any:
    """The extension for an array or a scalar; None for other objects of numpy. Raises `CannotKeep`."""
    np = sys.modules["numpy"]
    if type(value) is np.ndarray:
        return _packed_array(np, value)
    if isinstance(value, np.generic):
        return _packed_scalar(np, value)
    if isinstance(value, np.ndarray):
        raise CannotKeep(
            f"a {type(value).__name__} is an array of a class of its own, which would be lost; convert it with "
            "numpy.asarray(…), or keep its parts"
        )
    return None


# ---------------------------------------------------------------- scalars
def _packed_scalar(np: Any, value: Any) -> Any:
    kind = type(value)
    if kind is np.str_:  # an array would drop what ends in NUL
        return Ext(NUMPY_SCALAR, encode(["U", scalar(str.__str__(value))]))
    if kind is np.bytes_:
        return Ext(NUMPY_SCALAR, encode(["S", bytes(value)]))
    element = np.asarray(value)
    described = _described(np, element.dtype)
    if isinstance(described, str) and np.dtype(described).char != element.dtype.char:
        described = [described, element.dtype.char]  # a type of the same size, such as numpy.longlong
    return Ext(NUMPY_SCALAR, encode([described, _bytes_of(np, element)]))


def unpacked_scalar(payload: memoryview, decode: Callable[[memoryview], Any]) -> Any:
    """The scalar of a stored one."""
    np = _numpy()
    described, data = decode(payload)
    if described == "U":
        return np.str_(data)
    if described == "S":
        return np.bytes_(data)
    kind = _dtype(np, described)
    if isinstance(described, list) and isinstance(described[1], str):
        kind = np.dtype(described[1])
    return _filled(np, kind, (), data)[()]


# ---------------------------------------------------------------- arrays
def _packed_array(np: Any, value: Any) -> Any:
    described = _described(np, value.dtype)
    in_columns = value.flags.f_contiguous and not value.flags.c_contiguous
    flags = _IN_COLUMNS * in_columns | _READ_ONLY * (not value.flags.writeable)
    rows = value.T if in_columns else value
    return Ext(NDARRAY, encode([described, list(value.shape), flags, _bytes_of(np, rows)]))


def unpacked_array(payload: memoryview, decode: Callable[[memoryview], Any]) -> Any:
    """The array of a stored one: in rows or in columns as it was, with memory of its own."""
    np = _numpy()
    described, shape, flags, data = decode(payload)
    in_columns = flags & _IN_COLUMNS
    made = _filled(np, _dtype(np, described), shape[::-1] if in_columns else shape, data)
    if in_columns:
        made = made.T
    if flags & _READ_ONLY:
        made.flags.writeable = False
    return made


def canonical(content: list[Any], decode: Callable[[memoryview], Any]) -> list[Any]:
    """The parts of a stored array that make it equal to another one: not how it lies in memory."""
    described, shape, flags, data = content
    if flags & _IN_COLUMNS:
        np = _numpy()
        made = unpacked_array(memoryview(encode([described, shape, flags, data])), decode)
        data = _bytes_of(np, made)
    return [described, shape, data]


# ---------------------------------------------------------------- types of elements
def _described(np: Any, kind: Any) -> Any:
    """A dtype as plain data. Raises `CannotKeep` for one that this does not say all of."""
    if kind.hasobject:
        raise CannotKeep(
            f"an array with dtype={kind} holds Python objects, which are no plain data; convert it to a list "
            "(tolist()), or to a dtype of fixed size (astype(…))"
        )
    described = _parts_of(np, kind)
    try:
        again = _dtype(np, described)
    except Exception:  # noqa: BLE001 - types of other libraries
        again = None
    is_of_its_own = issubclass(kind.type, np.void) and kind.type is not np.void  # such as numpy.record
    if again is None or again != kind or is_of_its_own:
        raise CannotKeep(
            f"the dtype {kind!r} cannot be kept; convert the array to one of numpy's own types with astype(…)"
        )
    return described


def _parts_of(np: Any, kind: Any) -> Any:
    if kind.subdtype is not None:
        element, shape = kind.subdtype
        return {"of": _parts_of(np, element), "shape": list(shape)}
    if kind.names is not None:
        fields = [kind.fields[name] for name in kind.names]
        return {
            "names": list(kind.names),
            "formats": [_parts_of(np, field[0]) for field in fields],
            "offsets": [field[1] for field in fields],
            "titles": [field[2] if len(field) > 2 else None for field in fields],
            "size": kind.itemsize,
            "aligned": kind.isalignedstruct,
        }
    if kind.char in "gG":  # each processor has another one under this name
        return [kind.str, int(np.finfo(np.longdouble).nmant)]
    return kind.str


def _dtype(np: Any, described: Any) -> Any:
    if isinstance(described, str):
        return np.dtype(described)
    if isinstance(described, list):
        if isinstance(described[1], int) and described[1] != np.finfo(np.longdouble).nmant:
            msg = "a numpy.longdouble was written by a processor that has another one"
            raise ValueError(msg)
        return np.dtype(described[0])
    if "of" in described:
        return np.dtype((_dtype(np, described["of"]), tuple(described["shape"])))
    given = {name: described[name] for name in ("names", "offsets")}
    given |= {"formats": [_dtype(np, each) for each in described["formats"]], "itemsize": described["size"]}
    if any(title is not None for title in described["titles"]):
        given["titles"] = described["titles"]
    return np.dtype(given, align=described["aligned"])


# ---------------------------------------------------------------- elements
def _bytes_of(np: Any, array: Any) -> bytes:
    """The elements in rows, without what lies between fields or behind an extended float."""
    kind = array.dtype
    if kind.names is not None:
        return b"".join(_bytes_of(np, array[name]) for name in kind.names)
    if kind.char in "gG" and np.finfo(np.longdouble).nmant == _X87:
        size = kind.alignment
        plain = np.frombuffer(array.tobytes(), np.uint8).copy().reshape(-1, size)
        plain[:, : size - 10 if kind.str[0] == ">" else 0] = 0
        plain[:, 10 if kind.str[0] != ">" else size :] = 0
        return bytes(plain.tobytes())
    return bytes(array.tobytes())


def _filled(np: Any, kind: Any, shape: Any, data: bytes) -> Any:
    made = np.zeros(tuple(shape), kind)
    used = _fill(np, made, data, 0)
    if used != len(data):
        msg = f"an array of {kind} and shape {shape} takes {used} bytes, not {len(data)}"
        raise ValueError(msg)
    return made


def _fill(np: Any, array: Any, data: bytes, at: int) -> int:
    kind = array.dtype
    if kind.names is not None:
        for name in kind.names:
            at = _fill(np, array[name], data, at)
        return at
    if array.nbytes:
        array[...] = np.frombuffer(data, kind, array.size, at).reshape(array.shape)
    return at + int(array.nbytes)


def _numpy() -> Any:
    try:
        import numpy  # noqa: ICN001, PLC0415 - only where such a value was stored
    except ImportError as error:
        msg = "it holds a value of numpy, which is not installed here"
        raise ValueError(msg) from error
    return numpy
