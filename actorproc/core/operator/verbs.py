"""Table of the verbs of operators: a new one is its event, its handler, and an entry here.

The core's handlers, the requests that the control socket takes and checks, and the commands without a module of their
own are made of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from actorproc.core.lifecycle import enqueued, removal, signals
from actorproc.core.lock_manager import poison
from actorproc.core.operator import bypass, kill, pause, restart_fork, retry, schedules
from actorproc.core.results import abort
from actorproc.core.state.engine_state import EngineState
from actorproc.model.messages.events import (
    AbortRequested,
    Acknowledged,
    BypassRequested,
    DeleteRequested,
    EnqueuedRemoved,
    ForkRequested,
    KillRequested,
    PauseRequested,
    PoisonCleared,
    Published,
    RestartRequested,
    ResumeRequested,
    RetryRequested,
    RollbackRequested,
    ScheduleDeclared,
    ScheduleSteered,
    Signalled,
    SignalsWithdrawn,
)

__all__ = ["VERBS", "Verb", "verb_named"]


class Verb(NamedTuple):
    """A request of an operator that is recorded with its reason."""

    name: str
    """Word of the audit log, and of the command line."""
    event: type[Any]
    """Has `reply` and `reason`; with `id` it is for one procedure."""
    handle: Callable[[EngineState, Any], None]
    is_repeatable: bool = False
    """Asking twice is as good as once: a client sends it again when the connection was lost."""
    is_for_all: bool = False
    """Without an `id` it is for the whole manager."""
    is_for_roots: bool = False
    """Children cannot be asked for it."""
    loads: bool = True
    """It is decided on with the procedure in memory, and its tree."""
    help: str = ""
    """Line of the command line's help; "": its words are in the table of the dashboards, or it is no command."""
    done: str = "done"
    """Result in words when the answer is True."""
    refused: str = "has ended already"
    """Result in words when the answer is False."""


VERBS = (
    Verb("abort", AbortRequested, abort.request_abort, is_repeatable=True),
    Verb("kill", KillRequested, kill.request_kill),
    Verb("retry", RetryRequested, retry.request_retry, is_for_roots=True),
    Verb("restart", RestartRequested, restart_fork.request_restart, is_repeatable=True, is_for_roots=True),
    Verb("fork", ForkRequested, restart_fork.request_fork, is_repeatable=True),
    Verb("rollback", RollbackRequested, retry.request_rollback, is_for_roots=True),
    Verb("bypass", BypassRequested, bypass.request_bypass),
    Verb("pause", PauseRequested, pause.request_pause, is_repeatable=True, is_for_all=True),
    Verb("resume", ResumeRequested, pause.request_resume, is_repeatable=True, is_for_all=True),
    Verb("signal", Signalled, signals.signal, is_repeatable=True),
    Verb("publish", Published, signals.publish, is_repeatable=True, loads=False),
    Verb("withdraw", SignalsWithdrawn, signals.withdraw, loads=False),
    Verb("clear-poison", PoisonCleared, poison.clear, loads=False),
    Verb("acknowledge", Acknowledged, removal.acknowledge, is_repeatable=True, is_for_roots=True, loads=False),
    Verb("schedule", ScheduleDeclared, schedules.declare, is_repeatable=True, loads=False),
    Verb("schedules", ScheduleSteered, schedules.steer, loads=False),
    Verb("enqueued", EnqueuedRemoved, enqueued.remove, is_repeatable=True, loads=False),
    Verb("delete", DeleteRequested, removal.delete, is_for_roots=True, loads=False),
)


def verb_named(name: str) -> Verb | None:
    """The verb with this name; None: there is none."""
    return next((verb for verb in VERBS if verb.name == name), None)
