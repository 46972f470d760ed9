"""The environment of a worker's steps: what the factory makes, found by its class, and closed at the worker's end."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable
from types import CoroutineType
from typing import TYPE_CHECKING, Any, TypeVar

__all__ = ["Environment", "entered"]

T = TypeVar("T")


class Environment:
    """Objects for the steps of a worker, by their classes: ``ctx.env[DB]``. Made by the manager's ``environment``.

    Args:
        *objects: The objects, each of another class.

    Raises:
        TypeError: Two objects have one class.
    """

    def __init__(self, *objects: object) -> None:
        kinds = [type(each) for each in objects]
        for kind in kinds:
            if kinds.count(kind) > 1:
                name = kind.__qualname__
                msg = f"Environment(…) has two objects of the class {name}; put both into one of another class"
                raise TypeError(msg)
        self._objects = objects

    def __getitem__(self, kind: type[T]) -> T:
        found = [each for each in self._objects if type(each) is kind]
        found = found or [each for each in self._objects if isinstance(each, kind)]
        if len(found) != 1:
            known = ", ".join(type(each).__qualname__ for each in self._objects) or "nothing"
            how = "more than one object" if found else "no object"
            msg = f"ctx.env has {how} of the class {getattr(kind, '__qualname__', kind)}; it has {known}"
            raise LookupError(msg)
        return found[0]

    def __contains__(self, kind: type) -> bool:
        return any(isinstance(each, kind) for each in self._objects)

    if TYPE_CHECKING:  # what the factory returns may be any object, of which a checker knows nothing

        def __getattr__(self, name: str) -> Any: ...


def entered(made: Any, stack: contextlib.ExitStack) -> Any:
    """The object for the steps, and on the stack what closes it.

    A factory that is a generator function gives the object by its one ``yield``; the rest of it runs at the end.

    Raises:
        TypeError: It is to be awaited.
    """
    if isinstance(made, Awaitable | AsyncIterator | contextlib.AbstractAsyncContextManager) and not isinstance(
        made, contextlib.AbstractContextManager
    ):
        if isinstance(made, CoroutineType):
            made.close()
        msg = (
            f"the factory of environment= returned {made!r:.80}, which is to be awaited, and it runs where nothing is; "
            "write it without 'async', and open in the steps what needs an event loop"
        )
        raise TypeError(msg)
    if isinstance(made, contextlib._GeneratorContextManager):
        return stack.enter_context(made)
    if hasattr(made, "send") and hasattr(made, "gi_frame"):
        return stack.enter_context(contextlib.contextmanager(lambda: made)())
    return made
