"""Empty classes, made again from what cloudpickle keeps of their originals.

The class is restored, not defined once more: what its metaclass and the ``__init_subclass__`` of its bases did, when
the program defined it, is in its attributes. To run them again would register it with its bases a second time.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["empty_class"]

Travels = Callable[[type], bool]
"""Test that tells whether a class is of those that travel by value."""


class _Quiet:
    """A first base, taken away again, under which the ``__init_subclass__`` of the others is not called."""

    def __init_subclass__(cls, **_: Any) -> None:
        pass


def empty_class(make: Callable[..., Any], parts: tuple[Any, ...], travels: Travels, *, is_quiet: bool) -> Any:
    """Make the result of ``make(*parts)`` without running code of classes that travel by value.

    Args:
        make: cloudpickle's maker of empty classes, or of enums.
        parts: its arguments; for a class they begin with the metaclass, the name and the bases.
        travels: tells which classes travel by value.
        is_quiet: run no ``__init_subclass__`` of importable bases either.
    """
    if not isinstance(parts[0], type):  # an enum, whose members its metaclass has to make
        return make(*parts)
    metaclass, name, bases, *rest = parts
    if travels(metaclass):
        metaclass = functools.partial(_defined_plainly, metaclass, travels)
    hook = _hook_of(bases)
    if hook is None or not (is_quiet or travels(hook)):
        try:
            return make(metaclass, name, bases, *rest)
        except TypeError:
            if hook is None:
                raise
            # The hook wants keywords of the class statement, which nothing keeps.
    try:
        made = make(metaclass, name, (_Quiet, *bases), *rest)
        made.__bases__ = tuple(base for base in made.__bases__ if base is not _Quiet)
    except TypeError:  # another layout, as that of a class with slots
        return make(metaclass, name, bases, *rest)
    return made


def _hook_of(bases: tuple[Any, ...]) -> type | None:
    """The class whose ``__init_subclass__`` is called for a class with these bases, unless it is the interpreter's."""
    for base in bases:
        for owner in getattr(base, "__mro__", ()):
            if "__init_subclass__" in vars(owner):
                return None if owner.__module__ in {"builtins", "typing"} else owner
    return None


def _defined_plainly(
    metaclass: type, travels: Travels, name: str, bases: tuple[type, ...], space: dict[str, Any], **_: Any
) -> Any:
    """A class of this metaclass, made by the nearest of its bases that does not travel by value."""
    plain = next(base for base in metaclass.__mro__ if not travels(base))
    return plain.__new__(metaclass, name, bases, space)
