"""Reports of running steps that are not stored yet: values they show, and details of their heartbeats.

They are stored with what ends the step, or within a second while it runs: those of all steps in one commit, and no
commit for a call.
"""

from __future__ import annotations

from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.model.ids import StepToken
from actorproc.model.messages.events import StepReported
from actorproc.support.clock import Clock

__all__ = ["StepReports"]

_EVERY = 1.0
"""Seconds between two commits of such reports."""
_SETTLING = 0.1
"""Seconds that the first report after a pause waits for others, and for the end of its step."""


class StepReports:
    """The newest reports of each unanswered step. Needs the manager's turn (`CombiningInbox`)."""

    def __init__(self, pipeline: CommitPipeline, clock: Clock) -> None:
        self._pipeline = pipeline
        self._clock = clock
        self._waiting: dict[StepToken, _Report] = {}
        self._stored_at = -_EVERY
        self.due_at: float | None = None
        """Monotonic time at which what waits is to be stored; None: nothing waits."""

    def expose(self, token: StepToken, key: str, value: bytes) -> None:
        """A step shows a value."""
        self._of(token).exposed[key] = value

    def heartbeat(self, token: StepToken, details: bytes, key: str, step: int) -> None:
        """A step sent a heartbeat with details."""
        report = self._of(token)
        report.details, report.key, report.step = details, key, step

    def _of(self, token: StepToken) -> _Report:
        report = self._waiting.get(token)
        if report is None:
            report = self._waiting[token] = _Report()
            if self.due_at is None:
                self.due_at = max(self._clock.monotonic() + _SETTLING, self._stored_at + _EVERY)
        return report

    def take(self, token: StepToken) -> StepReported | None:
        """The reports of a step that are not stored yet, which are to be decided on before its end."""
        report = self._waiting.pop(token, None) if self._waiting else None
        if report is None:
            return None
        if not self._waiting:
            self.due_at = None
        return StepReported(token, tuple(report.exposed.items()), report.details, report.key, report.step)

    def look(self, now: float, *, in_trouble: bool = False) -> None:
        """Store what waits if it is time to; not while the store refuses writes."""
        if self.due_at is None or self.due_at > now:
            return
        if in_trouble:
            self.due_at = now + _EVERY
            return
        self._stored_at = now
        self.store_all()

    def store_all(self) -> None:
        """Store what waits now."""
        for token in tuple(self._waiting):
            report = self.take(token)
            if report is not None:
                self._pipeline.handle(report)


class _Report:
    __slots__ = ("details", "exposed", "key", "step")

    def __init__(self) -> None:
        self.exposed: dict[str, bytes] = {}
        self.details: bytes | None = None
        self.key = ""
        self.step = 0
