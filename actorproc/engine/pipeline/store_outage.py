"""The time in which the store cannot be used: why, since when, and what has to wait for its end."""

from __future__ import annotations

from actorproc.engine.messages import StorageTrouble, WatchEnds
from actorproc.errors import EngineError, StorageUnavailable
from actorproc.model.messages.events import (
    HostAdded,
    HostDraining,
    HostRemoved,
    ReloadBegan,
    Resized,
    StepReported,
    WorkerLost,
    WorkerReady,
)
from actorproc.support.clock import Clock
from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import WorkerMessages

__all__ = ["Late", "StoreOutage"]

logger = engine_logger("actorproc")

_TOLD_EACH = 10.0
"""Seconds after which an outage that goes on is told again, unless its reason changes."""

Late = (
    WatchEnds
    | WorkerMessages
    | StepReported
    | WorkerLost
    | WorkerReady
    | Resized
    | ReloadBegan
    | HostAdded
    | HostDraining
    | HostRemoved
)
"""Messages that read the store, or that say of workers what must stay in order with their answers."""


class StoreOutage:
    """Outage of the store: begins with a failed commit or read, and ends with the first commit that works.

    Needs the manager's turn (`CombiningInbox`).

    A store that could be opened again is in doubt: a full disk lets the small commit of the opening pass, and fails
    the next real one. Until one has worked no caller is told that it does.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._deferred: list[Late] = []
        self.lasts = False
        """The store is not open: nothing is decided."""
        self.is_in_doubt = False
        """It was opened again, and no real commit has worked since."""
        self.error: Exception | None = None
        """Last error of the store."""
        self.since = 0.0
        """Monotonic seconds of the first commit or read that failed."""
        self._told = ("", 0.0)
        """The last line that was logged, and the monotonic seconds of that."""

    @property
    def refuses(self) -> bool:
        """New work is not taken."""
        return self.lasts or self.is_in_doubt

    def begin(self, error: Exception, what: str = "a commit failed") -> None:
        """Note that a commit failed, or another use of the store, as `what` says. Raises an error of another kind."""
        if not isinstance(error, EngineError):
            raise error
        if self.refuses:
            self._tell("the store could be opened again, and still cannot be used", error)
        else:
            logger.error("%s; actorproc hands out no steps and retries: %s", what, error)
            self.since = self._clock.monotonic()
            self._told = ("", self.since)
        self.lasts = True
        self.is_in_doubt = False
        self.error = error

    def go_on(self, message: StorageTrouble) -> None:
        """Note that the store could not be opened again yet."""
        self._tell("the store is still not available", message.error)
        self.lasts = True
        self.error = message.error

    def _tell(self, what: str, error: Exception) -> None:
        """Log a try that failed, unless that was said a moment ago."""
        line, now = f"{what}: {error}", self._clock.monotonic()
        told, at = self._told
        if line != told or now - at >= _TOLD_EACH:
            self._told = (line, now)
            logger.warning("%s", line)

    def is_longer_than(self, seconds: float) -> bool:
        """True if the outage lasts, and has lasted for this number of seconds."""
        return self.refuses and self._clock.monotonic() - self.since >= seconds

    def doubt(self) -> None:
        """Note that the store could be opened and read again."""
        self.lasts = False
        self.is_in_doubt = True

    def take_deferred(self) -> list[Late]:
        """The messages that waited for the store, in order, unless it cannot be used; they are forgotten here."""
        if self.lasts:
            return []
        deferred, self._deferred = self._deferred, []
        return deferred

    def end(self) -> None:
        """A commit worked, or nothing is left to commit."""
        logger.warning("the store works again after %.1f s", self._clock.monotonic() - self.since)
        self.is_in_doubt = False
        self.error = None

    def defer(self, message: Late) -> None:
        """Keep what reads the store until it can be read."""
        self._deferred.append(message)

    def refusal(self) -> StorageUnavailable:
        """Error for callers during the outage."""
        msg = f"the store cannot be used at the moment and is retried: {self.error}"
        return StorageUnavailable(msg)
