"""The caller's end of one procedure."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Generator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, NoReturn, Protocol

from actorproc.actors.clock import waiting_seconds
from actorproc.actors.messages import Ending
from actorproc.actors.replies import take_back
from actorproc.errors import ProcedureFailed
from actorproc.failures import failure_of
from actorproc.info import ProcedureInfo
from actorproc.model.states import ProcedureState

__all__ = ["HandleSource", "ProcedureHandle"]


class HandleSource(Protocol):
    """What a handle needs of its manager; for handles alone, so its names are private but for `info`."""

    def _end_of(self, id: str) -> Ending | Future[Ending]:  # noqa: A002 - a procedure id
        """The procedure's end, or a future of it while it has not ended."""
        ...

    def _ended(self, id: str) -> bool:  # noqa: A002
        """The procedure is in a terminal state."""
        ...

    def info(self, id: str) -> ProcedureInfo:  # noqa: A002
        """The procedure as it is now."""
        ...

    def _output_of(self, ending: Ending) -> Any:
        """The decoded output of a procedure that succeeded."""
        ...

    def _post(self, errand: Callable[[], object]) -> None:
        """Run a callback on the thread for callbacks."""
        ...


class _Process:
    """This one, as far as Python knows: to ask the system for each handle would take longer than to make it."""

    pid = os.getpid()

    @classmethod
    def ask(cls) -> None:
        cls.pid = os.getpid()


os.register_at_fork(after_in_child=_Process.ask)


class ProcedureHandle:
    """Waits for one procedure and gives its output. Cheap, thread-safe, and good for finished procedures too.

    A handle holds no work: dropping it, or cancelling an ``await`` of it, changes nothing for the procedure.
    """

    _engine_stays_here = "belongs to its process: keep and pass on its id, and ask the manager there for it"
    __slots__ = ("__dict__", "__weakref__", "_end", "_id", "_pid", "_source")

    def __init__(self, id: str, source: HandleSource) -> None:  # noqa: A002
        self._id = id
        self._source = source
        self._pid = _Process.pid
        self._end: Ending | Future[Ending] | None = None

    @property
    def id(self) -> str:
        """The procedure's id."""
        return self._id

    def result(self, timeout: float | timedelta | None = None) -> Any:
        """Wait for the end, at most `timeout` (seconds or a timedelta), and return the output.

        Raises `ProcedureFailed` (or its subclass `ProcedureAborted`) when it ended otherwise, the builtin
        `TimeoutError` when the time is up, `ManagerStopped` when the manager stopped first, `StoreDamaged` when a
        record cannot be trusted: the one that has the output, or one of its tree without which it will never end.
        """
        return self._unpack(self._wait(timeout))

    def exception(self, timeout: float | timedelta | None = None) -> ProcedureFailed | None:
        """Wait as `result`; return the failure, None when it succeeded."""
        ending = self._wait(timeout)
        return None if ending.record.state == ProcedureState.SUCCESS else failure_of(ending.record)

    def wait(self, timeout: float | timedelta | None = None) -> bool:
        """Wait at most `timeout` (seconds or a timedelta) for the end; True when it has come.

        Raises `ManagerStopped` or `StoreDamaged`, as `result`.
        """
        try:
            self._wait(timeout)
        except TimeoutError:
            return False
        return True

    def done(self) -> bool:
        """It has ended, one way or the other. Does not wait."""
        end = self._end
        return (end is not None and _has_come(end)) or self._source._ended(self._id)

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
                self._source._post(lambda: function(self))

        end = self._watch()
        if isinstance(end, Ending):
            self._source._post(lambda: function(self))
        else:
            end.add_done_callback(ended)

    def __await__(self) -> Generator[Any, None, Any]:
        return self._awaited().__await__()

    def __reduce__(self) -> NoReturn:
        msg = f"a handle belongs to its process: pass on its id, {self._id!r}, and ask the manager there for it"
        raise TypeError(msg)

    def __repr__(self) -> str:
        return f"<ProcedureHandle {self._id}>"

    async def _awaited(self) -> Any:
        future = self._watch()
        if isinstance(future, Ending):
            return self._unpack(future)
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

    def _watch(self) -> Ending | Future[Ending]:
        end = self._end
        if os.getpid() != self._pid:
            # A forked copy of the program: nobody settles an open future here. Whoever the handle is of says so.
            return end if end is not None and _has_come(end) else self._source._end_of(self._id)
        # A manager that was started again, or one whose store was repaired, can still tell.
        if end is None or (not isinstance(end, Ending) and end.done() and end.exception() is not None):
            # Without a lock: of two threads that ask at once each gets an end that comes, and one of them is kept.
            end = self._end = self._source._end_of(self._id)
        return end

    def _wait(self, timeout: float | timedelta | None) -> Ending:
        seconds = waiting_seconds(timeout)
        end = self._watch()
        if isinstance(end, Ending):
            return end
        try:
            return end.result(seconds)
        except TimeoutError:
            msg = f"procedure {self._id} has not ended within {seconds:g} s"
            raise TimeoutError(msg) from None

    def _unpack(self, ending: Ending) -> Any:
        if ending.record.state == ProcedureState.SUCCESS:
            return self._source._output_of(ending)
        raise failure_of(ending.record)


def _has_come(end: Ending | Future[Ending]) -> bool:
    return isinstance(end, Ending) or (end.done() and end.exception() is None)
