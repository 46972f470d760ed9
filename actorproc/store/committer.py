"""Committer: all writing use of one store, one job at a time and in the order asked.

One thread asks for jobs (`submit`, `reopen`, `run`). The thread that calls `work` does them, and waits for the disk
there. Jobs and their callbacks run under one lock. The store is opened and closed on a thread of its own: a disk that
hangs must not hold up the thread that starts or stops an engine.

After a commit has failed its outcome is unknown, so nothing that was decided on top of it may be stored. Every later
batch is answered with the same error until `reopen` has read the store again.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TypeVar

from actorproc.errors import (
    Deposed,
    EngineError,
    ManagerStopped,
    StorageUnavailable,
    StoreDamaged,
    StoreFormat,
    StoreInUse,
)
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import DeleteProcedure, PutProcedure, Write
from actorproc.store.base import ProcedureStore
from actorproc.support.engine_log import engine_logger

__all__ = ["FINAL", "Committer", "coalesce"]

_log = engine_logger("actorproc.store")

FINAL = (StoreInUse, StoreFormat, StoreDamaged)
"""No waiting helps against these."""

_THREAD = "actorproc-store"
"""Name of the threads that open and close a store."""
_STARTS_WITHIN = 5.0
"""Seconds for the end of a thread whose start was interrupted: it may never have begun."""

_T = TypeVar("_T")

Done = Callable[[int, Exception | None], None]
Reopened = Callable[[RecoverySnapshot | None, Exception | None], None]
Retrying = Callable[[Exception, float], None]


def coalesce(writes: Sequence[Write]) -> Sequence[Write]:
    """The same writes with at most one `PutProcedure` per id: the first `was`, the last record.

    A head changes several times while a batch is gathered, and only its last form is worth encoding. Heads on
    either side of a `DeleteProcedure` of the same id stay apart.
    """
    heads = [write.record.id for write in writes if type(write) is PutProcedure]
    if len(heads) == len(set(heads)):  # as in most batches
        return writes
    merged: list[Write] = []
    places: dict[str, int] = {}
    for write in writes:
        if type(write) is PutProcedure:
            place = places.setdefault(write.record.id, len(merged))
            if place < len(merged):
                earlier = merged[place]
                assert type(earlier) is PutProcedure
                merged[place] = PutProcedure(write.record, earlier.was)
                continue
        elif type(write) is DeleteProcedure:
            places.pop(write.record.id, None)
        merged.append(write)
    return merged


class Committer:
    """The jobs of one store.

    `done(batch, error)` is called where the work is done for every submitted batch, in order; `error` is None once
    the batch is durable. `asked()` is called when there is a job. `first_delay` and `longest_delay` bound the backoff
    of `reopen`, in seconds.
    """

    def __init__(
        self,
        store: ProcedureStore,
        done: Done,
        asked: Callable[[], None] | None = None,
        *,
        first_delay: float = 0.05,
        longest_delay: float = 5.0,
    ) -> None:
        self._store = store
        self._done = done
        self._asked = asked
        self._first_delay = first_delay
        self._longest_delay = longest_delay
        self.jobs: deque[Callable[[], None]] = deque()
        """The jobs asked for and not begun; to be looked at."""
        self._working = threading.Lock()
        self._worker: int | None = None
        """The thread that does a job."""
        self._stopping = threading.Event()
        self._ended = threading.Event()
        self._has_begun = False
        self._closer: threading.Thread | None = None
        self._failed: Exception | None = None
        self._deposed: Deposed | None = None
        """Another owner has the store: nothing is written to it any more."""
        # Only a commit that worked resets it: a full disk may well let a reopen pass, and fail the next commit.
        self._delay = 0.0
        self.epoch = 0
        """The epoch this owner has; 0 before `start`."""

    def start(self) -> RecoverySnapshot:
        """Own the store and load it, on a thread of its own; return what is in it.

        Exceptions of `own` and `load` are raised here, and the committer is then stopped for good.
        """
        if self._has_begun:
            raise ManagerStopped("a committer starts once; make another one")
        self._has_begun = True
        loaded: Future[RecoverySnapshot] = Future()
        thread = threading.Thread(target=self._own, args=(loaded,), name=_THREAD, daemon=True)
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads
            self._has_begun = False
            raise
        except BaseException:  # Ctrl-C: it may run, or never begin
            self.stop(_STARTS_WITHIN)
            raise
        try:
            snapshot = loaded.result()
        except BaseException:
            self.stop()
            raise
        thread.join()
        return snapshot

    def work(self) -> bool:
        """Do the next job on this thread; False when there is none."""
        if not self.jobs:
            return False
        with self._working:
            if not self.jobs or self._ended.is_set():
                return False
            self._worker = threading.get_ident()
            try:
                self.jobs.popleft()()
            finally:
                self._worker = None
            return True

    def _ask(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)
        if self._asked is not None:
            self._asked()

    def submit(self, writes: Sequence[Write], batch: int) -> None:
        """Commit these writes as one transaction; `done(batch, error)` follows."""
        self._ask(partial(self._commit, writes, batch))

    def reopen(self, reopened: Reopened, retrying: Retrying | None = None) -> None:
        """Reopen the store, retried with growing delays for ever, and load it.

        `reopened(snapshot, None)` once it works again. `retrying(error, delay)` before each wait of `delay`
        seconds. `reopened(None, error)` when retrying is pointless: another owner took over, the store was
        replaced or is damaged, or `stop` was called meanwhile (`ManagerStopped`).
        """
        self._ask(lambda: self._reopen(reopened, retrying))

    def run(self, job: Callable[[], _T]) -> Future[_T]:
        """Do something with the store between two commits; not while a failed commit is unsolved."""
        done: Future[_T] = Future()
        self._ask(lambda: self._do(job, done))
        return done

    def depose(self, error: Deposed) -> None:
        """Write nothing more; from any thread. A commit that is under way is for the store to refuse."""
        self._deposed = self._deposed or error

    def stop(self, timeout: float | None = None) -> bool:
        """Commit what was submitted, close the store; a waiting `reopen` gives up.

        Returns whether that was done within `timeout` seconds. Idempotent. Inside of a job nothing is waited for.
        """
        self._stopping.set()
        if not self._has_begun:
            return True
        if self._closer is None:
            closer = self._closer = threading.Thread(target=self._close, name=_THREAD, daemon=True)
            try:
                closer.start()
            except RuntimeError:  # the system has no more threads
                self._close()
        if self._worker == threading.get_ident() or not self._ended.wait(timeout):
            return False
        if self._closer.is_alive():
            self._closer.join()
        return True

    def _close(self) -> None:
        while self.work():
            pass
        with self._working:
            if self._ended.is_set():
                return
            try:
                self._store.close()
            finally:
                self._ended.set()

    def _own(self, loaded: Future[RecoverySnapshot]) -> None:
        try:
            with self._working:
                snapshot = self._opened()
            loaded.set_result(snapshot)
        except BaseException as error:  # noqa: BLE001 - it is raised where start() waits
            loaded.set_exception(error)

    def _opened(self) -> RecoverySnapshot:
        if self._stopping.is_set():
            raise ManagerStopped("the store was to be closed before it was opened")
        self.epoch = self._store.own()
        return self._store.load(whole=False)

    def _commit(self, writes: Sequence[Write], batch: int) -> None:
        self._failed = self._deposed or self._failed
        if self._failed is None:
            try:
                self._store.commit(coalesce(writes), self.epoch, batch)
                self._delay = 0.0
            except Exception as error:  # noqa: BLE001 - the manager is told, and decides
                self._note(error)
        self._tell(self._done, batch, self._failed)

    def _note(self, error: Exception) -> None:
        self._failed = error
        if isinstance(error, Deposed):
            self.depose(error)

    def _do(self, job: Callable[[], _T], done: Future[_T]) -> None:
        if not done.set_running_or_notify_cancel():
            return
        if self._deposed is not None:
            done.set_exception(self._deposed)
            return
        if self._failed is not None:
            trouble = f"the store refuses writes at the moment: {self._failed}; try again later"
            done.set_exception(StorageUnavailable(trouble))
            return
        try:
            done.set_result(job())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is waited for
            done.set_exception(error)

    def _reopen(self, reopened: Reopened, retrying: Retrying | None) -> None:
        while self._deposed is None and not self._stopping.wait(self._delay):
            self._delay = min(max(2 * self._delay, self._first_delay), self._longest_delay)
            try:
                self._store.reopen()
                snapshot = self._store.load(whole=False)
            except Exception as error:  # noqa: BLE001 - the manager is told, and decides
                if not isinstance(error, EngineError) or isinstance(error, FINAL):
                    self._note(error)
                    self._tell(reopened, None, error)
                    return
                if retrying is not None:
                    self._tell(retrying, error, self._delay)
            else:
                self._failed = None
                self._tell(reopened, snapshot, None)
                return
        if self._deposed is not None:
            self._tell(reopened, None, self._deposed)
            return
        self._tell(reopened, None, ManagerStopped(f"stopped while the store was unavailable: {self._failed}"))

    def _tell(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except Exception:  # noqa: BLE001 - recorded in the log
            # The listener is gone or broken; the store must still be closed in order.
            _log.exception("a listener of the store failed")
