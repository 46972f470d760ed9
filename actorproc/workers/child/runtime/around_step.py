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
        with _Inside(self, ctx):
            return await attempt()

    def _run(self, ctx: Context, attempt: Callable[[], T]) -> T:
        with _Inside(self, ctx):
            return attempt()

    def enter(self, ctx: Context) -> Callable[..., object] | None:
        """Enter it for an attempt; the method that leaves it, None if that failed and was logged."""
        try:
            return self._entered(ctx)
        except StopStep:
            raise
        except BaseException as error:
            if self._fails:
                raise
            self._tell(ctx, "was not entered, and the step ran without it", error)
            return None

    def leave(self, ctx: Context, leave: Callable[..., object], error: BaseException | None) -> None:
        """Leave it; its word on an error of the step is not asked: a failure stays one."""
        try:
            leave(None if error is None else type(error), error, None if error is None else error.__traceback__)
        except StopStep:
            raise
        except BaseException as own:
            if error is None:
                if self._fails:
                    raise
                self._tell(ctx, "raised after the step", own)
            elif own is not error:
                self._tell(ctx, f"raised while {type(error).__name__} of the step passed", own)

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


class _Inside:
    """Context of one attempt. No generator: an attempt may end with `StopIteration`."""

    __slots__ = ("_around", "_ctx", "_leave")

    def __init__(self, around: AroundStep, ctx: Context) -> None:
        self._around, self._ctx = around, ctx

    def __enter__(self) -> None:
        self._leave = self._around.enter(self._ctx)

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if self._leave is not None:
            self._around.leave(self._ctx, self._leave, error)
