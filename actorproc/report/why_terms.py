"""The words in which `actorproc.report.why` is asked and speaks: facts, causes, spans of time, commands to type."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator
from typing import Any, Literal, Protocol

import msgspec

from actorproc.model.plain import plain_dict
from actorproc.report.info import LockInfo, PoisonInfo, ProcedureInfo

__all__ = ["Cause", "CauseKind", "EngineFacts", "RunningStep", "WhySource", "command", "span", "word"]

CauseKind = Literal[
    "lock",  # waits for a lock that another one holds, or waits behind another request
    "child",  # suspended on children
    "event",
    "timer",
    "running",
    "retrying",
    "stuck",
    "rolling-back",
    "paused",
    "parked",
    "worker",  # could run, and no worker is free
    "manager",  # no manager runs, or it does not hand out steps
    "failed",
    "done",
    "cycle",
    "schedule",  # a schedule, and what it waits for
    "enqueued",  # handed over in a transaction of an application, and no procedure yet
    "more",  # what is left out
    "unknown",
]


class RunningStep(msgspec.Struct, frozen=True, kw_only=True):
    """A step in a worker's hands."""

    slot: int
    pid: int
    age: float | None
    """Seconds; None: not known."""
    message: str | None = None
    progress: float | None = None
    host: str = ""
    """The worker host that it runs on, and for how long that has been silent; "": the manager's machine."""

    def in_words(self) -> str:
        """The worker, and its host."""
        return f"worker {self.slot} (pid {self.pid}{f' on {self.host}' if self.host else ''})"


class EngineFacts(msgspec.Struct, frozen=True, kw_only=True):
    """Facts about the manager."""

    running: bool
    """A manager has the store open."""
    pid: int | None = None
    suspended: bool = False
    """Its process was stopped by a signal (SIGSTOP)."""
    paused: str | None = None
    """Reason for which an operator paused everything."""
    trouble: str | None = None
    """Reason why it hands out nothing: its gate is closed, commits are refused, no worker starts."""
    steps: dict[str, RunningStep] | None = None
    """Running steps by procedure; None: not known, because only the store is seen."""


class WhySource(Protocol):
    """Source of facts for `explain`."""

    def info(self, id: str) -> ProcedureInfo:
        """One procedure; raises `UnknownProcedure`."""
        ...

    def unfinished(self, *, parent: str | None = None, root: str | None = None, limit: int) -> list[ProcedureInfo]:
        """Procedures that have not ended, in submit order: the children of one, or all of a tree."""
        ...

    def locks(self) -> list[LockInfo]:
        """The lock table."""
        ...

    def poisons(self) -> list[PoisonInfo]:
        """The poisoned keys."""
        ...

    def facts(self) -> EngineFacts:
        """Facts about the manager."""
        ...


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """One link of the chain. `causes` are what stands in the way of this one; none: this is a root cause."""

    kind: CauseKind
    procedure: str
    """The procedure this is said of; "" for what concerns the manager."""
    says: str
    """A sentence that begins with the procedure."""
    since: float | None = None
    """Epoch seconds (UTC) since when it is so, as far as known."""
    repairs: tuple[str, ...] = ()
    """Commands that would repair it, the gentlest first."""
    causes: tuple[Cause, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)

    def roots(self) -> Iterator[Cause]:
        """The root causes, in order."""
        if not self.causes:
            yield self
        for cause in self.causes:
            yield from cause.roots()


def span(seconds: float) -> str:
    """Seconds as people say them: "0.4 s", "12 s", "3 m", "2 h 5 m", "9 d"."""
    seconds = max(0.0, seconds)
    if seconds < 9.95 or seconds == math.inf:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} m"
    hours, minutes = divmod(minutes, 60)
    if hours < 48:
        return f"{hours} h {minutes} m" if minutes else f"{hours} h"
    return f"{hours // 24} d"


def word(info: ProcedureInfo) -> str:
    """A procedure as a sentence names it: its id, and its type without the module."""
    return f"{info.id} ({info.type_name.rpartition('.')[2]})"


def command(verb: str, subject: str) -> str:
    """The command line of a verb, ready to be pasted into a shell."""
    return f"actorproc {verb} {shlex.quote(subject)}"
