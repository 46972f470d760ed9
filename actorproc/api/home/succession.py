"""Cells that run again: in an interactive session, a manager takes over from the one that was made there before.

A notebook's cell with a manager or an executor in it is run again and again. The manager of the last run has the
directory then, though no name leads to it. So the new one stops it and starts in its place. The old one *goes on
through* its successor: its requests are sent to the successor, and callers that wait for ends wait on.

This holds between two statements of the interactive `__main__` (IPython, the REPL). Two managers that one statement
makes on one directory are a mistake there as in any program, and `StoreInUse` says so.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import weakref
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import TYPE_CHECKING, cast

from actorproc.api.verbs.base import EngineVerbs, RunningEngine
from actorproc.engine.end_waiters import fail_future
from actorproc.errors import ManagerStopped
from actorproc.model.messages.definitions import Definition
from actorproc.store.base import ProcedureStore

if TYPE_CHECKING:
    from actorproc.api.home.shared_engine import SharedEngine
    from actorproc.engine.engine import EngineTree

__all__ = ["Succession", "statement_here"]

logger = logging.getLogger("actorproc")

_started: weakref.WeakValueDictionary[str, Succession] = weakref.WeakValueDictionary()
"""Managers of the interactive `__main__` by directory, the last that was started on each. Their engines keep them."""


def statement_here() -> weakref.ref[CodeType] | None:
    """The statement, or the cell, of the interactive `__main__` that runs on this thread; None: it is none."""
    if not hasattr(sys, "ps1"):
        return None
    main = sys.modules.get("__main__")
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and main is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals is vars(main):
            return weakref.ref(frame.f_code)
        frame = frame.f_back
    return None


class Succession(EngineVerbs):
    """Managers before and after a manager of an interactive session."""

    _given_store: ProcedureStore | None
    _starting: threading.Lock
    _starter: int | None

    def __init__(self) -> None:
        self._statement = statement_here()
        self._successor: Succession | None = None
        self._predecessors: weakref.WeakSet[Succession] = weakref.WeakSet()
        """Managers that go on through this one."""

    def _is_succeeded(self) -> bool:
        """Another manager runs in its place."""
        successor = self._successor
        return successor is not None and successor._tree is not None and not successor._tree.closed

    def _engine_of_successor(self) -> RunningEngine | None:
        successor = self._successor
        if successor is None or successor._starter == threading.get_ident():  # a signal handler in the middle of that
            return None
        with successor._starting:
            pass
        return successor._running() if self._successor is not None else None

    def _definitions(self) -> tuple[Definition, ...]:
        """Types that this manager and those before it know; of two with one name, the newer."""
        known: dict[str, Definition] = {}
        for manager in (*self._predecessors, self):
            known.update((definition.meta.type_name, definition) for definition in manager._types.definitions())
        return tuple(known.values())

    def _attach(self, tree: EngineTree | SharedEngine) -> None:
        """Tell the engine what is registered from now on, with this manager or with those before it."""
        for manager in (*self._predecessors, self):
            manager._types.attach(tree)

    @contextlib.contextmanager
    def _succeeding(self) -> Iterator[None]:
        """Stop the manager that was made in an earlier statement, if there is one; behind that, start this one."""
        place = os.path.realpath(self._path) if self._home.is_near else self._path
        former = _started.get(place) if self._statement is not None and self._given_store is None else None
        if former is None or former is self or former._pid != os.getpid() or self._is_same_statement(former):
            former = None
        if former is not None:
            self._follow(former)
        try:
            if former is not None:
                former._make_way()
            yield
        except BaseException as error:
            self._give_up(former, error)
            raise
        if self._statement is not None and self._given_store is None:
            _started[place] = self
        if former is not None:
            own = cast("EngineTree", self._tree)
            own.adopt(cast("EngineTree", former._tree).left_waiting())
            logger.info("the manager on %s took over from the one that was made here before", self._path)

    def _is_same_statement(self, former: Succession) -> bool:
        mine, its = self._statement, former._statement
        return mine is not None and its is not None and mine() is not None and mine() is its()

    def _follow(self, former: Succession) -> None:
        self._successor = None
        for manager in (*former._predecessors, former):
            if manager is not self:
                manager._successor = self
                self._predecessors.add(manager)
        former._predecessors.clear()

    def _make_way(self) -> None:
        """Stop, for a successor: running steps get as long as in any stop."""
        tree = cast("EngineTree", self._tree)
        tree.leave_ends()
        tree.stop(drain=True, timeout=self._config.stop_timeout)
        tree.wait_until_closed()

    def _give_up(self, former: Succession | None, error: BaseException) -> None:
        """There is no successor after all: all callers that wait for one get the error."""
        if former is None:
            return
        for manager in list(self._predecessors):
            manager._successor = None
        self._predecessors.clear()
        why = ManagerStopped(f"the manager was stopped for another one that did not start: {error}")
        for _, _, waiter in cast("EngineTree", former._tree).left_waiting():
            fail_future(waiter, why)
