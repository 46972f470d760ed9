"""The queue between the manager and one watcher. The manager never waits for it."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from collections.abc import Callable, Iterable

import msgspec

from actorproc.report.changes import Change, ChangeDigest, DigestRow, Overflow

__all__ = [
    "EPOCH_BITS",
    "MOST_ROWS",
    "SHORTEST_DIGEST",
    "DigestSubscription",
    "FeedMark",
    "Subscription",
    "SubscriptionItem",
]

EPOCH_BITS = 32
"""Numbers of changes grow with the epoch, so those of an earlier life of the manager are smaller."""


SHORTEST_DIGEST = 0.1
"""Seconds between two digests, at least."""
MOST_ROWS = 500
"""Rows of a digest; when more has changed it has their number only."""


class FeedMark(msgspec.Struct, frozen=True):
    """A place in the stream: all changes of the commits so far were told before it."""

    seq: int
    """Number of the last change there was, told or not wanted."""
    batch: int
    """Number of the last commit of this life of the manager."""

    def batch_at(self, seq: int | None) -> int | None:
        """Number of the commit for a watcher whose last change is `seq`; None if that is one of another life.

        Each life counts its commits from 1.
        """
        return self.batch if seq is not None and seq >> EPOCH_BITS == self.seq >> EPOCH_BITS else None


SubscriptionItem = Change | Overflow | FeedMark | ChangeDigest


class Subscription:
    """Changes of one procedure, or of all, that wait to be taken.

    At most `bound` wait. When another one comes, the oldest is dropped and counted, so the newest change of a
    procedure is never lost. The taker is notified of the gap before it gets the rest.
    """

    def __init__(
        self,
        id: str | None,
        *,
        steps: bool,
        progress: bool,
        bound: int,
        marks: bool = False,
        batch: int | None = None,
    ) -> None:
        """With `marks` the taker gets a `FeedMark` after each commit, for a watcher that may outlive the manager.

        `batch` is that of the last mark it got, perhaps of an earlier life of the manager.
        """
        self.id = id
        self.batch = batch
        self._marks = marks
        self._mark: FeedMark | None = None
        self.steps = steps
        self.progress = progress
        self._bound = bound
        self._items: deque[Change] = deque()
        self._changed = threading.Condition()
        self._lost: int | None = 0
        self._gap_at = 0
        self._over = False
        self._error: BaseException | None = None
        self._wakers: list[Callable[[], None]] = []

    @property
    def is_over(self) -> bool:
        """Nothing more comes."""
        return self._over

    def wants(self, change: Change) -> bool:
        """This watcher asked for such changes."""
        if self.id is not None and change.id != self.id:
            return False
        return (change.kind != "step" or self.steps) and (change.kind != "progress" or self.progress)

    def offer(self, change: Change) -> None:
        """Queue a change; the last one of a watched procedure ends the queue."""
        with self._changed:
            if self._over:
                return
            if len(self._items) >= self._bound:
                dropped = self._items.popleft()
                self._lost = self._lost + 1 if self._lost is not None else None
                self._gap_at = dropped.seq
            self._items.append(change)
            if self.id is not None and change.ended:
                self._over = True
            self._wake()

    def mark(self, seq: int, batch: int) -> None:
        """All changes up to these numbers were offered; only the last mark counts."""
        if self._marks:
            with self._changed:
                if not self._over:
                    self._mark = FeedMark(seq, batch)
                    self._wake()

    def mark_gap(self, seq: int) -> None:
        """Changes before this one are not known any more."""
        with self._changed:
            self._lost = None
            self._gap_at = seq
            self._wake()

    def end(self, error: BaseException | None = None) -> None:
        """Nothing more comes; what waits can still be taken. The first end counts."""
        with self._changed:
            if not self._over:
                self._over = True
                self._error = error
                self._wake()

    def take(self, timeout: float | None = None) -> SubscriptionItem | None:
        """The next one, waiting at most `timeout` seconds (None: as long as it takes); None when there is no more.

        Raises the builtin `TimeoutError`, and the error with which the watch was ended.
        """
        with self._changed:
            if not self._changed.wait_for(self._ready, timeout):
                raise TimeoutError
            return self._next()

    def take_now(self, wake: Callable[[], None]) -> tuple[bool, SubscriptionItem | None]:
        """As `take` without waiting: (True, the next one), or (False, None).

        Then `wake` is called once when to ask again, on another thread; it must return at once.
        """
        with self._changed:
            if self._ready():
                return True, self._next()
            self._wakers.append(wake)
            return False, None

    def forget(self, wake: Callable[[], None]) -> None:
        """Forget the caller that gave this to `take_now`: it waits no longer."""
        with self._changed, contextlib.suppress(ValueError):
            self._wakers.remove(wake)

    def _ready(self) -> bool:
        return self._over or bool(self._items) or self._lost != 0 or self._mark is not None

    def _next(self) -> SubscriptionItem | None:
        if self._lost != 0:
            gap = Overflow(seq=self._gap_at, lost=self._lost)
            self._lost = 0
            return gap
        if self._items:
            return self._items.popleft()
        if self._mark is not None:
            mark, self._mark = self._mark, None
            return mark
        if self._error is not None:
            raise self._error
        return None

    def _wake(self) -> None:
        self._changed.notify_all()
        wakers, self._wakers = self._wakers, []
        for wake in wakers:
            wake()


class DigestSubscription(Subscription):
    """Coalesced changes of all procedures, at most one `ChangeDigest` in an interval.

    Changes that are gathered while the taker is busy join those that wait, so memory is bounded by `MOST_ROWS`.
    """

    def __init__(self, interval: float) -> None:
        """`interval` is the number of seconds between two digests."""
        super().__init__(None, steps=True, progress=True, bound=1)
        self.interval = interval
        self.next_at = 0.0
        """Monotonic time before which no further digest is released. The feed's own."""
        self._rows: dict[str, DigestRow] = {}
        self._removed: dict[str, None] = {}
        self._omitted: int | None = 0
        self._at = 0.0
        self._released = False

    @property
    def has_gathered(self) -> bool:
        """Something waits to be released."""
        return bool(self._rows or self._removed) or self._omitted != 0

    def gather(self, at: float, rows: Iterable[DigestRow], removed: Iterable[str], omitted: int | None) -> None:
        """Add changes to those that wait; the taker is not woken yet."""
        with self._changed:
            self._at = at
            for row in rows:
                self._removed.pop(row.id, None)
                self._rows[row.id] = row
            for id in removed:
                self._rows.pop(id, None)
                self._removed[id] = None
            if omitted is None or self._omitted is None:
                self._omitted = None
            else:
                self._omitted += omitted
            waiting = len(self._rows) + len(self._removed)
            if waiting > MOST_ROWS or (self._omitted != 0 and waiting):
                self._omitted = None if self._omitted is None else self._omitted + waiting
                self._rows.clear()
                self._removed.clear()

    def release(self) -> None:
        """Let the taker have what waits."""
        with self._changed:
            if not self._over:
                self._released = True
                self._wake()

    def mark_gap(self, seq: int) -> None:  # noqa: ARG002 - digests have no numbers
        """Changes up to now are not known."""
        self.gather(0.0, (), (), None)
        self.release()

    def _ready(self) -> bool:
        return self._over or self._released

    def _next(self) -> SubscriptionItem | None:
        if self._released:
            found = ChangeDigest(
                at=self._at, rows=tuple(self._rows.values()), removed=tuple(self._removed), omitted=self._omitted
            )
            self._rows, self._removed, self._omitted, self._released = {}, {}, 0, False
            return found
        return super()._next()
