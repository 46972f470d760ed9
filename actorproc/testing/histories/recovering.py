"""Recovery is idempotent: cut short at any place and begun anew, it leads to the same store.

A recovery is a row of decisions: the restore itself, one for each class that is registered, and what is due at once.
Its host may die after any of them is durable. So for each place in that row: what is durable there is recovered from
the beginning, and the outcome must be that of the undisturbed recovery. Without workers nothing is handed
out, so both end at rest; with one clock there is nothing to leave out of the comparison but the epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from actorproc.core.coordinator import Coordinator
from actorproc.model.messages.events import Event, Tick, TypeRegistered
from actorproc.model.policies import Quotas, Scheduling, TypeMeta
from actorproc.model.rows.records import StepRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import PutStep, Write
from actorproc.model.states import TERMINAL
from actorproc.support.recurrence import rule_of
from actorproc.testing.histories.image import Image

__all__ = ["recovery_problems"]


class _Place:
    """Durable contents at one place of a recovery."""

    def __init__(self, image: Image, steps: dict[tuple[str, int], StepRecord]) -> None:
        self.image = image
        self.steps = steps

    def after(self, writes: list[Write]) -> _Place:
        """The next place: these writes are durable too. The same one when there are none."""
        if not writes:
            return self
        image = self.image.copy()
        image.apply(writes)
        steps = {(w.record.procedure, w.record.number): w.record for w in writes if isinstance(w, PutStep)}
        return _Place(image, self.steps | steps)

    @property
    def has_waiters(self) -> bool:
        """True when a procedure waits for locks."""
        return any(head.ticket and not head.locked and head.state not in TERMINAL for head in self.image.heads.values())

    def content(self) -> dict[str, Any]:
        """Everything to compare."""
        image = self.image
        return {
            "heads": image.heads,
            "units": image.units,
            "locks": image.locks,
            "poisons": image.poisons,
            "events": image.events,
            "steps": self.steps,
        }


def recovery_problems(
    snapshot: RecoverySnapshot, types: Sequence[TypeMeta], *, quotas: Quotas, scheduling: Scheduling, now: float
) -> list[str]:
    """One line for each place at which a second recovery leads elsewhere; empty when all is well."""
    events: list[Event] = [*map(TypeRegistered, types), Tick()]
    places = _recover(_Place(Image(snapshot), {}), events, quotas, scheduling, now)
    problems = []
    differences: list[str] = []
    recovered: _Place | None = None
    for cut, place in enumerate(places):
        if place is not recovered:  # a decision without writes leads to no new place
            differences = _differences(places[-1], _recover(place, events, quotas, scheduling, now)[-1])
            recovered = place
        problems += [f"recovered again after {cut} of {len(events) + 1} decisions, {text}" for text in differences]
    return problems


def _differences(wanted: _Place, got: _Place) -> list[str]:
    """Differences of a second recovery from the undisturbed one."""
    if wanted.has_waiters or got.has_waiters:
        # Which of several waiters is given its locks depends on whose class is registered first.
        return []
    found = []
    others = got.content()
    for name, rows in wanted.content().items():
        other = others[name]
        if rows != other:
            different = sorted((key for key in rows.keys() | other.keys() if rows.get(key) != other.get(key)), key=repr)
            found += [f"{name} {key} is {other.get(key)} instead of {rows.get(key)}" for key in different]
    return found


def _recover(start: _Place, events: list[Event], quotas: Quotas, scheduling: Scheduling, now: float) -> list[_Place]:
    """All places of one recovery: before it, and after each of its decisions."""
    types = [event.meta for event in events if isinstance(event, TypeRegistered)]
    core, decision = Coordinator.restore(
        start.image.snapshot(), now, quotas=quotas, scheduling=scheduling, types=types, rules=rule_of
    )
    places = [start, start.after(decision.writes)]
    for event in events:
        places.append(places[-1].after(core.handle(event, now).writes))
    return places
