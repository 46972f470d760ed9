"""Structs of msgspec that travel by value: made again with their fields, which cloudpickle leaves out."""

from __future__ import annotations

import functools
import inspect
from types import MemberDescriptorType
from typing import Any

import msgspec

__all__ = ["make_with_fields"]

_OPTIONS = (
    "frozen",
    "eq",
    "order",
    "array_like",
    "gc",
    "repr_omit_defaults",
    "omit_defaults",
    "forbid_unknown_fields",
    "weakref",
    "dict",
    "cache_hash",
    "tag",
    "tag_field",
)


def make_with_fields(cls: Any, given: list[Any], attributes: dict[str, Any]) -> None:
    """Change the parts of a Struct class so that it is made with its fields.

    Args:
        cls: the class.
        given: arguments of cloudpickle's maker: metaclass, name, bases and the first attributes.
        attributes: what is set once the class is made; what its metaclass makes is removed from it.
    """
    own = inspect.get_annotations(cls)
    space: dict[str, Any] = {"__annotations__": own}
    # Not by `msgspec.structs.fields`: that wants the classes of all hints, which a worker need not have by name.
    defaults = (msgspec.NODEFAULT,) * len(cls.__struct_fields__) + cls.__struct_defaults__
    defaults = defaults[len(cls.__struct_defaults__) :]
    for name, shown, default in zip(cls.__struct_fields__, cls.__struct_encode_fields__, defaults, strict=True):
        options: dict[str, Any] = {} if shown == name else {"name": shown}
        if (factory := getattr(default, "factory", None)) is not None and type(default).__module__ == "msgspec._core":
            options["default_factory"] = factory
        elif default is not msgspec.NODEFAULT:
            options["default"] = default
        if name in own and options:
            space[name] = options
    config = {name: getattr(cls.__struct_config__, name) for name in _OPTIONS if hasattr(cls.__struct_config__, name)}
    config["kw_only"] = any(name in own and name not in cls.__match_args__ for name in cls.__struct_fields__)
    given[0] = functools.partial(_struct, given[0], config)
    given[3] = {**given[3], **space}
    for name, value in list(attributes.items()):
        if name.startswith("__struct_") or name in _MADE or isinstance(value, MemberDescriptorType):
            del attributes[name]


_MADE = frozenset({"__slots__", "__match_args__", "__annotations__", "__annotations_cache__", "__annotate_func__"})


def _struct(metaclass: Any, config: dict[str, Any], name: str, bases: tuple[Any, ...], space: dict[str, Any]) -> Any:
    for field in space["__annotations__"]:
        if field in space:
            space[field] = msgspec.field(**space[field])
    return metaclass(name, bases, space, **config)
