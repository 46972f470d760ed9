"""The two ways in which a manager ends: drained, when no step runs any more, and halted, when nothing is under way."""

from __future__ import annotations

from concurrent.futures import Future

from actorproc.engine.end_waiters import settle_future
from actorproc.engine.housekeeping.retention_sweeper import RetentionSweeper
from actorproc.engine.messages import Drain, Halt
from actorproc.engine.pipeline.command_executor import CommandExecutor
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.pipeline.step_reports import StepReports
from actorproc.engine.pipeline.store_outage import StoreOutage
from actorproc.engine.reply_router import ReplyRouter
from actorproc.errors import OutcomeUnknown
from actorproc.workers.protocol.frames import TakeBackSteps

__all__ = ["Shutdown"]


class Shutdown:
    """Shutdown of the manager: whether it was asked for, and what it still waits for.

    Needs the manager's turn (`CombiningInbox`).

    ``patience``: seconds for which draining waits for a store that refuses writes.
    """

    def __init__(
        self,
        *,
        pipeline: CommitPipeline,
        in_flight: InFlightTable,
        dispatcher: CommandExecutor,
        sweeper: RetentionSweeper,
        reports: StepReports,
        outage: StoreOutage,
        replies: ReplyRouter,
        patience: float,
    ) -> None:
        self._pipeline = pipeline
        self._in_flight = in_flight
        self._dispatcher = dispatcher
        self._sweeper = sweeper
        self._reports = reports
        self._outage = outage
        self._replies = replies
        self._patience = patience
        self._draining: Future[None] | None = None
        self._halting: Future[None] | None = None

    @property
    def is_due(self) -> bool:
        """True while a caller waits for the end."""
        return self._draining is not None or self._halting is not None

    def drain(self, message: Drain) -> None:
        """Hand out no more steps, take back those that have not begun, and tell when none runs any more."""
        self._draining = message.future
        self._begin_nothing()
        for worker, tokens in self._in_flight.waiting_behind():
            self._dispatcher.post(worker, TakeBackSteps(tokens))

    def halt(self, message: Halt) -> None:
        """Store what was decided, and end."""
        self._halting = message.future
        self._begin_nothing()
        if not self._outage.lasts:
            self._reports.store_all()
        self._pipeline.close()

    def _begin_nothing(self) -> None:
        """Decide on no further step, nor send one whose commit is under way: it would have to be waited for."""
        self._sweeper.stop()
        self._pipeline.set_dispatching(on=False)
        self._dispatcher.hands_out = False

    def look(self) -> bool:
        """Tell callers that wait for the running steps when they are over; True when the manager may `end`."""
        is_idle = self._pipeline.idle
        is_over = is_idle or self._outage.is_longer_than(self._patience)
        # A step whose state its worker lacks runs when the store is back, for which no caller waits any longer.
        if self._draining is not None and is_over and not self._in_flight.busy(lacking=is_idle):
            settle_future(self._draining, None)
            self._draining = None
        return self._halting is not None and (self._pipeline.idle or self._outage.lasts)

    def end(self) -> None:
        """Answer all callers that still wait, and those that wait for the end."""
        unsure, later = self._pipeline.unanswered()
        for reply in unsure:
            msg = "the manager stopped while the store refused writes; ask again by id whether it was submitted"
            self._replies.fail(reply, OutcomeUnknown(msg))
        for reply in later:
            self._replies.fail(reply, self._outage.refusal())
        assert self._halting is not None
        settle_future(self._halting, None)
