"""The manager actor: its inbox is where everything meets. It never runs or unpickles user code."""

from __future__ import annotations

import threading
from typing import Any

import pykka

from actorproc.engine.end_waiters import settle_future
from actorproc.engine.manager_assembly import AssembledManager
from actorproc.engine.manager_parts import ManagerParts
from actorproc.engine.messages import (
    Begin,
    CloseBatch,
    CommitFailed,
    Committed,
    EnqueuedDue,
    LearnType,
    LookSettled,
    OpenGate,
    OwnerDeposed,
    RegisterType,
    Reopened,
    ReopenFailed,
    SweepDue,
    Wake,
)
from actorproc.engine.runtime.gc_pause import collector_paused, collector_paused_for
from actorproc.engine.runtime.inbox import CombiningInbox, QuickActor
from actorproc.errors import Deposed, EngineError, InternalError, ManagerStopped
from actorproc.model.messages.events import (
    Acknowledged,
    DeleteRequested,
    HostDraining,
    ResultsTaken,
    Submitted,
)
from actorproc.store.committer import FINAL
from actorproc.support.engine_log import engine_logger

__all__ = ["ManagerActor"]

logger = engine_logger("actorproc")

_ARM_AFTER = 64
"""Messages after which the alarm is looked after although more are waiting."""


class ManagerActor(QuickActor):
    """Carries events to the core, decisions to the store, and commands to workers and callers."""

    actor_inbox: CombiningInbox

    def __init__(self, parts: ManagerParts) -> None:
        super().__init__()
        self._parts = parts
        self._clock = parts.clock
        self._replies = parts.replies
        made = AssembledManager(
            parts, mark=self._mark, on_alarm=self._on_alarm, sweep_in=self._sweep_in, take_in=self._take_in
        )
        self._outage = made.outage
        self._in_flight = made.in_flight
        self._types = made.types
        self._worker_messages = made.worker_messages
        self._dispatcher = made.dispatcher
        self._pipeline = made.pipeline
        self._sweeper = made.sweeper
        self._taker = made.taker
        self._time = made.time
        self._stopping = made.stopping
        self._routes = made.routes() | {
            Begin: self._begin,
            Submitted: self._submitted,
            Acknowledged: self._keep,
            DeleteRequested: self._keep,
            ResultsTaken: self._keep,
            RegisterType: self._register_type,
            LearnType: self._learn_type,
            CommitFailed: self._commit_failed,
            Reopened: self._reopened,
            ReopenFailed: self._reopen_failed,
            OpenGate: self._open_gate,
            LookSettled: self._look_settled,
            OwnerDeposed: lambda message: self._lose_store(message.error),
        }
        self._marked = False
        """A batch was begun: its marker is to be told, or it is closed at once when nothing else waits."""
        self._unarmed = 0
        self._waiting = self.actor_inbox.waiting
        self._over = False

    @staticmethod
    def _create_actor_inbox() -> CombiningInbox:
        return CombiningInbox()

    # ------------------------------------------------------------ life
    def _start_actor_loop(self) -> None:
        inbox, store_port = self.actor_inbox, self._parts.store_port
        inbox.handle, inbox.go_on, inbox.end = self._handle_here, self.on_receive, self._stop
        inbox.work_off(store_port.jobs, store_port.work)
        try:
            super()._start_actor_loop()
        except BaseException:
            inbox.quit()
            raise

    def on_start(self) -> None:
        """On its thread, which must not wait for the manager's answers."""
        self.actor_inbox.own_thread = threading.get_ident()
        self._replies.answered_by.add(self.actor_inbox.own_thread)

    def _begin(self, _: Begin) -> None:
        self._pipeline.handle(self._parts.offer or HostDraining(""))
        self._pipeline.close()
        self._sweeper.start()
        if (when_enqueued := getattr(self._parts.store, "when_enqueued", None)) is not None:
            when_enqueued(lambda: _tell(self.actor_ref, EnqueuedDue()))
        self._taker.look_at_refused()

    def _handle_here(self, message: object) -> None:
        """Handle a message on its thread, or on one that is lent, which must not wait for answers either."""
        here, answered_by = threading.get_ident(), self._replies.answered_by
        if here == self.actor_inbox.own_thread:
            self.on_receive(message)
            return
        answered_by.add(here)
        try:
            self.on_receive(message)
        finally:
            answered_by.discard(here)

    def on_receive(self, message: Any) -> None:
        """Route one message. A failure here is a bug: it ends the engine, loudly, and never the host's actors."""
        if self._over:
            return
        try:
            if message is not None:
                self._routes[type(message)](message)
            if not self._over:
                self._go_on(message)
        except Deposed as error:
            self._lose_store(error)
        except BaseException as error:  # noqa: BLE001 - Pykka would stop every actor of the host for some of these
            self._break(error)

    def _go_on(self, message: Any) -> None:
        """After each message, and at rest: close the batch where its marker would have come next, and see to the alarm.

        A due time counts once it is durable. So the alarm waits for the commit that is under way, and for the last
        message of a burst.
        """
        inbox = self.actor_inbox
        alone = not self._waiting and not inbox.is_hearing
        if self._marked and not inbox.is_hearing:
            self._marked = False
            if alone:
                self._pipeline.close()
            else:
                self.actor_ref.tell(CloseBatch())
        if self._outage.is_in_doubt and (type(message) is Committed or self._pipeline.idle):
            self._outage.end()
        if self._stopping.is_due and self._stopping.look():
            self._over = True
            self._stopping.end()
        self._unarmed += 1
        is_settled = alone and not self._pipeline.is_committing
        if is_settled or self._unarmed >= _ARM_AFTER or type(message) is Committed:
            self._unarmed = 0
            self._time.arm(in_trouble=self._outage.lasts)

    def on_stop(self) -> None:
        """Stopped by Pykka: by our own tree after `Halt`, or by the host's `stop_all`."""
        over, self._over = self._over, True
        if not over:
            self._parts.on_stopped()

    def _actor_loop_teardown(self) -> None:
        super()._actor_loop_teardown()
        self.actor_inbox.quit()  # who keeps the actor's reference must not keep all that it knew

    def _break(self, error: BaseException) -> None:
        self._over = True
        logger.critical("the actorproc manager failed; its workers are being stopped", exc_info=error)
        broken = InternalError(f"the manager failed and stopped: {type(error).__name__}: {error}")
        broken.__cause__ = error
        self._replies.close(broken)
        self._parts.on_broken(broken)

    def _mark(self) -> None:
        self._marked = True

    # ------------------------------------------------------------ callers
    def _submitted(self, event: Submitted) -> None:
        if self._outage.refuses:
            self._replies.fail(event.reply, self._outage.refusal())
        else:
            with collector_paused_for(len(event.procedures)):
                self._pipeline.handle(event)

    def _keep(self, event: Acknowledged | DeleteRequested | ResultsTaken) -> None:
        if self._outage.refuses:
            self._replies.fail(event.reply, self._outage.refusal())
        else:
            self._sweeper.ask(event)

    def _open_gate(self, message: OpenGate) -> None:
        self._pipeline.open_gate()
        settle_future(message.future, None)

    def _look_settled(self, message: LookSettled) -> None:
        is_settled = self.actor_inbox.empty() and self._pipeline.idle and not self._in_flight.busy()
        if is_settled:
            self._time.arm(in_trouble=self._outage.lasts)
        settle_future(message.future, is_settled)

    def _register_type(self, message: RegisterType) -> None:
        self._types.put(message.definition)
        with collector_paused():  # all that waited for this class is queued
            self._worker_messages.registered(message.definition)
        self._taker.registered()

    def _learn_type(self, message: LearnType) -> None:
        if self._types.take(message.definition):
            self._worker_messages.registered(message.definition)

    # ------------------------------------------------------------ time
    def _on_alarm(self) -> None:
        _tell(self.actor_ref, Wake())

    def _sweep_in(self, seconds: float) -> None:
        self._tell_in(seconds, "sweep", SweepDue())

    def _take_in(self, seconds: float) -> None:
        self._tell_in(seconds, "enqueued", EnqueuedDue())

    def _tell_in(self, seconds: float, alarm: str, message: object) -> None:
        if seconds > 0:
            self._parts.alarm.set(alarm, self._clock.monotonic() + seconds, lambda: _tell(self.actor_ref, message))
        else:  # behind all that waits already
            self._parts.alarm.set(alarm, None, _nothing)
            _tell(self.actor_ref, message)

    # ------------------------------------------------------------ storage trouble
    def _commit_failed(self, message: CommitFailed) -> None:
        if isinstance(message.error, FINAL):
            self._lose_store(message.error)
            return
        self._outage.begin(message.error)
        self._pipeline.failed(message.batch)

    def _reopen_failed(self, message: ReopenFailed) -> None:
        if isinstance(message.error, FINAL):
            self._lose_store(message.error)
        elif not isinstance(message.error, ManagerStopped):
            raise message.error

    def _lose_store(self, error: EngineError) -> None:
        """Another owner has the store, or it is no store of ours any more: decide and hand out nothing from here on."""
        self._over = True
        logger.error("the store is lost to this manager, which ends: %s", error)
        self._parts.on_store_lost(error)

    def _reopened(self, message: Reopened) -> None:
        self._outage.doubt()
        self._dispatcher.forget()
        self._pipeline.reopened(message.snapshot)
        for late in self._outage.take_deferred():
            self._routes[type(late)](late)


def _nothing() -> None:
    """An alarm that was called off."""


def _tell(actor: pykka.ActorRef[Any], message: object) -> None:
    """Tell an actor that may have stopped meanwhile."""
    try:
        actor.tell(message)
    except pykka.ActorDeadError:
        logger.debug("a message for a stopped manager was dropped: %r", message)
