"""Goals that histories of the actor simulation must reach sometimes: those that never get there test nothing of it.

As `tests.simulator.rules.sometimes`, for what only a real shell does. `goals_in` counts it in a journal; a test plays a
fixed set of seeds and demands that everything here was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from actorproc.model.messages.events import Submitted
from actorproc.model.messages.outcomes import Stopped
from actorproc.model.rows.writes import PutAttempt, PutExposed, PutStep
from tests.simulator.rules.cancel_rules import BY_OPERATOR
from tests.simulator.rules.judge import Entry

__all__ = ["ActorGoal", "goals_in"]


class ActorGoal(StrEnum):
    """Something worth seeing."""

    NEEDED_STATE = "a worker asked for a state that it had no more"
    SENT_AGAIN = "a step was sent again with its state"
    SENT_BEHIND = "a step was sent again behind others"
    TAKEN_BACK = "a step that had not begun was given back"
    COMMIT_LOST = "a commit failed and was not applied"
    COMMIT_APPLIED = "a commit failed and was applied all the same"
    READ_FAILED = "a read of the store failed"
    DEPOSED = "another owner took the store over"
    WENT_BACK = "the store lost durable commits"
    TOLD_LOST = "a caller was told that a procedure is not there any more"
    REFUSED_SUBMIT = "a submit was refused while the store was in trouble"
    MORE_WORKERS = "the pool was made larger"
    FEWER_WORKERS = "the pool was made smaller"
    VACATED = "a slot without a worker was vacated"
    FORCED_KILL = "a worker was killed by force"
    KILLED_BY_OPERATOR = "an operator ended an attempt"
    RESUBMITTED = "an id was submitted again with a policy"
    TIMED_OUT = "a worker was killed for the wall time of a step"
    SILENT = "a worker was killed for a step without heartbeats"
    REPORTED = "values of running steps were stored before the end of any"
    WORKER_DIED = "a worker died"
    WORKER_LEFT = "a worker left in order"
    WORN_OUT = "a worker wanted to leave"
    BOOT_FAILED = "a worker did not boot"
    SLOT_PARKED = "a slot was parked"
    SUCCEEDED = "a spare took the place of a dead worker at once"
    HIRED = "a worker was hired for one procedure"
    HOST_DIED = "the host died"
    TOLD_PARKED = "a caller was told that a procedure is parked"
    ASKED_TO_ABORT = "a running step heard of an abort"
    HOST_JOINED = "a worker host joined"
    HOST_DRAINED = "a worker host drained and left"
    HOST_LOST = "a worker host was lost with a step"
    ADOPTED = "a new leader took a running step over"
    CLAIM_LATE = "a host was let in only when it asked again"
    SAID_TWICE = "an answer came twice"
    CANCELLED = "an async step ended as it was told to"
    SWALLOWED = "a worker was killed for an async step that did not end"
    EXCEEDED = "a step on a worker host used more than it may"


def goals_in(journal: Iterable[Entry]) -> Counter[ActorGoal]:
    """Number of times each goal was reached."""
    seen: Counter[ActorGoal] = Counter()
    for kind, *fields in journal:
        seen.update(_READERS[kind](*fields) if kind in _READERS else ())
    return seen


def _always(sight: ActorGoal) -> Callable[..., tuple[ActorGoal, ...]]:
    return lambda *_: (sight,)


def _sent_again(_token: object, behind: bool) -> Iterable[ActorGoal]:
    return (ActorGoal.SENT_AGAIN, ActorGoal.SENT_BEHIND) if behind else (ActorGoal.SENT_AGAIN,)


def _commit_failed(applied: bool) -> Iterable[ActorGoal]:
    return (ActorGoal.COMMIT_APPLIED if applied else ActorGoal.COMMIT_LOST,)


def _went_back(lost: int) -> Iterable[ActorGoal]:
    return (ActorGoal.WENT_BACK,) if lost else ()


def _refused(event: str) -> Iterable[ActorGoal]:
    return (ActorGoal.REFUSED_SUBMIT,) if event == Submitted.__name__ else ()


def _resized(before: int, now: int) -> Iterable[ActorGoal]:
    if now == before:
        return ()
    return (ActorGoal.MORE_WORKERS if now > before else ActorGoal.FEWER_WORKERS,)


def _kill(_token: object, reason: str) -> Iterable[ActorGoal]:
    if "force" in reason:
        return (ActorGoal.FORCED_KILL,)
    if reason == BY_OPERATOR:
        return (ActorGoal.KILLED_BY_OPERATOR,)
    if "sent no heartbeat" in reason:
        return (ActorGoal.SILENT,)
    return (ActorGoal.TIMED_OUT,) if "wall time" in reason else ()


def _committed(_epoch: int, writes: Iterable[object]) -> Iterable[ActorGoal]:
    kinds = {type(write) for write in writes}
    return (ActorGoal.REPORTED,) if PutExposed in kinds and PutStep not in kinds and PutAttempt not in kinds else ()


def _claimed(_number: int, _keep: object, adopted: tuple[object, ...]) -> Iterable[ActorGoal]:
    return (ActorGoal.ADOPTED,) if adopted else ()


def _host_lost(_name: str, steps: int) -> Iterable[ActorGoal]:
    return (ActorGoal.HOST_LOST,) if steps else ()


def _exit(_token: object, _unit: object, outcome: object) -> Iterable[ActorGoal]:
    return (ActorGoal.CANCELLED,) if isinstance(outcome, Stopped) else ()


_READERS: dict[str, Callable[..., Iterable[Any]]] = {
    "need-state": _always(ActorGoal.NEEDED_STATE),
    "sent-again": _sent_again,
    "returned": _always(ActorGoal.TAKEN_BACK),
    "commit": _committed,
    "commit-failed": _commit_failed,
    "read-failed": _always(ActorGoal.READ_FAILED),
    "deposed": _always(ActorGoal.DEPOSED),
    "went-back": _went_back,
    "told-lost": _always(ActorGoal.TOLD_LOST),
    "refused": _refused,
    "resized": _resized,
    "vacated": _always(ActorGoal.VACATED),
    "kill": _kill,
    "exit": _exit,
    "kill-of-task": _always(ActorGoal.SWALLOWED),
    "resubmit": _always(ActorGoal.RESUBMITTED),
    "worker-died": _always(ActorGoal.WORKER_DIED),
    "worker-left": _always(ActorGoal.WORKER_LEFT),
    "leaving": _always(ActorGoal.WORN_OUT),
    "boot-failed": _always(ActorGoal.BOOT_FAILED),
    "slot-parked": _always(ActorGoal.SLOT_PARKED),
    "succeeded": _always(ActorGoal.SUCCEEDED),
    "hired": _always(ActorGoal.HIRED),
    "host-died": _always(ActorGoal.HOST_DIED),
    "told-parked": _always(ActorGoal.TOLD_PARKED),
    "ask-abort": _always(ActorGoal.ASKED_TO_ABORT),
    "host-joined": _always(ActorGoal.HOST_JOINED),
    "host-left": _always(ActorGoal.HOST_DRAINED),
    "host-lost": _host_lost,
    "claimed": _claimed,
    "claim-late": _always(ActorGoal.CLAIM_LATE),
    "said-twice": _always(ActorGoal.SAID_TWICE),
    "exceeded": _always(ActorGoal.EXCEEDED),
}
