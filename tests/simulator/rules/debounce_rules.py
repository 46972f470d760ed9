"""Promises to debounced submits: the last of those that are durable runs, in its time, and each counts once (33)."""

from __future__ import annotations

from actorproc.model.rows.cold_trees import is_debounced
from actorproc.model.rows.record_parts import TOKEN, Debounce
from actorproc.model.rows.records import NewProcedure, ProcedureRecord
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["DebounceRules"]

_ROUNDING = 0.001


class DebounceRules(Judge):
    """Judges by the heads of roots that were submitted so, their first records, and the answers."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.asked: dict[bytes, NewProcedure] = {}
        self.tokens: dict[int, bytes] = {}
        """Tokens by the number of the reply."""
        self.runs: dict[bytes, str] = {}
        """Durable submits by their tokens: the run that each began or changed."""
        self.removed: set[str] = set()
        """Runs that were removed, and their submits with them, unless a later run knows of these."""
        self.waiting: dict[str, str] = {}
        self.changed: dict[str, ProcedureRecord] = {}
        """Heads that submits of this commit began or changed, as the last of these left them."""

    def on_debounce(self, reply: int, new: NewProcedure) -> None:
        assert new.debounce is not None
        self.asked[new.debounce.token] = new
        self.tokens[reply] = new.debounce.token

    def on_head(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        mark = _mark_of(record)
        if mark is None or record.generation > 1:
            return
        known = None if before is None else _mark_of(before)
        if known is None or known.runs != mark.runs:
            self._note_submit(record, mark)
        elif before is not None and is_debounced(before) and not mark.waits and _is_early(record, before):
            self.say(33, f"{record.id} began at {record.updated_at}, before its time {before.due_at}")
        if is_debounced(record):
            other = self.facts.heads.get(self.waiting.get(mark.key, ""))
            if other is not None and other.id != record.id and is_debounced(other):
                self.say(33, f"{record.id} waits beside {other.id} for the key {mark.key}")
            self.waiting[mark.key] = record.id

    def _note_submit(self, record: ProcedureRecord, mark: Debounce) -> None:
        token = mark.runs[0][1][:TOKEN]
        if token in self.runs and self.runs[token] not in self.removed:
            self.say(33, f"one submit changed {record.id}, and had changed {self.runs[token]} before")
        self.runs[token] = record.id
        self.changed[record.id] = record
        terms = self.asked[token].debounce
        if terms is None or not is_debounced(record) or record.due_at is None:
            return
        latest = record.updated_at + terms.within
        if terms.at_most:
            latest = min(latest, record.created_at + terms.at_most)
        if record.due_at > latest + _ROUNDING:
            self.say(33, f"{record.id} waits until {record.due_at}, and should until {latest} at most")

    def on_removed(self, id: str) -> None:
        self.removed.add(id)

    def on_committed(self) -> None:
        for record in self.changed.values():
            mark, first = _mark_of(record), self.facts.records.get((record.id, 1))
            if mark is None or first is None or record.id not in self.facts.heads:
                continue
            wanted = self.asked[mark.runs[0][1][:TOKEN]]
            if first.state != wanted.state:
                self.say(33, f"{record.id} begins with {first.state!r}, and its last submit was {wanted.state!r}")
        self.changed.clear()

    def on_reply(self, reply: int, value: object, error: object) -> None:
        token = self.tokens.get(reply)
        if token is not None and error is None and value != (self.runs.get(token),):
            self.say(33, f"a debounced submit was answered with {value}, and is durable in {self.runs.get(token)}")


def _is_early(record: ProcedureRecord, before: ProcedureRecord) -> bool:
    return before.due_at is not None and before.due_at > record.updated_at


def _mark_of(record: ProcedureRecord) -> Debounce | None:
    return None if record.past is None else record.past.debounce
