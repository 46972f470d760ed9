"""Embedded fault-tolerant procedures: any step may be killed, and only that step is retried.

::

    from actorproc import ProcedureManager, Saga, step

    class Order(Saga):
        item: str
        paid: bool = False

        @step
        def pay(self, ctx): self.paid = True
        @pay.undo
        def refund(self, ctx): self.paid = False
        @step
        def ship(self, ctx): return f"tracking-{ctx.idempotency_key}"

    with ProcedureManager("state") as manager:
        print(manager.run(Order("book")))

Where things are, from the top down; a module imports only what is below it:

=====================  ==========================================================================
``cli``, ``testing``   commands; simulation, faults and suites for your own tests
``manager``            `ProcedureManager`: open a directory, submit, ask, stop
``handle``             `ProcedureHandle`: the caller's end of one procedure
``actors``             who carries it: manager and supervisor actors, the only home of the clock
``core``               what to do: pure decisions on events
``store``              what survives: one transaction per batch, in LMDB or in memory
``workers``            where user code runs: processes, their channel, their death
``procedure``          what a user writes: `Procedure`, `Saga`, `Status`, and their bytes
``model``              what is said: events, records, commands
``errors``             every error, drawn as a tree
=====================  ==========================================================================

The names below are the public ones. Those that need LMDB or actors are looked up at first use, so that a worker
process, which imports this package too, never loads them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from actorproc.errors import (
    ActorprocError,
    DeadlineExceeded,
    DeadlockDetected,
    DuplicateProcedure,
    DuplicateType,
    EngineError,
    InternalError,
    InvalidId,
    InvalidStatus,
    KeyPoisoned,
    ManagerBusy,
    ManagerStopped,
    NotAllowed,
    OutcomeUnknown,
    ProcedureAborted,
    ProcedureFailed,
    RemoteError,
    RetryLater,
    StateNotEncodable,
    StateTooLarge,
    StepFailure,
    StepTimeout,
    StorageUnavailable,
    StoreDamaged,
    StoreFormat,
    StoreInUse,
    UnknownProcedure,
    UnknownType,
    UsageError,
    WaitTimeout,
    WorkerBootFailed,
    WorkerCrashed,
)
from actorproc.model.policies import LockKey
from actorproc.model.states import Phase, ProcedureState
from actorproc.procedure.context import ChildOutcome, Context
from actorproc.procedure.function import procedure
from actorproc.procedure.machine import StateMachineProcedure
from actorproc.procedure.policies import Limits, RetryPolicy
from actorproc.procedure.procedure import Procedure
from actorproc.procedure.saga import Saga, step
from actorproc.procedure.status import Status

if TYPE_CHECKING:
    from actorproc.config import Config
    from actorproc.handle import ProcedureHandle
    from actorproc.info import Health, ProcedureInfo
    from actorproc.manager import ProcedureManager

__all__ = [
    "ActorprocError",
    "ChildOutcome",
    "Config",
    "Context",
    "DeadlineExceeded",
    "DeadlockDetected",
    "DuplicateProcedure",
    "DuplicateType",
    "EngineError",
    "Health",
    "InternalError",
    "InvalidId",
    "InvalidStatus",
    "KeyPoisoned",
    "Limits",
    "LockKey",
    "ManagerBusy",
    "ManagerStopped",
    "NotAllowed",
    "OutcomeUnknown",
    "Phase",
    "Procedure",
    "ProcedureAborted",
    "ProcedureFailed",
    "ProcedureHandle",
    "ProcedureInfo",
    "ProcedureManager",
    "ProcedureState",
    "RemoteError",
    "RetryLater",
    "RetryPolicy",
    "Saga",
    "StateMachineProcedure",
    "StateNotEncodable",
    "StateTooLarge",
    "Status",
    "StepFailure",
    "StepTimeout",
    "StorageUnavailable",
    "StoreDamaged",
    "StoreFormat",
    "StoreInUse",
    "UnknownProcedure",
    "UnknownType",
    "UsageError",
    "WaitTimeout",
    "WorkerBootFailed",
    "WorkerCrashed",
    "procedure",
    "step",
]

_LAZY = {
    "Config": "actorproc.config",
    "Health": "actorproc.info",
    "ProcedureHandle": "actorproc.handle",
    "ProcedureInfo": "actorproc.info",
    "ProcedureManager": "actorproc.manager",
}


def __getattr__(name: str) -> Any:
    """PEP 562: the names that pull in LMDB or actors, at first use."""
    module = _LAZY.get(name)
    if module is None:
        msg = f"module 'actorproc' has no attribute {name!r}"
        raise AttributeError(msg)
    found = getattr(importlib.import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
