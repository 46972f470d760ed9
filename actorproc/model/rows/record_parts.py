"""Parts of rows besides numbers and text. As in rows, new fields go to the end, with a default."""

from __future__ import annotations

from enum import IntFlag
from typing import Literal

import msgspec

from actorproc.model.crash_report import CrashReport
from actorproc.model.names import step_in_words
from actorproc.model.policies import LockKey
from actorproc.model.states import ProcedureState

__all__ = [
    "TOKEN",
    "WITH_RUNNING",
    "WITH_SLOT",
    "WITH_STARTED",
    "Admitted",
    "Debounce",
    "DebounceTerms",
    "ErrorInfo",
    "ErrorKind",
    "IdReuse",
    "Interrupted",
    "Leftover",
    "Past",
    "StepTerms",
    "Trace",
    "Wait",
    "origin_of",
]

ErrorKind = Literal[
    "error",  # an exception of user code
    "invalid-status",
    "crash",
    "killed",  # an operator ended the attempt: it is not charged
    "timeout",
    "wait-timeout",
    "deadline",
    "deadlock",
    "lock-timeout",
    "aborted",
    "child",  # a child failed and took its parent along
    "cancelled",  # stopped because its tree failed
    "poisoned",
    "usage",  # the engine refused what the step asked for
]
Wait = Literal["all", "any", "each"]
TOKEN = 8
"""Bytes of `IdReuse.token`."""


class ErrorInfo(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A failure as text: nothing here needs a class of the user to be shown."""

    kind: ErrorKind
    type_name: str
    """Qualified name of the exception's class."""
    message: str
    traceback: str = ""
    procedure: str = ""
    """The procedure in which it happened."""
    step: int = 0
    pickled: bytes = b""
    """The exception itself, for classes that ask for it: as data, or a signed pickle of an executor's call. Never
    decoded by the engine."""
    crash: CrashReport | None = None
    """End of the worker, when the step took it along or was killed for a limit."""
    step_name: str = ""
    """Name of the step in which it happened, or the label of the undo; "": it has a number only."""

    @property
    def step_in_words(self) -> str:
        """The step by name, or by number."""
        return step_in_words(self.step, self.step_name)


class Admitted(IntFlag):
    """Admissions that a procedure has got."""

    RUNNING = 1
    """A root that counts as running (`Scheduling.max_running`)."""
    SLOT = 2
    """It holds a slot of each of its limit keys."""
    STARTED = 4
    """Its start was counted by the rates of its limit keys."""


# `&` of an enum runs Python code, to look a number up does not; and heads are asked for their flags at every step.
WITH_RUNNING, WITH_SLOT, WITH_STARTED = (
    frozenset(row for row in range(256) if row & flag.value)
    for flag in (Admitted.RUNNING, Admitted.SLOT, Admitted.STARTED)
)
"""The values of `admitted` that have this flag, up to eight flags."""


class Leftover(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something a rollback did not undo. ``str`` of it is a sentence."""

    procedure: str
    unit: str
    """The Saga step or the state whose undo gave up; "": the whole procedure."""
    reason: str

    def __str__(self) -> str:
        return f"{self.procedure} {self.unit} ({self.reason})" if self.unit else f"{self.procedure} ({self.reason})"


class Interrupted(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Intended next act of a procedure whose tree began to fail; a retry that goes forward takes it up again."""

    state: ProcedureState
    """`WAITING` or `WAITING_TIMEOUT`: it waited; `SUCCESS`: its last step ended when the tree failed already;
    `RUNNABLE`: it waited for locks."""
    event: str | None = None
    due_at: float | None = None
    step: int = 0
    """Its last step, which is to run again, or to be waited for again, from the record below; 0: it had not ended.
    With `SUCCESS`, 0 means that it waited for its children to end."""
    record: int = 0
    keys: tuple[LockKey, ...] = ()
    """Locks it was still waiting for, with those it held; empty: those it has are all."""
    step_name: str | None = None
    """Name of its last step."""
    searchable: tuple[str, ...] = ()
    """Texts of its searchable fields in the record below its last step."""


class StepTerms(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Facts with which a step begins besides its state: a restart and a fork begin with the same."""

    locks: tuple[LockKey, ...] = ()
    """Declared keys, and those that earlier steps asked for."""
    poisons: tuple[str, ...] = ()
    """`poison_keys()` before the step."""
    no_return: bool = False
    """The step was declared the point of no return."""
    searchable: tuple[str, ...] = ()
    """Texts of the searchable fields of the state."""


class IdReuse(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A submit's policy for an id that exists, where it is not the default ("same")."""

    policy: Literal["error", "restart-failed", "restart"]
    token: bytes
    """Random bytes, made once for each submit: one that is sent again after a lost answer has the same."""


class DebounceTerms(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A submit that waits for later ones of its key, the last of which runs."""

    key: str
    within: float
    """Seconds without a further submit of the key, after which it begins."""
    at_most: float
    """Seconds from the first submit after which it begins in any case; 0: it waits as long as further ones come."""
    token: bytes
    """As `IdReuse.token`."""


class Debounce(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The debounce of a root: the submits that it stands for."""

    key: str
    within: float
    """Value of `DebounceTerms.within` in the last submit, in seconds."""
    runs: tuple[tuple[str, bytes], ...]
    """Ids of the newest runs of the key, this one first, each with the tokens of its submits, the newest first."""
    waits: bool = True
    """A further submit may take its place; False once its wait was over."""


class Trace(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Place of a procedure in a trace (OpenTelemetry); contexts are bytes as in `actorproc.model.trace_context`."""

    context: bytes
    """The trace, the span above that of the procedure (zeros: none), the flags, the ``tracestate``."""
    since: float = 0.0
    """Epoch seconds since when the present run or generation is under way; 0: since the submit."""
    links: bytes = b""
    """Contexts that the span of the procedure is linked to, one behind the other."""
    woken_by: bytes = b""
    """Context in which the last signal was sent; of no meaning where the head has no payload."""


class Past(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Marks of a procedure's past: what is not kept of it, and the submits that began it."""

    trimmed: int = 0
    """Records 2 to this one were removed from the step log, with the notes of their steps."""
    next: int = 1
    """The record up to which the log is trimmed next, once `keep_steps` newer ones stand behind it."""
    renewed: int = 0
    """Its ended members with a lower place in submit order belong to earlier generations, and are being removed."""
    tokens: bytes = b""
    """`IdReuse.token` of the submits that began its generations, `TOKEN` bytes each, the newest first."""
    first: int = 1
    """Generation of record 1: that of the last restart by a submit."""
    exposes: bool = False
    """It has shown values, which are rows of their own."""
    host_losses: int = 0
    """Times the current step was lost with its host, one after the other."""
    host: int = 0
    """Number of the host that has its step in hand; 0: the machine of the manager, or none has."""
    trace: Trace | None = None
    """Its place in a trace; None: it is not traced."""
    lock_due: float = 0.0
    """Epoch seconds at which its waiting for locks is at its limit; 0: it waits for none, or without limit."""
    origin: int = 0
    """`ProcedureRecord.begun` of the generation of record 1, once a later one runs; below 0: it was forked."""
    debounce: Debounce | None = None
    """Debounce of a root that was submitted with one."""
    searchable: tuple[str, ...] = ()
    """Texts of the searchable fields of its state, by which lists find it (`actorproc.support.search_texts`)."""


def origin_of(begun: int, past: Past | None) -> int:
    """`ProcedureRecord.begun` of the generation of record 1, given that of the present one.

    It is below 0 for a fork, whose first step has a higher number than 1.
    """
    return min(begun, 0) or (0 if past is None else past.origin)
