"""Named places in user code at which a test lets the worker die.

    from actorproc.testing import crash_point

    @step
    def pay(self, ctx):
        bank.charge(self.card, key=ctx.idempotency_key)
        crash_point("charged, not noted")
        self.paid = True

Outside of tests it does nothing. A thread dies by an exception, so what ``finally`` and ``with`` do on the way out is
done, other than in a process that is killed. `crashing_at` arms it for the workers of an `InlineManager`, and
`survives_crashes` tries every point that is passed.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter
from collections.abc import Callable, Iterator

from actorproc.errors import UsageError

__all__ = ["Passages", "armed", "crash_point", "crashing_at", "told_astray", "watched", "worker_dies_by"]

_lock = threading.Lock()
_armed: dict[str, int] = {}
"""Number of workers that are still to pass or to die, by name: see `crashing_at`."""
_watching: list[Passages] = []
_here = threading.local()


class Passages:
    """Number of passages of each point: by workers, which can die there, and astray, by threads that are none."""

    def __init__(self) -> None:
        self.by_workers: Counter[str] = Counter()
        self.astray: Counter[str] = Counter()


def crash_point(name: str) -> None:
    """Die here if a test wants it; else nothing, at the cost of two look-ups. In the thread of the step itself.

    Args:
        name: The name of the point.
    """
    if not _watching and not _armed:
        return
    die: Callable[[], None] | None = getattr(_here, "die", None)
    with _lock:
        for seen in _watching:
            (seen.astray if die is None else seen.by_workers)[name] += 1
        left = _armed.get(name)
        if left is None or die is None:
            return
        _armed[name] = left - 1
    if left == 1:
        die()


@contextlib.contextmanager
def crashing_at(name: str, passage: int = 1) -> Iterator[None]:
    """Let the inline worker that passes a crash point die there. A context manager.

    Args:
        name: The name of the point.
        passage: The passage at which it dies, counted from 1. Default: 1.

    Yields:
        None.

    Raises:
        AssertionError: At the end, the point was passed fewer times.
        ValueError: ``passage`` is not at least 1.
        UsageError: The point is armed already.
    """
    with armed(name, passage) as left, watched() as seen:
        yield
        if left() > 0:
            msg = f"the crash point {name!r} was passed {passage - left()} times; it was to crash at the {passage}."
            raise AssertionError(msg + told_astray(seen.astray[name]))


@contextlib.contextmanager
def armed(name: str, passage: int) -> Iterator[Callable[[], int]]:
    """Arm a crash point, as `crashing_at`, and assert nothing.

    Args:
        name: The name of the point.
        passage: The passage at which it dies, counted from 1.

    Yields:
        A function that returns how many passages are left.

    Raises:
        ValueError: ``passage`` is not at least 1.
        UsageError: The point is armed already.
    """
    if isinstance(passage, bool) or not isinstance(passage, int) or passage < 1:
        msg = f"passages of a crash point are counted from 1, so it cannot crash at {passage!r:.60}"
        raise ValueError(msg)
    with _lock:
        if name in _armed:
            msg = f"the crash point {name!r} is armed already; one crash after another, each in a `with` of its own"
            raise UsageError(msg)
        _armed[name] = passage
    try:
        yield lambda: _armed[name]
    finally:
        with _lock:
            del _armed[name]


@contextlib.contextmanager
def watched() -> Iterator[Passages]:
    """Counts how often each point is passed, inside."""
    seen = Passages()
    _watching.append(seen)
    try:
        yield seen
    finally:
        _watching.remove(seen)


def told_astray(times: int) -> str:
    """Text about a point that was passed where nothing can die; "" for a point that was not."""
    if not times:
        return ""
    return (
        f" It was passed {times} times on a thread that is no worker's, such as one that a step has started, and there "
        "nothing dies: call it on the thread that runs the step"
    )


def worker_dies_by(die: Callable[[], None]) -> None:
    """The calling thread is an inline worker; this ends it."""
    _here.die = die
