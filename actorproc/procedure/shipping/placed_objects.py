"""Objects that a script has as globals and as class attributes: markers, which are compared by identity.

A worker keeps such a value while its mark stays the same (`script_globals`). It travels with its place and its mark.
So another reference to it, such as an argument of a later call, is to the very object that the worker has.
"""

from __future__ import annotations

import copyreg
from collections.abc import Mapping
from typing import Any, TypeAlias

from actorproc.procedure.values.kinds.base import SCALARS

__all__ = ["Place", "fill_placed", "may_be_marker", "parts_of_placed", "placed_in_worker"]

Place: TypeAlias = tuple[tuple[str, str] | str, str, bytes]
"""The module or class, the name there, and the mark."""

_MOST = 1024
_PARTS = frozenset({*SCALARS, list, tuple, dict, set, frozenset, bytearray})
_newobj: Any = copyreg.__newobj__  # type: ignore[attr-defined]
_placed: dict[tuple[Any, str], tuple[bytes, Any]] = {}
"""In a worker: values by place, with the marks with which they came."""


def may_be_marker(value: Any, reducers: Mapping[type, Any]) -> bool:
    """An instance of a plain class, which pickles as any object does."""
    kind: Any = type(value)
    return (
        kind not in _PARTS
        and kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and kind not in reducers
    )


def parts_of_placed(value: Any, place: Place) -> Any:
    """The parts of a value with its place."""
    reduced = value.__reduce_ex__(4)
    if not isinstance(reduced, tuple) or reduced[0] is not _newobj or any(reduced[3:]):
        return NotImplemented
    _, parts, *state = reduced
    if not state or state[0] is None:
        return placed_in_worker, (place, parts, True)
    return placed_in_worker, (place, parts, False), (place, state[0]), None, None, fill_placed


def placed_in_worker(place: Place, parts: tuple[Any, ...], is_whole: bool) -> Any:
    """The object that this worker has at this place, or a new one."""
    known = _known(place)
    if known is not None:
        return known
    made = _newobj(*parts)
    if is_whole:
        _note(place, made)
    return made


def fill_placed(value: Any, state: tuple[Place, Any]) -> None:
    """Give a new one its attributes."""
    place, attributes = state
    if _known(place) is value:
        return
    if hasattr(value, "__setstate__"):
        value.__setstate__(attributes)
    else:
        slots = None
        if isinstance(attributes, tuple) and len(attributes) == 2:
            attributes, slots = attributes
        if attributes:
            vars(value).update(attributes)
        for name, member in (slots or {}).items():
            setattr(value, name, member)
    _note(place, value)


def _known(place: Place) -> Any:
    holder, name, mark = place
    known = _placed.get((holder, name))
    return known[1] if known is not None and known[0] == mark else None


def _note(place: Place, value: Any) -> None:
    holder, name, mark = place
    if len(_placed) >= _MOST:
        _placed.clear()
    _placed[holder, name] = mark, value
