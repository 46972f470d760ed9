"""Promises to lists: a head has the tags that its last recorded step left, and the searchable fields of its state (35).

Both in the commit of that record. Index rows follow from heads, which is checked of whole stores.
"""

from __future__ import annotations

from typing import Any

from actorproc.model.ids import StepToken
from actorproc.model.messages.outcomes import Answered, Failed, Refused, Renewed, Stopped
from actorproc.model.rows.records import ProcedureRecord, StepRecord
from actorproc.testing.histories.evidence import StoreDump, Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["TagRules"]


class TagRules(Judge):
    """Judges by the answers of steps, by the records that come of them, and by the heads of each commit."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.asked: dict[tuple[str, bytes], tuple[tuple[str, str | None], ...]] = {}
        """Changes that a step asked for, by procedure and the state that it left."""
        self.wanted: dict[str, dict[str, str]] = {}
        """Tags by procedure and key."""
        self.texts: dict[tuple[str, bytes], tuple[str, ...]] = {}
        """Texts of searchable fields that a step left, by procedure and state."""
        self.left: dict[tuple[str, int], tuple[str, ...]] = {}
        """Texts of searchable fields, by procedure and record: a step that is placed anew may leave the same state."""
        self.touched: dict[str, None] = {}

    def on_created(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        del before
        self.wanted[record.id] = {tag.partition("=")[0]: tag for tag in record.tags}

    def on_exit(self, token: StepToken, unit: str | None, outcome: Any) -> None:
        del unit
        asked = outcome.requests
        if isinstance(outcome, Failed | Refused | Answered | Stopped):
            return
        self.texts[token.procedure, outcome.state] = () if asked is None else asked.searchable
        states = [outcome.state]
        if isinstance(outcome, Renewed):
            self.texts[token.procedure, outcome.fresh] = () if asked is None else asked.searchable
            self.texts[token.procedure, outcome.state] = outcome.searchable
            states.append(outcome.fresh)
        if asked is not None and asked.tags:
            for state in states:
                self.asked[token.procedure, state] = asked.tags

    def on_record(self, record: StepRecord, before: StepRecord | None) -> None:
        del before
        tags = self.wanted.setdefault(record.procedure, {})
        for key, value in self.asked.get((record.procedure, record.state), ()):
            tags.pop(key, None)
            if value is not None:
                tags[key] = f"{key}={value}"
        place = record.procedure, record.number
        if record.outcome == "submitted":
            self.left[place] = () if record.terms is None else record.terms.searchable
        elif (texts := self.texts.get((record.procedure, record.state))) is not None:
            self.left[place] = texts
        else:  # an end that no step left
            self.left.pop(place, None)
        self.touched[record.procedure] = None

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        del before
        self.touched[record.id] = None

    def on_removed(self, id: str) -> None:
        self.wanted.pop(id, None)
        self.touched.pop(id, None)

    def on_committed(self) -> None:
        for id in self.touched:
            head = self.facts.heads.get(id)
            if head is not None and id in self.wanted and sorted(head.tags) != sorted(self.wanted[id].values()):
                self.say(35, f"{id} has the tags {head.tags}, and its records leave it {self.wanted[id]}")
            if head is not None and head.searchable != (texts := self._texts_of(head)):
                self.say(35, f"{id} is found by {head.searchable}, and its state has {texts}")
        self.touched.clear()

    def _texts_of(self, head: ProcedureRecord) -> tuple[str, ...]:
        """Texts of the state that is in force; where its record is not known, those of the head."""
        return self.left.get((head.id, head.state_at or head.records), head.searchable)

    def check_end(self, dump: StoreDump) -> None:
        for id, head in dump.heads.items():
            if id in self.wanted and sorted(head.tags) != sorted(self.wanted[id].values()):
                self.say(35, f"{id} is left with the tags {head.tags}, and should have {self.wanted[id]}")
