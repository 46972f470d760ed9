"""The parts of a running engine: actors, pool of workers, control socket.

The first `ProcedureManager.start` loads them, all at once. A program that only imports the manager's module needs
none. A worker is such a program when procedures and manager stand in one module: 9 MB and 40 ms of its boot are saved.
"""

from __future__ import annotations

from actorproc.api.home.worker_pools import WorkerPools
from actorproc.control.server import ControlServer
from actorproc.control.unix_door import UnixEntrance
from actorproc.engine.callers.event_hooks import EventHooks
from actorproc.engine.engine import EngineTree

__all__ = [
    "ControlServer",
    "EngineTree",
    "EventHooks",
    "UnixEntrance",
    "WorkerPools",
]
