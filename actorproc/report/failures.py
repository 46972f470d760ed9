"""A stored error becomes the exception its caller sees."""

from __future__ import annotations

from collections.abc import Sequence

from actorproc.errors import (
    DeadlineExceeded,
    DeadlockDetected,
    LockTimeout,
    ProcedureAborted,
    ProcedureFailed,
    RemoteError,
    StepFailure,
    StepTimeout,
    WaitTimeout,
    WorkerCrashed,
    WorkerEnded,
)
from actorproc.model.names import step_in_words
from actorproc.model.rows.records import ErrorInfo, Leftover, ProcedureRecord

__all__ = ["cause_of", "failure_of"]

_SHOWN = 3
"""Leftovers whose reasons are told in the text of a failure; its ``leftovers`` has more."""
_CAUSES: dict[str, type[StepFailure]] = {
    "crash": WorkerCrashed,
    "timeout": StepTimeout,
    "wait-timeout": WaitTimeout,
    "deadline": DeadlineExceeded,
    "deadlock": DeadlockDetected,
    "lock-timeout": LockTimeout,
}
_CAUSES_BY_NAME = {cause.__name__: cause for cause in _CAUSES.values()}
"""Engine errors are stored under a bare class name; names of user classes have their module before them."""


def cause_of(error: ErrorInfo) -> StepFailure:
    """The `StepFailure` that a stored error stands for; an exception of user code is a `RemoteError` with its text.

    An error that a child brought to its root is of the child's class, and has its crash report.
    """
    cause = _cause_of(error)
    cause.procedure, cause.step, cause.step_name = error.procedure, error.step, error.step_name or None
    return cause


def _cause_of(error: ErrorInfo) -> StepFailure:
    kind = _CAUSES_BY_NAME.get(error.type_name) if error.kind == "child" else _CAUSES.get(error.kind)
    if kind is not None and issubclass(kind, WorkerEnded) and error.crash is not None:
        crash = error.crash
        return kind(
            error.message,
            error.traceback,
            kind=crash.kind,
            code=crash.code,
            signal=crash.signal,
            stderr=crash.stderr,
            stack=crash.stack,
            peak_rss=crash.peak_rss,
            cpu_time=crash.cpu_time,
            duration=crash.duration,
        )
    if kind is not None:
        return kind(error.message, error.traceback)
    message = f"{error.type_name}: {error.message}" if error.type_name else error.message
    return RemoteError(message, error.traceback, error.type_name)


def _listed(leftovers: Sequence[Leftover]) -> str:
    """The first of them; those of one reason under one id, as a chain of children has them all."""
    by_reason: dict[tuple[str, str], list[Leftover]] = {}
    for left in leftovers:
        by_reason.setdefault((left.unit, left.reason), []).append(left)
    told = [f"{group[0]}{f' and {len(group) - 1} more' if group[1:] else ''}" for group in by_reason.values()]
    rest = len(told) - _SHOWN
    return ", ".join(told[:_SHOWN]) + (f", and {rest} more reasons, in ProcedureInfo.leftovers" if rest > 0 else "")


def failure_of(record: ProcedureRecord) -> ProcedureFailed:
    """The exception for a head that ended `FAILED` or `ROLLEDBACK`.

    Its cause is an attribute and not chained: the message has its text, which a traceback would show a second time.
    """
    error = record.error
    kind = ProcedureAborted if error is not None and error.kind == "aborted" else ProcedureFailed
    step = error.step if error is not None and error.step else record.step
    name = (error.step_name if error is not None and error.step else record.step_name) or None
    cause = cause_of(error) if error is not None else None
    where = f" in {error.procedure}" if error is not None and error.procedure not in {"", record.id} else ""
    why = f": {cause}" if cause is not None else ""
    left = f"; left behind: {_listed(record.leftovers)}" if record.leftovers else ""
    return kind(
        f"{record.type_name} {record.id} ended {record.state} at {step_in_words(step, name)}{where}{why}{left}",
        id=record.id,
        state=str(record.state),
        step=step,
        step_name=name,
        cause=cause,
        leftovers=tuple(map(str, record.leftovers)),
    )
