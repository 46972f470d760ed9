"""The declared fields of a class: dataclass, attrs, msgspec.Struct, pydantic model or named tuple."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from actorproc.procedure.values.kinds.base import UNSET
from actorproc.procedure.values.kinds.pydantic import build_model, is_model, model_defaults, model_fields

__all__ = ["MissingField", "build", "complete", "declared_fields", "defaults_of"]


def declared_fields(cls: type) -> tuple[str, ...] | None:
    """Names of the declared fields in order, or None when the class declares none in a way known here."""
    own = getattr(cls, "__procedure_fields__", None)
    if own is not None:
        return tuple(own)
    if getattr(cls, "_engine_is_no_value", False):
        return None
    if dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if issubclass(cls, msgspec.Struct):
        return tuple(cls.__struct_fields__)
    attributes = getattr(cls, "__attrs_attrs__", None)
    if attributes is not None:
        return tuple(attribute.name for attribute in attributes)
    if is_model(cls):
        return tuple(model_fields(cls))
    named = getattr(cls, "_fields", None) if issubclass(cls, tuple) else None
    return named if isinstance(named, tuple) else None


def defaults_of(cls: type) -> dict[str, Callable[[], Any]]:
    """Makers of the default values of the fields that have one."""
    own = getattr(cls, "__procedure_defaults__", None)
    if own is not None:
        return {name: functools.partial(copy.deepcopy, value) for name, value in own.items()}
    if dataclasses.is_dataclass(cls):
        return _dataclass_defaults(cls)
    if issubclass(cls, msgspec.Struct):
        return _struct_defaults(cls)
    if is_model(cls):
        return model_defaults(cls, late=False)
    attributes = getattr(cls, "__attrs_attrs__", None)
    return {} if attributes is None else _attrs_defaults(attributes)


class MissingField(Exception):
    """A field has no value, and its class no default for it; ``name`` names it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def complete(cls: Any, values: Mapping[str, Any], parts: Any = None) -> Any:
    """An instance with these fields, and the defaults of the others. Raises `MissingField`.

    A field that was stored as having no value is not missing. `parts` are as for `build`.
    """
    defaults, late = defaults_of(cls), late_defaults_of(cls)
    whole, later = dict(values), []
    for name in declared_fields(cls) or ():
        if name in whole:
            continue
        if name in defaults:
            whole[name] = defaults[name]()
        elif name in late:
            later.append(name)
        else:
            raise MissingField(name)
    made = build(cls, whole, parts)
    for name in later:
        object.__setattr__(made, name, late[name](made))
    return made


def build(cls: Any, values: Mapping[str, Any], parts: Any = None) -> Any:
    """An instance with these fields, made without calling `__init__`; frozen and slotted classes too.

    Nor is the `__new__` of a named tuple called, unless a field is missing, which may have a default. A Struct has no
    `__init__`, and cannot be made empty: its `__post_init__` runs, as when msgspec decodes one. `parts` are those of a
    pydantic model beside its fields; None: as its constructor leaves them.
    """
    kind = _kind_of(cls)
    if kind is None:
        made = cls.__new__(cls)
        for name, value in values.items():
            if value is not UNSET:
                object.__setattr__(made, name, value)
        return made
    if kind is tuple and values.keys() == set(cls._fields):
        return tuple.__new__(cls, [values[name] for name in cls._fields])
    if kind is not dict:
        return cls(**{name: value for name, value in values.items() if value is not UNSET})
    return build_model(cls, {name: value for name, value in values.items() if value is not UNSET}, parts)


@functools.lru_cache(maxsize=1024)
def _kind_of(cls: type) -> type | None:
    """Way to make an instance: as a tuple, a Struct or a model of pydantic (`dict`), or attribute by attribute."""
    if issubclass(cls, tuple):
        return tuple
    if issubclass(cls, msgspec.Struct):
        return msgspec.Struct
    return dict if is_model(cls) else None


def late_defaults_of(cls: type) -> dict[str, Callable[[Any], Any]]:
    """Makers of default values that are handed the object, with its other fields."""
    if is_model(cls):
        return model_defaults(cls, late=True)
    return {
        attribute.name: attribute.default.factory
        for attribute in getattr(cls, "__attrs_attrs__", ())
        if getattr(attribute.default, "takes_self", False)
    }


def _dataclass_defaults(cls: Any) -> dict[str, Callable[[], Any]]:
    makers: dict[str, Callable[[], Any]] = {}
    for field in dataclasses.fields(cls):
        if field.default is not dataclasses.MISSING:
            makers[field.name] = _constant(field.default)
        elif field.default_factory is not dataclasses.MISSING:
            makers[field.name] = field.default_factory
    return makers


def _struct_defaults(cls: type[msgspec.Struct]) -> dict[str, Callable[[], Any]]:
    makers: dict[str, Callable[[], Any]] = {}
    for field in msgspec.structs.fields(cls):
        if field.default is not msgspec.NODEFAULT:
            makers[field.name] = _constant(field.default)
        elif field.default_factory is not msgspec.NODEFAULT:
            makers[field.name] = field.default_factory
    return makers


def _attrs_defaults(attributes: Any) -> dict[str, Callable[[], Any]]:
    makers: dict[str, Callable[[], Any]] = {}
    for attribute in attributes:
        default = attribute.default
        if getattr(default, "takes_self", False) or default.__class__.__name__ == "_Nothing":
            continue
        factory = getattr(default, "factory", None)
        makers[attribute.name] = factory if factory is not None else _constant(default)
    return makers


def _constant(value: Any) -> Callable[[], Any]:
    return lambda: value
