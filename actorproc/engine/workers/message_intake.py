"""Entrance for messages of workers: handled at once, or kept until the store can be written again."""

from __future__ import annotations

from actorproc.engine.messages import Succeeded
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.pipeline.store_outage import StoreOutage
from actorproc.engine.workers.worker_messages import WorkerMessageHandler
from actorproc.errors import InternalError
from actorproc.model.messages.events import ReloadBegan, Resized, WorkerLost, WorkerReady
from actorproc.workers.base import PoolFailed, WorkerBooted, WorkerDied, WorkerMessages
from actorproc.workers.protocol.frames import Ended

__all__ = ["MessageIntake"]


class MessageIntake:
    """Entrance for messages and deaths of workers, and for changes of their number.

    Needs the manager's turn (`CombiningInbox`).
    """

    def __init__(self, *, worker_messages: WorkerMessageHandler, pipeline: CommitPipeline, outage: StoreOutage) -> None:
        self._worker_messages = worker_messages
        self._pipeline = pipeline
        self._outage = outage

    def messages(self, message: WorkerMessages) -> None:
        """A worker spoke."""
        worker_messages = self._worker_messages
        if not self._outage.lasts:
            for one in message.messages:
                if type(one) is Ended:
                    worker_messages.ended(one)
                else:
                    worker_messages.hear(message.worker, one)
            self._pipeline.decide()
            return
        late = [one for one in message.messages if worker_messages.heard_in_trouble(message.worker, one)]
        if late:
            self._outage.defer(WorkerMessages(message.worker, late))

    def died(self, message: WorkerDied) -> None:
        """A worker is dead."""
        lost = self._worker_messages.died(message)
        if lost is not None:
            self.changed(lost)

    def booted(self, message: WorkerBooted) -> None:
        """A worker takes steps now."""
        self.changed(self._worker_messages.booted(message))

    def succeeded(self, message: Succeeded) -> None:
        """A worker is dead, and a spare has its place."""
        self.died(message.died)
        self.booted(message.booted)

    def changed(self, event: WorkerLost | WorkerReady | Resized | ReloadBegan) -> None:
        """Handle who came, who went, and how many there are to be, in that order also when it has to be deferred.

        A death comes after everything its worker answered, and before the next worker of its slot: the core would take
        the place of one that it knows to be alive for a new one's, and what the dead one had in hand would be lost.
        """
        if self._outage.lasts:
            self._outage.defer(event)
        else:
            self._pipeline.handle(event)

    @staticmethod
    def pool_failed(message: PoolFailed) -> None:
        """No message of a worker comes any more, and none can be started: fail all that wait."""
        msg = f"the worker pool failed: {type(message.error).__name__}: {message.error}"
        raise InternalError(msg) from message.error
