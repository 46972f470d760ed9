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

Rooms from the top down; a module imports only from rooms below its own:

============================  ===========================================================================
``cli``, ``testing``          commands; the test kit for your own procedures, stores and worker pools
``executor``, ``embedding``   `ProcedureExecutor`, as `concurrent.futures.Executor`; a manager as a Pykka actor
``api``                       `ProcedureManager`, `ProcedureClient`, `StoreReader`, `ProcedureHandle`, `Watch`
``control``                   the socket through which other processes reach a manager
``engine``                    carries data between the next three: manager and supervisor actors, the clock
``config``, ``report``        `Config`; the structs that callers and commands are shown
``core``                      decides: pure functions of an event and the engine state
``store``                     persists: one transaction per batch, in LMDB or in memory
``workers``                   runs user code: processes, their channel, their death
``procedure``                 `Procedure`, `Saga`, `Status`, and their bytes
``model``                     the vocabulary: events, commands, outcomes, rows
``errors``, ``support``       every error, drawn as a tree; durations, digests, loggers
============================  ===========================================================================

The names below are the public ones: what a program constructs, calls, catches or annotates with. Structs that are only
met inside of those are imported from their modules. The names are looked up at first use. So a worker process, which
imports this package too, never loads LMDB or actors. The command line starts in the time it takes to read a store.
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
    Deposed,
    DuplicateProcedure,
    DuplicateType,
    EngineError,
    InternalError,
    InvalidId,
    InvalidStatus,
    KeyPoisoned,
    LockTimeout,
    ManagerBusy,
    ManagerStopped,
    NoReply,
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
    UnknownStep,
    UnknownType,
    UsageError,
    ValueNotDecodable,
    WaitTimeout,
    WorkerBootFailed,
    WorkerCrashed,
    WorkerEnded,
)

if TYPE_CHECKING:
    from actorproc.api.client import ProcedureClient
    from actorproc.api.deploys.deploy_check import check_deploy
    from actorproc.api.handle import ProcedureHandle, as_completed
    from actorproc.api.launch.connected import ConnectedManager, connect
    from actorproc.api.manager import ProcedureManager
    from actorproc.api.reader import StoreReader
    from actorproc.api.watch import Watch
    from actorproc.config import Config
    from actorproc.executor import ProcedureExecutor
    from actorproc.model.crash_report import CrashReport
    from actorproc.model.policies import LockKey
    from actorproc.model.reports import BackupReport, CompactionReport
    from actorproc.model.rows.records import ErrorInfo
    from actorproc.model.states import Phase, ProcedureState
    from actorproc.procedure.authoring.async_context import AsyncContext
    from actorproc.procedure.authoring.context import ChildOutcome, Context
    from actorproc.procedure.authoring.function import procedure
    from actorproc.procedure.authoring.machine import StateMachineProcedure
    from actorproc.procedure.authoring.procedure import Procedure
    from actorproc.procedure.authoring.saga import Saga, step
    from actorproc.procedure.authoring.status import Status
    from actorproc.procedure.declaring.environment import Environment
    from actorproc.procedure.declaring.policies import Limits, RetryPolicy
    from actorproc.procedure.values.adapters import ValueAdapter
    from actorproc.procedure.values.evolution import migrates, value
    from actorproc.procedure.values.secrets.secret import Secret
    from actorproc.procedure.values.stored import decode_value
    from actorproc.report.audit import AuditInfo
    from actorproc.report.changes import (
        Change,
        ChangeDigest,
        DigestRow,
        HostEvent,
        LeaderEvent,
        Overflow,
        ProcedureEvent,
        WorkerEvent,
    )
    from actorproc.report.deploy_report import DeployReport
    from actorproc.report.health import Health
    from actorproc.report.hosts import HostInfo
    from actorproc.report.info import (
        EnqueuedInfo,
        LockInfo,
        PoisonInfo,
        ProcedureInfo,
        ProcedureTree,
        ScheduleInfo,
        SignalInfo,
    )
    from actorproc.report.metrics import Metrics
    from actorproc.report.states import StateInfo
    from actorproc.report.step_log import AttemptInfo, StepInfo
    from actorproc.support.recurrence import Calendar
    from actorproc.workers.base import WorkerInfo
    from actorproc.workers.os.frozen import freeze_support
    from actorproc.workers.protocol.log_entry import LogEntry

__all__ = [
    "ActorprocError",
    "AsyncContext",
    "AttemptInfo",
    "AuditInfo",
    "BackupReport",
    "Calendar",
    "Change",
    "ChangeDigest",
    "ChildOutcome",
    "CompactionReport",
    "Config",
    "ConnectedManager",
    "Context",
    "CrashReport",
    "DeadlineExceeded",
    "DeadlockDetected",
    "DeployReport",
    "Deposed",
    "DigestRow",
    "DuplicateProcedure",
    "DuplicateType",
    "EngineError",
    "EnqueuedInfo",
    "Environment",
    "ErrorInfo",
    "Health",
    "HostEvent",
    "HostInfo",
    "InternalError",
    "InvalidId",
    "InvalidStatus",
    "KeyPoisoned",
    "LeaderEvent",
    "Limits",
    "LockInfo",
    "LockKey",
    "LockTimeout",
    "LogEntry",
    "ManagerBusy",
    "ManagerStopped",
    "Metrics",
    "NoReply",
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
    "RetryLater",
    "RetryPolicy",
    "Saga",
    "ScheduleInfo",
    "Secret",
    "SignalInfo",
    "StateInfo",
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
    "UnknownStep",
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
    "connect",
    "decode_value",
    "freeze_support",
    "migrates",
    "procedure",
    "step",
    "value",
]

_LAZY = {
    "AttemptInfo": "actorproc.report.step_log",
    "AuditInfo": "actorproc.report.audit",
    "BackupReport": "actorproc.model.reports",
    "Calendar": "actorproc.support.recurrence",
    "Change": "actorproc.report.changes",
    "ChangeDigest": "actorproc.report.changes",
    "AsyncContext": "actorproc.procedure.authoring.async_context",
    "ChildOutcome": "actorproc.procedure.authoring.context",
    "CompactionReport": "actorproc.model.reports",
    "Config": "actorproc.config",
    "Context": "actorproc.procedure.authoring.context",
    "CrashReport": "actorproc.model.crash_report",
    "DeployReport": "actorproc.report.deploy_report",
    "DigestRow": "actorproc.report.changes",
    "ErrorInfo": "actorproc.model.rows.records",
    "Health": "actorproc.report.health",
    "HostEvent": "actorproc.report.changes",
    "HostInfo": "actorproc.report.hosts",
    "Limits": "actorproc.procedure.declaring.policies",
    "LeaderEvent": "actorproc.report.changes",
    "LockInfo": "actorproc.report.info",
    "LockKey": "actorproc.model.policies",
    "LogEntry": "actorproc.workers.protocol.log_entry",
    "Metrics": "actorproc.report.metrics",
    "Overflow": "actorproc.report.changes",
    "Phase": "actorproc.model.states",
    "PoisonInfo": "actorproc.report.info",
    "Procedure": "actorproc.procedure.authoring.procedure",
    "ProcedureEvent": "actorproc.report.changes",
    "ProcedureExecutor": "actorproc.executor",
    "ProcedureHandle": "actorproc.api.handle",
    "ProcedureInfo": "actorproc.report.info",
    "ProcedureManager": "actorproc.api.manager",
    "ProcedureState": "actorproc.model.states",
    "ProcedureTree": "actorproc.report.info",
    "RetryPolicy": "actorproc.procedure.declaring.policies",
    "Saga": "actorproc.procedure.authoring.saga",
    "ScheduleInfo": "actorproc.report.info",
    "EnqueuedInfo": "actorproc.report.info",
    "Secret": "actorproc.procedure.values.secrets.secret",
    "SignalInfo": "actorproc.report.info",
    "StateMachineProcedure": "actorproc.procedure.authoring.machine",
    "Status": "actorproc.procedure.authoring.status",
    "StateInfo": "actorproc.report.states",
    "StepInfo": "actorproc.report.step_log",
    "Environment": "actorproc.procedure.declaring.environment",
    "ConnectedManager": "actorproc.api.launch.connected",
    "ProcedureClient": "actorproc.api.client",
    "StoreReader": "actorproc.api.reader",
    "ValueAdapter": "actorproc.procedure.values.adapters",
    "Watch": "actorproc.api.watch",
    "WorkerEvent": "actorproc.report.changes",
    "WorkerInfo": "actorproc.workers.base",
    "connect": "actorproc.api.launch.connected",
    "as_completed": "actorproc.api.handle",
    "check_deploy": "actorproc.api.deploys.deploy_check",
    "decode_value": "actorproc.procedure.values.stored",
    "freeze_support": "actorproc.workers.os.frozen",
    "migrates": "actorproc.procedure.values.evolution",
    "procedure": "actorproc.procedure.authoring.function",
    "step": "actorproc.procedure.authoring.saga",
    "value": "actorproc.procedure.values.evolution",
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
        return importlib.import_module("actorproc.procedure.authoring.function").procedure

    @procedure.setter
    def procedure(self, _package: types.ModuleType) -> None:
        pass


sys.modules[__name__].__class__ = _Package
