"""Promises to what running steps report: stored with the record of their step or before, and the newest kept (26)."""

from __future__ import annotations

from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.rows.records import AttemptRecord, ExposedRecord, NoteRecord, StepRecord
from actorproc.model.slots import host_of
from actorproc.testing.histories.evidence import StoreDump, Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["ReportRules"]


class ReportRules(Judge):
    """Judges by what steps reported, and by the rows that commits hold of it."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.waiting: dict[str, tuple[StepToken, set[str]]] = {}
        """Reports that are not stored yet: by procedure the step, and the keys of the value and of the note."""
        self.shown: dict[str, dict[str, ExposedRecord]] = {}
        """Durable values by procedure and key."""

    def on_enter(self, token: StepToken, *_: object) -> None:
        self.waiting.pop(token.procedure, None)

    def on_report(self, token: StepToken, *keys: str) -> None:
        self.waiting[token.procedure] = token, set(keys)

    def on_exposed(self, record: ExposedRecord) -> None:
        self.shown.setdefault(record.procedure, {})[record.key] = record
        self._stored(record.procedure, record.key)

    def on_note(self, record: NoteRecord) -> None:
        self._stored(record.procedure, record.key)

    def _stored(self, procedure: str, key: str) -> None:
        if procedure in self.waiting:
            self.waiting[procedure][1].discard(key)

    def on_record(self, record: StepRecord, before: StepRecord | None) -> None:
        del before
        self._look(record.procedure, WorkerId(record.slot, record.incarnation), record.attempts)

    def on_attempt(self, record: AttemptRecord) -> None:
        self._look(record.procedure, WorkerId(record.slot, record.incarnation), record.attempt)

    def _look(self, procedure: str, worker: WorkerId, attempt: int) -> None:
        """The end of an attempt is stored: so are its reports, in this commit or before."""
        token, missing = self.waiting.get(procedure, (None, ()))
        if token is not None and missing and (token.worker, token.attempt) == (worker, attempt):
            self.say(26, f"{token} reported {sorted(missing)}, and its end is stored without that")

    def on_host_died(self) -> None:
        """Steps of other hosts go on, and what they have reported is told to the next manager."""
        self.waiting = {id: said for id, said in self.waiting.items() if host_of(said[0].worker.slot)}

    def on_worker_gone(self, worker: WorkerId, with_host: bool) -> None:
        """What steps have reported is lost with their host, unless it was stored before."""
        if with_host:
            self.waiting = {id: said for id, said in self.waiting.items() if said[0].worker != worker}

    def on_removed(self, id: str) -> None:
        """A submit of this id from now on makes another procedure."""
        self.waiting.pop(id, None)
        self.shown.pop(id, None)

    def check_end(self, dump: StoreDump) -> None:
        for id in dump.heads if dump.exposed is not None else ():
            expected, found = self.shown.get(id, {}), {row.key: row for row in (dump.exposed or {}).get(id, ())}
            if found != expected:
                self.say(26, f"the values that {id} shows are {found}, and should be {expected}")
