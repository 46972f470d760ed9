"""What operators asked for survives, and so does the switch of the whole manager."""

from __future__ import annotations

from actorproc.model.rows.records import AuditRecord
from actorproc.model.rows.writes import DeleteProcedure, PutAudit, PutSwitch
from actorproc.store.memory import MemoryStore
from actorproc.store.rows import codec
from actorproc.store.rows.layout import PAUSED
from actorproc.store.rows.tables import Table


def test_rows_of_a_procedure_and_of_the_manager_are_kept_apart_and_in_order(store):
    rows = [AuditRecord("a", 2, 2.0, "retry"), AuditRecord("a", 1, 1.0, "abort", "too long", "by force")]
    own = AuditRecord("", 1, 3.0, "pause", "maintenance")

    store.commit([PutAudit(row) for row in (*rows, own, AuditRecord("aa", 1, 1.0, "pause"))], 1)

    assert store.audit("a") == rows[::-1]
    assert store.audit("") == [own]
    assert store.audit("nobody") == []


def test_the_rows_of_a_removed_procedure_go_with_it(store, make):
    store.commit([make.new("a", 1), PutAudit(AuditRecord("a", 1, 1.0, "retry"))], 1)

    store.commit([DeleteProcedure(store.procedure("a"))], 1)

    assert store.audit("a") == []


def test_the_switch_is_as_it_was_set_last(store):
    assert (store.load().paused, store.load().audits) == (None, 0)
    store.commit([PutSwitch("maintenance", 1)], 1)
    assert (store.load().paused, store.load().audits) == ("maintenance", 1)
    store.commit([PutSwitch(None, 2)], 1)
    assert (store.load().paused, store.load().audits) == (None, 2)


def test_a_damaged_switch_counts_as_set_and_is_reported():
    store = MemoryStore()
    store.own()
    store.commit([PutSwitch("maintenance", 1)], 1)
    value = bytearray(codec.encode(Table.META, PAUSED, "maintenance"))
    value[-1] ^= 1
    store._rows.put(Table.META, PAUSED, bytes(value))

    snapshot = store.load()

    assert snapshot.paused is not None
    assert "resume()" in snapshot.paused
    assert [(found.table, found.key) for found in snapshot.damage] == [("meta", "paused")]
