"""Retention's hands: finds the trees that may go, oldest first, and brings them to the core, which judges them.

A pass goes through the store's index of finish times in slices of a few milliseconds. Between two slices the
manager does everything else that waits, and a slice begins only when the one before it is on disk, so a removal of
any size delays no step by more than one short commit. What a pass has removed needs no place to be remembered:
the next one begins at the oldest tree that is left.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator

import msgspec

from actorproc.actors.clock import Clock
from actorproc.actors.replies import ReplyTable
from actorproc.actors.ring import Ring
from actorproc.core.retention import CHUNK
from actorproc.engine_log import engine_logger
from actorproc.errors import EngineError, StoreDamaged
from actorproc.model.events import Acknowledged, DeleteRequested, RemovalContinued, TreesExpired
from actorproc.model.policies import Retention
from actorproc.model.snapshot import FinishedTree
from actorproc.store.base import ProcedureStore

__all__ = ["Sweeper"]

logger = engine_logger("actorproc")

_ROOM = 32
"""Procedures read in one slice; a larger tree is a slice of its own."""
_PAGE = 512
"""Rows of the index read in one slice."""
_PAUSE = 0.005
"""Least seconds between two slices."""
_SHARE = 2.0
"""A slice is followed by a pause so many times as long, so that a sweep takes a third of the thread at most."""
_SOON = 1.0
"""Seconds after a start in which the first pass begins."""


class Sweeper:
    """Used by the manager's thread only. `wake_in` asks for a call of `sweep` after so many seconds."""

    def __init__(
        self,
        *,
        store: ProcedureStore,
        ring: Ring,
        replies: ReplyTable,
        clock: Clock,
        retention: Retention,
        interval: float,
        wake_in: Callable[[float], None],
    ) -> None:
        self._store = store
        self._ring = ring
        self._replies = replies
        self._clock = clock
        self._retention = retention
        self._interval = interval
        self._wake_in = wake_in
        self._pass: Iterator[None] | None = None
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
    def ask(self, event: Acknowledged | DeleteRequested) -> None:
        """Complete the event with what is stored of the procedure, and have it decided."""
        try:
            head = self._store.procedure(event.id)
            if isinstance(event, Acknowledged):
                event = msgspec.structs.replace(event, head=head)
            elif head is not None:
                tree = self._store.finished_tree(head.id, CHUNK) if head.parent is None else FinishedTree((head,))
                event = msgspec.structs.replace(event, tree=tree)
        except EngineError as error:
            self._replies.fail(event.reply, error)
            return
        self._ring.handle(event)
        if self._ring.core.removals:
            self._wake_in(_PAUSE)

    # ------------------------------------------------------------ the clock
    def sweep(self) -> None:
        """Do one slice, and ask for the next."""
        if self._stopped:
            return
        if self._ring.trouble or self._ring.core.is_removing:
            self._wake_in(_PAUSE if not self._ring.trouble else self._interval)
            return
        began = self._clock.monotonic()
        if self._pass is None:
            self._pass = self._slices()
        try:
            next(self._pass)
        except StopIteration:
            self._pass = None
        except EngineError as error:
            logger.warning("looking for finished procedures to remove failed and is tried again: %s", error)
            self._pass = None
        spent = self._clock.monotonic() - began
        self._wake_in(self._interval if self._pass is None else max(_PAUSE, _SHARE * spent))

    def _slices(self) -> Iterator[None]:
        """One pass, a slice between two yields."""
        for root in self._ring.core.removals:
            yield from self._finish(root)
        at = self._now()
        taken = self._ring.core.acknowledged(at - self._retention.acknowledged_seconds)
        yield from self._bring(deque((root, False) for root in list(taken)), at)
        cut = yield from self._find_cut()
        yield from self._bring_old(at, cut)
        for root in self._ring.core.removals:
            yield from self._finish(root)

    def _now(self) -> float:
        """The time by which ages are counted: a wall clock set forward by mistake must not remove anything."""
        return min(self._clock.wall(), self._started + self._clock.monotonic())

    def _finish(self, root: str) -> Iterator[None]:
        """Remove what is left of a half removed tree."""
        more = True
        while more and root in self._ring.core.removals and root not in self._unreadable:
            try:
                members, more = self._store.removed_members(root, CHUNK)
            except StoreDamaged as error:
                self._skip(root, error)
                return
            self._ring.handle(RemovalContinued(root, tuple(members), more))
            yield

    def _find_cut(self) -> Generator[None, None, tuple[float, str] | None]:
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
            yield
        return None if place is None else (place[1], place[0])

    def _bring_old(self, at: float, cut: tuple[float, str] | None) -> Iterator[None]:
        limits = [age for age in (self._retention.seconds, self._retention.failed_seconds) if age is not None]
        before = at - min(limits) if limits else 0.0
        place = None
        while page := self._store.finished(after=place, limit=_PAGE):
            place = page[-1]
            found = [(root, cut is not None and (ended, root) < cut, ended <= before) for root, ended in page]
            chosen = deque((root, surplus) for root, surplus, is_old in found if surplus or is_old)
            is_last = len(chosen) < len(page)
            yield from self._bring(chosen, at)
            if is_last:
                return

    def _bring(self, roots: deque[tuple[str, bool]], at: float) -> Iterator[None]:
        """Have the core judge these roots, given with whether there are too many newer ones."""
        while roots:
            trees: list[FinishedTree] = []
            room = _ROOM
            while roots and room > 0:
                root, surplus = roots.popleft()
                tree = self._read(root)
                room -= 1 if tree is None else len(tree.members)
                if tree is not None:
                    trees.append(msgspec.structs.replace(tree, surplus=surplus))
            if trees:
                self._ring.handle(TreesExpired(tuple(trees), at))
            yield
            for root in self._ring.core.removals:
                yield from self._finish(root)

    def _read(self, root: str) -> FinishedTree | None:
        if root in self._unreadable or self._ring.core.view(root) is not None:
            return None
        try:
            return self._store.finished_tree(root, CHUNK)
        except StoreDamaged as error:
            self._skip(root, error)
            return None

    def _skip(self, root: str, error: StoreDamaged) -> None:
        self._unreadable.add(root)
        logger.warning("the finished procedure %s cannot be removed: %s", root, error)
