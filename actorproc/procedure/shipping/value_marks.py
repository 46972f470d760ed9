"""Marks of values: short byte strings that differ when what would be sent of two values differs.

A class or module is marked by its identity, as its attributes are sent and marked by themselves. A function is marked
by the identity of its code, and by its defaults, attributes and closure.
"""

from __future__ import annotations

import io
import itertools
import os
import pickle
import uuid
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from actorproc.procedure.shipping.identity import ByIdentity
from actorproc.procedure.values.kinds.base import SCALARS

__all__ = ["PARTED", "marks_of"]

PARTED = b"p"
"""Begins the mark of a value that consists of parts."""

_OF_CLASSES = frozenset({"__annotations__", "__dataclass_fields__", "__dataclass_params__", "__match_args__"})
"""Made with a class, and replaced at most."""
_LONGEST = 17
"""Bytes of a mark; of what is longer its digest is the mark."""


class _Counter:
    """Numbers that are given once in this process."""

    def __init__(self) -> None:
        self._next = itertools.count(1)

    def __call__(self, _: object) -> int:
        return next(self._next)

    def part_in_fork(self) -> None:
        """Give other numbers from now on than the process that this one is a copy of."""
        self._next = itertools.count(uuid.uuid4().int)


_counter = _Counter()
_numbers = ByIdentity(_counter)
os.register_at_fork(after_in_child=_counter.part_in_fork)


def marks_of(values: Mapping[str, Any], table: Mapping[type, Any]) -> dict[str, bytes | None]:
    """The mark of each value; None of one that has none, and counts as changed whenever it is sent.

    Args:
        values: by name.
        table: reducers of types that plain pickle refuses.
    """
    if not values:
        return {}
    marking = _Marking(table)
    return {
        name: _mark(value, marking) if name not in _OF_CLASSES else b"i%d" % id(value) for name, value in values.items()
    }


def _mark(value: Any, marking: _Marking) -> bytes | None:
    kind = type(value)
    if kind is FunctionType:
        if value.__closure__ is value.__defaults__ is value.__kwdefaults__ is None and not value.__dict__:
            return b"f%d" % _numbers.of(value.__code__)
    elif kind is ModuleType or issubclass(kind, type):
        return b"c%d" % _numbers.of(value)
    elif kind in SCALARS:
        return _short(b"s" + pickle.dumps(value, protocol=5))
    return marking.digest(value)


def _short(mark: bytes) -> bytes:
    if len(mark) <= _LONGEST:
        return mark
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, which a worker does without

    return b"d" + hashlib.blake2b(mark, digest_size=_LONGEST - 1).digest()


def _numbered(*parts: Any) -> None:
    """Stands for a class, module or function in what is digested."""


class _Marking(pickle.Pickler):
    """Writes what a mark is the digest of. Nothing reads it."""

    def __init__(self, table: Mapping[type, Any]) -> None:
        self._file = io.BytesIO()
        self._buffers: list[pickle.PickleBuffer] = []
        super().__init__(self._file, protocol=5, buffer_callback=self._buffers.append)
        self.dispatch_table = table

    def digest(self, value: Any) -> bytes | None:
        """The mark of a value that consists of parts."""
        import hashlib  # noqa: PLC0415 - as above

        try:
            self.dump(value)
            found = hashlib.blake2b(self._file.getbuffer(), digest_size=_LONGEST - 1)
            for buffer in self._buffers:
                found.update(buffer.raw())
        except Exception:  # noqa: BLE001 - `__reduce__` is user code, and the real pickling will say what is wrong
            return None
        finally:
            self.clear_memo()
            self._buffers.clear()
            self._file.seek(0)
            self._file.truncate()
        return PARTED + found.digest()

    def reducer_override(self, subject: Any) -> Any:
        """The identity of a class, module or function."""
        kind = type(subject)
        if kind is FunctionType:
            if subject is _numbered:
                return NotImplemented
            parts = subject.__defaults__, subject.__kwdefaults__, subject.__dict__
            cells = tuple(map(_content, subject.__closure__ or ()))
            return _numbered, (_numbers.of(subject.__code__),), (parts, cells)
        if kind is ModuleType or issubclass(kind, type):
            return _numbered, (_numbers.of(subject),)
        return NotImplemented


def _content(cell: Any) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # it is empty
        return ()
