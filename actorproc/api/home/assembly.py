"""The parts of a running engine: actors, pool of workers, control socket.

The first `ProcedureManager.start` loads them, all at once. A program that only imports the manager's module needs
none. A worker is such a program when procedures and manager stand in one module: 9 MB and 40 ms of its boot are saved.
"""

from __future__ import annotations

from actorproc.api.home.host_side import HostSide
from actorproc.api.home.shared_engine import SharedEngine
from actorproc.control.server import ControlServer
from actorproc.control.unix_door import UnixEntrance
from actorproc.engine.callers.event_hooks import EventHooks
from actorproc.engine.engine import EngineTree
from actorproc.workers.hosts.messages import PoolSettings
from actorproc.workers.output.log_buffer import LogBuffer
from actorproc.workers.pool.local_pool import LocalPool

__all__ = [
    "ControlServer",
    "EngineTree",
    "EventHooks",
    "HostSide",
    "LocalPool",
    "LogBuffer",
    "PoolSettings",
    "SharedEngine",
    "UnixEntrance",
]
