"""Requests of a step that are granted with its success: collected while it runs, sent with its answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from actorproc.model.exact import exact_text
from actorproc.model.messages.outcomes import Answered, Failed, Outcome, Poisoned, Refused, StepRequests
from actorproc.model.rows.records import NewProcedure
from actorproc.procedure.authoring.submittable import Submittable
from actorproc.procedure.declaring.submit_options import (
    MAX_TAGS,
    Tags,
    checked_priority,
    checked_tag,
    checked_tag_key,
    checked_tags,
    checked_text,
)
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
        self._tags: dict[str, str | None] = {}
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
        tags: Tags | None,
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

    def set_tag(self, key: str, value: str) -> None:
        """Note a new value of a key; the last one that the step says counts."""
        checked_tag(key, value)
        self._change_tag(exact_text(key), exact_text(value))

    def remove_tag(self, key: str) -> None:
        """Note that a key goes."""
        self._change_tag(checked_tag_key(key), None)

    def _change_tag(self, key: str, value: str | None) -> None:
        with self._lock:
            if key not in self._tags and len(self._tags) >= 2 * MAX_TAGS:  # all that there are, and as many others
                msg = f"a step changes {2 * MAX_TAGS} tags at most, and a procedure has {MAX_TAGS}; use fields instead"
                raise ValueError(msg)
            self._tags[key] = value

    def added_to(self, outcome: Outcome, classes: tuple[type, ...]) -> tuple[Outcome, tuple[type, ...]]:
        """The answer of the step with its requests; one that did not end well has none."""
        if isinstance(outcome, Failed | Refused | Poisoned | Answered):
            return outcome, classes
        searchable = () if outcome.requests is None else outcome.requests.searchable
        requests = StepRequests(tuple(self._roots), tuple(self._tags.items()), searchable)
        return msgspec.structs.replace(outcome, requests=requests), (*classes, *self.classes)
