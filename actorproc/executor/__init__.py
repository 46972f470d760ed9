"""`ProcedureExecutor`: functions called in worker processes, through the interface of `concurrent.futures`.

Each call is a procedure. So it is on disk before it runs, and a worker that dies costs one attempt of one call. If the
host program ends, its unfinished calls go on when it is started again.
"""

from __future__ import annotations

from actorproc.executor.futures import DurableFuture
from actorproc.executor.pool import ProcedureExecutor
from actorproc.executor.results import CallBroken, CallTimeout

__all__ = ["CallBroken", "CallTimeout", "DurableFuture", "ProcedureExecutor"]
