"""Verbs on a store that no manager runs on: each request is durable, and the next manager does the rest."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from actorproc.api.queries import StoredQueries
from actorproc.api.registration import Registration
from actorproc.api.stored_source import StoredSource
from actorproc.api.verbs.base import RunningEngine
from actorproc.api.verbs.maintenance import MaintenanceVerbs
from actorproc.api.verbs.operator import OperatorVerbs
from actorproc.api.verbs.repair import RepairVerbs
from actorproc.api.verbs.schedule import ScheduleVerbs
from actorproc.api.verbs.signal import SignalVerbs
from actorproc.config import Config
from actorproc.control.stopped import StoppedEngine
from actorproc.engine.messages import Patience
from actorproc.errors import EngineError
from actorproc.model.rows.asks import AskKey
from actorproc.model.states import TERMINAL
from actorproc.store.home import home_of
from actorproc.workers.protocol.log_entry import LogEntry

if TYPE_CHECKING:
    from actorproc.report.why import EngineFacts

__all__ = ["StoppedStore"]


class StoppedStore(ScheduleVerbs, RepairVerbs, OperatorVerbs, SignalVerbs, MaintenanceVerbs):
    """The verbs and looks of a `ProcedureManager` for a store that no manager runs on. A context manager.

    Inside the ``with`` it is the store's owner, so be quick: a manager that starts meanwhile waits for some seconds.
    Each verb is decided as a manager would, durable when it returns, and recorded with its reason. No procedure runs.
    User code that has to run (an undo, a retried step, a class that is asked about an abort) runs when the next
    manager starts. The user's code is not needed, save for `submit`, whose class must also be known to the next
    manager.

    Looking (`info`, `list`, `steps`, `tree`, `locks`, `poisons`, `signals`, `audit`, `why`, `logs`) shows what is
    stored, as a `StoreReader` does, with each verb that has returned. Requests that only a running manager can serve
    (`workers`, `stack`, `watch`, `metrics`, waiting for an end) raise `ManagerStopped`.

    Args:
        path: The directory of the store.
        config: Settings, as the manager has them. Default: ``Config()``.

    Raises:
        StoreInUse: A manager runs; raised by ``with`` and `open`.
        EngineError: There is no store, or it cannot be read; raised by ``with`` and `open`.
        ValueError: The path is empty.
        UsageError: The path is a URL.
    """

    def __init__(self, path: str | os.PathLike[str], *, config: Config | None = None) -> None:
        self._home = home_of(path)
        self._path = self._home.words
        self._config = config if config is not None else Config()
        self._clock = self._home.clock()
        self._types = Registration(self._home, self._config.signing_key)
        self._engine = StoppedEngine(self._home, self._config)
        self._pid = os.getpid()
        self._attached = False

    def has_ended(self, id: str) -> bool:
        """True if a procedure is in its final state, or is no longer kept.

        Args:
            id: The procedure.

        Returns:
            True or False.
        """
        head = self._engine.head(id)
        return head is None or head.state in TERMINAL

    def logs(self, id: str) -> list[LogEntry]:
        """Prints and log records of a procedure, oldest first, as far as the files beside the store keep them.

        Args:
            id: The procedure.

        Returns:
            One `LogEntry` for each line or record.

        Raises:
            UnknownProcedure: No procedure has this id.
            InvalidId: The id is no id.
        """
        with self._asking() as queries:
            return queries.spooled_logs(id, self._home.spool)

    @contextmanager
    def _asking(self) -> Iterator[StoredQueries]:
        yield StoredQueries(StoredSource(self._running().store, is_owned=False))

    def _engine_facts(self) -> EngineFacts:
        from actorproc.report.why import EngineFacts  # noqa: PLC0415 - a verb need not wait for it

        self._running()
        return EngineFacts(running=False, pid=None, paused=self._engine.store.paused)

    def open(self) -> None:
        """Become the owner of the store; does nothing when it is the owner already.

        Raises:
            StoreInUse: A manager runs.
            StoreFormat: The store is of a newer format.
            StoreDamaged: The store cannot be read.
            EngineError: There is no store, or it cannot be opened; the message says what to do.
        """
        if self._engine.closed:
            # Says what is wrong where there is no store; an owner would make one.
            self._home.reader(allow_any_filesystem=self._config.allow_any_filesystem).close()
            self._engine.open()

    def close(self) -> None:
        """Give the store back. Idempotent."""
        self._engine.close()

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _life(self) -> str:
        return "closed" if self._engine.closed else "open"

    def _running(self) -> RunningEngine:
        self._check_fork()
        if self._engine.closed:
            msg = "a stopped store is steered inside a `with` block"
            raise EngineError(msg)
        return cast("RunningEngine", self._engine)

    def _send_ask(self, id: str, ask: AskKey, payload: Any) -> Future[bool]:
        """Send nothing, as no step would take it here; raise `ManagerStopped` unless the answer is stored."""
        del payload
        self._answer_to(id, ask, Patience.CALL)
        sent: Future[bool] = Future()
        sent.set_result(True)
        return sent

    def _describe(self, *arguments: Any, **options: Any) -> Any:
        if not self._attached:
            self._types.definitions()
            self._types.attach(self._engine)
            self._attached = True
        return super()._describe(*arguments, **options)
