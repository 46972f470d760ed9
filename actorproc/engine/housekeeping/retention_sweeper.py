"""Retention's hands: finds the trees and events that may go, and brings them to the core, which judges them.

A pass goes through the store's index of finish times in slices of a few milliseconds. Between two slices the
manager does everything else that waits, and a slice begins only when the one before it is on disk. So a removal of any
size delays no step by more than one short commit. A pass need not remember where it ended: the next one begins at the
oldest tree that is left.

A sweep takes a third of the manager's time at most while it keeps up. The longer the oldest tree is overdue, the
shorter are the pauses between slices, until there are none. Then each commit has a slice in it, and ends cannot outrun
removals, because both are decided in the manager's turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from itertools import islice, takewhile
from typing import NamedTuple

import msgspec

from actorproc.core.lifecycle.removal import CHUNK
from actorproc.engine.housekeeping.retention_lag import RetentionLag
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.reply_router import ReplyRouter
from actorproc.errors import EngineError, StoreDamaged
from actorproc.model.messages.events import (
    Acknowledged,
    DeleteRequested,
    RemovalContinued,
    ResultsTaken,
    SignalsExpired,
    TreesExpired,
)
from actorproc.model.policies import Retention
from actorproc.model.rows.cold_trees import is_alone
from actorproc.model.rows.snapshot import FinishedTree
from actorproc.report.health import RetentionHealth
from actorproc.store.base import RecordStore
from actorproc.support.clock import Clock
from actorproc.support.engine_log import engine_logger

__all__ = ["RetentionSweeper"]

logger = engine_logger("actorproc")

_SLICE = 0.002
"""Seconds after which a slice reads no further tree; it has `CHUNK` procedures at most, and one tree at least."""
_AT_ONCE = 16
"""Trees that are read together, in less than a slice."""
_PAGE = 512
"""Rows of the index read in one slice."""
_PAUSE = 0.005
"""Seconds between two looks at what cannot go on now."""
_SHARE = 2.0
"""Ratio of the pause after a slice to the slice: a sweep takes a third of the manager's time at most."""
_UNHEARD = 0.25
"""Seconds after which a slice is looked at again whose commit was never told of: it failed."""
_SOON = 1.0
"""Seconds after a start in which the first pass begins."""
_PART = 0.2
"""Passes are no further apart than this part of the time for which roots are kept, and a second."""


class _Due(NamedTuple):
    """A root that may have to go."""

    root: str
    ended: float | None = None
    """Time at which it finished; None: it is looked at for another reason."""
    surplus: bool = False
    """There are too many newer ones."""


class RetentionSweeper:
    """Removes finished procedures by age and number. Needs the manager's turn (`CombiningInbox`).

    `wake_in(seconds)` asks for a call of `sweep` after that time.
    """

    def __init__(
        self,
        *,
        store: RecordStore,
        pipeline: CommitPipeline,
        replies: ReplyRouter,
        clock: Clock,
        retention: Retention,
        interval: float,
        wake_in: Callable[[float], None],
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._replies = replies
        self._clock = clock
        self._retention = retention
        self._interval = interval
        if retention.seconds is not None:
            self._interval = min(interval, max(_SOON, _PART * retention.seconds))
        self._wake_in = wake_in
        self._pass: Iterator[bool] | None = None
        self._oldest: float | None = None
        """Time at which the root finished that comes next in the pass."""
        self._overdue = RetentionLag(store, retention, max(_SOON, self._interval))
        self._next_at = 0.0
        """Time at which the next slice may begin, by the monotonic clock."""
        self._awaits_commit = False
        """A slice is decided; the next one begins when it is stored."""
        self._stopped = False
        self._unreadable: set[str] = set()
        """Roots of trees that cannot be read; they stay, and are told of once."""
        self._started = clock.wall() - clock.monotonic()

    def start(self) -> None:
        """Begin to sweep, a moment from now."""
        self._wake_in(min(_SOON, self._interval))

    def stop(self) -> None:
        """Sweep no more: the engine ends."""
        self._stopped = True

    # ------------------------------------------------------------ asked by callers
    def ask(self, event: Acknowledged | DeleteRequested | ResultsTaken) -> None:
        """Complete the event with what is stored of the procedure, and have it decided."""
        try:
            if isinstance(event, ResultsTaken):
                self._take(event)
                return
            head = self._store.procedure(event.id)
            if isinstance(event, Acknowledged):
                event = msgspec.structs.replace(event, head=head)
            elif head is not None:
                tree = self._store.finished_tree(head.id, CHUNK) if head.parent is None else FinishedTree((head,))
                event = msgspec.structs.replace(event, tree=tree)
        except EngineError as error:
            self._replies.fail(event.reply, error)
            return
        self._pipeline.handle(event)
        if self._pipeline.core.removals:
            self._wake_in(_PAUSE)

    def _take(self, event: ResultsTaken) -> None:
        """Calls have no children, and nothing to undo."""
        trees = tuple(FinishedTree((head,)) for head in self._store.procedures(event.ids) if is_alone(head))
        self._pipeline.handle(msgspec.structs.replace(event, trees=trees))

    # ------------------------------------------------------------ the clock
    def sweep(self) -> None:
        """Do one slice, and ask for the next."""
        if self._stopped:
            return
        if self._pipeline.trouble or self._pipeline.core.is_removing:
            self._wake_in(_PAUSE if not self._pipeline.trouble else self._interval)
            return
        self._awaits_commit = False
        began = self._clock.monotonic()
        if self._pass is None:
            self._overdue.begin(self._now())
            self._oldest = None
            self._pass = self._slices()
        try:
            is_over = next(self._pass, True)
            if not is_over:
                self._overdue.look(self._now(), self._oldest)
        except EngineError as error:
            logger.warning("looking for finished procedures to remove failed and is tried again: %s", error)
            is_over = None
        if is_over is not False:
            self._pass = None
            self._overdue.end(whole=is_over is True)
            self._wake_in(self._interval)
            return
        now = self._clock.monotonic()
        pause = _SHARE * (1.0 - self._overdue.pressure) * (now - began)
        self._next_at = now + pause
        self._awaits_commit = self._pipeline.core.is_removing
        self._wake_in(max(pause, _UNHEARD) if self._awaits_commit else pause)

    def stored(self) -> None:
        """A commit is on disk: perhaps the one that the next slice waits for."""
        if self._awaits_commit and not self._pipeline.core.is_removing:
            self._awaits_commit = False
            self._wake_in(max(0.0, self._next_at - self._clock.monotonic()))

    def health(self) -> RetentionHealth:
        """Backlog of removals."""
        return self._overdue.health()

    def _slices(self) -> Iterator[bool]:
        """One pass; says after each slice that it is not over."""
        for root in self._pipeline.core.removals:
            yield from self._finish(root)
        at = self._now()
        taken = self._pipeline.core.acknowledged(at - self._retention.acknowledged_seconds)
        yield from self._bring(deque(map(_Due, taken)), at)
        cut = yield from self._find_cut()
        yield from self._bring_old(at, cut)
        yield from self._expire_events(at)
        for root in self._pipeline.core.removals:
            yield from self._finish(root)

    def _expire_events(self, at: float) -> Iterator[bool]:
        """Remove published events that no procedure took in time."""
        if self._retention.signals_seconds is None:
            return
        targets = deque(self._pipeline.core.published())
        while targets:
            page = [targets.popleft() for _ in range(min(_PAGE, len(targets)))]
            rows = deque(self._pipeline.core.too_old(page, at))
            while rows:
                chosen = tuple(rows.popleft() for _ in range(min(_PAGE, len(rows))))
                self._pipeline.handle(SignalsExpired(chosen, at))
                logger.info("%d published events were removed: no procedure took them in time", len(chosen))
                yield False
            yield False

    def _now(self) -> float:
        """The time by which ages are counted: a wall clock set forward by mistake must not remove anything."""
        return min(self._clock.wall(), self._started + self._clock.monotonic())

    def _finish(self, root: str) -> Iterator[bool]:
        """Remove what is left of a half removed tree."""
        more = True
        while more and root in self._pipeline.core.removals and root not in self._unreadable:
            try:
                members, more = self._store.removed_members(root, CHUNK)
            except StoreDamaged as error:
                self._skip(root, error)
                return
            self._pipeline.handle(RemovalContinued(root, tuple(members), more))
            yield False

    def _find_cut(self) -> Generator[bool, None, tuple[float, str] | None]:
        """The finish time and id of the oldest root that `Retention.count` keeps, None when it removes none."""
        count, place = self._retention.count, None
        if count == 0:
            return (float("inf"), "")
        while count:
            page = self._store.finished(reverse=True, after=place, limit=min(count, _PAGE))
            if not page:
                return None
            place = page[-1]
            count -= len(page)
            yield False
        return None if place is None else (place[1], place[0])

    def _bring_old(self, at: float, cut: tuple[float, str] | None) -> Iterator[bool]:
        limits = [age for age in (self._retention.seconds, self._retention.failed_seconds) if age is not None]
        before = at - min(limits) if limits else 0.0
        place = None
        while page := self._store.finished(after=place, limit=_PAGE):
            place = page[-1]
            found = (_Due(root, ended, cut is not None and (ended, root) < cut) for root, ended in page)
            chosen = deque(due for due in found if due.surplus or (due.ended or 0.0) <= before)
            is_last = len(chosen) < len(page)
            yield from self._bring(chosen, at)
            if is_last:
                return

    def _bring(self, roots: deque[_Due], at: float) -> Iterator[bool]:
        """Have the core judge these roots."""
        while roots:
            trees: list[FinishedTree] = []
            room, until = CHUNK, self._clock.monotonic() + _SLICE
            while roots and room > 0 and (room == CHUNK or self._clock.monotonic() < until):
                for due, tree in self._read_next(roots, room):
                    room -= 1 if tree is None else len(tree.members)
                    if tree is not None:
                        trees.append(msgspec.structs.replace(tree, surplus=True) if due.surplus else tree)
                    if due.ended is not None:
                        self._overdue.judged(due.ended)
            self._oldest = roots[0].ended if roots else self._oldest
            if trees:
                self._pipeline.handle(TreesExpired(tuple(trees), at))
            yield False
            for root in self._pipeline.core.removals:
                yield from self._finish(root)

    def _read_next(self, roots: deque[_Due], room: int) -> list[tuple[_Due, FinishedTree | None]]:
        """Take roots off the queue, with their trees; None for a tree that is not to be removed now."""
        found: list[tuple[_Due, FinishedTree | None]] = []
        while roots and self._is_kept(roots[0].root):
            found.append((roots.popleft(), None))
        wanted = list(takewhile(lambda due: not self._is_kept(due.root), islice(roots, min(room, _AT_ONCE))))
        if wanted:
            try:
                trees = self._store.finished_trees([due.root for due in wanted], CHUNK)
            except StoreDamaged as error:
                self._skip(wanted[0].root, error)
                trees = [None]
            found += [(roots.popleft(), tree) for tree in trees]
        return found

    def _is_kept(self, root: str) -> bool:
        return root in self._unreadable or self._pipeline.core.view(root) is not None

    def _skip(self, root: str, error: StoreDamaged) -> None:
        self._unreadable.add(root)
        logger.warning("the finished procedure %s cannot be removed: %s", root, error)
