"""Waiting for a fact instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

BOUND = 30.0
"""Seconds any awaited condition may take; only a failing test waits that long."""


def wait_until(condition: Callable[[], Any], bound: float = BOUND) -> Any:
    """The first true value of `condition`; fails the test when it does not come."""
    deadline = time.monotonic() + bound
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{condition} did not come true within {bound} s"
        time.sleep(0.005)
    return value
