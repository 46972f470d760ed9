"""Values of searchable fields as texts, by which lists find a procedure: ``name=value``, or ``name`` for None.

Two values have the same text when they are equal as texts: 42 and "42" have, which a command line cannot tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime
from enum import Enum
from uuid import UUID

__all__ = ["KINDS", "MAX_SEARCHABLE", "search_text", "search_texts", "values_in"]

MAX_SEARCHABLE = 16
"""Searchable fields of one class; their values are in the head, which is written with every step."""
KINDS = "text, a whole number, true or false, a member of an enum of these, a UUID, a date, or None"
_LONGEST = 256
"""Bytes of a text; the hash is kept of a longer one, and of one with lone surrogates, which no row of a store holds."""
_DIGITS = 2000
"""Bits of a number up to which it is written in decimal digits; others could have too many for `str`."""


def search_text(name: str, value: object) -> str:
    """The text of a value of a field. Raises `TypeError` for one that no list is searched for."""
    if value is None:
        return name
    found = f"{name}={_form(value)}"
    raw = found.encode("utf-8", "surrogatepass")
    if len(raw) <= _LONGEST and raw == found.encode("utf-8", "replace"):
        return found
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, which a worker without long texts does without

    return f"{name}#{hashlib.blake2b(raw, digest_size=16).hexdigest()}"


def search_texts(values: Mapping[str, object]) -> tuple[str, ...]:
    """The texts of values by the names of their fields, as a list is asked for. Raises `TypeError` and `ValueError`."""
    for name in values:
        if not isinstance(name, str) or not name.isidentifier():
            msg = f"list(where=…) names fields as they are declared, such as 'customer', not {name!r:.60}"
            raise ValueError(msg)
    return tuple(search_text(str.__str__(name), value) for name, value in values.items())


def values_in(pairs: Iterable[str]) -> dict[str, str | None]:
    """Values by field, of texts ``name=value`` as a command line or an address has them; ``name`` stands for None.

    Raises `ValueError` for a field that is named twice.
    """
    found: dict[str, str | None] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if name in found:
            msg = f"where names the field {name!r:.60} twice; it has one value at a time"
            raise ValueError(msg)
        found[name] = value if equals else None
    return found


def _form(value: object) -> str:
    match value:
        case Enum():
            return _form(value.value)
        case bool():
            return "true" if value else "false"
        case int():
            return str(int(value)) if value.bit_length() < _DIGITS else hex(value)
        case str():
            return str.__str__(value)  # whatever a class derived from `str` makes of it
        case UUID():
            return str(value)
        case date() if not isinstance(value, datetime):
            return value.isoformat()
    # Its type alone: the value may be of a state, whose values errors do not tell.
    msg = f"a {type(value).__qualname__} is nothing that a list is searched for: that is {KINDS}"
    raise TypeError(msg)
