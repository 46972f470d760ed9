"""Promises about executions: who runs, when, from which state, and how often (2, 5, 6, 7, 8, 9)."""

from __future__ import annotations

from typing import Any

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.outcomes import Failed, Refused, Stopped
from actorproc.model.rows.records import ProcedureRecord, StepRecord
from actorproc.model.slots import host_of
from actorproc.model.states import TERMINAL
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["ExecutionRules"]

_Key = tuple[int, Mode, str | None, int, int]
"""One step of a procedure: step, mode, undo unit, rollback steps recorded before, run of its root."""


class _Run:
    """The last execution of one step of one procedure."""

    __slots__ = ("disturbed", "ended", "errors", "outcome", "saved")

    def __init__(self) -> None:
        self.ended = ""
        self.outcome: object = None
        self.saved = False
        self.disturbed = 0
        self.errors = 0
        """Durable errors of the step when it answered."""


class ExecutionRules(Judge):
    """Judges each execution when it begins."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.forward: dict[str, tuple[int, int]] = {}
        """Step and attempt of a procedure when it last went forward."""
        self.runs: dict[str, dict[_Key, _Run]] = {}
        """Steps that were executed, by procedure."""
        self.running: dict[str, StepToken] = {}
        self.live: dict[tuple[WorkerId, int, str], bytes] = {}
        """State of the live object a worker holds."""
        self.newest_epoch: dict[str, int] = {}

    # ------------------------------------------------------------ executions
    def on_sent(self, token: StepToken, record: int, warm: bool) -> None:
        del record, warm
        head = self.facts.heads.get(token.procedure)
        if head is None or not head.rolling or token.mode is not Mode.EXECUTE:
            return
        # Decided before the failure, in the same commit: then it runs to its end, as a running step does.
        if self.forward.get(head.id) != (token.step, token.attempt):
            self.say(7, f"{token} was sent forward although {head.id} is being undone")

    def on_enter(
        self, token: StepToken, unit: str | None, state: bytes, record: int, warm: bool, children_step: int
    ) -> None:
        del children_step
        id = token.procedure
        head = self.facts.heads.get(id)
        if head is None:
            self.say(2, f"{id} runs but was never stored")
            return
        if id in self.running:
            self.say(8, f"{token} begins while {self.running[id]} still runs")
        if token.epoch < self.newest_epoch.get(id, 0):
            self.say(7, f"{token} runs after epoch {self.newest_epoch[id]}")
        self.newest_epoch[id] = token.epoch
        if token.mode is Mode.EXECUTE and head.state in TERMINAL:
            self.say(7, f"{token} runs although {id} is {head.state}")
        self._check_start(token, head, state, record, warm)
        if token.mode is not Mode.ASK_ABORT:  # asked as often as a step ends
            self._check_repeat(token, unit, head)
        self.running[id] = token

    def _check_start(self, token: StepToken, head: ProcedureRecord, state: bytes, record: int, warm: bool) -> None:
        id = token.procedure
        stored = self.facts.records.get((id, record))
        if stored is None:
            self.say(5, f"{token} starts from record {record}, which is not durable")
        elif warm:
            if state not in {self.live.get((token.worker, token.epoch, id)), stored.state}:
                self.say(9, f"{token} goes on warm with {state!r}, not with what its worker held")
        elif stored.state != state:
            self.say(9, f"{token} starts with {state!r}, but record {record} holds {stored.state!r}")
        if token.mode is not Mode.ASK_ABORT and head.attempt < token.attempt:
            self.say(5, f"{token} runs, but the durable attempt is {head.attempt}")

    def _check_repeat(self, token: StepToken, unit: str | None, head: ProcedureRecord) -> None:
        key = (token.step, token.mode, unit, head.undone, head.run)
        runs = self.runs.setdefault(token.procedure, {})
        run = runs.get(key)
        if run is not None and run.ended == "exit" and not isinstance(run.outcome, (Failed, Refused, Stopped)):
            if run.saved:
                self.say(6, f"{token} runs again although its result is durable")
            elif run.disturbed == self.facts.disturbed and head.errors == run.errors:
                # An answer that asked for what the engine refuses counts as an error.
                self.say(6, f"{token} runs again although nothing happened since its answer")
        runs[key] = _Run()

    def on_exit(self, token: StepToken, unit: str | None, outcome: Any) -> None:
        id = token.procedure
        self.running.pop(id, None)
        head = self.facts.heads.get(id)
        if head is None:
            return
        run = self.runs.get(id, {}).get((token.step, token.mode, unit, head.undone, head.run))
        if run is not None:
            run.ended = "exit"
            run.outcome = outcome
            run.disturbed = self.facts.disturbed
            run.errors = head.errors
        self.live[token.worker, token.epoch, id] = outcome.state

    def on_cut(self, token: StepToken) -> None:
        self.running.pop(token.procedure, None)
        # Its answer may have been written all the same, and win.
        for (step, mode, *_), run in self.runs.get(token.procedure, {}).items():
            if (step, mode) == (token.step, token.mode):
                run.ended = "cut"

    # ------------------------------------------------------------ deaths and commits
    def on_worker_died(self, worker: WorkerId) -> None:
        for key in [key for key in self.live if key[0] == worker]:
            del self.live[key]

    def on_host_died(self) -> None:
        """Workers end with the manager, but for those of other hosts."""
        self.running = {id: token for id, token in self.running.items() if host_of(token.worker.slot)}
        self.live = {key: state for key, state in self.live.items() if host_of(key[0].slot)}

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        # A hand-out and the failure it sets off (by a key it poisons) may be one decision, so one head tells of both.
        if not record.rolling or before is None or not before.rolling:
            self.forward[record.id] = (record.step, record.attempt)

    def on_removed(self, id: str) -> None:
        """A submit of this id from now on makes another procedure."""
        self.forward.pop(id, None)
        self.newest_epoch.pop(id, None)
        self.runs.pop(id, None)

    def on_record(self, record: StepRecord, before: StepRecord | None) -> None:
        del before
        for run in self.runs.get(record.procedure, {}).values():
            if run.ended == "exit" and getattr(run.outcome, "state", None) == record.state:
                run.saved = True
