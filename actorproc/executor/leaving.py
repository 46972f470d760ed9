"""Ends of an executor: in order, after Ctrl-C, and at the end of a program that did not shut it down."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from concurrent.futures import wait

from actorproc.api.manager import ProcedureManager
from actorproc.errors import ActorprocError, StorageUnavailable
from actorproc.executor.queue import CallQueue, on_its_way

__all__ = ["finish", "finish_dropped", "finish_later", "finish_or_leave", "leave", "watch_for_exit"]

logger = logging.getLogger("actorproc")

_LOOK_EVERY = 0.5
"""Seconds between looks at whether calls are left, and whether the store is."""
_LOOK_FOR_END, _BEATS = 0.1, 5
"""Seconds between looks at whether the program ends; every fifth time also at whether calls are left."""
_STORE_SECONDS = 0.3
"""Seconds that Ctrl-C waits for what was submitted a moment ago to be stored."""
_STOP_SECONDS = 0.3
"""Seconds that Ctrl-C waits for the manager to store what it has decided."""


# ---------------------------------------------------------------- in order
def finish(calls: CallQueue, owned: ProcedureManager | None) -> None:
    """Wait until every call has ended, then stop the executor's own manager.

    Raises `StorageUnavailable` when the store was removed, so that no call can end any more; then all is stopped. On
    another thread than the main one, raises `KeyboardInterrupt` once Ctrl-C has ended the main one.
    """
    calls.is_finishing = True
    is_main = threading.current_thread() is threading.main_thread()
    earlier = getattr(sys, "last_value", None)

    def look() -> None:
        _check_store(calls.manager)
        if not is_main and _is_interrupted(earlier):
            raise KeyboardInterrupt

    try:
        calls.finish(look, _LOOK_EVERY if is_main else _LOOK_FOR_END)
    except StorageUnavailable:
        _stop_now(calls, owned)
        raise
    if owned is not None:
        owned.stop()


def finish_or_leave(calls: CallQueue, owned: ProcedureManager | None, *, is_first: bool) -> None:
    """Finish; Ctrl-C leaves instead, and another exit while it waits has a thread finish, unless one does already."""
    try:
        finish(calls, owned)
    except KeyboardInterrupt:
        leave(calls, owned)
        raise
    except StorageUnavailable:
        raise
    except BaseException:  # nothing else would stop what is running
        if is_first:
            finish_later(calls, owned)
        raise


def finish_later(calls: CallQueue, owned: ProcedureManager | None) -> None:
    """Finish on a thread for which the interpreter waits at its exit."""
    threading.Thread(target=_finish_alone, args=(calls, owned), name="actorproc-finish", daemon=False).start()


def finish_dropped(calls: CallQueue, owned: ProcedureManager | None, pid: int, _: object) -> None:
    """Finish an executor that was dropped, on a thread, in the process that used it."""
    if os.getpid() == pid and threading.main_thread().is_alive():
        finish_later(calls, owned)


def _finish_alone(calls: CallQueue, owned: ProcedureManager | None) -> None:
    try:
        finish(calls, owned)
    except StorageUnavailable as error:
        logger.error("the executor of %s ends with calls open: %s", calls.manager._path, error)  # noqa: TRY400
    except KeyboardInterrupt:
        leave(calls, owned)


def _is_interrupted(earlier: object) -> bool:
    """The main thread ended by an exception that the interpreter printed, not the earlier one, and it was Ctrl-C."""
    last = getattr(sys, "last_value", None)
    return not threading.main_thread().is_alive() and last is not earlier and isinstance(last, KeyboardInterrupt)


def _check_store(manager: ProcedureManager) -> None:
    path = manager._path
    if manager._given_store is not None or os.path.exists(os.path.join(path, "data.mdb")):  # noqa: PTH110, PTH118
        return
    if os.path.isdir(path) and manager.health().status != "storage-trouble":  # noqa: PTH112
        return  # it may be about to be replaced by its compact copy
    msg = f"the store {path} was removed while calls of this executor were open: they have no results and are gone"
    raise StorageUnavailable(msg)


# ---------------------------------------------------------------- at once
def leave(calls: CallQueue, owned: ProcedureManager | None) -> None:
    """Leave within a second: what is stored goes on later, and a line says so. Running calls are stopped with the
    manager.

    Another's manager goes on with the calls.
    """
    calls.is_left = True
    lost = _await_stored(calls, _STORE_SECONDS)
    _tell("interrupted", calls, owned, lost)
    _stop_now(calls, owned)


def _await_stored(calls: CallQueue, patience: float) -> int:
    """Wait until every call is stored or refused, for at most `patience` seconds; returns the number of the others."""
    end = time.monotonic() + patience
    futures = calls.unfinished
    for place, future in enumerate(futures):
        while (batch := on_its_way(future)) is not None:
            left = end - time.monotonic()
            if left <= 0:
                return sum(on_its_way(late) is not None for late in futures[place:])
            wait([batch.durable], left)
    return 0


def _stop_now(calls: CallQueue, owned: ProcedureManager | None) -> None:
    calls.is_left = True
    if owned is not None:
        with contextlib.suppress(ActorprocError):
            owned.stop(drain=False, timeout=_STOP_SECONDS)
    # Futures are told that the manager stopped, or by another's manager of their ends.
    threading.Thread(target=calls.finish, name="actorproc-finish", daemon=True).start()


def _tell(reason: str, calls: CallQueue, owned: ProcedureManager | None, lost: int) -> None:
    left = len(calls.unfinished) - lost
    path = calls.manager._path
    if left > 0 and owned is None and calls.manager.health().status == "running":
        logger.warning("%s: %d calls have not ended; the manager of %s goes on with them", reason, left, path)
    elif left > 0:
        logger.warning(
            "%s: %d calls have not ended. They stay stored in %s, and go on when an executor or a manager is started "
            "there; executor.get(future.id) has their results then",
            reason,
            left,
            path,
        )
    if lost > 0:
        logger.error("%s: %d calls could not be stored in %s in time and will not be made", reason, lost, path)


# ---------------------------------------------------------------- at the end of the program
def watch_for_exit(calls: CallQueue, owned: ProcedureManager | None) -> threading.Thread:
    """Have a thread see to it that the interpreter does not end before what was submitted is stored.

    The interpreter joins the thread, which ends by itself soon after the last call has. It waits `Config.stop_timeout`
    seconds at most.
    """
    thread = threading.Thread(target=_watch, args=(calls, owned), name="actorproc-exit", daemon=False)
    thread.start()
    return thread


def _watch(calls: CallQueue, owned: ProcedureManager | None) -> None:
    main = threading.main_thread()
    beats = 0
    while main.is_alive():
        if calls.over.wait(_LOOK_FOR_END):
            return
        beats += 1
        if not beats % _BEATS and calls.needs_no_watch():
            return
    if not calls.is_left and not calls.is_finishing:
        lost = _await_stored(calls, calls.manager._config.stop_timeout)
        _tell("the program ended without shutdown() of its executor", calls, owned, lost)
