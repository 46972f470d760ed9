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
``executor``           `ProcedureExecutor`: the same behind `concurrent.futures.Executor`
``embedding``          the engine as an actor of a Pykka application
``manager``            `ProcedureManager`: open a directory, submit, ask, stop
``deploy``             `check_deploy`: what new code would make of what is unfinished
``reader``             `StoreReader`: look into a directory from another process
``client``             `ProcedureClient`: use a manager that runs in another process
``stopped``            `StoppedStore`: steer a directory on which no manager runs
``handle``, ``watch``  `ProcedureHandle`: the caller's end of one procedure; `Watch`: what changes
``actors``             who carries it: manager and supervisor actors, the only home of the clock
``core``               what to do: pure decisions on events
``store``              what survives: one transaction per batch, in LMDB or in memory
``workers``            where user code runs: processes, their channel, their death
``procedure``          what a user writes: `Procedure`, `Saga`, `Status`, and their bytes
``model``              what is said: events, records, commands
``errors``             every error, drawn as a tree
=====================  ==========================================================================

The names below are the public ones. They are looked up at first use: a worker process, which imports this package too,
never loads LMDB or actors, and the command line starts in the time it takes to read a store.
"""

from __future__ import annotations

import importlib
import sys
import types
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
    ProcedureParked,
    ProcedureQuarantined,
    RemoteError,
    ResultTimeout,
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
    ValueNotDecodable,
    WaitTimeout,
    WorkerBootFailed,
    WorkerCrashed,
    WorkerEnded,
)

if TYPE_CHECKING:
    from actorproc.changes import Change, Overflow, ProcedureEvent, WorkerEvent
    from actorproc.client import ProcedureClient
    from actorproc.config import Config
    from actorproc.deploy import check_deploy
    from actorproc.deploy_report import DeployFinding, DeployReport
    from actorproc.executor import ProcedureExecutor
    from actorproc.handle import ProcedureHandle, as_completed
    from actorproc.info import (
        AuditInfo,
        Health,
        LockInfo,
        LockWaiterInfo,
        PoisonInfo,
        ProcedureInfo,
        ProcedureTree,
        RetentionHealth,
        SignalInfo,
        SlotHealth,
    )
    from actorproc.manager import ProcedureManager
    from actorproc.metrics import Metrics
    from actorproc.model.crash_report import CrashReport
    from actorproc.model.policies import LockKey
    from actorproc.model.records import ErrorInfo, Leftover
    from actorproc.model.reports import BackupReport, CompactionReport
    from actorproc.model.states import Phase, ProcedureState
    from actorproc.procedure.adapters import ValueAdapter
    from actorproc.procedure.context import ChildOutcome, Context
    from actorproc.procedure.evolution import migrates, value
    from actorproc.procedure.function import procedure
    from actorproc.procedure.machine import StateMachineProcedure
    from actorproc.procedure.policies import Limits, RetryPolicy
    from actorproc.procedure.procedure import Procedure
    from actorproc.procedure.saga import Saga, step
    from actorproc.procedure.secret import Secret
    from actorproc.procedure.status import Status
    from actorproc.procedure.stored import decode_value
    from actorproc.reader import StoreReader
    from actorproc.step_log import StepInfo
    from actorproc.watch import Watch
    from actorproc.workers.base import WorkerInfo
    from actorproc.workers.frozen import freeze_support
    from actorproc.workers.log_entry import LogEntry

__all__ = [
    "ActorprocError",
    "AuditInfo",
    "BackupReport",
    "Change",
    "ChildOutcome",
    "CompactionReport",
    "Config",
    "Context",
    "CrashReport",
    "DeadlineExceeded",
    "DeadlockDetected",
    "DeployFinding",
    "DeployReport",
    "DuplicateProcedure",
    "DuplicateType",
    "EngineError",
    "ErrorInfo",
    "Health",
    "InternalError",
    "InvalidId",
    "InvalidStatus",
    "KeyPoisoned",
    "Leftover",
    "Limits",
    "LockInfo",
    "LockKey",
    "LockWaiterInfo",
    "LogEntry",
    "ManagerBusy",
    "ManagerStopped",
    "Metrics",
    "NotAllowed",
    "OutcomeUnknown",
    "Overflow",
    "Phase",
    "PoisonInfo",
    "Procedure",
    "ProcedureAborted",
    "ProcedureClient",
    "ProcedureEvent",
    "ProcedureExecutor",
    "ProcedureFailed",
    "ProcedureHandle",
    "ProcedureInfo",
    "ProcedureManager",
    "ProcedureParked",
    "ProcedureQuarantined",
    "ProcedureState",
    "ProcedureTree",
    "RemoteError",
    "ResultTimeout",
    "RetentionHealth",
    "RetryLater",
    "RetryPolicy",
    "Saga",
    "Secret",
    "SignalInfo",
    "SlotHealth",
    "StateMachineProcedure",
    "StateNotEncodable",
    "StateTooLarge",
    "Status",
    "StepFailure",
    "StepInfo",
    "StepTimeout",
    "StorageUnavailable",
    "StoreDamaged",
    "StoreFormat",
    "StoreInUse",
    "StoreReader",
    "UnknownProcedure",
    "UnknownType",
    "UsageError",
    "ValueAdapter",
    "ValueNotDecodable",
    "WaitTimeout",
    "Watch",
    "WorkerBootFailed",
    "WorkerCrashed",
    "WorkerEnded",
    "WorkerEvent",
    "WorkerInfo",
    "as_completed",
    "check_deploy",
    "decode_value",
    "freeze_support",
    "migrates",
    "procedure",
    "step",
    "value",
]

_LAZY = {
    "AuditInfo": "actorproc.info",
    "BackupReport": "actorproc.model.reports",
    "Change": "actorproc.changes",
    "ChildOutcome": "actorproc.procedure.context",
    "CompactionReport": "actorproc.model.reports",
    "Config": "actorproc.config",
    "Context": "actorproc.procedure.context",
    "CrashReport": "actorproc.model.crash_report",
    "DeployFinding": "actorproc.deploy_report",
    "DeployReport": "actorproc.deploy_report",
    "ErrorInfo": "actorproc.model.records",
    "Health": "actorproc.info",
    "Leftover": "actorproc.model.records",
    "Limits": "actorproc.procedure.policies",
    "LockInfo": "actorproc.info",
    "LockKey": "actorproc.model.policies",
    "LockWaiterInfo": "actorproc.info",
    "LogEntry": "actorproc.workers.log_entry",
    "Metrics": "actorproc.metrics",
    "Overflow": "actorproc.changes",
    "Phase": "actorproc.model.states",
    "PoisonInfo": "actorproc.info",
    "Procedure": "actorproc.procedure.procedure",
    "ProcedureEvent": "actorproc.changes",
    "ProcedureExecutor": "actorproc.executor",
    "ProcedureHandle": "actorproc.handle",
    "ProcedureInfo": "actorproc.info",
    "ProcedureManager": "actorproc.manager",
    "ProcedureState": "actorproc.model.states",
    "ProcedureTree": "actorproc.info",
    "RetentionHealth": "actorproc.info",
    "RetryPolicy": "actorproc.procedure.policies",
    "Saga": "actorproc.procedure.saga",
    "Secret": "actorproc.procedure.secret",
    "SignalInfo": "actorproc.info",
    "SlotHealth": "actorproc.info",
    "StateMachineProcedure": "actorproc.procedure.machine",
    "Status": "actorproc.procedure.status",
    "StepInfo": "actorproc.step_log",
    "ProcedureClient": "actorproc.client",
    "StoreReader": "actorproc.reader",
    "ValueAdapter": "actorproc.procedure.adapters",
    "Watch": "actorproc.watch",
    "WorkerEvent": "actorproc.changes",
    "WorkerInfo": "actorproc.workers.base",
    "as_completed": "actorproc.handle",
    "check_deploy": "actorproc.deploy",
    "decode_value": "actorproc.procedure.stored",
    "freeze_support": "actorproc.workers.frozen",
    "migrates": "actorproc.procedure.evolution",
    "procedure": "actorproc.procedure.function",
    "step": "actorproc.procedure.saga",
    "value": "actorproc.procedure.evolution",
}


def __getattr__(name: str) -> Any:
    """PEP 562: everything but the errors, at first use."""
    if name == "__version__":
        globals()[name] = version = _version()
        return version
    module = _LAZY.get(name)
    if module is None:
        msg = f"module 'actorproc' has no attribute {name!r}"
        raise AttributeError(msg)
    found = getattr(importlib.import_module(module), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    """The version of the distribution; one that was copied without its metadata has none."""
    from importlib import metadata  # noqa: PLC0415 - costs more than all that is loaded here

    try:
        return metadata.version("actorproc")
    except metadata.PackageNotFoundError:
        return "0+unknown"


class _Package(types.ModuleType):
    """`procedure` is a function to those who import it from here, and a package to the import system."""

    @property
    def procedure(self) -> Any:
        """The decorator, although importing the package of that name sets the attribute to the package."""
        return importlib.import_module("actorproc.procedure.function").procedure

    @procedure.setter
    def procedure(self, _package: types.ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package
