"""Promises to schedules: each instant starts one procedure, in the commit that moves its schedule on (28)."""

from __future__ import annotations

from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.schedules import FIRING_TAG, ScheduleRecord
from actorproc.testing.histories.evidence import Violation
from tests.simulator.rules.judge import Facts, Judge

__all__ = ["ScheduleRules"]


class ScheduleRules(Judge):
    """Judges by the rows of schedules, and by the procedures that come with them."""

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        super().__init__(facts, found)
        self.rows: dict[str, ScheduleRecord] = {}
        self.fired: set[str] = set()
        """Ids of all firings there ever were."""
        self.created: set[str] = set()
        self.moved: set[str] = set()
        """Firings of this commit, by the heads and by the rows of schedules."""

    def on_created(self, record: ProcedureRecord, before: ProcedureRecord | None) -> None:
        del before
        if record.generation == 1 and any(tag.startswith(FIRING_TAG) for tag in record.tags):
            self.created.add(record.id)

    def on_schedule(self, record: ScheduleRecord) -> None:
        before = self.rows.get(record.id)
        self.rows[record.id] = record
        fired = 0 if before is None else before.fired
        if record.fired != fired:
            if record.fired < fired:
                self.say(28, f"{record.id} fired {record.fired} behind {fired}")
            if (record.fired - record.anchor) % int(record.spec.rpartition(" ")[2]):
                self.say(28, f"{record.id} fired at {record.fired}, which is no instant of {record.spec}")
            self.moved.add(record.id_of(record.fired))
        if before is not None and record.watermark < before.watermark and record.anchor == before.anchor:
            self.say(28, f"the watermark of {record.id} went back from {before.watermark} to {record.watermark}")

    def on_schedule_gone(self, id: str) -> None:
        self.rows.pop(id, None)

    def on_committed(self) -> None:
        if self.created != self.moved:
            self.say(28, f"one commit fired {sorted(self.created)}, and moved schedules for {sorted(self.moved)}")
        for id in sorted(self.created & self.fired):
            self.say(28, f"{id} fired twice")
        self.fired |= self.created
        self.created, self.moved = set(), set()
