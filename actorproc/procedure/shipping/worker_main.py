"""The main module of a worker, which has what came along from the main module of the program.

A worker does not run a script. Definitions of the script come by value, with the calls and classes that refer to them.
They stand in the worker's ``__main__`` under their names, where `pickle`, `typing.get_type_hints` and pools inside of
a call look for them. Processes that a step starts through `multiprocessing` get the same.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

__all__ = ["names_in", "show", "show_what_comes", "shown"]

_TYPING = frozenset({"typing", "typing_extensions", "types"})
_DEEPEST = 3
"""Levels of text inside of text that an annotation may have."""


class _Shown:
    """Objects that came along, by name; None in a process that is no worker."""

    names: dict[str, None] | None = None


def show_what_comes() -> None:
    """From now on this process is a worker, or a child of its step."""
    if _Shown.names is None:
        _Shown.names = {}


def show(name: str, subject: Any) -> None:
    """Have the main module of a worker have this under its name; without effect in a program."""
    if _Shown.names is not None and name.isidentifier():
        _Shown.names[name] = None
        setattr(sys.modules["__main__"], name, subject)


def shown() -> dict[str, Any]:
    """Objects that came along, by name."""
    main = vars(sys.modules["__main__"])
    return {name: main[name] for name in _Shown.names or () if name in main}


# ---------------------------------------------------------------- postponed annotations
def names_in(annotations: Iterable[Any], scope: Mapping[str, Any]) -> Iterator[str]:
    """Names of classes, modules and other types in annotations that are text, as far as `scope` has them."""
    for annotation in annotations:
        if type(annotation) is str:
            yield from (name for name in _names_of(annotation, _DEEPEST) if _is_typing(scope.get(name)))


def _names_of(text: str, levels: int) -> Iterator[str]:
    try:
        code = compile(text, "<annotation>", "eval")
    except (SyntaxError, ValueError):
        return
    yield from code.co_names
    if levels:
        for constant in code.co_consts:
            if type(constant) is str:
                yield from _names_of(constant, levels - 1)


def _is_typing(value: Any) -> bool:
    kind = type(value)  # not by isinstance: a proxy may say that it is one, or raise
    return issubclass(kind, type | types.ModuleType) or kind.__module__ in _TYPING
