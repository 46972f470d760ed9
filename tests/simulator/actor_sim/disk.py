"""The store's thread, played: what it is asked for happens when the history says so, well or not. And failing reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from actorproc.engine.messages import CommitFailed, Committed, OwnerDeposed, Reopened, StorageTrouble
from actorproc.engine.pipeline.store_port import StorePort
from actorproc.errors import Deposed, StorageUnavailable
from actorproc.model.rows.writes import Write
from actorproc.store.base import ProcedureStore
from actorproc.store.committer import coalesce
from actorproc.store.memory import MemoryStore
from tests.simulator.actor_sim.hazards import Hazards
from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.core_sim.world import HostCrash, World

__all__ = ["LOSSES_FROM", "READS_FROM", "HeldStorePort", "unreliable"]

_FULL_FOR = 20
"""Attempts to open the store again that fail after a failed commit: fewer than this."""
READS_FROM = 70_000_000
"""The first seed of a history in which reads of the store fail as well, and other owners take it over."""
LOSSES_FROM = 110_000_000
"""The first seed of a history whose store may also go back behind durable commits, as after a failover."""
_KEPT = 0.2
"""Chance that the store as a commit leaves it is what it may go back to."""
_IN_DOUBT = 6.0
"""Factor by which the next commit is likelier to fail when the store was opened again and has taken none since."""


class HeldStorePort(StorePort):
    """A store port without its thread. At most a commit, and an opening behind it, are asked of it at a time."""

    def __init__(self, world: World, hazards: Hazards, epoch: int, tell: Callable[[object], None]) -> None:
        # Its parent's constructor would make a store thread.
        self._world = world
        self._hazards = hazards
        self._epoch = epoch
        self._tell = tell
        self._asked: deque[Callable[[], None]] = deque()
        self._full_for = 0
        self._is_in_doubt = False
        self._kept: MemoryStore | None = None
        """The store as an earlier commit of this life left it."""

    @property
    def is_asked(self) -> bool:
        """It has something to do."""
        return bool(self._asked)

    def commit(self, batch: int, writes: list[Write]) -> None:
        """Commit later; ends in `Committed` or `CommitFailed`."""
        assert not self._asked, "a second commit was asked for while one is under way"
        self._asked.append(partial(self._commit, batch, list(writes)))

    def reopen(self) -> None:
        """Open the store again, later."""
        assert self._reopen not in self._asked, "the store is to be opened again while that is under way"
        self._asked.append(self._reopen)

    def go_on(self) -> None:
        """Do what is asked for. Raises `HostCrash` when the host dies meanwhile."""
        self._asked.popleft()()

    def read_failed(self) -> None:
        """A read has failed: it may be a while until the store can be opened again."""
        self._world.journal.append(("read-failed",))
        self._full_for = self._world.pick(_FULL_FOR)

    # ------------------------------------------------------------ commits
    def _commit(self, batch: int, writes: list[Write]) -> None:
        fires, times = self._hazards.fires, _IN_DOUBT if self._is_in_doubt else 1.0
        if fires(FaultKind.HOST_BEFORE_COMMIT):
            raise HostCrash
        if fires(FaultKind.DEPOSED):
            self._world.store.own()
            error = Deposed("another owner has the store")
            if self._world.random() < 0.5:
                self._tell(OwnerDeposed(error))
            self._tell(CommitFailed(batch, error))
            return
        if fires(FaultKind.COMMIT_LOST, times):
            self._fail(batch, applied=False)
            return
        self._world.store.commit(coalesce(writes), self._epoch, batch)
        self._world.journal.append(("commit", self._epoch, writes))
        if fires(FaultKind.HOST_AFTER_COMMIT):
            raise HostCrash
        if fires(FaultKind.COMMIT_UNKNOWN, times):
            self._fail(batch, applied=True)
            return
        self._is_in_doubt = False
        if FaultKind.WENT_BACK in self._hazards.armed and self._world.random() < _KEPT:
            self._kept = self._world.store.clone()
        self._tell(Committed(batch))

    def _fail(self, batch: int, *, applied: bool) -> None:
        self._world.journal.append(("commit-failed", applied))
        self._full_for = self._world.pick(_FULL_FOR)
        self._tell(CommitFailed(batch, StorageUnavailable("the disk is full")))

    def _reopen(self) -> None:
        world = self._world
        if self._full_for > 0:
            self._full_for -= 1
            self._asked.append(self._reopen)
            if world.random() < 0.2:
                self._tell(StorageTrouble(StorageUnavailable("the disk is still full")))
            return
        if self._kept is not None and self._hazards.fires(FaultKind.WENT_BACK):
            lost = world.store.load().batch - self._kept.load().batch
            world.store._rows, self._kept = self._kept._rows, None
            world.went_back = world.went_back or lost > 0
            world.journal.append(("went-back", lost))
        world.store.reopen()
        self._is_in_doubt = True
        self._tell(Reopened(world.store.load(whole=False)))


def unreliable(store: ProcedureStore, hazards: Hazards, failed: Callable[[], None]) -> ProcedureStore:
    """A store each of whose reads may fail; `failed` is told."""
    return cast("ProcedureStore", _Unreliable(store, hazards, failed))


class _Unreliable:
    def __init__(self, store: ProcedureStore, hazards: Hazards, failed: Callable[[], None]) -> None:
        self._store, self._hazards, self._failed = store, hazards, failed

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def read(*arguments: Any, **options: Any) -> Any:
            if self._hazards.fires(FaultKind.READ_FAILED):
                self._failed()
                raise StorageUnavailable("the disk does not answer")
            return method(*arguments, **options)

        return read
