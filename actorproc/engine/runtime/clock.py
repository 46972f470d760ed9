"""Waits of the engine: time limits of callers, and the alarm for what is due."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from actorproc.support.clock import Clock
from actorproc.support.durations import seconds_or_none

__all__ = ["LONGEST_WAIT", "OVERSLEPT", "Alarm", "waiting_seconds"]

LONGEST_WAIT = threading.TIMEOUT_MAX / 2
"""Seconds; a longer wait is one without limit. There is room to add to it."""
OVERSLEPT = 1.0
"""Seconds after which a deadline says nothing: this program stood still, or its clock was moved by hand."""


def waiting_seconds(timeout: Any) -> float | None:
    """A caller's `timeout` in seconds, at least 0; None for no limit, and for one too long for the platform's clock."""
    try:
        seconds = seconds_or_none(timeout, "a timeout", least="any", endless=True)
    except ValueError as error:  # "not a number" is a value of the wrong kind, too
        raise TypeError(str(error)) from None
    return None if seconds is None or seconds > LONGEST_WAIT else max(0.0, seconds)


class Alarm:
    """Calls back when a monotonic deadline has come: one daemon thread, one deadline per name."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._changed = threading.Condition()
        self._deadlines: dict[str, tuple[float, Callable[[], None]]] = {}
        self._waiting_until: float | None = None
        self._offset: float | None = None
        """Wall time less monotonic time, as it was looked at last."""
        self._when_set: Callable[[], None] | None = None
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="actorproc-alarm", daemon=True)

    def next_at(self, *names: str) -> float | None:
        """The earliest deadline of these names (monotonic seconds); None: there is none."""
        with self._changed:
            return min((when for name, (when, _) in self._deadlines.items() if name in names), default=None)

    def when_clock_is_set(self, pipeline: Callable[[], None]) -> None:
        """Have a function called within a minute after the wall clock was set, forward or back."""
        self._when_set = pipeline

    def look_again(self) -> None:
        """The clock was moved by hand."""
        with self._changed:
            self._changed.notify()

    def start(self) -> None:
        """Begin to ring."""
        self._thread.start()
        when_moved = getattr(self._clock, "when_moved", None)
        if when_moved is not None:  # a clock that is moved by hand says so
            when_moved(self.look_again)

    def set(self, name: str, when: float | None, pipeline: Callable[[], None]) -> None:
        """Ring once at `when` (monotonic seconds); None: never. Replaces the earlier deadline of `name`."""
        with self._changed:
            if when is None:
                self._deadlines.pop(name, None)
                return
            self._deadlines[name] = (when, pipeline)
            if self._waiting_until is None or when < self._waiting_until:
                self._changed.notify()

    def close(self) -> None:
        """Ring no more and end the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._deadlines.clear()
            self._changed.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while True:
            with self._changed:
                if self._closed:
                    return
                now = self._clock.monotonic()
                due = {name: entry for name, entry in self._deadlines.items() if entry[0] <= now}
                if not due:
                    self._waiting_until = min((when for when, _ in self._deadlines.values()), default=None)
                    # Some monotonic clocks stand still while the machine sleeps; a bounded wait looks again.
                    wait = 60.0 if self._waiting_until is None else min(60.0, self._waiting_until - now)
                    self._changed.wait(wait)
            if self._when_set is not None and self._clock_was_set():
                self._when_set()
            for _, pipeline in due.values():
                pipeline()
            with self._changed:  # only now: what is not heard yet is still to come for `next_at`
                for name, entry in due.items():
                    if self._deadlines.get(name) is entry:
                        del self._deadlines[name]

    def _clock_was_set(self) -> bool:
        offset, before = self._clock.wall() - self._clock.monotonic(), self._offset
        self._offset = offset
        return before is not None and abs(offset - before) > OVERSLEPT
