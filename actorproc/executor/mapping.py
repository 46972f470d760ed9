"""Results of `ProcedureExecutor.map`, in order."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, TypeVar

from actorproc.executor.futures import DurableFuture
from actorproc.executor.queue import CallQueue

__all__ = ["chunks_of", "flat", "in_order"]

T = TypeVar("T")


def chunks_of(calls: Iterator[tuple[Any, ...]], size: int) -> Iterator[tuple[tuple[Any, ...], ...]]:
    """The arguments of calls, in chunks of this size."""
    while chunk := tuple(itertools.islice(calls, size)):
        yield chunk


def in_order(calls: CallQueue, futures: list[DurableFuture[T]], end: float | None) -> Iterator[T]:
    """The results; what is left when the reader goes away is cancelled in one go, not one commit after another."""
    futures.reverse()
    try:
        while futures:
            yield _popped(futures, end)
    except BaseException:
        # The reader left, perhaps by the garbage collector, which may have come along on any thread, the manager's
        # too; or a call failed, or the time is up, and who hears of that must not wait for a disk.
        if futures:
            calls.cancel_soon(futures[:])
            futures.clear()  # an error keeps the frames it has passed, and would keep these with it
        raise


def _popped(futures: list[DurableFuture[T]], end: float | None) -> T:
    """The last one's result; it stays in the list until it has one."""
    result = futures[-1].result(None if end is None else end - time.monotonic())
    futures.pop()
    return result


def flat(lists: Iterator[list[T]]) -> Iterator[T]:
    """The results of chunks, one by one."""
    for results in lists:
        results.reverse()
        while results:
            yield results.pop()  # given away: what the reader drops is collected
