"""Reducers for objects that cloudpickle sends under a name unknown in workers, or not at all.

The functions, types and properties of a script are known to no other process, so they travel by value as classes do.
"""

from __future__ import annotations

import functools
import importlib.util
import marshal
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import cloudpickle

from actorproc.procedure.shipping.identity import ByIdentity

__all__ = ["reducers"]


def reducers(
    is_importable: Callable[[Any], bool], named: Callable[[Any, tuple[Any, ...]], tuple[Any, ...]]
) -> dict[type, Callable[[Any], Any]]:
    """For the ``dispatch_table`` of a pickler. `is_importable`: a worker finds this very object under its name.

    `named` gets each other object with its parts, and may add the name by which its program knows it.
    """

    def unless_importable(parts: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any], Any]:
        return lambda subject: subject.__reduce__() if is_importable(subject) else named(subject, parts(subject))

    table: dict[type, Callable[[Any], Any]] = {
        types.CodeType: _parts_of_code,
        functools._lru_cache_wrapper: unless_importable(_parts_of_cached),
        typing.NewType: unless_importable(_parts_of_new_type),
        typing.TypeVar: unless_importable(cloudpickle.Pickler.dispatch_table[typing.TypeVar]),
        typing.ParamSpec: unless_importable(_parts_of_variable),
        typing.TypeVarTuple: unless_importable(_parts_of_variable),
        functools.cached_property: _parts_of_property,
        weakref.WeakKeyDictionary: lambda kept: (weakref.WeakKeyDictionary, (dict(kept),)),  # of a singledispatch
    }
    alias_type: Any = getattr(typing, "TypeAliasType", None)  # from Python 3.12 on
    if alias_type is not None:
        table[alias_type] = unless_importable(
            lambda alias: (_type_alias, (alias.__name__, alias.__value__, alias.__type_params__))
        )
    return table


def _parts_of_code(code: types.CodeType) -> tuple[Any, ...]:
    """As it is: it never changes, so it is written once here, and read once there."""
    return _code, (_MAGIC, _written.of(code))


def _code(magic: bytes, written: bytes) -> types.CodeType:
    if magic != _MAGIC:
        msg = "a function was stored by another version of Python, which has other byte code"
        raise TypeError(msg)
    return _read(written)


_written: ByIdentity[bytes] = ByIdentity(marshal.dumps)
_read: Callable[[bytes], types.CodeType] = functools.lru_cache(maxsize=1024)(marshal.loads)
_MAGIC = importlib.util.MAGIC_NUMBER


def _parts_of_cached(function: Any) -> tuple[Any, ...]:
    """Of a function under `functools.cache` or `lru_cache`; in each worker it begins with nothing in it."""
    found = function.cache_parameters()
    return _cached, (function.__wrapped__, found["maxsize"], found["typed"])


def _cached(function: Callable[..., Any], maxsize: int | None, typed: bool) -> Any:
    return functools.lru_cache(maxsize, typed)(function)


def _parts_of_new_type(made: Any) -> tuple[Any, ...]:
    return _new_type, (made.__qualname__, made.__supertype__, made.__module__)


def _new_type(name: str, supertype: Any, module: str) -> Any:
    made: Any = typing.NewType(name, supertype)  # type: ignore[misc]
    made.__module__ = module
    return made


def _parts_of_variable(variable: Any) -> tuple[Any, ...]:
    """Of a type variable as it stands in the annotations of a decorator; cloudpickle knows `TypeVar` itself."""
    options = {"default": variable.__default__} if getattr(variable, "has_default", bool)() else {}
    for name in ("bound", "covariant", "contravariant"):
        value = getattr(variable, f"__{name}__", None)
        if value:
            options[name] = value
    return _variable, (type(variable), variable.__name__, options)


def _variable(kind: Any, name: str, options: dict[str, Any]) -> Any:
    return kind(name, **options)


def _parts_of_property(made: Any) -> tuple[Any, ...]:
    """Without the lock that it has in Python 3.11."""
    state = {name: value for name, value in vars(made).items() if name not in {"func", "lock"}}
    return functools.cached_property, (made.func,), state


def _type_alias(name: str, value: Any, parameters: tuple[Any, ...]) -> Any:
    kind: Any = typing.TypeAliasType  # type: ignore[attr-defined]
    return kind(name, value, type_params=parameters)
