"""Schedules in a store: rows of their own, which every start reads."""

from __future__ import annotations

from actorproc.model.rows.records import NewProcedure
from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.model.rows.writes import DeleteSchedule, PutSchedule
from actorproc.store.base import ProcedureStore
from actorproc.testing.store_suite.base import SuiteFixtures
from actorproc.testing.store_suite.writes import Writes

__all__ = ["ScheduleCases"]


def _schedule(id: str, fired: int = 0) -> ScheduleRecord:
    new = NewProcedure(id=id, type_name="T", state=b"state", digest=b"d")
    return ScheduleRecord(id=id, spec="every 60", new=new, fired=fired)


class ScheduleCases(SuiteFixtures):
    """Schedules are put, replaced, read and removed, in one commit with what they start."""

    def test_schedules_are_read_by_id_with_the_epoch(self, store: ProcedureStore) -> None:
        assert store.schedules() == (1, [])
        store.commit([PutSchedule(_schedule(name)) for name in ("b", "a")], 1)
        assert store.schedules() == (1, [_schedule("a"), _schedule("b")])
        assert store.schedule("b") == (1, _schedule("b"))
        assert store.schedule("c") == (1, None)
        assert store.load().schedules == [_schedule("a"), _schedule("b")]
        assert store.load(whole=False).schedules == [_schedule("a"), _schedule("b")]

    def test_a_firing_and_its_schedule_are_one_commit(self, store: ProcedureStore, make: type[Writes]) -> None:
        store.commit([PutSchedule(_schedule("a"))], 1)
        store.commit([make.new("a@1", 1), make.step("a@1", 1), PutSchedule(_schedule("a", 60))], 1)
        snapshot = store.load()
        assert [head.id for head in snapshot.procedures] == ["a@1"]
        assert snapshot.schedules == [_schedule("a", 60)]

    def test_a_removed_schedule_is_gone(self, store: ProcedureStore) -> None:
        store.commit([PutSchedule(_schedule("a")), PutSchedule(_schedule("b"))], 1)
        store.commit([DeleteSchedule("a"), DeleteSchedule("never")], 1)
        assert store.schedules() == (1, [_schedule("b")])
        assert store.load().damage == []
