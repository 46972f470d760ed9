"""Outcomes of handed-out steps, as a worker reports them. User values are bytes here, always."""

from __future__ import annotations

from typing import Literal

import msgspec

from actorproc.model.crash_report import CrashReport
from actorproc.model.policies import LockKey
from actorproc.model.rows.records import ErrorInfo, NewProcedure, Wait
from actorproc.model.rows.tags import TagChange

__all__ = [
    "Advanced",
    "Answered",
    "Failed",
    "Finished",
    "Outcome",
    "Poisoned",
    "Refused",
    "Renewed",
    "Slept",
    "StepRequests",
    "Stopped",
    "Suspended",
    "Waited",
]


class StepRequests(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Requests of a step that are granted in the commit of its success, and never without it."""

    roots: tuple[NewProcedure, ...] = ()
    """New roots; their `due_at` counts from that commit, in seconds."""
    tags: tuple[TagChange, ...] = ()
    """Changes of its own tags."""
    searchable: tuple[str, ...] = ()
    """Texts of the searchable fields of the state after the step."""
    reply: bytes | None = None
    """Encoded reply to the ask that the step took; None: it gave none."""

    @property
    def are_of_state(self) -> bool:
        """True if they say of the state alone, so that of steps that share a record the last ones count."""
        return not self.roots and not self.tags and self.reply is None


class _Base(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    state: bytes = b""
    """The state after the step (what `dump` gave)."""
    unit: str | None = None
    """Undo label of the next step; None: nothing to undo. "" is the whole procedure."""
    no_return: bool = False
    """The next step was declared the point of no return."""
    poisons: tuple[str, ...] | None = None
    """`poison_keys()` after the step; None: unchanged."""
    steps: int = 1
    """Steps run under this token: more than one when earlier ones said `persist=False`."""
    elapsed: float = 0.0
    """Seconds the step took in the worker (monotonic): its state was loaded, and it ran."""
    version: int = 0
    """Version of the class that dumped `state`; 0: the registered one."""
    codec: str = ""
    """Codec of `state`; "": that of the registered class."""
    step_name: str | None = None
    """Name of the next step; None: steps of its class have numbers only."""
    fence: int = 0
    """Fence of the attempt, if its step asked for it; 0: it did not."""
    requests: StepRequests | None = None
    """None: the step made none, or did not end well."""


class Advanced(_Base, frozen=True, array_like=True, kw_only=True, tag="adv", gc=False):
    """`Status.executing`, and any rollback step that wants another one."""

    persist: bool = True
    yield_: bool = False
    after: float = 0.0
    acquire: tuple[LockKey, ...] = ()
    placed: bool = False
    """No step ran: by today's code another one comes next than by the code that stored the position."""


class Suspended(_Base, frozen=True, array_like=True, kw_only=True, tag="sus", gc=False):
    """`Status.suspended`; children are stored with the parent in one transaction."""

    children: tuple[NewProcedure, ...]
    wait: Wait = "all"
    max_parallel: int | None = None
    on_parent_end: Literal["abort", "leave"] = "abort"


class Slept(_Base, frozen=True, array_like=True, kw_only=True, tag="slp", gc=False):
    """`Status.sleep` and `Status.sleep_until`."""

    seconds: float
    until: float | None = None
    """Epoch seconds at which it goes on, instead; by the manager's clock."""

    def pause(self, now: float) -> float:
        """Seconds from `now` until it goes on."""
        return self.seconds if self.until is None else max(0.0, self.until - now)


class Waited(_Base, frozen=True, array_like=True, kw_only=True, tag="wai", gc=False):
    event: str
    timeout: float | None = None


class Finished(_Base, frozen=True, array_like=True, kw_only=True, tag="fin", gc=False):
    """`Status.done`; in rollback mode: this undo unit is undone (`state` is the state after it)."""

    output: bytes = b""
    is_spent: bool = False
    """The state it began with is not needed any more: it need not be kept."""


class Renewed(_Base, frozen=True, array_like=True, kw_only=True, tag="ren", gc=False):
    """`Status.again`: a new generation begins at its first step. `unit` and `no_return` are of that step."""

    fresh: bytes
    """The state the new generation begins with; `state` is what the last one ended with."""
    locks: tuple[LockKey, ...] = ()
    """`lock_keys()` of the new generation."""
    searchable: tuple[str, ...] = ()
    """Texts of the searchable fields of `state`; its `requests` have those of `fresh`."""

    def as_first_state(self) -> Renewed:
        """The same with the state from which the next step runs."""
        return msgspec.structs.replace(self, state=self.fresh, fresh=b"")

    def as_last_step(self) -> Finished:
        """The outcome when its tree has failed meanwhile: the step has run, and is undone like the others."""
        requests = self.requests
        return Finished(
            state=self.state,
            steps=self.steps,
            elapsed=self.elapsed,
            version=self.version,
            codec=self.codec,
            requests=None if requests is None else msgspec.structs.replace(requests, searchable=self.searchable),
        )


class Failed(_Base, frozen=True, array_like=True, kw_only=True, tag="err", gc=False):
    """The step raised. `retryable` was judged in the worker by the class's policy."""

    error: ErrorInfo
    retryable: bool = False
    after: float | None = None
    """`RetryLater(after=…)`: seconds, instead of the policy's backoff."""


class Poisoned(_Base, frozen=True, array_like=True, kw_only=True, tag="poi", gc=False):
    """`Status.poisoned`: ends the procedure without undoing it; the keys stay poisoned."""

    keys: tuple[str, ...]
    error: ErrorInfo


class Refused(_Base, frozen=True, array_like=True, kw_only=True, tag="ref", gc=False):
    """The class could not be had, or refused the state, or its step met a value it cannot read: park the procedure."""

    reason: str
    needs: str = ""
    """Another type whose registration may mend it, such as that of a child with an unreadable output."""
    is_passing: bool = False
    """It may be otherwise soon: an I/O error, or an import of files that are being replaced."""
    is_unbegun: bool = False
    """A forward step that was not begun: its attempt has a number, and is none that needs an undo."""


class Answered(_Base, frozen=True, array_like=True, kw_only=True, tag="ans", gc=False):
    """The answer of `abort(ctx)` (mode ASK_ABORT)."""

    allowed: bool


class Stopped(_Base, frozen=True, array_like=True, kw_only=True, tag="stp", gc=False):
    """An async step was cancelled on the host's word, and its worker lives. A value that it returned is dropped."""

    report: CrashReport
    """The limit or the order that ended it, with the stack where it was cancelled."""


Outcome = Advanced | Suspended | Slept | Waited | Finished | Renewed | Failed | Poisoned | Refused | Answered | Stopped
