"""The caller's end of one procedure."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, Protocol

from actorproc.actors.clock import waiting_seconds
from actorproc.actors.messages import Ending
from actorproc.actors.replies import take_back
from actorproc.errors import ProcedureFailed
from actorproc.failures import failure_of
from actorproc.info import ProcedureInfo
from actorproc.model.states import ProcedureState

__all__ = ["HandleSource", "ProcedureHandle"]


class HandleSource(Protocol):
    """What a handle needs of its manager."""

    def end_of(self, id: str) -> Future[Ending]:  # noqa: A002 - a procedure id
        """A future of the procedure's end."""
        ...

    def ended(self, id: str) -> bool:  # noqa: A002
        """The procedure is in a terminal state."""
        ...

    def info(self, id: str) -> ProcedureInfo:  # noqa: A002
        """The procedure as it is now."""
        ...

    def output_of(self, ending: Ending) -> Any:
        """The decoded output of a procedure that succeeded."""
        ...

    def post(self, errand: Callable[[], object]) -> None:
        """Run a callback on the thread for callbacks."""
        ...


class ProcedureHandle:
    """Waits for one procedure and gives its output. Cheap, thread-safe, and good for finished procedures too.

    A handle holds no work: dropping it, or cancelling an ``await`` of it, changes nothing for the procedure.
    """

    def __init__(self, id: str, source: HandleSource) -> None:  # noqa: A002
        self._id = id
        self._source = source
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._future: Future[Ending] | None = None

    @property
    def id(self) -> str:
        """The procedure's id."""
        return self._id

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end, at most `timeout` seconds, and return the output.

        Raises `ProcedureFailed` (or its subclass `ProcedureAborted`) when it ended otherwise, the builtin
        `TimeoutError` when the time is up, `ManagerStopped` when the manager stopped first, `StoreDamaged` when a
        record cannot be trusted: the one that has the output, or one of its tree without which it will never end.
        """
        return self._unpack(self._end(timeout))

    def exception(self, timeout: float | None = None) -> ProcedureFailed | None:
        """Wait as `result`; return the failure, None when it succeeded."""
        ending = self._end(timeout)
        return None if ending.record.state == ProcedureState.SUCCESS else failure_of(ending.record)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds for the end; True when it has come.

        Raises `ManagerStopped` or `StoreDamaged`, as `result`.
        """
        try:
            self._end(timeout)
        except TimeoutError:
            return False
        return True

    def done(self) -> bool:
        """It has ended, one way or the other. Does not wait."""
        future = self._future
        if future is not None and future.done() and future.exception() is None:
            return True
        return self._source.ended(self._id)

    def info(self) -> ProcedureInfo:
        """The procedure as it is now."""
        return self._source.info(self._id)

    def add_done_callback(self, function: Callable[[ProcedureHandle], object]) -> None:
        """Call `function(handle)` once it has ended, on a thread of the manager; at once when it has already.

        What the callback raises is logged. It is not called when the manager stops first, nor when
        damage keeps the end from being known (`result` raises `StoreDamaged`).
        """

        def ended(future: Future[Ending]) -> None:
            if future.exception() is None:
                self._source.post(lambda: function(self))

        self._watch().add_done_callback(ended)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._awaited().__await__()

    def __repr__(self) -> str:
        return f"<ProcedureHandle {self._id}>"

    async def _awaited(self) -> Any:
        future = self._watch()
        if not future.done():
            import asyncio  # noqa: PLC0415 - hosts and commands without a loop need not load it

            loop = asyncio.get_running_loop()
            ended = asyncio.Event()

            def wake(_: Future[Ending]) -> None:
                with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nobody awaits any more
                    loop.call_soon_threadsafe(ended.set)

            future.add_done_callback(wake)
            try:
                await ended.wait()
            finally:
                take_back(future, wake)
        return self._unpack(future.result())

    def _watch(self) -> Future[Ending]:
        if os.getpid() != self._pid:
            # A forked copy of the program: nobody settles an open future here, and a thread that is not here may hold
            # the lock. Whoever the handle is of says so.
            future = self._future
            if future is not None and future.done() and future.exception() is None:
                return future
            return self._source.end_of(self._id)
        with self._lock:
            future = self._future
            # A manager that was started again, or one whose store was repaired, can still tell.
            if future is None or (future.done() and future.exception() is not None):
                future = self._future = self._source.end_of(self._id)
            return future

    def _end(self, timeout: float | None) -> Ending:
        try:
            return self._watch().result(waiting_seconds(timeout))
        except TimeoutError:
            msg = f"procedure {self._id} has not ended within {timeout:g} s"
            raise TimeoutError(msg) from None

    def _unpack(self, ending: Ending) -> Any:
        if ending.record.state == ProcedureState.SUCCESS:
            return self._source.output_of(ending)
        raise failure_of(ending.record)
