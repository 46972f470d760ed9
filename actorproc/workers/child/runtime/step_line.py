"""The way of a step to its host: requests that wait, or are awaited, and messages."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from actorproc.model.ids import StepToken
from actorproc.procedure.encoding.log_records import LogParts
from actorproc.workers.child.runtime.worker_runtime import WorkerRuntime
from actorproc.workers.protocol.frames import Heartbeat, LogLine

if TYPE_CHECKING:
    import asyncio

__all__ = ["AsyncStepLine", "StepLine"]


class StepLine:
    """The `StepChannel` of one step."""

    __slots__ = ("_token", "_worker_runtime")

    def __init__(self, worker_runtime: WorkerRuntime, token: StepToken) -> None:
        self._worker_runtime = worker_runtime
        self._token = token

    def request(self, kind: str, key: str = "", value: bytes = b"", step: int = 0) -> bytes | None:
        """Ask the host and wait."""
        return self._worker_runtime.request(self._token, kind, key, value, step)

    def heartbeat(
        self, progress: float | None, message: str | None, details: bytes | None = None, key: str = "", step: int = 0
    ) -> None:
        """Tell how far the step is."""
        self._worker_runtime.channel.send([Heartbeat(self._token, progress, message, details, key, step)])

    def expose(self, key: str, value: bytes) -> None:
        """Show a value."""
        self._worker_runtime.expose(self._token, key, value)

    def log(self, parts: LogParts) -> None:
        """Send a log line."""
        self._worker_runtime.channel.send([LogLine(self._token, *parts)])

    def aborting(self) -> bool:
        """An abort was asked."""
        return self._worker_runtime.is_abort_asked(self._token)

    def keep_changes(self) -> AbstractContextManager[None]:
        """Inside, the limits of the step do not hold, and what is changed of the process stays after the step."""
        return self._worker_runtime.keep_changes()


class AsyncStepLine(StepLine):
    """The `AsyncStepChannel` of one step."""

    __slots__ = ()

    async def request_async(self, kind: str, key: str = "", value: bytes = b"", step: int = 0) -> bytes | None:
        """Ask the host, and let others run until it answers."""
        import asyncio  # noqa: PLC0415 - workers without async steps do not load it

        arrived = _LoopEvent(asyncio.get_running_loop())
        with self._worker_runtime.asking(self._token, (kind, key, value, step), arrived) as pending:
            await arrived.event.wait()
        return pending.value(kind)


class _LoopEvent:
    """An event of a loop, set by another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        import asyncio  # noqa: PLC0415 - as above

        self._loop = loop
        self.event = asyncio.Event()

    def set(self) -> None:
        """The answer is there."""
        self._loop.call_soon_threadsafe(self.event.set)
