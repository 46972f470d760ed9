"""Waiting for a fact instead of sleeping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from actorproc.errors import ActorprocError

BOUND = 30.0
"""Seconds any awaited condition may take; only a failing test waits that long."""
_LOOKS = 20
"""Looks at a thread that find it as it was; between two of them are five milliseconds at least."""


def wait_until(condition: Callable[[], Any], bound: float = BOUND) -> Any:
    """The first true value of `condition`; fails the test when it does not come."""
    deadline = time.monotonic() + bound
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{condition} did not come true within {bound} s"
        time.sleep(0.005)
    return value


def once_within(seconds: float, attempt: Callable[[], Any], tries: int = 5) -> Any:
    """What the first attempt gives that takes less than so many seconds; fails the test when none of the tries does.

    What takes so long at most on a machine that has the time takes longer where others use it meanwhile. An attempt
    may give the seconds it took, as a float, where it prepares something first.
    """
    took = []
    for _ in range(tries):
        begun = time.monotonic()
        given = attempt()
        took.append(given if isinstance(given, float) else time.monotonic() - begun)
        if took[-1] < seconds:
            return given
    raise AssertionError(f"{attempt} took {', '.join(f'{one:.2f}' for one in took)} s, and {seconds} s are allowed")


def until_it_waits(pid: int) -> None:
    """Wait until the first thread of another process has waited for a tenth of a second, where nothing else tells it."""
    seen: list[tuple[str, ...]] = []

    def has_waited() -> bool:
        lines = Path(f"/proc/{pid}/task/{pid}/status").read_text().splitlines()
        seen.append(tuple(line for line in lines if line.startswith(("State", "voluntary", "nonvoluntary"))))
        return len(set(seen[-_LOOKS:])) == 1 and len(seen) >= _LOOKS and seen[-1][0].split()[1] == "S"

    wait_until(has_waited)


def outcome_of(call: Callable[[], Any]) -> Any:
    """What a call gives, or which error of ours it raises, on a thread of its own; fails the test when it has no end."""
    found = []

    def run() -> None:
        try:
            found.append(call())
        except ActorprocError as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(BOUND)
    assert not thread.is_alive()
    return found[0]
