"""What operators asked for survives, and so does the switch of the whole manager."""

from __future__ import annotations

from actorproc.model.rows.writes import PutSwitch
from actorproc.store.memory import MemoryStore
from actorproc.store.rows import codec
from actorproc.store.rows.layout import PAUSED
from actorproc.store.rows.tables import Table


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
