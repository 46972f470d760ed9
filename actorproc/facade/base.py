"""What every part of the facade stands on: the running engine, and a clear error when there is none."""

from __future__ import annotations

import os

from actorproc.actors.clock import Clock
from actorproc.actors.tree import EngineTree
from actorproc.config import Config
from actorproc.errors import ManagerStopped
from actorproc.registration import Registration

__all__ = ["Facade"]


class Facade:
    """A manager's common ground. Its parts add methods, `ProcedureManager` adds the life."""

    _config: Config
    _clock: Clock
    _types: Registration
    _tree: EngineTree | None
    _pid: int

    def _running(self) -> EngineTree:
        tree = self._tree
        if tree is None:
            msg = "this manager is not started: use `with ProcedureManager(…) as manager:` or call start()"
            raise ManagerStopped(msg)
        self._check_fork()
        if tree.closed:
            msg = "this manager has been stopped; call start() to use it again"
            raise ManagerStopped(msg)
        return tree

    def _check_fork(self) -> None:
        if os.getpid() != self._pid:
            msg = (
                f"this manager belongs to process {self._pid} and cannot be used in its forked child {os.getpid()}: "
                "create and start a manager after the fork, in one process only"
            )
            raise ManagerStopped(msg)
