"""A manager as an asynchronous context manager: its start and its stop run on threads, and the loop goes on."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import Self, TypeVar

__all__ = ["AsyncLife"]

_T = TypeVar("_T")


class AsyncLife:
    """``async with`` for a class that has ``with``."""

    def __enter__(self) -> Self:
        raise NotImplementedError

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        import asyncio  # noqa: PLC0415 - hosts without a loop need not load it

        over: list[None] = []
        """An entry when the start has ended, and one when its caller was cancelled: the later of the two stops it."""

        def begin() -> None:
            try:
                self.__enter__()
            finally:
                over.append(None)
                if len(over) > 1:
                    self.__exit__(asyncio.CancelledError, None, None)

        starting = asyncio.ensure_future(_in_thread(begin))
        try:
            await asyncio.shield(starting)
        except asyncio.CancelledError:
            # A thread cannot be cancelled, and no other would stop what it starts. It does so itself: a caller
            # that is cancelled once more does not even wait for it.
            over.append(None)
            if len(over) > 1:
                await _in_thread(lambda: self.__exit__(asyncio.CancelledError, None, None))
            await asyncio.wait([starting])
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await _in_thread(lambda: self.__exit__(kind, error, trace))


async def _in_thread(call: Callable[[], _T]) -> _T:
    import asyncio  # noqa: PLC0415 - hosts and commands without a loop need not load it

    return await asyncio.to_thread(call)
