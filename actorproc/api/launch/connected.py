"""`connect`: one object for all processes of a program, in each of which it leads a store or is a client."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable
from concurrent.futures import Future
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any

from actorproc.api.manager import ProcedureManager
from actorproc.api.verbs.base import RunningEngine
from actorproc.control.engine import RemoteEngine
from actorproc.engine.end_waiters import OpenWait, pass_on
from actorproc.engine.messages import Ending, EndWaiter
from actorproc.engine.runtime.clock import waiting_seconds
from actorproc.errors import UsageError
from actorproc.procedure.authoring.function import ProcedureFunction
from actorproc.procedure.shipping.importing import imports_for_others, shut_here
from actorproc.report.changes import LeaderEvent
from actorproc.support.fork_hooks import at_fork

if TYPE_CHECKING:
    from actorproc.api.home.shared_engine import SharedEngine
    from actorproc.engine.engine import EngineTree

__all__ = ["ConnectedManager", "connect"]

logger = logging.getLogger("actorproc")

_made: weakref.WeakSet[ConnectedManager] = weakref.WeakSet()
_left_behind: list[object] = []
"""Engines of the process that this one was forked from: their threads are not here, so nothing of them is ended."""
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep  # noqa: PTH100, PTH120


class ConnectedManager(ProcedureManager):
    """A `ProcedureManager` that opens at its first use in each process, and may be forked. Made by `connect`.

    It leads the store where no other process does, and else is a client of the process that leads. A call that finds no
    leader waits for one, up to the patience. When a leader stops, one of the others takes its place, and callers that
    wait for an end get it from that one. `close` it, or use it in a ``with``, where a process ends in order.

    Args:
        path: As of `connect`.
        lead: As of `connect`.
        patience: Seconds that a call waits for a leader.
        **options: As of `connect`.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument makes no sense.
        UsageError: A class cannot be run, or the path is a URL of another kind.
    """

    def __init__(self, path: str | os.PathLike[str], *, lead: bool, patience: float, **options: Any) -> None:
        super().__init__(path, lead=lead, **options)
        self._shut = None  # an import makes it and opens nothing
        self._wants_lead = lead
        self._patience = patience
        self._opening = threading.RLock()
        self._opened_at = ""
        self._has_warned = False
        _made.add(self)

    _sends_modules = True

    @property
    def _is_shared(self) -> bool:
        return True

    @property
    def _serves_leader(self) -> bool:
        return False

    def close(self) -> None:
        """Leave the store in this process: running steps are waited for, `Config.stop_timeout` at most. Idempotent."""
        self.stop(drain=True, timeout=self._config.stop_timeout)

    # ------------------------------------------------------------ opening
    def start(self, gated: bool = False, *, wait: float | timedelta = 0.0) -> ConnectedManager:
        """Open it now in this process, in place of at its first use. See `ProcedureManager.start`.

        Args:
            gated: As of a manager, where this process leads. Default: False.
            wait: Not needed: another process that leads is no error. Default: 0.

        Returns:
            The connection.

        Raises:
            EngineError: The store cannot be used.
            UsageError: It is opened by an import in a worker, or in a command that looks into modules.
        """
        if shut_here() is not None:  # a module that a worker imports
            return self
        with self._opening:
            if self._pid not in (0, os.getpid()):
                self._begin_anew()
            # In a worker, and in a child of a step, the program that it works for leads or knows which one does.
            self._may_lead = self._wants_lead and not imports_for_others()
            self._opened_at = self._opened_at or _line_of_user()
            super().start(gated, wait=wait)
        return self

    def stop(self, drain: bool = True, timeout: float | timedelta | None = None) -> None:
        """Leave the store in this process; where it leads, another process does so from then on.

        Callers in this process that wait for an end get it from the next leader, or `ManagerStopped` when none comes.

        Args:
            drain: Wait for the running steps. Default: True.
            timeout: Seconds, or a timedelta, after which running steps are killed; they run again. Default: None.

        Raises:
            TypeError: ``timeout`` is no duration.
            ValueError: ``timeout`` makes no sense.
        """
        tree: Any = self._tree if self._pid == os.getpid() else None
        if tree is not None:
            tree.leave_ends()
        super().stop(drain, timeout)
        if tree is not None and (left := tree.left_waiting()):
            _wait_elsewhere(RemoteEngine(self._home, patience=self._patience, max_frame=self._config.max_frame), left)

    def _begin_anew(self) -> None:
        """In a forked child: forget what the parent has open."""
        _left_behind.extend((self._tree, self._shared))
        self._tree = self._shared = None
        self._starter, self._given_up, self._opened_at, self._has_warned = None, False, "", False
        self._types.leave()
        self._home.leave_inherited()

    def _running(self) -> RunningEngine:
        self._check_fork()
        return super()._running()

    def _check_fork(self) -> None:
        if self._pid != os.getpid():
            self._opened_late()

    def _opened_late(self) -> RunningEngine | None:
        if (shut := shut_here()) is not None:
            raise UsageError(shut.reason("connection", self._path))
        self.start()
        return self._tree

    def _begin_shared(self, gated: bool, until: float) -> SharedEngine:
        if not self._home.is_near:
            return super()._begin_shared(gated, until)
        from actorproc.api.home import assembly  # noqa: PLC0415
        from actorproc.api.home.directory_engine import DirectoryEngine  # noqa: PLC0415 - not loaded before it is used

        hooks = assembly.EventHooks(self._on_event, lambda errand: engine.post(errand))  # noqa: PLW0108 - it is made below

        def lead() -> EngineTree:
            tree = self._make_engine(gated, self._make_store())
            self._begin(tree, self._entrance())
            return tree

        engine: Any = DirectoryEngine(
            self._home,
            self._config,
            lead=lead,
            may_lead=self._may_lead,
            patience=self._patience,
            on_change=lambda kind, epoch: hooks.put(
                LeaderEvent(kind=kind, at=self._clock.wall(), epoch=epoch, store=self._path)
            ),
        )
        engine.start()
        self._attach(engine)
        self._tree = engine
        found: SharedEngine = engine
        return found


def connect(
    path: str | os.PathLike[str],
    *,
    procedures: Iterable[type | ProcedureFunction[..., Any]] = (),
    lead: bool = True,
    patience: float | timedelta = 30.0,
    **options: Any,
) -> ConnectedManager:
    """One connection for all processes of a program; it may stand at the top of a module, and be forked.

    Nothing is opened before the first use in each process. If no other process leads the store then, this one does,
    with workers of its own. Else it is a client of the process that leads. In a worker, and in children of a step, it
    is a client always. Handles that were made before a fork may be used after it.

    Args:
        path: A directory, or the URL of a database.
        procedures: Classes and `procedure` functions to register. Default: none.
        lead: Lead where no other process does. False: a client only; then `actorproc run`, or another program, leads.
            Default: True.
        patience: Seconds, or a timedelta, that a call waits for a leader. Default: 30.
        **options: Those of `ProcedureManager`, for where it leads: ``workers``, ``config``, ``environment`` …

    Returns:
        The `ConnectedManager`.

    Raises:
        TypeError: An argument is of the wrong kind.
        ValueError: An argument makes no sense.
        UsageError: A class cannot be run, or the path is a URL of another kind.
    """
    seconds = waiting_seconds(patience)
    if "store" in options:
        msg = "connect() takes a path or a URL: a store= in memory is of one process, which no other can join"
        raise TypeError(msg)
    return ConnectedManager(
        path, procedures=procedures, lead=lead, patience=30.0 if seconds is None else seconds, **options
    )


def _wait_elsewhere(remote: RemoteEngine, left: list[OpenWait]) -> None:
    """Have waits for ends answered by the next leader; the way to it is closed behind the last one."""
    open_waits = {id(waiter) for _, _, waiter in left}
    lock = threading.Lock()

    def over(waiter: EndWaiter, end: Future[Ending]) -> None:
        pass_on(waiter, end)
        with lock:
            open_waits.discard(id(waiter))
            is_last = not open_waits
        if is_last:  # on a thread of what is closed, which cannot wait for itself
            threading.Thread(target=remote.close, name="actorproc-close", daemon=True).start()

    remote.go_on_waiting(left, over)


# ---------------------------------------------------------------- forks
_OPENING = 10.0
"""Seconds that a fork waits at most for threads that open connections: what is half imported stays so in a copy."""
_here = threading.local()


def _before_fork() -> None:
    until = time.monotonic() + _OPENING
    opening = [connection._opening for connection in list(_made)]
    _here.held = [lock for lock in opening if lock.acquire(timeout=max(0.0, until - time.monotonic()))]
    for connection in list(_made):
        connection._types.hold()


def _after_in_parent() -> None:
    for lock in _here.__dict__.pop("held", ()):
        lock.release()
    for connection in list(_made):
        connection._types.release()
        is_open = connection._pid == os.getpid() and connection._tree is not None and not connection._tree.closed
        if is_open and not connection._has_warned and not imports_for_others():
            connection._has_warned = True
            logger.warning(
                "this process forks, and has opened its connection to %s, in %s: the copy opens one of its own, but "
                "threads of this process may have held locks of other libraries. Use a connection in the processes "
                "that are forked, and not before",
                connection._path,
                connection._opened_at,
            )


def _after_in_child() -> None:
    for connection in list(_made):
        connection._types.release()
        connection._starting, connection._opening = threading.Lock(), threading.RLock()


at_fork(before=_before_fork, in_parent=_after_in_parent, in_child=_after_in_child)


def _line_of_user() -> str:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    return "an unknown line" if frame is None else f"{frame.f_code.co_filename}:{frame.f_lineno}"
