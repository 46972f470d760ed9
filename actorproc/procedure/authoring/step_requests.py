"""Requests of a step that are granted with its success: collected while it runs, sent with its answer."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from typing import Any, Protocol

import msgspec

from actorproc.errors import NotAllowed
from actorproc.model.exact import exact_text
from actorproc.model.messages.outcomes import Answered, Failed, Outcome, Poisoned, Refused, StepRequests
from actorproc.model.rows.asks import AskKey
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
from actorproc.procedure.encoding.log_records import LogParts
from actorproc.support.durations import in_seconds

__all__ = ["Describer", "RequestList", "StepChannel"]


class StepChannel(Protocol):
    """Way of a context to the engine while its step runs."""

    def request(self, kind: str, key: str = "", value: bytes = b"", step: int = 0) -> bytes | None:
        """Ask ("remember", "recall", "query" …), wait for the answer; raises when refused."""
        ...

    def heartbeat(
        self, progress: float | None, message: str | None, details: bytes | None = None, key: str = "", step: int = 0
    ) -> None:
        """Send a sign of life, with a note for the next attempt of a step; does not wait."""
        ...

    def expose(self, key: str, value: bytes) -> None:
        """Send a value to be shown; does not wait."""
        ...

    def log(self, parts: LogParts) -> None:
        """Send a record to the host's log; does not wait."""
        ...

    def aborting(self) -> bool:
        """An abort was asked."""
        ...

    def keep_changes(self) -> AbstractContextManager[None]:
        """Inside, the limits of the step do not hold, and what is changed of the process stays after the step."""
        ...


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
        self._reply: bytes | None = None
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

    def add_reply(self, value: bytes, ask: AskKey) -> None:
        """Note the encoded reply to the ask that woke the step. Raises `NotAllowed` for a second one."""
        with self._lock:
            if self._reply is not None:
                msg = f"the ask {ask.name!r} ({ask.id}) has its reply already: a step replies once"
                raise NotAllowed(msg)
            self._reply = value

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
        requests = StepRequests(tuple(self._roots), tuple(self._tags.items()), searchable, self._reply)
        return msgspec.structs.replace(outcome, requests=requests), (*classes, *self.classes)
