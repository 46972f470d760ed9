"""The parts of a running engine: actors, pool of workers, control socket.

The first `ProcedureManager.start` loads them, all at once. Who only imports the manager's module needs none; and that
is every worker which imports a module where procedures and manager stand side by side: 9 MB and 40 ms of its boot.
"""

from __future__ import annotations

from actorproc.control.server import ControlServer
from actorproc.engine.engine import EngineTree
from actorproc.workers.output.log_buffer import LogBuffer
from actorproc.workers.pool.local_pool import LocalPool

__all__ = ["ControlServer", "EngineTree", "LocalPool", "LogBuffer"]
