"""The ends of an executor's calls become results here, on a thread of their own.

Unpickling is user code, and has no place on the manager's thread.
"""

from __future__ import annotations

import copy
import logging
import queue
import threading
from collections.abc import Callable, Iterable
from typing import Any

from actorproc.api.manager import ProcedureManager
from actorproc.api.verbs.base import RunningEngine
from actorproc.engine.messages import Ending, EndListener
from actorproc.executor.futures import DurableFuture
from actorproc.executor.results import (
    CallBroken,
    error_of,
    is_broken_initializer,
    result_of,
    was_aborted,
)
from actorproc.model.states import ProcedureState
from actorproc.procedure.authoring.call import Call
from actorproc.procedure.values.error_text import in_words

__all__ = ["AnyFuture", "EndReceiver"]

logger = logging.getLogger("actorproc")

_MOST_TOGETHER = 64
"""Ends that are delivered before it is looked whether all calls are over."""

AnyFuture = DurableFuture[Any]
_Arrival = tuple[AnyFuture, Ending | None, BaseException | None]
_Errand = Callable[[], object]


class EndReceiver:
    """Gives futures what their calls ended with. ``count_off`` hears which calls are over.

    `run` is its thread's work; all else may be called from any thread. Ends go through a queue whose `put` neither
    waits nor takes a lock. So the engine's own threads and the garbage collector may use it.
    """

    def __init__(self, manager: ProcedureManager, count_off: Callable[[Iterable[AnyFuture]], None]) -> None:
        self._manager = manager
        self._count_off = count_off
        self._arrivals: queue.SimpleQueue[_Arrival | _Errand | None] = queue.SimpleQueue()
        self._broken: CallBroken | None = None

    @property
    def broken(self) -> CallBroken | None:
        """The initializer failed in a worker, so no call can be made any more; to be raised by one who submits."""
        if self._broken is None:
            return None
        again = copy.copy(self._broken)  # one that is raised again and again keeps the frames of all who got it
        again.__cause__ = self._broken.__cause__
        return again

    def watch(self, tree: RunningEngine, futures: list[AnyFuture]) -> None:
        """Hear of the ends of these, which are stored."""
        tree.hear_each(
            [(future.id, listener) for future, listener in zip(futures, self.listeners(futures), strict=True)]
        )

    def listeners(self, futures: list[AnyFuture]) -> list[EndListener]:
        """Listeners to the ends of these."""
        put = self._arrivals.put
        return [_CallEnd(future, put) for future in futures]

    def refuse(self, future: AnyFuture, error: BaseException) -> None:
        """Its call will not be stored."""
        self._arrivals.put((future, None, error))

    def do(self, errand: _Errand) -> None:
        """Have this done on a thread of its own."""
        self._arrivals.put(errand)

    def leave(self) -> None:
        """End the thread, once what was sent before is done."""
        self._arrivals.put(None)

    def run(self) -> None:
        """Deliver what arrives, until `leave`."""
        receive = self._arrivals.get
        while True:
            arrivals = [receive()]
            arrivals += [receive() for _ in range(min(self._arrivals.qsize(), _MOST_TOGETHER))]
            over = [future for future in map(self._received, arrivals) if future is not None]
            is_last = None in arrivals
            del arrivals
            self._count_off(over)
            del over
            if is_last:
                return

    def deliver(self, future: AnyFuture, ending: Ending) -> bool:
        """Give the future what its call ended with; whether this did it."""
        record, key = ending.record, self._manager._types.signing_key
        if record.type_name != Call.type_name:
            return False  # its id was another procedure's, and its sender is told so
        if record.state == ProcedureState.SUCCESS:
            try:
                value = result_of(ending, key)
            except CallBroken as broken:
                return _end(future, error=broken)  # another program may be able to read it
            future.is_kept_until_taken = not future.is_named
            return _end(future, value)
        future.is_kept_until_taken = not future.is_named
        if was_aborted(record):
            if not future.claim():
                return False
            future.cancel_now()
            return True
        error = error_of(record, key)
        is_ours = not future.is_attached and self._broken is None
        if is_ours and is_broken_initializer(record.error) and isinstance(error, CallBroken):
            self._broken = error
            logging.getLogger("concurrent.futures").critical("%s\n%s", error, error.traceback_text)
        return _end(future, error=error)

    def _received(self, arrival: _Arrival | _Errand | None) -> AnyFuture | None:
        """Deliver the end of a call; its future when it is over."""
        if arrival is None:
            return None
        if not isinstance(arrival, tuple):
            _begin(arrival)
            return None
        future, ending, error = arrival
        try:
            if ending is not None:
                return future if self.deliver(future, ending) else None
            return future if _end(future, error=error) else None
        except BaseException as failure:
            logger.exception("the end of call %s could not be delivered", future.id)
            broken = CallBroken(f"the end of call {future.id} could not be delivered: {in_words(failure)}")
            return future if _end(future, error=broken) or future.done() else None


def _end(future: AnyFuture, value: object = None, error: BaseException | None = None) -> bool:
    if not future.claim():
        return False
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
    return True


def _begin(errand: _Errand) -> None:
    try:
        threading.Thread(target=errand, name="actorproc-cancel", daemon=True).start()
    except RuntimeError:  # the system has no more threads
        logger.exception("calls without a waiting caller are not cancelled")


class _CallEnd(EndListener):
    """Hears the end of a call. It lets the future go then: the engine may hold it a moment longer than the caller."""

    __slots__ = ("_future", "_put")

    def __init__(self, future: AnyFuture, put: Callable[[_Arrival], None]) -> None:
        self._future: AnyFuture | None = future
        self._put = put

    def heard(self, ending: Ending | None, error: BaseException | None) -> None:
        """Pass it on to the receiver."""
        future, self._future = self._future, None
        assert future is not None
        self._put((future, ending, error))
