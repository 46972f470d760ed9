"""Promises to what is enqueued: its row goes in the commit that creates its procedure, or that keeps the refusal (34)."""

from __future__ import annotations

from actorproc.model.rows.enqueued import EnqueuedRecord
from actorproc.model.rows.records import ProcedureRecord
from actorproc.testing.histories.evidence import Violation
from tests.simulator.generators.enqueued import ENQUEUED_TAG
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["EnqueuedRules"]


class EnqueuedRules(Judge):
    """Judges by the rows that applications write, those that commits take out, and the heads that come with them."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.waiting: dict[bytes, str] = {}
        """Ids of what was enqueued and is neither a procedure nor refused, by key."""
        self.refused: dict[bytes, str] = {}
        self.created: set[str] = set()
        self.gone: set[str] = set()
        """Ids that this commit created, and those of the rows that it took out."""

    def on_enqueued(self, record: EnqueuedRecord) -> None:
        assert record.new is not None
        self.waiting[record.key] = record.new.id

    def on_created(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        del before
        if record.generation == 1 and ENQUEUED_TAG in record.tags and record.parent is None:
            self.created.add(record.id)

    def on_enqueued_gone(self, key: bytes) -> None:
        id = self.waiting.pop(key, None) or self.refused.pop(key, None)
        if id is not None:
            self.gone.add(id)

    def on_row_refused(self, record: EnqueuedRecord) -> None:
        if record.new is not None:
            self.gone.discard(record.new.id)
            self.refused[record.key] = record.new.id

    def on_committed(self) -> None:
        if self.created != self.gone:
            created, gone = sorted(self.created), sorted(self.gone)
            self.say(34, f"one commit created {created} of what was enqueued, and took out the rows of {gone}")
        self.created, self.gone = set(), set()
