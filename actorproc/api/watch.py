"""The watcher's end of a stream of changes."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Generic, NoReturn, Self, TypeVar, cast

from actorproc.engine.runtime.clock import waiting_seconds
from actorproc.engine.runtime.subscription import FeedMark, Subscription
from actorproc.errors import ManagerStopped, ResultTimeout
from actorproc.model.names import step_in_words
from actorproc.report.changes import Change, ChangeDigest, Overflow

__all__ = ["Watch"]

_T = TypeVar("_T", bound=Change | Overflow | ChangeDigest)


class Watch(Generic[_T]):
    """An iterator, and an async iterator, of each `Change`; an `Overflow` stands where some were dropped.

    With ``digest=…`` it gives a `ChangeDigest` at a time instead.

    Made by `ProcedureManager.watch`. One consumer at a time. A watch of one procedure ends after its terminal state;
    any watch ends when it is closed. When the manager stops, a watch of everything ends, and a watch of one procedure
    that has not ended raises `ManagerStopped`. Close it, or use it in a ``with``: an open watch costs the manager a
    little for every change. A dropped one, as by a ``break`` in ``for change in manager.watch():``, is closed when it
    is collected.

    Args:
        subscription: The changes that are asked for.
        leave: Called once the watch is closed.
    """

    _engine_stays_here = "belongs to its process: watch there with a ProcedureClient of its own"

    def __init__(self, subscription: Subscription, leave: Callable[[], None]) -> None:
        self._subscription = subscription
        self._leave = leave
        self._pid = os.getpid()
        self._last: Change | None = None
        """The change of the one procedure that is watched which `next` gave last."""

    @property
    def id(self) -> str | None:
        """The procedure that is watched; None: all of them."""
        return self._subscription.id

    def next(self, timeout: float | timedelta | None = None) -> _T | None:
        """Wait for the next change.

        Args:
            timeout: Seconds, or a timedelta, to wait at most. Default: None, without limit.

        Returns:
            A `Change` or an `Overflow`, or a `ChangeDigest`; None when the watch has ended.

        Raises:
            ResultTimeout: No change came in that time; a builtin `TimeoutError`. For a watch of one procedure it has
                the id, phase, step and reason of the last change that `next` gave.
            ManagerStopped: This is a forked child, where no change would arrive. Or the manager of a watched procedure
                stopped.
        """
        self._check_process()
        seconds = waiting_seconds(timeout)
        try:
            found = self._subscription.take(seconds)
        except TimeoutError:
            raise self._late(f"nothing has changed within {seconds:g} s") from None
        assert not isinstance(found, FeedMark)  # this subscription asked for none
        if isinstance(found, Change) and self.id is not None:
            self._last = found
        return cast("_T | None", found)

    def _late(self, says: str) -> ResultTimeout:
        last = self._last
        if last is None:
            return ResultTimeout(says, id=self.id or "")
        reason = f" ({last.reason})" if last.reason else ""
        words = f"{says}: {last.id} is {last.phase} at {step_in_words(last.step, last.step_name)}{reason}"
        return ResultTimeout(
            words,
            id=last.id,
            phase=str(last.phase),
            step=last.step,
            step_name=last.step_name,
            reason=last.reason or "",
        )

    def close(self) -> None:
        """Watch no more. Idempotent; may be called from any thread, also while another one waits in it."""
        if os.getpid() != self._pid:
            return  # a forked child: its parent's watch is its parent's, and threads that are gone may have kept locks
        self._leave()
        self._subscription.end()

    def __del__(self) -> None:
        # Not at the end of the interpreter: threads that are gone may have kept the locks.
        if not sys.is_finalizing():
            self.close()

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            msg = f"this watch belongs to process {self._pid} and hears nothing in its forked child {os.getpid()}: "
            raise ManagerStopped(msg + "watch there with an actorproc.ProcedureClient of its own")

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _T:
        self._check_process()
        found = self._subscription.take()
        assert not isinstance(found, FeedMark)  # this subscription asked for none
        if found is None:
            self.close()
            raise StopIteration
        return cast("_T", found)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _T:
        self._check_process()
        import asyncio  # noqa: PLC0415 - hosts and commands without a loop need not load it

        loop = asyncio.get_running_loop()
        while True:
            again = asyncio.Event()

            def wake(again: asyncio.Event = again) -> None:
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: no task waits any more
                    loop.call_soon_threadsafe(again.set)

            ready, found = self._subscription.take_now(wake)
            if not ready:
                try:
                    await again.wait()
                finally:
                    self._subscription.forget(wake)
            elif found is None:
                self.close()
                raise StopAsyncIteration
            else:
                assert not isinstance(found, FeedMark)  # this subscription asked for none
                return cast("_T", found)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        msg = f"a Watch {self._engine_stays_here}"
        raise TypeError(msg)

    def __repr__(self) -> str:
        return f"<Watch of {self.id or 'everything'}>"
