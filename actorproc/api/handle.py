"""`ProcedureHandle`, the caller's end of one procedure, and `as_completed`."""

from __future__ import annotations

import contextlib
import copy
import os
import queue
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from datetime import timedelta
from typing import Any, Generic, NoReturn, Protocol, TypeVar

from actorproc.engine.arguments import checked_ask_id, checked_event
from actorproc.engine.end_waiters import AskResult, take_back
from actorproc.engine.messages import Described, Ending, Patience
from actorproc.engine.runtime.clock import waiting_seconds
from actorproc.errors import NoReply, ProcedureFailed, ProcedureParked, ResultTimeout
from actorproc.model.ids import new_id
from actorproc.model.names import step_in_words
from actorproc.model.rows.asks import AskKey
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import ProcedureState
from actorproc.procedure.authoring.submittable import R_co
from actorproc.report.failures import failure_of
from actorproc.report.info import ProcedureInfo

__all__ = ["HandleSource", "ProcedureHandle", "as_completed", "late"]

R = TypeVar("R")

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_CALL, _PARKED, _SUCCESS = Patience.CALL, Patience.PARKED, ProcedureState.SUCCESS


class HandleSource(Protocol):
    """The part of a manager that a handle needs; for handles alone, so its names are private but for `info`."""

    def _end_of(self, id: str, patience: Patience = Patience.CALL) -> Ending | Future[Ending]:
        """The end of procedure `id`, or a future of it while it has not ended."""
        ...

    def _ended(self, id: str) -> bool:
        """The procedure is in a terminal state."""
        ...

    def info(self, id: str) -> ProcedureInfo:
        """The procedure as it is now."""
        ...

    def _glance(self, id: str) -> Described | None:
        """State of the procedure, for the words of an error; never raises, and answers soon."""
        ...

    def _output_of(self, ending: Ending) -> Any:
        """The decoded output of a procedure that succeeded."""
        ...

    def _send_ask(self, id: str, ask: AskKey, payload: Any) -> Future[bool]:
        """Send an ask to a procedure; the future of its being durable."""
        ...

    def _answer_to(self, id: str, ask: AskKey, patience: Patience) -> Future[AskResult]:
        """Future of the outcome of an ask that was sent."""
        ...

    def _reply_in(self, answer: AskResult, id: str) -> Any:
        """The decoded reply of a procedure."""
        ...

    def _original_of(self, record: ProcedureRecord) -> BaseException | None:
        """The exception itself that a failed procedure ended with, if its class asked for that."""
        ...

    def _post(self, errand: Callable[[], object]) -> None:
        """Run a callback on the thread for callbacks."""
        ...


class _Process:
    """This one, as far as Python knows: to ask the system for each handle would take longer than to make it."""

    pid = os.getpid()

    @classmethod
    def ask(cls) -> None:
        cls.pid = os.getpid()


os.register_at_fork(after_in_child=_Process.ask)


class ProcedureHandle(Generic[R_co]):
    """Waits for one procedure and gives its output. Cheap, thread-safe, and good for finished procedures too.

    Made by `submit`, `get` and `retry`. A handle holds no work: dropping it, or cancelling an ``await`` of it, changes
    nothing for the procedure. Its type parameter is the output: that of a `procedure` function is what it returns, that
    of a class is declared, ``class Order(Saga[str])``, or else ``Any``.

    Args:
        id: The procedure.
        source: The manager, client or store that is asked.
    """

    _engine_stays_here = "belongs to its process: keep and pass on its id, and ask the manager there for it"
    __slots__ = ("__dict__", "__weakref__", "_end", "_id", "_pid", "_source")

    def __init__(self, id: str, source: HandleSource) -> None:
        self._id = id
        self._source = source
        self._pid = _Process.pid
        self._end: Ending | Future[Ending] | None = None

    @property
    def id(self) -> str:
        """The procedure's id."""
        return self._id

    def result(self, timeout: float | timedelta | None = None, *, wait_parked: bool = False) -> R_co:
        """Wait for the end and return the output.

        Args:
            timeout: Seconds, or a timedelta, to wait at most; None: without limit.
            wait_parked: Wait on while the procedure is parked, or a member of its tree without which it cannot end:
                its class may be registered later.

        Returns:
            The output that the procedure gave to ``Status.done``.

        Raises:
            ProcedureFailed: It ended otherwise (`ProcedureAborted`: on request).
            ResultTimeout: The time is up; a builtin `TimeoutError` that says phase, step and reason.
            ProcedureParked: It cannot end as things are: it, or one of its tree, has been parked for
                `Config.parked_grace`.
            ProcedureQuarantined: It cannot end before a damaged record is repaired, also with ``wait_parked``.
            StoreDamaged: The record that has the output cannot be trusted.
            ValueNotDecodable: The classes of the output have changed since.
            UnknownType: The classes of the output are not registered.
            ManagerStopped: The manager stopped first.
        """
        return self._result(timeout, wait_parked=wait_parked, asked=timeout)

    def exception(
        self, timeout: float | timedelta | None = None, *, wait_parked: bool = False
    ) -> ProcedureFailed | None:
        """Wait for the end and return the failure.

        Args:
            timeout: Seconds, or a timedelta, to wait at most. Default: None, without limit.
            wait_parked: As of `result`. Default: False.

        Returns:
            The `ProcedureFailed`; None when the procedure succeeded.

        Raises:
            ResultTimeout: The time is up; a builtin `TimeoutError` that has phase, step and reason.
            ProcedureParked: As of `result`.
            ProcedureQuarantined: As of `result`.
            StoreDamaged: The record of the end cannot be trusted.
            ManagerStopped: The manager stopped first.
        """
        ending = self._end_within(timeout, wait_parked=wait_parked, asked=timeout)
        return None if ending.record.state == _SUCCESS else self._failure(ending)

    def wait(self, timeout: float | timedelta | None = None, *, wait_parked: bool = False) -> bool:
        """Wait for the end.

        Args:
            timeout: Seconds, or a timedelta, to wait at most. Default: None, without limit.
            wait_parked: As of `result`. Default: False.

        Returns:
            True when the procedure has ended, False when the time is up.

        Raises:
            ProcedureParked: As of `result`.
            ProcedureQuarantined: As of `result`.
            StoreDamaged: The record of the end cannot be trusted.
            ManagerStopped: The manager stopped first.
        """
        try:
            self._wait(timeout, wait_parked=wait_parked)
        except TimeoutError:
            return False
        return True

    def ask(
        self,
        name: str,
        payload: Any = None,
        timeout: float | timedelta | None = None,
        *,
        id: str | None = None,
        wait_parked: bool = False,
    ) -> Any:
        """Send the procedure a signal, and wait for the reply of the step that takes it.

        Only a ``Status.wait(name)`` takes it; until then it is kept. The reply is stored with the success of that step
        (`Context.reply`). An ask with an id that was asked before gets the same reply. That holds for each client, and
        after the end of the procedure too.

        Args:
            name: The event that the procedure waits for, or will.
            payload: The step finds it in ``ctx.event``. Default: None.
            timeout: Seconds, or a timedelta, to wait at most; the ask stands when they are over. Default: None, without
                limit.
            id: Text by which the ask counts once for its procedure and name, also over restarts. Ids of the last 1000
                signals that a procedure took are remembered. Default: None, a new one.
            wait_parked: As of `result`. Default: False.

        Returns:
            The value that the step gave to ``ctx.reply``.

        Raises:
            ProcedureFailed: The procedure ended otherwise than well, without a reply.
            NoReply: It ended well without one, the step that took the ask gave none, or the ask was withdrawn.
            ResultTimeout: The time is up; a builtin `TimeoutError`, whose ``ask`` is the id to ask again with.
            ProcedureParked: As of `result`.
            ProcedureQuarantined: As of `result`.
            UnknownProcedure: The procedure was removed.
            StateNotEncodable: The payload cannot be kept, or the procedure does not know a class in it.
            StateTooLarge: The payload takes more bytes than `Config.max_state`.
            NotAllowed: 1000 signals to it wait already.
            ValueNotDecodable: The classes of the reply have changed since.
            ManagerStopped: The manager stopped first; ask again with the same id.
        """
        ask = AskKey(checked_event(name), new_id() if id is None else checked_ask_id(id))
        clock = _Countdown(timeout)
        try:
            self._source._send_ask(self._id, ask, payload).result(clock.left())
            answer = _result_of(self._source._answer_to(self._id, ask, _PARKED if wait_parked else _CALL), clock.left())
        except TimeoutError:
            raise late(self._id, timeout, self._source._glance(self._id), ask) from None
        return self._reply_of(ask, answer)

    async def ask_async(
        self,
        name: str,
        payload: Any = None,
        timeout: float | timedelta | None = None,  # noqa: ASYNC109 - that of `ask`, whose error says more
        *,
        id: str | None = None,
        wait_parked: bool = False,
    ) -> Any:
        """As `ask`, in a coroutine. To cancel it leaves the ask standing.

        Args:
            name: As of `ask`.
            payload: As of `ask`. Default: None.
            timeout: As of `ask`. Default: None, without limit.
            id: As of `ask`. Default: None, a new one.
            wait_parked: As of `result`. Default: False.

        Returns:
            The value that the step gave to ``ctx.reply``.

        Raises:
            ActorprocError: As of `ask`.
            ResultTimeout: As of `ask`.
        """
        import asyncio  # noqa: PLC0415 - hosts and commands without a loop need not load it

        ask = AskKey(checked_event(name), new_id() if id is None else checked_ask_id(id))
        clock, source = _Countdown(timeout), self._source
        try:
            # What may read the store is for another thread than that of the loop.
            sent = await asyncio.to_thread(source._send_ask, self._id, ask, payload)
            await _until_done(sent, clock.left())
            sent.result()
            found = await asyncio.to_thread(source._answer_to, self._id, ask, _PARKED if wait_parked else _CALL)
            await _until_done(found, clock.left())
        except TimeoutError:
            raise late(self._id, timeout, await asyncio.to_thread(source._glance, self._id), ask) from None
        return await asyncio.to_thread(self._reply_of, ask, _result_of(found, None))

    def _reply_of(self, ask: AskKey, answer: AskResult) -> Any:
        if answer.ending is None:
            return self._source._reply_in(answer, self._id)
        record = answer.ending.record
        if record.state != _SUCCESS:
            raise self._failure(answer.ending)
        raise NoReply(
            f"procedure {self._id} has ended {record.state} without a reply to the ask {ask.name!r} ({ask.id})",
            ask=ask.id,
            id=self._id,
            state=str(record.state),
            step=record.step,
        )

    def done(self) -> bool:
        """True if it has ended, one way or the other. Does not wait."""
        end = self._end
        return (end is not None and _has_come(end)) or self._source._ended(self._id)

    def info(self) -> ProcedureInfo:
        """The procedure as it is now."""
        return self._source.info(self._id)

    def future(self) -> Future[R_co]:
        """A future of the output: for `asyncio.wrap_future`, `concurrent.futures.wait` and the like.

        While the procedure is parked the future is pending, and a warning is logged. To cancel it changes nothing for
        the procedure. Each call gives another one.

        Returns:
            A future with the output, or with the exception that `result` would raise.
        """
        own: Future[R_co] = Future()

        def settle(end: Ending | Future[Ending]) -> None:
            if not own.set_running_or_notify_cancel():
                return
            try:
                output = self._unpack(end if isinstance(end, Ending) else end.result())
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is for the one that waits
                own.set_exception(error)
            else:
                own.set_result(output)

        try:
            # Decoding the output may run code of its classes: on the thread for callbacks.
            self._when_over(lambda end: self._source._post(lambda: settle(end)))
        except Exception as error:  # noqa: BLE001 - the manager has stopped: as for futures that were there before
            own.set_exception(error)
        return own

    def add_done_callback(self, function: Callable[[ProcedureHandle[R_co]], object]) -> None:
        """Have a function called once the procedure has ended; at once when it has ended already.

        Its errors are logged. It is not called when the manager stops first. While the procedure is parked it waits,
        and a warning is logged.

        Args:
            function: Called as ``function(handle)`` on a thread of the manager.
        """

        def ended(end: Ending | Future[Ending]) -> None:
            if _has_come(end):
                self._source._post(lambda: function(self))

        self._when_over(ended)

    def __await__(self) -> Generator[Any, None, R_co]:
        return self._awaited().__await__()

    def __reduce__(self) -> NoReturn:
        msg = f"a handle belongs to its process: pass on its id, {self._id!r}, and ask the manager there for it"
        raise TypeError(msg)

    def __repr__(self) -> str:
        return f"<ProcedureHandle {self._id}>"

    async def _awaited(self) -> R_co:
        future = self._watch()
        if isinstance(future, Ending):
            return self._unpack(future)
        await _until_done(future, None)
        return self._unpack(_result_of(future, None))

    def _watch(self, patience: Patience = Patience.CALL) -> Ending | Future[Ending]:
        end = self._end
        if os.getpid() != self._pid:
            # A forked copy of the program: an open future is never settled here. The owner of the handle says so.
            return end if end is not None and _has_come(end) else self._source._end_of(self._id)
        if patience is not _CALL:
            return end if end is not None and _has_come(end) else self._source._end_of(self._id, patience)
        # A manager that was started again, or one whose store was repaired, can still tell.
        if end is None or (not isinstance(end, Ending) and end.done() and end.exception() is not None):
            # Without a lock: of two threads that ask at once each gets an end that comes, and one of them is kept.
            end = self._end = self._source._end_of(self._id)
        return end

    def _when_over(self, hear: Callable[[Ending | Future[Ending]], object]) -> Future[Ending] | None:
        """Have `hear` called with the end, or with the future that says why it will not come; at once, if it is there.

        It is called on a thread of the engine, which it must not hold up. Returns the future it waits for.
        """
        end = self._watch(Patience.ALWAYS)
        if isinstance(end, Ending):
            hear(end)
            return None
        end.add_done_callback(hear)
        return end

    def _wait(self, timeout: float | timedelta | None, *, wait_parked: bool) -> Ending:
        seconds = waiting_seconds(timeout)
        end = self._watch(_PARKED if wait_parked else _CALL)
        return end if isinstance(end, Ending) else _result_of(end, seconds)

    def _end_within(
        self, timeout: float | timedelta | None, *, wait_parked: bool, asked: float | timedelta | None
    ) -> Ending:
        """The end; a time limit that has passed is told with all that is known, and was `asked` for in these words."""
        try:
            return self._wait(timeout, wait_parked=wait_parked)
        except TimeoutError:
            raise late(self._id, asked, self._source._glance(self._id)) from None

    def _result(self, timeout: float | timedelta | None, *, wait_parked: bool, asked: float | timedelta | None) -> R_co:
        return self._unpack(self._end_within(timeout, wait_parked=wait_parked, asked=asked))

    def _unpack(self, ending: Ending) -> R_co:
        if ending.record.state == _SUCCESS:
            output: R_co = self._source._output_of(ending)
            return output
        raise self._failure(ending)

    def _failure(self, ending: Ending) -> ProcedureFailed:
        record = ending.record
        failure = failure_of(record)
        if failure.cause is not None and record.error is not None and record.error.pickled:
            failure.cause.original = self._source._original_of(record)
        return failure


def as_completed(
    handles: Iterable[ProcedureHandle[R]], timeout: float | timedelta | None = None
) -> Iterator[ProcedureHandle[R]]:
    """The handles, each as soon as its procedure has ended, those that have ended already first.

    They may be of several managers and clients. A handle whose manager stops first is given too, and its `result`
    says so. A procedure that is parked is waited for, and logged.

    Args:
        handles: Handles of procedures; one that comes twice is given once.
        timeout: Seconds, or a timedelta, from this call after which the iteration raises; None: without limit.

    Returns:
        An iterator. Leaving it early changes nothing for the procedures.

    Raises:
        ResultTimeout: In the iteration, when the time is up; a builtin `TimeoutError`.
        TypeError: Something else than a handle was given.
    """
    given: list[Any] = list(dict.fromkeys(handles))
    for handle in given:
        if not isinstance(handle, ProcedureHandle):
            msg = f"as_completed takes handles, as submit and get return them, not {handle!r:.80}"
            raise TypeError(msg)
    seconds = waiting_seconds(timeout)
    return _in_order_of_ends(given, None if seconds is None else time.monotonic() + seconds, timeout)


def _in_order_of_ends(
    handles: list[ProcedureHandle[R]], until: float | None, timeout: float | timedelta | None
) -> Iterator[ProcedureHandle[R]]:
    over: queue.SimpleQueue[ProcedureHandle[R]] = queue.SimpleQueue()
    waited: list[tuple[Future[Ending], Callable[[Any], object]]] = []
    left = dict.fromkeys(handles)
    try:
        for handle in handles:
            hear = _putter(over, handle)
            try:
                future = handle._when_over(hear)
            except Exception:  # noqa: BLE001 - it cannot be asked, as its `result` will say
                over.put(handle)
            else:
                if future is not None:
                    waited.append((future, hear))
        while left:
            try:
                handle = over.get(timeout=None if until is None else max(0.0, until - time.monotonic()))
            except queue.Empty:
                first = next(iter(left))
                error = late(first.id, timeout, first._source._glance(first.id))
                error.args = (f"{len(left)} of {len(handles)} procedures have not ended; {error}",)
                raise error from None
            del left[handle]
            yield handle
    finally:
        for future, heard in waited:
            take_back(future, heard)


def _putter(over: queue.SimpleQueue[ProcedureHandle[R]], handle: ProcedureHandle[R]) -> Callable[[Any], None]:
    def hear(_: object) -> None:
        over.put(handle)

    return hear


class _Countdown:
    """Time limit of several waits together."""

    def __init__(self, timeout: float | timedelta | None) -> None:
        seconds = waiting_seconds(timeout)
        self._until = None if seconds is None else time.monotonic() + seconds

    def left(self) -> float | None:
        """Seconds that are left; None: it has no limit."""
        return None if self._until is None else max(0.0, self._until - time.monotonic())


async def _until_done(future: Future[Any], seconds: float | None) -> None:
    """Wait for a future that others may wait for too: it is not cancelled with this. Raises `TimeoutError`."""
    if future.done():
        return
    import asyncio  # noqa: PLC0415 - hosts and commands without a loop need not load it

    loop = asyncio.get_running_loop()
    over = asyncio.Event()

    def wake(_: Future[Any]) -> None:
        with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile: nothing awaits it any more
            loop.call_soon_threadsafe(over.set)

    future.add_done_callback(wake)
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    finally:
        take_back(future, wake)


def late(
    id: str, timeout: float | timedelta | None, seen: Described | None, ask: AskKey | None = None
) -> ResultTimeout:
    """The error of a wait for procedure `id` whose `timeout` is over; `seen` is how it stands."""
    seconds = waiting_seconds(timeout)
    within = f" within {seconds:g} s" if seconds is not None else ""
    msg, known_by = f"procedure {id} has not ended{within}", "" if ask is None else ask.id
    if ask is not None:
        msg = (
            f"procedure {id} has not replied to the ask {ask.name!r}{within}; the ask stands, and the reply comes to "
            f"ask({ask.name!r}, id={ask.id!r})"
        )
    if seen is None:
        return ResultTimeout(f"{msg}; how it stands is not known now", id=id, ask=known_by)
    step, reason = seen.record.step, seen.reason or ""
    name = seen.record.current_name
    words = f"{msg}: it is {seen.phase} at {step_in_words(step, name)}" + (f" ({reason})" if reason else "")
    return ResultTimeout(words, id=id, phase=str(seen.phase), step=step, step_name=name, reason=reason, ask=known_by)


def _result_of(future: Future[R], timeout: float | None) -> R:
    try:
        return future.result(timeout)
    except (ProcedureParked, NoReply) as error:
        # Anew: one object that all who wait raise would keep the frames of each.
        raise copy.copy(error) from None


def _has_come(end: Ending | Future[Ending]) -> bool:
    return isinstance(end, Ending) or (end.done() and end.exception() is None)
