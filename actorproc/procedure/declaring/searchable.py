"""The option `searchable` of a class: fields whose values lists find its procedures by."""

from __future__ import annotations

import types
import typing
from datetime import date, datetime
from enum import Enum
from typing import Any
from uuid import UUID

from actorproc.errors import StateNotEncodable
from actorproc.procedure.values.fields import declared_fields
from actorproc.procedure.values.hints import resolved_hints
from actorproc.procedure.values.kinds.base import UNSET
from actorproc.procedure.values.secrets.secret_hints import alias_in
from actorproc.support.search_texts import KINDS, MAX_SEARCHABLE, search_text

__all__ = ["texts_of", "wrong_searchable"]

_PLAIN = (str, int, UUID, date, types.NoneType)


def texts_of(procedure: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """The texts of the searchable fields of an object. Raises `StateNotEncodable` that names the field."""
    found = []
    for name in names:
        value = getattr(procedure, name, UNSET)
        if value is not UNSET:
            try:
                found.append(search_text(name, value))
            except TypeError as error:
                msg = f"{type(procedure).__qualname__}.{name} is searchable, and {error}"
                raise StateNotEncodable(msg) from None
    return tuple(found)


def wrong_searchable(cls: Any, names: Any, *, dumps: bool) -> str | None:
    """The reason why a class cannot have these fields searchable; None when it can.

    Args:
        cls: The class.
        names: The value of the option.
        dumps: It has a `dump` of its own, so its state has no fields.
    """
    if names == ():
        return None
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        return f"has searchable = {names!r:.80}; it must be a tuple of names of fields, such as ('customer',)"
    if len(set(names)) != len(names) or len(names) > MAX_SEARCHABLE:
        return f"has {len(names)} searchable fields; it may have {MAX_SEARCHABLE}, each named once"
    if dumps:
        return "has searchable fields and overrides dump(), so its state has no fields; do one of the two"
    fields = declared_fields(cls)
    if fields is None:
        return f"has searchable = {names!r:.80}, and declares no fields; write '@dataclass' above it"
    secrets, hints = cls._engine_secret_fields(), resolved_hints(cls)
    for name in names:
        if name not in fields:
            return f"has the searchable field {name!r}, which it does not declare; its fields are {', '.join(fields)}"
        if name in secrets:
            return f"has the searchable field {name!r}, which is secret: a search for its value would tell it"
        if name in hints and (part := _unfit(hints[name], [])) is not None:
            words = getattr(part, "__qualname__", None) or str(part)
            return f"has the searchable field {name!r}, which may hold {words}; one that is searched for is {KINDS}"
    return None


def _unfit(hint: Any, names: list[Any]) -> Any:
    """The part of a type hint of which no list is searched for a value; None: it has none."""
    name = alias_in(hint)
    if name is not None:
        if name in names:
            return None
        names.append(name)
        return _unfit(name.__value__, names)
    if isinstance(hint, typing.NewType):
        return _unfit(hint.__supertype__, names)
    if hasattr(hint, "__metadata__"):
        return _unfit(hint.__origin__, names)
    origin = typing.get_origin(hint)
    if origin is typing.Literal:
        values = (value.value if isinstance(value, Enum) else value for value in typing.get_args(hint))
        return next((value for value in values if not isinstance(value, str | int | None)), None)
    if origin in (typing.Union, types.UnionType, typing.Final):
        parts = (_unfit(part, names) for part in typing.get_args(hint))
        return next((part for part in parts if part is not None), None)
    if not isinstance(hint, type) or origin is not None:
        return hint
    if issubclass(hint, Enum):
        return next((hint for member in hint if not isinstance(member.value, str | int | UUID | date)), None)
    return None if issubclass(hint, _PLAIN) and not issubclass(hint, datetime) else hint
