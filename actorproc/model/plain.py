"""Records and reports as plain data for JSON: one shape for the command line, clients and pages."""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any

import msgspec

__all__ = ["plain", "plain_dict"]

_HIDDEN = frozenset({"pickled"})
"""Fields that are for programs of this package only."""


def plain_dict(value: msgspec.Struct) -> dict[str, Any]:
    """The fields of a struct, in their order, as data that JSON can hold; those within it too.

    Enums become words, also those that count; tuples become lists; bytes are left out.
    """
    found: dict[str, Any] = {}
    for name in value.__struct_fields__:
        field = getattr(value, name)
        if not isinstance(field, bytes) and name not in _HIDDEN:
            found[name] = plain(field)
    return found


def plain(value: Any) -> Any:
    """The same for any value in such a field."""
    kind = type(value)
    if kind is str or kind is int or kind is float or kind is bool or value is None:
        return value
    if isinstance(value, msgspec.Struct):
        return plain_dict(value)
    if isinstance(value, Enum):
        return value.name.lower() if isinstance(value, IntEnum) else value.value
    if isinstance(value, dict):
        if kind is not dict and (own := getattr(value, "to_plain", None)) is not None:
            return own()
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {key: plain(item) for key, item in value._asdict().items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    return value
