"""`AsyncContext`: the context of an async step, whose requests are awaited."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar, overload

from actorproc.model.ids import check_id
from actorproc.model.names import note_key
from actorproc.procedure.authoring.context import Context, StepChannel
from actorproc.procedure.encoding.value_codec import NOTE

if TYPE_CHECKING:
    import asyncio

__all__ = ["AsyncContext", "AsyncStepChannel", "StepContext", "called", "is_async"]

T = TypeVar("T")
StepContext: TypeAlias = Any
"""A `Context`, or in functions that are written with ``async def`` an `AsyncContext`."""

is_async: Callable[[object], bool] = inspect.iscoroutinefunction
"""A function that was written with ``async def``."""


class AsyncStepChannel(StepChannel, Protocol):
    """The way to the engine of a step that shares its thread with others."""

    async def request_async(self, kind: str, key: str = "", value: bytes = b"", step: int = 0) -> bytes | None:
        """As `request`, while other steps run."""
        ...


class AsyncContext(Context, eq=False):
    """Facts and requests of an async step: those of `Context`, with the requests that wait to be awaited.

    They are `remember`, `query` and `expose`. `heartbeat` and everything else does not wait, as ``children`` and
    ``last_heartbeat`` are asked for before the step begins.
    """

    @overload  # type: ignore[override]
    async def remember(self, key: str, make: Callable[[], Awaitable[T]]) -> T: ...
    @overload
    async def remember(self, key: str, make: Callable[[], T]) -> T: ...
    async def remember(self, key: str, make: Callable[[], Any]) -> Any:
        """The value that a function gave the first time, in whichever attempt; it is durable before this returns.

        As `Context.remember`. If several tasks of a step ask for one key, only one of them makes the value.

        Args:
            key: A name for the value, one in this step.
            make: A function without arguments, plain or ``async def``, called when no attempt of this step has a value
                yet.

        Returns:
            The value.

        Raises:
            TypeError: ``key`` is no text.
            StateNotEncodable: The value cannot be kept.
        """
        key, notes, turn = self._turn_of(key, _new_turn)
        async with turn:
            if key in notes:
                return self._note(key, notes[key])
            name = note_key(self.mode, key)
            if self._may_repeat:
                stored = await self._request("recall", name, b"", self._begun + self.step)
                if stored is not None:
                    notes[key] = stored
                    return self._note(key, stored)
            value = make()
            if inspect.isawaitable(value):
                value = await value
            encoded = self._codec.encode(value, f"remember({key!r})", NOTE + self.id)
            await self._request("remember", name, encoded, self._begun + self.step)
            notes[key] = encoded
            return value

    async def query(self, procedure_id: str) -> dict[str, Any]:  # type: ignore[override]
        """Facts of `ProcedureManager.info` about a procedure.

        Args:
            procedure_id: The procedure.

        Returns:
            The facts as plain data.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        return self._facts(procedure_id, await self._request("query", check_id(procedure_id)))

    async def expose(self, key: str, value: Any) -> None:  # type: ignore[override]
        """Show a value of the procedure, in `ProcedureInfo.exposed` and on the command line.

        As `Context.expose`.

        Args:
            key: A name, one in this procedure: 1 to 128 characters without control characters.
            value: A value that a state could hold. Values of one procedure take at most `Config.max_state` bytes
                together.

        Raises:
            TypeError: ``key`` is no text.
            ValueError: ``key`` can be no key, or there are 100 others already.
            StateNotEncodable: The value cannot be kept.
            StateTooLarge: The values would take more bytes than `Config.max_state`.
            NotAllowed: The step is over.
        """
        reports = self._reports
        if not reports.knows_sizes:
            reports.learn_sizes(await self._request("exposed"))
        reports.expose(key, value)

    async def _request(self, kind: str, key: str = "", value: bytes = b"", step: int = 0) -> bytes | None:
        channel: Any = self._channel
        ask: Any = getattr(channel, "request_async", None)
        if ask is None:  # nothing waits there: a replay has all answers
            return self._channel.request(kind, key, value, step)
        answer: bytes | None = await ask(kind, key, value, step)
        return answer

    async def _prepare(self) -> None:
        """Ask for what properties give: they cannot be awaited."""
        if self._children_step:
            self._take_children(await self._request("children", "", b"", self._children_step))
        if self._may_repeat:
            reports = self._reports
            reports.learn_details(await self._request("recall", reports.beat_key, b"", self._begun + self.step))

    @contextlib.contextmanager
    def _as_plain(self) -> Iterator[Context]:
        """The same for a plain function, which runs on a thread of its own and may wait there."""
        plain = Context(*(getattr(self, name) for name in Context.__struct_fields__))
        plain._turns = None
        try:
            yield plain
        finally:
            self._unreadable = self._unreadable or plain._unreadable
            self._asked_for_fence = self._asked_for_fence or plain._asked_for_fence
            self._requests = plain._requests


def _new_turn() -> asyncio.Lock:
    import asyncio  # noqa: PLC0415 - a program without async steps does not load it

    return asyncio.Lock()


async def called(function: Callable[..., Any], owner: Any, ctx: AsyncContext, *more: Any) -> Any:
    """Result of a method of an asynchronous procedure: awaited, or called on a thread where it is a plain one."""
    if is_async(function):
        return await function(owner, ctx, *more)
    import asyncio  # noqa: PLC0415 - as above

    with ctx._as_plain() as plain:
        return await asyncio.to_thread(function, owner, plain, *more)
