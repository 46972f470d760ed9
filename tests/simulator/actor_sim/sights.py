"""Goals that histories on the stage must reach sometimes: those that never get there test nothing of it.

As `tests.simulator.rules.sometimes`, for what only a real shell does. `sights_of` counts it in a journal; a test plays a
fixed set of seeds and demands that everything here was seen.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from typing import Any

from actorproc.model.messages.events import Submitted
from actorproc.testing.histories.evidence import Entry

__all__ = ["StageSight", "sights_of"]


class StageSight(StrEnum):
    """Something worth seeing."""

    NEEDED_STATE = "a worker asked for a state that it had no more"
    SENT_AGAIN = "a step was sent again with its state"
    SENT_BEHIND = "a step was sent again behind others"
    TAKEN_BACK = "a step that had not begun was given back"
    COMMIT_LOST = "a commit failed and was not applied"
    COMMIT_APPLIED = "a commit failed and was applied all the same"
    REFUSED_SUBMIT = "a submit was refused while the store was in trouble"
    MORE_WORKERS = "the pool was made larger"
    FEWER_WORKERS = "the pool was made smaller"
    VACATED = "a slot without a worker was vacated"
    FORCED_KILL = "a worker was killed by force"
    TIMED_OUT = "a worker was killed for the wall time of a step"
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


def sights_of(journal: Iterable[Entry]) -> Counter[StageSight]:
    """Number of sights of each goal."""
    seen: Counter[StageSight] = Counter()
    for kind, *fields in journal:
        seen.update(_READERS[kind](*fields) if kind in _READERS else ())
    return seen


def _always(sight: StageSight) -> Callable[..., tuple[StageSight, ...]]:
    return lambda *_: (sight,)


def _sent_again(_token: object, behind: bool) -> Iterable[StageSight]:
    return (StageSight.SENT_AGAIN, StageSight.SENT_BEHIND) if behind else (StageSight.SENT_AGAIN,)


def _commit_failed(applied: bool) -> Iterable[StageSight]:
    return (StageSight.COMMIT_APPLIED if applied else StageSight.COMMIT_LOST,)


def _refused(event: str) -> Iterable[StageSight]:
    return (StageSight.REFUSED_SUBMIT,) if event == Submitted.__name__ else ()


def _resized(before: int, now: int) -> Iterable[StageSight]:
    if now == before:
        return ()
    return (StageSight.MORE_WORKERS if now > before else StageSight.FEWER_WORKERS,)


def _kill(_token: object, reason: str) -> Iterable[StageSight]:
    if "force" in reason:
        return (StageSight.FORCED_KILL,)
    return (StageSight.TIMED_OUT,) if "wall time" in reason else ()


_READERS: dict[str, Callable[..., Iterable[Any]]] = {
    "need-state": _always(StageSight.NEEDED_STATE),
    "sent-again": _sent_again,
    "returned": _always(StageSight.TAKEN_BACK),
    "commit-failed": _commit_failed,
    "refused": _refused,
    "resized": _resized,
    "vacated": _always(StageSight.VACATED),
    "kill": _kill,
    "worker-died": _always(StageSight.WORKER_DIED),
    "worker-left": _always(StageSight.WORKER_LEFT),
    "leaving": _always(StageSight.WORN_OUT),
    "boot-failed": _always(StageSight.BOOT_FAILED),
    "slot-parked": _always(StageSight.SLOT_PARKED),
    "succeeded": _always(StageSight.SUCCEEDED),
    "hired": _always(StageSight.HIRED),
    "host-died": _always(StageSight.HOST_DIED),
    "told-parked": _always(StageSight.TOLD_PARKED),
    "ask-abort": _always(StageSight.ASKED_TO_ABORT),
}
