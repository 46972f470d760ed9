"""The store as the manager sees it: asked by method, answering by message."""

from __future__ import annotations

from collections.abc import Callable, Collection
from concurrent.futures import Future

from actorproc.config import Config
from actorproc.engine.messages import CommitFailed, Committed, Reopened, ReopenFailed, StorageTrouble
from actorproc.errors import Deposed
from actorproc.model.reports import CompactionReport
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import Write
from actorproc.store.base import ProcedureStore
from actorproc.store.committer import Committer

__all__ = ["StorePort"]


class StorePort:
    """One committer, whose callbacks become messages to the manager.

    The manager's own thread does by `work` what is asked, when it has given the turn away. `tell` hands the manager a
    message there; `asked` is called when there is work.
    """

    def __init__(
        self,
        store: ProcedureStore,
        config: Config,
        tell: Callable[[object], None],
        asked: Callable[[], None],
    ) -> None:
        self._tell = tell
        self._store = store
        self._committer = Committer(
            store, self._done, asked, first_delay=config.commit_backoff, longest_delay=config.commit_backoff_cap
        )

    @property
    def jobs(self) -> Collection[object]:
        """All that is asked for."""
        return self._committer.jobs

    @property
    def work(self) -> Callable[[], bool]:
        """Does what was asked for first, which may last as long as a disk takes; False when nothing is asked for."""
        return self._committer.work

    def start(self) -> RecoverySnapshot:
        """Own the store, load it; what stands in the way is raised here."""
        return self._committer.start()

    def commit(self, batch: int, writes: list[Write]) -> None:
        """Commit soon; ends in `Committed` or `CommitFailed`."""
        self._committer.submit(writes, batch)

    def reopen(self) -> None:
        """Open the store again, retried with backoff; `StorageTrouble` for each failure, at last `Reopened`."""
        self._committer.reopen(self._reopened, lambda error, _delay: self._tell(StorageTrouble(error)))

    def depose(self, error: Deposed) -> None:
        """Write nothing more to the store, which another owner has; from any thread."""
        self._committer.depose(error)

    def compact(self) -> Future[CompactionReport]:
        """Compact the store soon; commits wait for it."""
        return self._committer.run(self._store.compact)

    def close(self, timeout: float) -> bool:
        """Commit what was asked for, close the store; False when that took longer than `timeout` seconds."""
        return self._committer.stop(timeout)

    def _done(self, batch: int, error: Exception | None) -> None:
        if error is None:
            self._tell(Committed(batch))
        else:
            self._tell(CommitFailed(batch, error))

    def _reopened(self, snapshot: RecoverySnapshot | None, error: Exception | None) -> None:
        if snapshot is not None:
            self._tell(Reopened(snapshot))
        elif error is not None:
            self._tell(ReopenFailed(error))
