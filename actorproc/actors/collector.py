"""The interpreter's cycle collector, paused while very many objects are made that all stay."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

__all__ = ["collector_paused", "collector_paused_for"]

_MANY = 1000
"""Objects for which the collector is paused: fewer it has looked through a few times before they are all made."""


@contextmanager
def collector_paused() -> Iterator[None]:
    """No search for cycles meanwhile, in any thread of the host; afterwards as before.

    A start makes some objects for each procedure that is pending, none of them garbage. To look through them again and
    again took a fifth of what a start with 100,000 of them costs.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def collector_paused_for(count: int) -> AbstractContextManager[None]:
    """The same when so many objects are made that it pays. For what ends soon: nothing that waits for others.

    A third of what `submit_many` of 100,000 costs was looking through the procedures of the caller and those before.
    """
    return collector_paused() if count >= _MANY else nullcontext()
