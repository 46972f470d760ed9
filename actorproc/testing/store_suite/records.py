"""Records of a store: every kind comes back as it was stored, under its own key only."""

# A record that is missing fails its test, and lists of other kinds are compared as empty ones.
# mypy: disable-error-code="comparison-overlap,union-attr"

from __future__ import annotations

from typing import Any

import pytest

from actorproc.model.rows.records import (
    AuditRecord,
    StartRecord,
)
from actorproc.model.rows.writes import (
    DeleteEvent,
    DeleteLock,
    DeletePoison,
    DeleteProcedure,
    PutAudit,
    PutStart,
    PutSwitch,
)
from actorproc.model.states import ProcedureState
from actorproc.store.base import ProcedureStore
from actorproc.testing.store_suite.base import SuiteFixtures, ids
from actorproc.testing.store_suite.writes import Writes

__all__ = ["RecordCases"]

SUCCESS, WAITING, RUNNABLE = ProcedureState.SUCCESS, ProcedureState.WAITING, ProcedureState.RUNNABLE


class RecordCases(SuiteFixtures):
    """Records come back as they were stored."""

    def test_a_new_store_is_empty(self, store: ProcedureStore) -> None:
        snapshot = store.load()

        assert (snapshot.epoch, snapshot.next_seq, snapshot.next_ticket) == (1, 1, 1)
        assert not any([snapshot.procedures, snapshot.units, snapshot.locks, snapshot.poisons, snapshot.events])
        assert snapshot.damage == []
        assert list(store.scan()) == []
        assert store.procedure("a") is None
        assert store.step("a", 1) is None

    def test_every_record_comes_back_as_it_was_stored(self, store: ProcedureStore, make: type[Writes]) -> None:
        writes: list[Any] = [
            make.new("a", 1, tags=("red", "big"), due_at=12.25, error=None, locks=()),
            make.step("a", 1),
            make.child("a", 1, 0, "b"),
            make.undo("a", 1),
            make.lock("cat/db", "a"),
            make.poison("cat/other"),
            make.event("a", 1),
            make.note("a", 1, "old"),
            make.attempt("a", 1),
            make.exposed("a", "copied"),
            make.reply("a", "i"),
        ]

        store.commit(writes, 1)

        records = [write.record for write in writes]
        procedure, step, child, undo, lock, poison, event, note, attempt, exposed, reply = records
        assert store.procedure("a") == procedure
        assert store.step("a", 1) == step
        assert store.steps("a") == [step]
        assert store.children("a") == [child]
        assert store.tree("a") == ([procedure], [undo])
        assert store.locks() == [lock]
        assert store.poisons() == [poison]
        assert store.events("a") == [event]
        assert store.notes("a", 1) == [note]
        assert store.attempts("a") == store.attempts("a", 1) == [attempt]
        assert store.exposed(("a", "b")) == {"a": [exposed]}
        assert store.replies("a") == [reply]
        assert store.attempts("a", 2) == store.attempts("b") == []
        snapshot = store.load()
        assert snapshot.procedures == [procedure]
        assert (snapshot.units, snapshot.locks, snapshot.poisons, snapshot.events) == (
            [undo],
            [lock],
            [poison],
            [event],
        )
        assert snapshot.damage == []

    def test_what_belongs_to_one_id_is_not_seen_under_an_id_that_begins_alike(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        store.commit([make.new(name, n) for n, name in enumerate(("a", "a0", "a-"), 1)], 1)
        store.commit(
            [
                w
                for name in ("a", "a0", "a-")
                for w in (make.step(name, 1), make.note(name, 1, "k"), make.event(name, 1))
            ],
            1,
        )

        assert [s.procedure for s in store.steps("a")] == ["a"]
        assert [n.procedure for n in store.notes("a", 1)] == ["a"]
        assert [e.target for e in store.events("a")] == ["a"]

    def test_records_are_ordered_by_number_past_one_byte_and_not_as_text(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        numbers = [300, 2, 256, 1000, 1, 255]
        below = dict(zip(sorted(numbers), [0, *sorted(numbers)], strict=False))
        store.commit([make.new("a", 1, records=1000)], 1)
        store.commit([make.step("a", n, steps=n - below[n]) for n in numbers], 1)
        store.commit([make.child("a", n, i, f"c{n}-{i}") for n in numbers for i in (1, 0)], 1)
        store.commit([make.undo("a", n) for n in numbers], 1)
        store.commit([make.event("a", n) for n in numbers], 1)

        assert [s.number for s in store.steps("a")] == sorted(numbers)
        assert [(c.step, c.index) for c in store.children("a")] == [(n, i) for n in sorted(numbers) for i in (0, 1)]
        assert [c.child for c in store.children("a", 256)] == ["c256-0", "c256-1"]
        assert [u.seq for u in store.tree("a")[1]] == sorted(numbers)
        assert [e.seq for e in store.events("a")] == sorted(numbers)

    def test_one_path_can_be_locked_by_several_readers(self, store: ProcedureStore, make: type[Writes]) -> None:
        store.commit([make.lock("x", "a"), make.lock("x", "b"), DeleteLock("x", "a")], 1)

        assert [lock.holder for lock in store.locks()] == ["b"]

    @pytest.mark.parametrize("at", [0.0, -5.0, 1e300, 1700000000.123456])
    def test_any_due_time_can_be_stored_and_moved(self, store: ProcedureStore, make: type[Writes], at: float) -> None:
        record = make.head("a", 1, due_at=at)
        store.commit([make.put(record)], 1)

        store.commit([make.change(record, due_at=None)[0]], 1)

        assert store.load().damage == []

    def test_the_starts_a_rate_counts_are_kept_by_key_and_place(self, store: ProcedureStore) -> None:
        rows = [StartRecord("smtp", 0, 1.0), StartRecord("smtp", 1, 2.0), StartRecord("x" * 255, 0, 3.0)]
        store.commit([PutStart(row) for row in rows], 1)
        store.commit([PutStart(StartRecord("smtp", 0, 4.0))], 1)

        store.reopen()
        assert sorted(store.load().starts, key=lambda row: row.at) == [rows[1], rows[2], StartRecord("smtp", 0, 4.0)]

    @pytest.mark.parametrize("name", ["x" * 5000, "с" * 300, "with\0nul", "", "\x00\x00", "\udcff"])
    def test_any_type_tag_key_and_event_name_can_be_stored(
        self, store: ProcedureStore, make: type[Writes], name: str
    ) -> None:
        record = make.head("a", 1)
        # A lone surrogate is legal in a key and not in a record, so it is looked up only.
        if name.isprintable() or "\0" in name or not name:
            record = make.head("a", 1, type_name=name, tags=(name,))
            store.commit([make.put(record), make.event(name, 1), make.poison(name), make.note("a", 1, name)], 1)
            assert ids(store.scan(type_name=name)) == ids(store.scan(tag=name)) == ["a"]
            assert store.events(name)[0].target == store.poisons()[0].path == store.notes("a", 1)[0].key == name
            store.commit([DeletePoison(name), DeleteEvent(name, 1), DeleteProcedure(record)], 1)
        assert store.events(name) == store.poisons() == store.notes("a", 1) == []
        assert ids(store.scan(type_name=name)) == []

    def test_long_names_that_differ_only_at_the_end_stay_apart(self, store: ProcedureStore, make: type[Writes]) -> None:
        store.commit([make.new("a", 1, type_name="x" * 900 + "1"), make.new("b", 2, type_name="x" * 900 + "2")], 1)

        assert ids(store.scan(type_name="x" * 900 + "1")) == ["a"]

    def test_the_longest_keys_fit(self, store: ProcedureStore, make: type[Writes]) -> None:
        name = "i" * 128
        path = "p" * 255
        store.commit([make.new(name, 2**63), make.lock(path, name), make.note(name, 2**63, "k" * 5000)], 1)
        store.commit([make.child(name, 2**63, 2**63, name), make.event("e" * 5000, 2**63)], 1)

        assert store.locks()[0].path == path
        assert store.notes(name, 2**63)[0].key == "k" * 5000

    def test_writes_of_one_batch_are_applied_in_order(self, store: ProcedureStore, make: type[Writes]) -> None:
        record = make.head("a", 1)
        write, done = make.change(record, state=SUCCESS, finished_at=1.0)

        store.commit([make.put(record), write, make.lock("x", "a"), DeleteLock("x", "a"), DeleteProcedure(done)], 1)

        assert list(store.scan()) == store.finished() == store.locks() == []

    def test_rows_of_a_procedure_and_of_the_manager_are_kept_apart_and_in_order(self, store: ProcedureStore) -> None:
        rows = [AuditRecord("a", 2, 2.0, "retry"), AuditRecord("a", 1, 1.0, "abort", "too long", "by force")]
        own = AuditRecord("", 1, 3.0, "pause", "maintenance")

        store.commit([PutAudit(row) for row in (*rows, own, AuditRecord("aa", 1, 1.0, "pause"))], 1)

        assert store.audit("a") == rows[::-1]
        assert store.audit("") == [own]
        assert store.audit("missing") == []

    def test_the_rows_of_a_removed_procedure_go_with_it(self, store: ProcedureStore, make: type[Writes]) -> None:
        new = make.new("a", 1)
        store.commit([new, PutAudit(AuditRecord("a", 1, 1.0, "retry"))], 1)

        store.commit([DeleteProcedure(new.record)], 1)

        assert store.audit("a") == []

    def test_names_are_kept_and_the_manager_has_the_newest_rows_only(self, store: ProcedureStore) -> None:
        last = 100_002
        rows = [AuditRecord("", number, 1.0, "abort", None, "", "ann", "a", 7) for number in (1, 2, 3, last)]

        store.commit([PutAudit(row) for row in rows[:3]], 1)
        assert store.audit("") == rows[:3]
        store.commit([PutAudit(rows[3]), PutAudit(AuditRecord("a", last, 1.0, "abort"))], 1)

        assert store.audit("") == rows[2:]
        assert [row.number for row in store.audit("a")] == [last]

    def test_the_switch_is_as_it_was_set_last(self, store: ProcedureStore) -> None:
        assert (store.load().paused, store.load().audits) == (None, 0)
        store.commit([PutSwitch("maintenance", 1)], 1)
        assert (store.load().paused, store.load().audits) == ("maintenance", 1)
        store.commit([PutSwitch(None, 2)], 1)
        assert (store.load().paused, store.load().audits) == (None, 2)
