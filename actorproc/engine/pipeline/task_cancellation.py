"""Ends of async steps by order: for a limit, an abort or an operator, without an end of their worker.

The task of the step is cancelled on its event loop, and its answer says so. If it has not ended within its grace, its
worker is killed after all: the step swallows the cancellation, or one beside it blocks the loop.
"""

from __future__ import annotations

from actorproc.engine.pipeline.in_flight import Cancellation, InFlightTable, WorkerEntry
from actorproc.model.messages.commands import RunStep
from actorproc.support.clock import Clock
from actorproc.workers.base import STACK_SECONDS, WorkerPool
from actorproc.workers.protocol.frames import CancelStep

__all__ = ["TaskCancellation"]


class TaskCancellation:
    """Cancels tasks in workers' hands. Needs the manager's turn (`CombiningInbox`)."""

    def __init__(self, *, pool: WorkerPool, in_flight: InFlightTable, clock: Clock) -> None:
        self._pool = pool
        self._in_flight = in_flight
        self._clock = clock

    def cancel(self, entry: WorkerEntry, command: RunStep, kind: str, why: str, grace: float) -> bool:
        """Cancel a step, unless that was done before.

        Args:
            entry: Its worker.
            command: The step.
            kind: Kind of its report, such as "timeout"; "": the core knows why it ends.
            why: The cause in words.
            grace: Seconds after which its worker is killed.

        Returns:
            False, and nothing is done, if it is no task, or has no grace: its worker is to be killed.
        """
        if command.limits is None or not command.limits.tasks or grace <= 0:
            return False
        token, orders = command.token, self._in_flight.cancelled
        if token not in orders:
            orders[token] = Cancellation(kind, why, self._clock.monotonic() + grace)
            self._pool.send(entry.ready.worker, (CancelStep(token, kind or "timeout", why),))
        return True

    def kill_outstaying(self, now: float) -> None:
        """Kill the workers of tasks that have not ended within their grace."""
        for token, order in list(self._in_flight.cancelled.items()):
            entry = self._in_flight.entries.get(token.worker)
            if order.kill_at > now or entry is None or entry.dead or entry.killed is not None:
                continue
            entry.killed, entry.is_blocked = token, not order.is_heard
            if order.kind:
                entry.kind, entry.why = order.kind, order.why
            self._pool.kill(
                entry.ready.worker, grace=STACK_SECONDS, blamed=token, reason=order.why, kind=order.kind, ask=False
            )
