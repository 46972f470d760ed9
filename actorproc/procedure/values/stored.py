"""Stored values for a `load` or a loader of the user's own: `decode_value`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any

from actorproc.procedure.values.codec import DataCodec
from actorproc.procedure.values.hints import reachable_classes
from actorproc.procedure.values.kinds.base import UNSET

__all__ = ["decode_value"]


def decode_value(data: Any, *, uses: Iterable[type] = (), aliases: Mapping[str, Any] | None = None) -> Any:
    """The value of stored bytes, as a `load` or a loader gets them: of a state with declared fields, their mapping.

    A value that none of these classes can make comes in plain form: an object as the mapping of its fields, a member
    of an enum as its name. Both have ``class_name`` ("module:Class") and ``version``. Migrations of the classes
    are asked.

    Args:
        data: what `load` was given.
        uses: classes of values, and adapters; those that their type hints reach count as well.
        aliases: classes and members of enums by the names they had before, as in `Procedure.aliases`.

    Returns:
        The value.

    Raises:
        TypeError: `data` is no bytes; what a `dump` of the class's own returned needs no decoding.
        ValueNotDecodable: the bytes are damaged.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        msg = f"decode_value takes the bytes that load() was given, not {type(data).__name__}"
        raise TypeError(msg)
    known = dict(aliases or {})
    renamed = (type(now) if isinstance(now, Enum) else now for now in known.values())
    classes = reachable_classes(object, (), (*uses, *renamed))
    found, _ = DataCodec("decode_value", classes, aliases=known).decode_plain(bytes(data))
    if isinstance(found, dict):
        found = {name: value for name, value in found.items() if value is not UNSET}
    return found
