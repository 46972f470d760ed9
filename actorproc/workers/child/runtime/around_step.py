"""The program's own context manager around each attempt: contexts of loggers, scopes of error trackers, sessions."""

from __future__ import annotations

import importlib
import inspect
import time
from collections.abc import Awaitable, Callable
from contextvars import copy_context
from typing import Any, TypeVar

from actorproc.procedure.authoring.context import Context, StopStep

__all__ = ["AroundStep"]

T = TypeVar("T")

_NOT_ENTERED = "was not entered, and the step ran without it"

_SAY_EVERY = 10.0
"""Seconds between two log records about errors of the hook in one worker: a broken one fails with every step."""


class AroundStep:
    """Enters the context manager that a function makes, and runs an attempt inside.

    Args:
        name: The function, as ``module:function``; it is imported here.
        fails: Errors of it fail the step; else they are logged.

    Raises:
        TypeError: It is no function that makes a context manager.
    """

    def __init__(self, name: str, *, fails: bool) -> None:
        module, _, path = name.partition(":")
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
        if not callable(found) or inspect.iscoroutinefunction(found) or inspect.isgeneratorfunction(found):
            kind = "a generator function without @contextmanager" if inspect.isgeneratorfunction(found) else repr(found)
            msg = f"around_step={name!r} has to be a function that makes a context manager; it is {kind:.120}"
            raise TypeError(msg)
        self._name, self._fails, self._make = name, fails, found
        self._next_word = 0.0
        self._unsaid = 0

    def run(self, ctx: Context, attempt: Callable[[], T]) -> T:
        """Run an attempt inside, in a context (`contextvars`) of its own: the next one finds nothing of it."""
        return copy_context().run(self._run, ctx, attempt)

    async def run_async(self, ctx: Context, attempt: Callable[[], Awaitable[T]]) -> T:
        """Await an attempt inside, in the context of the calling task."""
        try:
            leave = self._entered(ctx)
        except StopStep:
            raise
        except BaseException as error:
            if self._fails:
                raise
            self._tell(ctx, _NOT_ENTERED, error)
            return await attempt()
        try:
            result = await attempt()
        except BaseException as error:
            self._left_with(ctx, leave, error)
            raise
        self._left(ctx, leave)
        return result

    def _run(self, ctx: Context, attempt: Callable[[], T]) -> T:
        try:
            leave = self._entered(ctx)
        except StopStep:
            raise
        except BaseException as error:
            if self._fails:
                raise
            self._tell(ctx, _NOT_ENTERED, error)
            return attempt()
        try:
            result = attempt()
        except BaseException as error:
            self._left_with(ctx, leave, error)
            raise
        self._left(ctx, leave)
        return result

    def _left_with(self, ctx: Context, leave: Callable[..., object], error: BaseException) -> None:
        """Leave it as the step failed."""
        try:
            leave(type(error), error, error.__traceback__)  # its word is not asked: a failure stays one
        except StopStep:
            raise
        except BaseException as own:  # noqa: BLE001 - user code
            if own is not error:
                self._tell(ctx, f"raised while {type(error).__name__} of the step passed", own)

    def _left(self, ctx: Context, leave: Callable[..., object]) -> None:
        """Leave it as the step has ended."""
        try:
            leave(None, None, None)
        except StopStep:
            raise
        except BaseException as error:
            if self._fails:
                raise
            self._tell(ctx, "raised after the step", error)

    def _entered(self, ctx: Context) -> Callable[..., object]:
        """Enter a new context manager; the method that leaves it."""
        manager = self._make(ctx)
        kind = type(manager)
        if not hasattr(kind, "__enter__") or not hasattr(kind, "__exit__"):
            msg = f"{self._name} returned {manager!r:.120}, which is no context manager"
            raise TypeError(msg)
        leave: Callable[..., object] = manager.__exit__
        manager.__enter__()
        return leave

    def _tell(self, ctx: Context, what: str, error: BaseException) -> None:
        if time.monotonic() < self._next_word:
            self._unsaid += 1
            return
        self._next_word = time.monotonic() + _SAY_EVERY
        before, self._unsaid = self._unsaid, 0
        more = f" ({before} errors of it before this one were not logged)" if before else ""
        ctx.log.error("around_step %s %s%s", self._name, what, more, exc_info=error)
