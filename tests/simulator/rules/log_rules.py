"""Promises about the step log: executed before committed, one commit per record, nothing changes (3, 4, 14)."""

from __future__ import annotations

from typing import Any

from actorproc.model.ids import StepToken
from actorproc.model.rows.cold_trees import is_debounced
from actorproc.model.rows.records import AttemptRecord, ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import TrimLog
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.testing.histories.evidence import StoreDump, Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["LogRules"]


class LogRules(Judge):
    """Judges each record when it is committed, and the whole log at the end."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.numbers: dict[str, int] = {}
        """The newest record of each procedure."""
        self.jumps: dict[str, set[int]] = {}
        """Steps that one answer covered, when it covered more than one."""

        self.attempts: dict[str, dict[tuple[int, int], AttemptRecord]] = {}
        """Failed attempts by procedure, then by step and place."""
        self.noted: set[str] = set()
        """Procedures with an attempt recorded since their heads were stored last."""

    def on_attempt(self, record: AttemptRecord) -> None:
        self.attempts.setdefault(record.procedure, {})[record.step, record.place] = record
        self.noted.add(record.procedure)

    def on_exit(self, token: StepToken, unit: str | None, outcome: Any) -> None:
        del unit
        if outcome.steps > 1:
            self.jumps.setdefault(token.procedure, set()).add(outcome.steps)

    def on_removed(self, id: str) -> None:
        """A submit of this id from now on makes another procedure."""
        self.numbers.pop(id, None)
        self.jumps.pop(id, None)
        self.attempts.pop(id, None)

    def on_record(self, record: StepRecord, before: StepRecord | None) -> None:
        id = record.procedure
        known = self.facts.heads.get(id)
        if before is not None and record.number == 1 and known is not None and is_debounced(known):
            return  # a further submit takes the place of the one that waits
        if before is not None:
            self.say(4, f"record {record.number} of {id} was written twice: {before} and {record}")
        jump = record.number - self.numbers.get(id, 0)
        self.numbers[id] = record.number
        if jump != 1 and jump not in self.jumps.get(id, ()):
            self.say(4, f"record {record.number} of {id} comes {jump} after the one before it")
        from_worker = record.slot >= 0
        if from_worker and record.state not in self.facts.exits.get(id, ()):
            self.say(3, f"record {record.number} of {id} holds {record.state!r}, which no complete execution gave")

    def on_trimmed(self, write: TrimLog) -> None:
        """The first record stays, and so do the newest one and the one below it."""
        kept = self.attempts.get(write.procedure, {})
        for place in [place for place in kept if place[0] < write.step]:
            del kept[place]
        newest = self.numbers.get(write.procedure, 0)
        if write.first <= write.last and not 1 < write.first <= write.last < newest - 1:
            self.say(4, f"records {write.first} to {write.last} of {write.procedure} were trimmed, of {newest}")

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        if before is not None and record.id not in self.noted and _is_charged(record, before):
            self.say(25, f"{record.id} was charged with a failure of step {record.step}, and no attempt was recorded")
        self.noted.discard(record.id)
        if before is None or before.state not in TERMINAL or record.state is before.state:
            return
        is_undone_child = before.state is ProcedureState.SUCCESS and record.parent is not None
        is_next_run = record.run > before.run and before.state is not ProcedureState.SUCCESS
        if is_next_run and record.parent is None:
            is_next_run = before.state is ProcedureState.FAILED
        if not (is_undone_child or is_next_run):
            self.say(14, f"{record.id} was {before.state} and became {record.state}")

    def _check_attempts(self, dump: StoreDump) -> None:
        for id, stored in (dump.attempts or {}).items():
            expected = self.attempts.get(id, {})
            found = {(record.step, record.place): record for record in stored}
            if found != expected or len(found) != len(stored):
                self.say(25, f"the attempts stored of {id} are {found}, and should be {expected}")

    def check_end(self, dump: StoreDump) -> None:
        self._check_attempts(dump)
        for id, head in dump.heads.items():
            steps = dump.steps[id]
            numbers = [record.number for record in steps]
            if numbers != sorted(set(numbers)) or numbers[-1:] != [head.records]:
                self.say(4, f"the step log of {id} has numbers {numbers}; its head says {head.records}")
            if sum(record.steps for record in steps) != head.records - max(0, head.trimmed - 1):
                self.say(4, f"the step log of {id} has numbers {numbers}, trimmed up to {head.trimmed}")
            for record in steps:
                if self.facts.records.get((id, record.number)) != record:
                    self.say(4, f"record {record.number} of {id} changed after its commit")
            closing = [record for record in steps if record.kind is StepKind.COMMIT]
            # A finished child that was bypassed while it was being undone is closed once more.
            if head.state is ProcedureState.SUCCESS and not 1 <= len(closing) <= 1 + head.bypassed:
                self.say(14, f"{id} succeeded with {len(closing)} closing records")


def _is_charged(record: ProcedureRecord, before: ProcedureRecord) -> bool:
    """The present step has failed once more, in a worker: no worker is needed to miss an event."""
    place, place_before = ((head.run, head.step, head.records, head.undoing) for head in (record, before))
    is_missed = record.error is not None and record.error.kind == "wait-timeout"
    return place == place_before and not is_missed and (record.errors, record.crashes) > (before.errors, before.crashes)
