"""Requests of a step that are granted with its success: collected while it runs, sent with its answer."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from actorproc.model.messages.outcomes import Answered, Failed, Outcome, Poisoned, Refused, StepRequests
from actorproc.model.rows.records import NewProcedure
from actorproc.procedure.authoring.submittable import Submittable
from actorproc.procedure.declaring.submit_options import checked_priority, checked_tags, checked_text
from actorproc.support.durations import in_seconds

__all__ = ["Describer", "RequestList"]


class Describer(Protocol):
    """Runtime of a class, which finds those of other classes."""

    def runtime_of(self, live: Any) -> Describer:
        """The runtime of an object's class. Raises `UsageError`."""
        ...

    def describe(self, procedure: Any, *, id: str | None = None) -> NewProcedure:
        """The procedure as it is stored first."""
        ...


class RequestList:
    """Requests of one attempt, in order. Threads of a step may add to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._roots: list[NewProcedure] = []
        self.classes: dict[type, None] = {}
        """Classes of the new roots, which the manager may not know."""

    def add_root(
        self,
        procedure: Any,
        runtime: Describer,
        name: Callable[[int], str],
        *,
        owner: str | None,
        priority: int,
        delay: float | timedelta,
        tags: Iterable[str] | None,
    ) -> str:
        """Note a new root; its id. `name` makes it of the root's place among those of the step."""
        if not isinstance(procedure, Submittable):
            msg = f"submit_root takes a Procedure, not {procedure!r:.80}"
            raise TypeError(msg)
        options = {
            "owner": None if owner is None else checked_text(owner, "owner", 1024),
            "priority": checked_priority(priority),
            "due_at": in_seconds(delay, "delay") or None,
            "tags": checked_tags(tags),
        }
        with self._lock:
            new = runtime.runtime_of(procedure).describe(procedure, id=name(len(self._roots)))
            self._roots.append(msgspec.structs.replace(new, **options))
            self.classes[type(procedure)] = None
        return new.id

    def added_to(self, outcome: Outcome, classes: tuple[type, ...]) -> tuple[Outcome, tuple[type, ...]]:
        """The answer of the step with its requests; one that did not end well has none."""
        if isinstance(outcome, Failed | Refused | Poisoned | Answered):
            return outcome, classes
        requests = StepRequests(tuple(self._roots))
        return msgspec.structs.replace(outcome, requests=requests), (*classes, *self.classes)
