"""The interpreter's cycle collector, paused while memory is built from a large store."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["collector_paused"]


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
