"""Promises while the code changes: who may run what, and what an attempt that began no step leaves (24)."""

from __future__ import annotations

from typing import Any

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.outcomes import Advanced, Refused
from actorproc.model.rows.records import ProcedureRecord, StepRecord
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["DeployRules"]


class DeployRules(Judge):
    """Judges each step that is handed out, and each commit of a saga that has another place in today's code."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.old: frozenset[WorkerId] = frozenset()
        """Workers with old code, while a reload lasts."""
        self.renewed: set[str] = set()
        """Procedures that a worker with new code has run since the reload began."""
        self.placed: dict[str, StepToken] = {}
        """The last step of a procedure that was placed and did not run."""
        self.unbegun: dict[str, tuple[StepToken, int]] = {}
        """The last attempt of a procedure that was refused unbegun, and the disturbances until then."""
        self.placed_now: set[str] = set()
        self.parked_now: set[str] = set()
        """Procedures that were placed, and that were parked, in this commit."""

    # ------------------------------------------------------------ workers
    def on_reload(self, old: tuple[WorkerId, ...]) -> None:
        """A reload begins, or is over: then none is old."""
        self.old = frozenset(old)
        self.renewed.clear()

    def on_host_died(self) -> None:
        """The workers of the next host are all alike."""
        self.on_reload(())

    def on_worker_died(self, worker: WorkerId) -> None:
        """With the last worker of old code every procedure may run anywhere."""
        self.old -= {worker}

    on_worker_left = on_worker_died

    def on_enter(self, token: StepToken, *_: object) -> None:
        if self.old and token.worker not in self.old:
            self.renewed.add(token.procedure)

    def on_sent(self, token: StepToken, record: int, warm: bool) -> None:
        del record, warm
        if token.worker in self.old and token.procedure in self.renewed:
            self.say(24, f"{token} was handed to a worker with old code, and new code had run {token.procedure}")
        known = self.unbegun.get(token.procedure)
        if known is not None and token.mode is Mode.EXECUTE and token.attempt == known[0].attempt + 1:
            self._check_unbegun(token.procedure)

    # ------------------------------------------------------------ positions
    def on_exit(self, token: StepToken, unit: str | None, outcome: Any) -> None:
        del unit
        if isinstance(outcome, Advanced) and outcome.placed:
            self.placed[token.procedure] = token
        elif isinstance(outcome, Refused) and outcome.is_unbegun:
            self.unbegun[token.procedure] = token, self.facts.disturbed

    def on_record(self, record: StepRecord, before: StepRecord | None) -> None:
        if before is None and record.outcome == "placed":
            self.placed_now.add(record.procedure)
            if record.procedure not in self.placed:
                self.say(24, f"{record.procedure} was placed, and no code placed it")

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        if before is None:
            return
        if record.id in self.placed_now and record.records == before.records + 1 and not record.rolling:
            was, now = ((head.awaiting, head.payload) for head in (before, record))
            if was != now:
                self.say(24, f"{record.id} was placed, and its next step sees {now} where the one before saw {was}")
        if record.parked is not None and before.parked is None:
            self.parked_now.add(record.id)

    def on_committed(self) -> None:
        for name in self.placed_now & self.placed.keys():
            token = self.placed.pop(name)
            self._check_unit(token, "was placed before another step")
        for name in self.parked_now & self.unbegun.keys():
            self._check_unbegun(name)
        self.placed_now.clear()
        self.parked_now.clear()

    def _check_unbegun(self, name: str) -> None:
        token, disturbed = self.unbegun[name]
        head = self.facts.heads.get(name)
        # An answer that died with its host was never heard; one that failed meanwhile has another story.
        if disturbed == self.facts.disturbed and head is not None and head.step == token.step and not head.rolling:
            self._check_unit(token, "was refused unbegun")

    def _check_unit(self, token: StepToken, why: str) -> None:
        for unit in self.facts.units.values():
            if (unit.procedure, unit.step, unit.attempt) == (token.procedure, token.step, token.attempt):
                self.say(24, f"{token} {why}, and the undo {unit.label!r} of its step stays")

    def on_removed(self, id: str) -> None:
        """A submit of this id from now on makes another procedure."""
        self.renewed.discard(id)
        self.placed.pop(id, None)
        self.unbegun.pop(id, None)
