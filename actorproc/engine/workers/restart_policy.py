"""Restart windows of worker slots: Erlang/OTP's restart intensity with backoff, and a way back from it.

OTP gives up for good when a child fails too often; a service manager (systemd's `RestartSteps`) goes on with longer
pauses. Here a slot does both: it is *parked*, which the host is told, and after a cool-down one worker is tried in it.
"""

from __future__ import annotations

import random
from collections import deque

from actorproc.model.crash_report import CrashReport

__all__ = ["RestartWindow", "SlotRestarts", "is_killed_from_outside"]

_LONGEST_PARKED = 32.0
"""Ratio of the longest cool-down to the first one."""
_KILLED_BASE = 0.05
_KILLED_CAP = 1.0
_NO_LIMIT = 1 << 30


class RestartWindow:
    """A sliding window of failures: `limit` of them within `period` seconds are too many."""

    def __init__(self, limit: int = 5, period: float = 30.0, base: float = 0.1, cap: float = 10.0) -> None:
        self._limit = limit
        self._period = period
        self._base = base
        self._cap = cap
        self._failures: deque[float] = deque(maxlen=min(limit, 64))

    def failed(self, now: float) -> float | None:
        """Record a failure at `now`; the seconds to wait before the next start, None when the slot is to be parked."""
        failures = self._failures
        failures.append(now)
        while failures[0] <= now - self._period:
            failures.popleft()
        if len(failures) >= self._limit:
            return None
        return _jittered(min(self._cap, self._base * 2.0 ** (len(failures) - 1)))

    @property
    def count(self) -> int:
        """Failures in the window when the last one was recorded; 64 stands for more."""
        return len(self._failures)


class SlotRestarts:
    """The failures of one slot. Times in seconds, `now` on the monotonic clock.

    `limit` failures within `period` park the slot. `parked_for` is the first cool-down; it doubles each time the
    worker that is tried after it fails before it has lived for `period`.
    """

    def __init__(self, limit: int, period: float, parked_for: float) -> None:
        self._limit = limit
        self._period = period
        self._first_cool_down = parked_for
        self._failures = RestartWindow(limit, period)
        self._kills = RestartWindow(_NO_LIMIT, period, _KILLED_BASE, _KILLED_CAP)
        self._cool_down = parked_for
        self._on_trial = False
        self._booted_at: float | None = None

    def booted(self, now: float) -> None:
        """A worker of the slot takes steps."""
        self._booted_at = now

    def failed(self, now: float) -> float | None:
        """It could not boot, or ended by itself with nothing to do: the pause, None when the slot is to be parked."""
        self._look_at_trial(now)
        return None if self._on_trial else self._failures.failed(now)

    def killed(self, now: float) -> float:
        """Note a death by a foreign signal; returns the pause, none for the first. Such deaths park no slot."""
        self._look_at_trial(now)
        pause = self._kills.failed(now) or 0.0
        return pause if self._kills.count > 1 else 0.0

    def parked(self) -> float:
        """The slot is parked: how long until a worker is tried in it."""
        cool_down, self._on_trial = self._cool_down, True
        self._cool_down = min(2.0 * cool_down, _LONGEST_PARKED * self._first_cool_down)
        return _jittered(cool_down)

    def _look_at_trial(self, now: float) -> None:
        booted, self._booted_at = self._booted_at, None
        if self._on_trial and booted is not None and now - booted >= self._period:
            self._on_trial = False
            self._cool_down = self._first_cool_down
            self._failures = RestartWindow(self._limit, self._period)


def is_killed_from_outside(report: CrashReport) -> bool:
    """True if a worker that had nothing to do was ended by another process, the kernel's killer included.

    A worker without a step answers SIGTERM with exit code 0.
    """
    if report.kind == "out-of-memory" or (report.kind == "exit" and report.code == 0):
        return True
    return report.kind == "signal" and report.signal in {"SIGKILL", "SIGTERM"}


def _jittered(seconds: float) -> float:
    return seconds * random.uniform(0.75, 1.25)  # noqa: S311 - so that slots do not restart in step
