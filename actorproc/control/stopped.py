"""A store that no manager runs on, as far as an operator's verbs go: decide, persist, and leave the acting to others.

The same core that decides in a manager decides here, on what is stored, and its decision is one commit. The commands
of a decision (hand out steps, kill, answer callers) are left out. That is a manager that died right after its commit,
and the next one recovers from it as always. So there are no workers here, no threads, no classes of the user's, and no
timers: nothing runs, and nothing is removed for its age.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, cast

from actorproc.config import Config
from actorproc.control.interruption import refuse_whom_it_interrupts
from actorproc.core.lifecycle.removal import CHUNK
from actorproc.engine.end_waiters import AskResult, tell_answer
from actorproc.engine.housekeeping.retention_sweeper import RetentionSweeper
from actorproc.engine.messages import Ending, EndWaiter, Patience
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.pipeline.store_port import StorePort
from actorproc.engine.reply_router import ReplyRouter
from actorproc.engine.runtime.type_table import TypeTable
from actorproc.errors import ManagerStopped, StorageUnavailable, UnknownProcedure
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import Acknowledged, DeleteRequested, Event, RemovalContinued, TypeRegistered
from actorproc.model.policies import Quotas
from actorproc.model.reports import CompactionReport
from actorproc.model.rows.asks import AskKey
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import Write
from actorproc.store.home import Home

__all__ = ["StoppedEngine"]


class StoppedEngine:
    """Owns a stopped store for a moment. Requests that only a running engine can serve raise `ManagerStopped`.

    Every request is durable when its answer comes. A commit that fails twice is raised, and the store is then not used
    any more: what is on disk is what the next owner finds.
    """

    failure = None

    def __init__(self, home: Home, config: Config) -> None:
        self._home = home
        self._directory = home.words
        self._config = config
        self.store = home.store(role="command", allow_any_filesystem=config.allow_any_filesystem)
        self._epoch = 0
        self._lock = threading.RLock()
        self._replies = ReplyRouter()
        self._types = TypeTable()
        self._committed: list[int] = []
        self._pipeline: CommitPipeline | None = None
        self._refused: BaseException | None = None
        """Error of a failed commit: a request after it would wait for that commit for ever."""
        self._sweeper: RetentionSweeper

    def open(self) -> None:
        """Take the owner lock and read the store. Raises `StoreInUse` and other `EngineError`s."""
        clock = getattr(self.store, "clock", None) or self._home.clock()
        try:
            self._epoch = self.store.own()
            self._pipeline = CommitPipeline(
                snapshot=self.store.load(whole=False),
                store=self.store,
                store_port=cast("StorePort", self),  # nothing is opened again here: a commit that fails is the end
                in_flight=InFlightTable(),
                types=self._types,
                clock=clock,
                quotas=Quotas(),
                retention=self._config._retention,
                scheduling=self._config._scheduling(1, 1),
                act=self._act,
                mark=_nothing,
                stored=_nothing,
                gated=True,
                unattended=True,
            )
            self._sweeper = RetentionSweeper(
                store=self.store,
                pipeline=self._pipeline,
                replies=self._replies,
                clock=clock,
                retention=self._config._retention,
                interval=self._config.sweep_interval,
                wake_in=_nothing,
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the store back. Idempotent."""
        self._pipeline = None
        self._replies.close(ManagerStopped(f"the stopped store {self._directory} was given back"))
        self.store.close()

    @property
    def closed(self) -> bool:
        """It has been given back, or was never taken."""
        return self._pipeline is None

    # ------------------------------------------------------------ requests
    def request(self, make: Callable[[int], Event]) -> Any:
        """Decide on an event that names a reply, and return the reply once the decision is on disk."""
        return self.ask(make).result()

    def ask(
        self, make: Callable[[int], Event], ends: Sequence[EndWaiter] = (), _patience: Patience = Patience.CALL
    ) -> Future[Any]:
        """The same; the future is done when this returns. A request that asks for ends is refused: none comes here."""
        if ends:
            raise self._needs_manager("run")
        refuse_whom_it_interrupts(self._lock)
        with self._lock:
            pipeline = self._opened()
            number, future = self._replies.open()
            event = make(number)
            if isinstance(event, Acknowledged | DeleteRequested):
                self._sweeper.ask(event)
            else:
                pipeline.handle(event)
            self._settle(pipeline)
            if isinstance(event, DeleteRequested):
                self._finish_removals(pipeline)
            return future

    def register(self, definition: Definition) -> None:
        """Make a type known, for a submit of it."""
        refuse_whom_it_interrupts(self._lock)
        with self._lock:
            if self._types.put(definition):
                self._opened().handle(TypeRegistered(definition.meta))

    def compact(self) -> CompactionReport:
        """Give unused space back to the file system."""
        return self.store.compact()

    def recent_end(self, id: str) -> None:
        """Nothing ends here."""

    def watch_ask(self, id: str, ask: AskKey, patience: Patience = Patience.CALL) -> Future[AskResult]:
        """The stored answer to an ask. Raises `ManagerStopped` where none is stored, as nothing runs to give one."""
        del patience
        answer: Future[AskResult] = Future()
        ending = self.store.ending(id)
        if found := self.store.replies(id, ask):
            tell_answer(answer, id, ask, found[0].value)
        elif ending is not None:
            answer.set_result(AskResult(b"", Ending.of(*ending)))
        elif self.head(id) is None:
            raise UnknownProcedure(f"no procedure has the id {id!r}")
        else:
            raise self._needs_manager("a reply to an ask")
        return answer

    def head(self, id: str) -> ProcedureRecord | None:
        """A procedure as it is after what was asked; None when there is none."""
        return self._opened().core.view(id) or self.store.procedure(id)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise self._needs_manager(name)

    def _needs_manager(self, name: str) -> ManagerStopped:
        return ManagerStopped(f"no manager runs on {self._directory}, and only a running one has {name!r}: start one")

    # ------------------------------------------------------------ callbacks of the commit pipeline
    def commit(self, batch: int, writes: list[Write]) -> None:
        """Commit at once; the pipeline is told of it when it has done its own part."""
        try:
            try:
                self.store.commit(writes, self._epoch, batch)
            except StorageUnavailable:
                self._commit_again(batch, writes)
        except BaseException as error:
            self._refused = error
            raise
        self._committed.append(batch)

    def _commit_again(self, batch: int, writes: list[Write]) -> None:
        """Once more, unless the commit that failed is on disk all the same.

        Pages that one commit frees can be used by the next but one. Where the file cannot grow, removals are thus
        refused every other time; the small commit of the reopening is the one between.
        """
        self.store.reopen()
        if self.store.load(whole=False).batch != batch:
            self.store.commit(writes, self._epoch, batch)

    def _settle(self, pipeline: CommitPipeline) -> None:
        pipeline.close()
        while self._committed:
            pipeline.committed(self._committed.pop(0))

    def _act(self, batch: CommitBatch) -> list[Event]:
        """Answer; everything else is for the next manager, which finds all it must do in the store."""
        for command in batch.commands:
            if isinstance(command, Reply):
                if command.error is not None:
                    self._replies.fail(command.reply, command.error)
                else:
                    self._replies.settle(command.reply, command.value)
        return []

    def _finish_removals(self, pipeline: CommitPipeline) -> None:
        """Remove what is left of half removed trees, part by part."""
        for root in pipeline.core.removals:
            more = True
            while more and root in pipeline.core.removals:
                members, more = self.store.removed_members(root, CHUNK)
                pipeline.handle(RemovalContinued(root, tuple(members), more))
                self._settle(pipeline)

    def _opened(self) -> CommitPipeline:
        if self._pipeline is None:
            msg = f"the stopped store {self._directory} was given back"
            raise ManagerStopped(msg)
        if self._refused is not None:
            raise self._refused
        return self._pipeline


def _nothing(*_: object) -> None:
    """Do nothing: every call runs to its end, so there is no thread to wake."""
