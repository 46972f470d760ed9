"""The end of a call becomes the result or the exception of its future."""

from __future__ import annotations

from concurrent.futures.process import (
    BrokenProcessPool,
    # The class whose text Python prints above a remote exception; not public, and the same since Python 3.2.
    _RemoteTraceback,
)
from typing import Any

from actorproc.engine.messages import Ending
from actorproc.errors import StepFailure, StepTimeout
from actorproc.model.rows.records import ErrorInfo, ProcedureRecord
from actorproc.model.states import ProcedureState
from actorproc.procedure.authoring.call import BROKEN_INITIALIZER, NOT_STARTED, unpickled_error, unpickled_result
from actorproc.procedure.encoding.signing import SigningKey
from actorproc.procedure.runtime.engine_side import decode_value
from actorproc.report.failures import cause_of, failure_of
from actorproc.support.digests import sealed_in

__all__ = ["CallBroken", "CallTimeout", "error_of", "is_broken_initializer", "result_of", "was_aborted"]

_set_cause = vars(BaseException)["__cause__"].__set__
"""As the interpreter does it: a class of exceptions may be frozen, or have a `__cause__` of its own."""


class CallBroken(StepFailure, BrokenProcessPool):
    """This call has no result: it killed its worker each time, or its arguments or its result cannot be unpickled.

    Only this call is concerned, others never are; it is a `BrokenProcessPool` for programs that expect one.
    ``__cause__`` says why.
    """


class CallTimeout(StepTimeout, TimeoutError):
    """This call ran longer than its limits allow, and was killed; as a `TimeoutError` for programs that expect one."""


def result_of(ending: Ending, key: SigningKey) -> Any:
    """Result of the function. Raises `CallBroken` when it cannot be read."""
    record = ending.record
    try:
        # A long one is not copied out of what it is in.
        sealed = sealed_in(ending.output)
        return unpickled_result(decode_value(ending.output) if sealed is None else sealed, record.id, key)
    except BaseException as error:  # an exit while unpickling ends nothing here: it is a user class's, not our caller's
        msg = f"the result of call {record.id} cannot be unpickled: {type(error).__name__}: {error}"
        raise CallBroken(msg) from error


def error_of(record: ProcedureRecord, key: SigningKey) -> BaseException:
    """The exception that a call ended with: the function's own, whose cause shows the remote traceback."""
    error = record.error
    if error is None:
        return failure_of(record)
    raised = unpickled_error(error.pickled, record.id, key)
    if raised is not None:
        _set_cause(raised, _remote(error.traceback))
        return raised
    if error.kind == "crash" or error.type_name in {NOT_STARTED, BROKEN_INITIALIZER}:
        broken = CallBroken(f"call {record.id}: {error.message}", error.traceback)
        broken.__cause__ = cause_of(error)
        return broken
    cause = cause_of(error)
    if type(cause) is StepTimeout:
        timeout = CallTimeout(str(cause), cause.traceback_text)
        vars(timeout).update(vars(cause))
        cause = timeout
    cause.__cause__ = _remote(error.traceback) if error.traceback else None
    return cause


def _remote(text: str) -> BaseException:
    return _RemoteTraceback(f'\n"""\n{text}"""')  # type: ignore[arg-type]  # a str, whatever its stub says


def was_aborted(record: ProcedureRecord) -> bool:
    """The call was cancelled before it began."""
    return record.state != ProcedureState.SUCCESS and record.error is not None and record.error.kind == "aborted"


def is_broken_initializer(error: ErrorInfo | None) -> bool:
    """The executor's initializer failed in a worker."""
    return error is not None and error.type_name == BROKEN_INITIALIZER
