"""Public methods ``(self, ctx)`` of a saga that are no step and that nothing calls: a ``@step`` was forgotten."""

from __future__ import annotations

import contextlib
import functools
import types
import warnings
from collections.abc import Collection, Iterator
from typing import Any

from actorproc.procedure.shipping.importing import is_repeated

__all__ = ["warn_of_idle_methods"]

_DYNAMIC = frozenset(
    {"getattr", "methodcaller", "attrgetter", "getattr_static", "getmembers", "vars", "__getattribute__"}
)
"""With one of these a class may call a method whose name shows nowhere."""


def warn_of_idle_methods(cls: Any, undos: Collection[Any]) -> None:
    """Issue a `UserWarning` at the line of each such method.

    Overrides of anything that a base class has are left alone, and so are names with an underscore and decorated
    functions. Classes without a step of their own are there to be derived from, and left alone too.
    """
    own = cls.__dict__
    if not any(getattr(type(part), "_engine_is_step", False) for part in own.values()):
        return
    idle = [
        name
        for name, part in own.items()
        if name[0] != "_" and _is_undecorated(part, cls) and part not in undos and not _is_inherited(cls, name)
    ]
    if not idle or is_repeated():
        return
    named = set(_names_in(cls))
    if named & _DYNAMIC:
        return
    for name in idle:
        if name in named or _is_kept(cls, own[name]):
            continue
        code = own[name].__code__
        msg = (
            f"{cls.__qualname__}.{name}(self, ctx) is no step, and nothing of the class calls it; "
            "write @step above it, or begin its name with '_' if that is meant"
        )
        warnings.warn_explicit(msg, UserWarning, code.co_filename, code.co_firstlineno, cls.__module__)


def _is_undecorated(part: Any, cls: Any) -> bool:
    if not isinstance(part, types.FunctionType):
        return False
    code = part.__code__
    return (
        code.co_argcount == 2
        and code.co_varnames[1] == "ctx"
        and not code.co_kwonlyargcount
        and not part.__defaults__
        and not hasattr(part, "__wrapped__")
        and not getattr(part, "__isabstractmethod__", False)
        and part.__qualname__ == f"{cls.__qualname__}.{code.co_name}"
    )


def _is_inherited(cls: Any, name: str) -> bool:
    return any(name in base.__dict__ for base in cls.__mro__[1:])


def _is_kept(cls: Any, function: Any) -> bool:
    """A class attribute holds the function: a table of handlers, a partial."""
    return any(function in _functions_in(part, 3) for part in list(cls.__dict__.values()) if part is not function)


def _names_in(cls: Any) -> Iterator[str]:
    """Names, and texts that could be names, in the code of a class and its bases."""
    for base in cls.__mro__:
        if base is object or base.__module__.startswith("actorproc.procedure."):
            continue
        for part in list(base.__dict__.values()):
            for function in _functions_in(part, 3):
                if function.__module__ != "dataclasses":  # `__replace__` of Python 3.13 uses getattr
                    yield from _names_of_code(function.__code__)


def _functions_in(part: Any, room: int) -> Iterator[types.FunctionType]:
    if isinstance(part, types.FunctionType):
        yield part
    if not room:
        return
    for each in _parts_of(part):
        yield from _functions_in(each, room - 1)


def _parts_of(part: Any) -> list[Any]:
    """Places of functions in a member of a class; classes of others are not asked, for asking may run code."""
    if isinstance(part, dict):
        return list(part.values())
    if isinstance(part, list | tuple | set | frozenset):
        return list(part)
    if isinstance(part, property):
        return [part.fget, part.fset, part.fdel]
    if isinstance(part, staticmethod | classmethod):
        return [part.__func__]
    if isinstance(part, functools.partial | functools.partialmethod):
        return [part.func, *part.args]
    if isinstance(part, functools.cached_property):
        return [part.func]
    if getattr(type(part), "_engine_is_step", False):
        return [part.function, part.undo_function]
    if not isinstance(part, types.FunctionType):
        return []
    found = [vars(part).get("__wrapped__")]
    for cell in part.__closure__ or ():
        with contextlib.suppress(ValueError):  # it is empty as yet
            found.append(cell.cell_contents)
    return found


def _names_of_code(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, str):
            yield constant
        elif isinstance(constant, types.CodeType):
            yield from _names_of_code(constant)
        elif isinstance(constant, tuple):
            yield from (each for each in constant if isinstance(each, str))
