"""Every error of actorproc, split by whose turn it is.

::

    ActorprocError
    ├── UsageError            the caller: change the call or the code
    │   ├── InvalidId               an id outside the allowed pattern
    │   ├── InvalidStatus           execute() returned something that is no Status
    │   ├── UnknownType             no class or loader is registered under this name
    │   ├── DuplicateType           another class or loader has this name already
    │   ├── DuplicateProcedure      this id exists with another type or another initial state
    │   ├── UnknownProcedure        no procedure has this id
    │   ├── UnknownStep             a step log has no such record
    │   ├── StateNotEncodable       a field cannot be stored so that it comes back as it was
    │   ├── StateTooLarge           a state or an output exceeds the configured limit
    │   ├── ValueNotDecodable       a stored output or payload does not fit the classes of today
    │   ├── KeyPoisoned             a key was poisoned by a failed procedure
    │   ├── ManagerBusy             a configured limit refuses new work for now
    │   ├── ManagerStopped          the manager was not started, or has been stopped
    │   └── NotAllowed              the verb does not fit the state of the procedure
    ├── ProcedureFailed       the procedure: it ended FAILED or ROLLEDBACK
    │   ├── ProcedureAborted        it was aborted on request
    │   └── NoReply                 an ask to it got no reply, however it ended
    ├── StepFailure           why a step failed (the `cause` of a ProcedureFailed)
    │   ├── WorkerEnded             the step's worker did not survive it:
    │   │   ├── WorkerCrashed           the step killed it too often
    │   │   └── StepTimeout             it was killed because the step took too long
    │   ├── WaitTimeout             an awaited event did not come in time
    │   ├── DeadlineExceeded        the procedure's deadline passed
    │   ├── LockTimeout             it waited too long for its locks
    │   ├── DeadlockDetected        it gave way in a cycle of lock waiting
    │   └── RemoteError             an exception of user code, carried as text
    ├── EngineError           the environment: disk, permissions, another owner
    │   ├── StoreInUse              another manager, or a command, owns this store
    │   │   └── Deposed                 another owner took the store over from this one
    │   ├── StoreFormat             the store was written by a newer or foreign format
    │   ├── StoreDamaged            a record's checksum does not match
    │   ├── ProcedureParked         what is waited for cannot end while a procedure is parked
    │   │   └── ProcedureQuarantined    it is parked for a damaged record (a StoreDamaged as well)
    │   ├── StorageUnavailable      the disk refuses writes; nothing acknowledged is lost
    │   ├── OutcomeUnknown          it is not known whether it was done: look, then ask again
    │   └── WorkerBootFailed        worker processes cannot start
    └── InternalError         us: a bug in actorproc, please report it

`RetryLater` is no error of the engine: a step raises it to be tried again later. `ResultTimeout` is the builtin
`TimeoutError` with what is known of the procedure. `actorproc.executor.CallBroken` is a `StepFailure` too.
"""

from __future__ import annotations

from datetime import timedelta

from actorproc.support.durations import seconds_or_none

__all__ = [
    "ActorprocError",
    "DeadlineExceeded",
    "DeadlockDetected",
    "Deposed",
    "DuplicateProcedure",
    "DuplicateType",
    "EngineError",
    "InternalError",
    "InvalidId",
    "InvalidStatus",
    "KeyPoisoned",
    "LockTimeout",
    "ManagerBusy",
    "ManagerStopped",
    "NoReply",
    "NotAllowed",
    "OutcomeUnknown",
    "ProcedureAborted",
    "ProcedureFailed",
    "ProcedureParked",
    "ProcedureQuarantined",
    "RemoteError",
    "ResultTimeout",
    "RetryLater",
    "StateNotEncodable",
    "StateTooLarge",
    "StepFailure",
    "StepTimeout",
    "StorageUnavailable",
    "StoreDamaged",
    "StoreFormat",
    "StoreInUse",
    "UnknownProcedure",
    "UnknownStep",
    "UnknownType",
    "UsageError",
    "ValueNotDecodable",
    "WaitTimeout",
    "WorkerBootFailed",
    "WorkerCrashed",
    "WorkerEnded",
]


class ActorprocError(Exception):
    """Base of every error raised by actorproc."""


class UsageError(ActorprocError):
    """The caller's turn: the message says what to change."""


class InvalidId(UsageError, ValueError):
    """A procedure id does not match ``[A-Za-z0-9][A-Za-z0-9._:@-]{0,127}``."""


class InvalidStatus(UsageError, TypeError):
    """A step returned something that is not a `Status`; never retried."""


class UnknownType(UsageError, LookupError):
    """No class and no loader is registered under this type name."""


class DuplicateType(UsageError):
    """Another class, or another loader, is registered under this type name."""


class DuplicateProcedure(UsageError):
    """This id exists with another type or another initial state."""


class UnknownProcedure(UsageError, LookupError):
    """No procedure in this store has this id."""


class UnknownStep(UsageError, LookupError):
    """The step log of a procedure has no such record: it was trimmed, was not needed, or never was."""


class StateNotEncodable(UsageError, TypeError):
    """A state, output or payload holds a value that could not be given back as it was."""


class StateTooLarge(UsageError, ValueError):
    """A state or an output is larger than the configured limit, in bytes."""


class ValueNotDecodable(UsageError, ValueError):
    """A stored output, payload or note was written by classes that are different now, or not known here."""


class KeyPoisoned(UsageError):
    """A key this procedure needs was poisoned; the message names by whom and how to clear it."""


class ManagerBusy(UsageError):
    """A limit on queued or running procedures refuses new ones for now."""


class ManagerStopped(UsageError):
    """The manager is not running (not started yet, stopping, or stopped)."""


class NotAllowed(UsageError):
    """The operator verb does not fit the state of the procedure."""


class StepFailure(ActorprocError):
    """Cause of a step's failure; `ProcedureFailed.cause` is one of these.

    ``traceback_text`` is the remote traceback, or the crash report, as text ("" when there is none). ``procedure`` and
    ``step`` say where it failed: the id of the procedure itself, or of the member of its tree ("" and 0: not known).
    ``step_name`` is the name of that step; None: it has a number only.
    ``original`` is the exception that user code raised, rebuilt from data, where the procedure class names its class in
    `uses`; else None.
    """

    def __init__(self, message: str, traceback_text: str = "") -> None:
        super().__init__(message)
        self.traceback_text = traceback_text
        self.procedure = ""
        self.step = 0
        self.step_name: str | None = None
        self.original: BaseException | None = None


class RemoteError(StepFailure):
    """An exception of user code in a worker process, carried as text.

    ``type_name`` is the qualified name of the exception's class.
    """

    def __init__(self, message: str, traceback_text: str = "", type_name: str = "") -> None:
        super().__init__(message, traceback_text)
        self.type_name = type_name


class WorkerEnded(StepFailure):
    """The step's worker process did not survive it. Attributes describe its end; "" and None: not known.

    - ``kind``: exit, signal, out-of-memory, memory-limit, process-limit, timeout, cpu-limit,
      heartbeat-limit or protocol.
    - ``code`` and ``signal``: the exit code, or the signal's name.
    - ``stderr``: its last lines.
    - ``stack``: the Python stacks of that moment.
    - ``peak_rss``: bytes resident at most.
    - ``cpu_time``: CPU seconds of the worker's life.
    - ``duration``: seconds the step ran.
    """

    def __init__(
        self,
        message: str,
        traceback_text: str = "",
        *,
        kind: str = "",
        code: int | None = None,
        signal: str | None = None,
        stderr: str = "",
        stack: str = "",
        peak_rss: int | None = None,
        cpu_time: float | None = None,
        duration: float | None = None,
    ) -> None:
        super().__init__(message, traceback_text)
        self.kind = kind
        self.code = code
        self.signal = signal
        self.stderr = stderr
        self.stack = stack
        self.peak_rss = peak_rss
        self.cpu_time = cpu_time
        self.duration = duration


class WorkerCrashed(WorkerEnded):
    """The step killed its worker, or was killed for memory or processes, as often as `Limits.crashes` allows."""


class StepTimeout(WorkerEnded):
    """The step was killed: longer than `Limits.wall_time`, more than `Limits.cpu_time`, or silent for
    `Limits.heartbeat`."""


class WaitTimeout(StepFailure):
    """The event a procedure waited for did not come in time; never retried."""


class DeadlineExceeded(StepFailure):
    """The procedure's deadline passed before it finished."""


class LockTimeout(StepFailure):
    """It waited for its locks longer than `Limits.lock_wait`."""


class DeadlockDetected(StepFailure):
    """It gave way in a cycle of lock waiting: as a rule the youngest tree of it that still goes forward."""


class ProcedureFailed(ActorprocError):
    """The procedure ended `FAILED` or `ROLLEDBACK`.

    ``id``, ``state`` ("FAILED" or "ROLLEDBACK"), ``step`` and ``step_name`` (None: it has a number only) say where;
    ``cause`` is a `StepFailure`; ``traceback_text`` is the remote traceback.
    ``leftovers`` says, one sentence each, what the rollback did not undo.
    """

    def __init__(
        self,
        message: str,
        *,
        id: str = "",
        state: str = "",
        step: int = 0,
        step_name: str | None = None,
        cause: StepFailure | None = None,
        leftovers: tuple[str, ...] = (),
    ) -> None:
        super().__init__(message)
        self.leftovers = leftovers
        self.id = id
        self.state = state
        self.step = step
        self.step_name = step_name
        self.cause = cause

    @property
    def traceback_text(self) -> str:
        """The remote traceback or crash report, "" when there is none."""
        return self.cause.traceback_text if self.cause is not None else ""

    def __str__(self) -> str:
        text = super().__str__()
        remote = self.traceback_text.rstrip()
        return f"{text}\n\n{remote}" if remote else text


class ProcedureAborted(ProcedureFailed):
    """The procedure ended because it was asked to abort."""


class NoReply(ProcedureFailed):
    """An ask got no reply: the step that took it gave none, its procedure has ended before, or it was withdrawn.

    ``ask`` is the id of the ask; ``state`` is "" when the procedure has not ended.
    """

    def __init__(self, message: str, *, ask: str = "", id: str = "", state: str = "", step: int = 0) -> None:
        super().__init__(message, id=id, state=state, step=step)
        self.ask = ask


class EngineError(ActorprocError):
    """The environment's turn: disk, permissions, another owner, a worker that cannot start."""


class StoreInUse(EngineError):
    """Another manager, or a command, owns this directory; ``pid`` is its process id (0 when unknown)."""

    def __init__(self, message: str, pid: int = 0) -> None:
        super().__init__(message)
        self.pid = pid


class Deposed(StoreInUse):
    """Another owner has taken the store over from this one, which stores nothing more."""


class StoreFormat(EngineError):
    """The store was written by a newer format of actorproc, or is no actorproc store."""


class StoreDamaged(EngineError):
    """A record fails its checksum or cannot be decoded, or the file is cut short.

    ``table``, ``key`` and ``reason`` say which record and why ("" when it is the whole file).
    """

    def __init__(self, message: str, *, table: str = "", key: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.table = table
        self.key = key
        self.reason = reason


class ProcedureParked(EngineError):
    """The procedure that is waited for cannot end, because it or another one of its tree is parked.

    A parked procedure is kept and goes on when it can be run again: its class is registered, or takes its state. A
    wait with ``wait_parked=True`` waits for that.

    ``id`` is the procedure that was waited for, ``member`` the one that is parked, ``reason`` says why, and ``repair``
    what to do about it.
    """

    def __init__(
        self,
        message: str,
        *,
        id: str = "",
        member: str = "",
        reason: str = "",
        repair: str = "",
    ) -> None:
        super().__init__(message)
        self.id = id
        self.member = member
        self.reason = reason
        self.repair = repair


class ProcedureQuarantined(ProcedureParked, StoreDamaged):
    """The procedure that is waited for stands still until the store is repaired: a record of its tree is damaged."""

    def __init__(
        self,
        message: str,
        *,
        id: str = "",
        member: str = "",
        reason: str = "",
        repair: str = "",
        table: str = "",
        key: str = "",
    ) -> None:
        super().__init__(message, id=id, member=member, reason=reason, repair=repair)
        self.table = table
        self.key = key
        self.reason = reason


class StorageUnavailable(EngineError):
    """The store cannot be written or read at the moment (disk full, I/O error); nothing acknowledged is lost."""


class OutcomeUnknown(EngineError):
    """A commit failed and could not be read back, or a client lost its manager in the middle of a verb: ask by id."""


class WorkerBootFailed(EngineError):
    """Worker processes cannot start: bad interpreter, failing preload, or a broken environment."""


class InternalError(ActorprocError):
    """A bug in actorproc; please report it with the message."""


class ResultTimeout(TimeoutError):
    """The time limit of a wait passed before the procedure ended, or answered an ask; the procedure goes on.

    ``id`` names it, and ``ask`` an ask that stands ("": a wait for the end). ``phase`` (None: not known), ``step``,
    ``step_name`` (None: it has a number only) and ``reason`` ("": none is known) say how it stood then.
    """

    def __init__(
        self,
        message: str,
        *,
        id: str = "",
        phase: str | None = None,
        step: int = 0,
        step_name: str | None = None,
        reason: str = "",
        ask: str = "",
    ) -> None:
        super().__init__(message)
        self.id = id
        self.ask = ask
        self.phase = phase
        self.step = step
        self.step_name = step_name
        self.reason = reason


class RetryLater(Exception):
    """Raised by a step to be tried again: ``after`` seconds from now, or by the policy's backoff.

    Counts as an error of the retry budget (`RetryPolicy.max_attempts`). ``after`` is a number or a timedelta, finite
    and not negative; anything else is `InvalidStatus`, which fails the step.
    """

    after: float | None = None

    def __init__(self, message: str = "", *, after: float | timedelta | None = None) -> None:
        super().__init__(message or "asked to be retried later")
        try:
            self.after = seconds_or_none(after, "RetryLater(after=…)")
        except (TypeError, ValueError) as error:
            raise InvalidStatus(str(error)) from None
