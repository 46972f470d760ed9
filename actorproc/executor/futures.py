"""`DurableFuture`, the future of a call."""

from __future__ import annotations

import functools
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from datetime import timedelta
from typing import Any, Generic, Protocol, Self, TypeVar

from actorproc.engine.runtime.clock import waiting_seconds
from actorproc.errors import ResultTimeout
from actorproc.model.policies import StepLimits
from actorproc.model.rows.records import IdReuse
from actorproc.procedure.authoring.call import PickledCall

__all__ = ["CallBatch", "DurableFuture", "FutureOwner", "is_called_back_by"]

logger = logging.getLogger("actorproc")

T = TypeVar("T")
_OVER = frozenset({"FINISHED", "CANCELLED_AND_NOTIFIED"})
"""States of a future that has its outcome, as `concurrent.futures` has them."""
_here = threading.local()


def is_called_back_by(owner: FutureOwner) -> bool:
    """True if this thread is inside a callback of a future of this executor.

    The future has not ended for the executor yet then.

    Args:
        owner: The executor's side of the future.

    Returns:
        True or False.
    """
    return getattr(_here, "owner", None) is owner


class CallBatch:
    """Calls that are submitted in one commit; ``durable`` is done when they are on disk, or were refused."""

    __slots__ = ("calls", "durable", "size")

    def __init__(self) -> None:
        self.calls: list[tuple[DurableFuture[object], PickledCall, str, bool, StepLimits | None]] = []
        """Future, pickled call, the name of its function, whether its id is a new one of ours, and its limits."""
        self.size = 0
        """Bytes of all calls."""
        self.durable: Future[None] = Future()


class FutureOwner(Protocol):
    """Executor's side of a future: the requests that it makes."""

    def cancel(self, future: DurableFuture[object]) -> bool:
        """Cancel a call unless it has begun.

        Args:
            future: The future of the call.

        Returns:
            True when it is cancelled.
        """
        ...

    def is_running(self, id: str) -> bool:
        """True if a worker has the call.

        Args:
            id: The id of the call.

        Returns:
            True or False.
        """
        ...

    def took(self, id: str) -> None:
        """Note that the program has the outcome of a call that it did not name.

        Args:
            id: The id of the call.
        """
        ...

    def late(self, id: str, timeout: float | None) -> TimeoutError:
        """The error of a wait for a call whose time is up.

        Args:
            id: The id of the call.
            timeout: Seconds that it was waited for.

        Returns:
            The error, with phase, step and reason.
        """
        ...


class DurableFuture(Future[T], Generic[T]):
    """A `concurrent.futures.Future` whose call is a procedure. Made by `ProcedureExecutor.submit` and `get`.

    Args:
        id: The procedure's id.
        owner: The executor's side.
        batch: The commit that will store the call; None: it is stored.
    """

    reuse: IdReuse | None = None
    """Policy of the submit for a call that has the id already; None: that one it is."""
    trace: bytes = b""
    """Context of the trace in which it was submitted; "": in none."""

    def __init__(self, id: str, owner: FutureOwner, batch: CallBatch | None) -> None:
        super().__init__()
        self._id = id
        self._owner = owner
        self._batch = batch
        self._refusal: BaseException | None = None
        self._claims = [None]
        self.is_attached = batch is None
        """The call was stored before, perhaps by another executor."""
        self.is_named = True
        """The program knows it by an id."""
        self.is_kept_until_taken = False
        """It has ended, and what is stored of it goes when the program has the outcome."""

    def claim(self) -> bool:
        """True if the caller is the one to end this future: the first to ask."""
        try:
            self._claims.pop()
        except IndexError:
            return False
        return True

    @property
    def id(self) -> str:
        """The procedure's id; good for `ProcedureExecutor.get`, also after a restart, until the result was taken.

        The result of a call that the program named itself (`submit_as`) stays longer: for `Config.retain_for`.
        """
        return self._id

    def result(self, timeout: float | timedelta | None = None) -> T:
        """Wait for the end, and return what the call returned.

        Args:
            timeout: Seconds, or a timedelta, to wait at most. Default: None, without limit.

        Returns:
            The function's result.

        Raises:
            BaseException: The call raised it.
            CancelledError: The call was cancelled.
            CallBroken: The call has no result; the message says why.
            CallTimeout: The call ran longer than its limits allow.
            ProcedureParked: The call cannot end as things are.
            ResultTimeout: The time is up; a builtin `TimeoutError` that has phase, step and reason.
        """
        seconds = waiting_seconds(timeout)
        try:
            return super().result(seconds)
        except TimeoutError:
            if self.done():  # meanwhile, or the function raised it
                return super().result(0)
            raise self._owner.late(self._id, seconds) from None
        finally:
            if self.is_kept_until_taken and self._state in _OVER:
                self._take()

    def exception(self, timeout: float | timedelta | None = None) -> BaseException | None:
        """Wait for the end, and return what the call raised.

        Args:
            timeout: Seconds, or a timedelta, to wait at most. Default: None, without limit.

        Returns:
            The exception; None when the call returned.

        Raises:
            CancelledError: The call was cancelled.
            ResultTimeout: The time is up; a builtin `TimeoutError` that has phase, step and reason.
        """
        seconds = waiting_seconds(timeout)
        try:
            return super().exception(seconds)
        except TimeoutError:
            if self.done():
                return super().exception(0)
            raise self._owner.late(self._id, seconds) from None
        finally:
            if self.is_kept_until_taken and self._state in _OVER:
                self._take()

    def _take(self) -> None:
        """The program has the outcome: nothing need be kept of the call."""
        self.is_kept_until_taken = False
        self._owner.took(self._id)

    def durable(self, timeout: float | timedelta | None = None) -> Self:
        """Wait until the call is on disk. From then on it is made whatever happens to this program.

        Args:
            timeout: Seconds, or a timedelta, to wait at most. Default: None, without limit.

        Returns:
            The future.

        Raises:
            ResultTimeout: The time is up; a builtin `TimeoutError`.
            CancelledError: The call was cancelled before.
            ActorprocError: The call cannot be stored; the message says why.
        """
        if self._batch is None and self._refusal is not None:
            raise self._refusal  # it could not be pickled
        patience = waiting_seconds(timeout)
        end = None if patience is None else time.monotonic() + patience
        while (batch := self._batch) is not None:
            either: tuple[Future[Any], Future[Any]] = (batch.durable, self)
            done, _ = wait(either, None if end is None else end - time.monotonic(), FIRST_COMPLETED)
            if self._batch is not batch:
                continue  # it is stored, or in the rest of that batch, for which there was no room
            if not done:
                msg = f"call {self._id} is not on disk within {patience:g} s"
                raise ResultTimeout(msg, id=self._id, reason="the submit is not stored")
            self._raise_if_refused()  # it was left out, or cancelled before
            break
        return self

    def refused(self, error: BaseException) -> None:
        """Note that the call will not be on disk; called by the executor before the batch ends.

        Args:
            error: The reason.
        """
        self._refusal = error

    def stored(self) -> None:
        """Note that the call is on disk; called by the executor before the batch ends."""
        self._batch = None

    def cancel(self) -> bool:
        """Cancel the call if no worker has it yet; True when it is cancelled.

        The answer is durable. The thread of a running event loop must not wait for a disk: there the answer is False,
        and the call is cancelled soon after.
        """
        if self.done():
            return self.cancelled()
        return self._owner.cancel(self)  # type: ignore[arg-type]

    def cancel_now(self) -> None:
        """Become cancelled, without a question; called once, by the executor."""
        super().cancel()
        self.set_running_or_notify_cancel()
        if self.is_kept_until_taken:
            self._take()

    def running(self) -> bool:
        """True if a worker has the call at the moment."""
        return not self.done() and self._owner.is_running(self._id)

    def add_done_callback(self, fn: Callable[[Future[T]], object]) -> None:
        """Have a function called when the call has ended; at once when it has ended already.

        Its errors are logged: it runs on the thread that hands out the ends of all calls.

        Args:
            fn: Called as ``fn(future)``.
        """
        super().add_done_callback(fn if self.done() else functools.partial(_call_back, fn, self._owner))

    def _raise_if_refused(self) -> None:
        if self._refusal is not None:
            raise self._refusal
        if self.cancelled():
            raise CancelledError


def _call_back(fn: Callable[[Future[T]], object], owner: FutureOwner, future: Future[T]) -> None:
    # Without the future: it keeps its callbacks, and with one that keeps it, its result would wait for the collector.
    before = getattr(_here, "owner", None)
    _here.owner = owner
    try:
        fn(future)
    except Exception:
        raise  # the standard library logs it
    except BaseException:
        # An exit, which it would let through: the others who wait have done nothing to deserve it.
        logger.exception("a callback of call %s raised", getattr(future, "id", "?"))
    finally:
        _here.owner = before
