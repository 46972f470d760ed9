"""The step log of one procedure among many, with steps that left no record, and with records that are gone."""

from __future__ import annotations

import random

import pytest

from actorproc.errors import StoreDamaged
from actorproc.model.rows.records import Past
from actorproc.model.rows.writes import DeleteProcedure, TrimLog
from actorproc.store.memory import MemoryStore
from actorproc.store.rows.layout import Row
from actorproc.store.rows.step_log import keys_of_log, owner_of, step_key
from actorproc.store.rows.tables import Table
from actorproc.store.tools.transfer import take_out


def test_what_procedures_in_flight_write_together_lies_together():
    ids = [f"order-{n:03}" for n in range(200)]

    keys = sorted(step_key(id_, number) for id_ in ids for number in (1, 2, 3))

    assert [owner_of(key).decode() for key in keys[200:400]] == ids
    assert keys[200:400] == [step_key(id_, 2) for id_ in ids]


def test_a_log_with_steps_that_left_no_record_is_read_in_order(store, make):
    store.commit([make.new("a", 1, records=9), make.new("b", 2, records=9)], 1)
    store.commit([make.step("a", 1), make.step("a", 5, steps=4), make.step("a", 6), make.step("a", 9, steps=3)], 1)
    store.commit([make.step("b", number) for number in range(1, 10)], 1)

    assert [record.number for record in store.steps("a")] == [1, 5, 6, 9]
    assert [record.number for record in store.steps("b")] == list(range(1, 10))
    assert store.steps("nobody") == []


def test_a_procedure_with_steps_that_left_no_record_can_be_exported(store, make):
    store.commit([make.new("a", 1, records=9)], 1)
    store.commit([make.step("a", 1), make.step("a", 5, steps=4), make.step("a", 9, steps=4)], 1)

    assert [row["number"] for row in take_out(store, "a")["steps"]] == [1, 5, 9]


@pytest.fixture
def trimmed(store, make):
    """A log of nine records, of which 2 to 6 were trimmed, with a note of each step; beside one that was not."""
    store.commit([make.new("a", 1, records=10, past=Past(6)), make.new("b", 2, records=10)], 1)
    store.commit([make.step("a", 1), make.step("a", 5, steps=4), make.step("a", 6), make.step("a", 9, steps=3)], 1)
    store.commit([make.step("a", 10), *(make.step("b", number) for number in range(1, 11))], 1)
    store.commit([make.note(name, number, "k") for name in ("a", "b") for number in range(1, 11)], 1)
    store.commit([TrimLog("a", 2, 6, 7)], 1)
    return store


def test_a_trimmed_log_is_read_around_the_gap(trimmed):
    assert [record.number for record in trimmed.steps("a")] == [1, 9, 10]
    assert [record.number for record in trimmed.steps("b")] == list(range(1, 11))
    assert [note.step for note in trimmed.notes("a")] == [7, 8, 9, 10]
    assert [note.step for note in trimmed.notes("b")] == list(range(1, 11))


def test_a_trimmed_log_is_exported_as_it_is(trimmed):
    assert [row["number"] for row in take_out(trimmed, "a")["steps"]] == [1, 9, 10]


def test_a_trimmed_log_leaves_with_its_procedure(trimmed, make):
    trimmed.commit([DeleteProcedure(make.head("a", 1, records=10, past=Past(6)))], 1)

    assert trimmed.size().steps == 10
    assert [note.step for note in trimmed.notes("a")] == []


def test_a_record_that_a_trimmed_log_lacks_beyond_that_is_missed(trimmed):
    trimmed.commit([TrimLog("a", 7, 9, 7)], 1)

    with pytest.raises(StoreDamaged, match="the record is missing"):
        trimmed.steps("a")


def test_a_log_leaves_with_its_procedure_and_takes_no_other_with_it(store, make):
    head = make.head("a", 1, records=9)
    store.commit([make.put(head), make.new("ab", 2, records=9), make.new("b", 3, records=9)], 1)
    store.commit([make.step("a", 1), make.step("a", 5, steps=4), make.step("a", 9, steps=4)], 1)
    store.commit([make.step(name, number) for name in ("ab", "b") for number in range(1, 10)], 1)

    store.commit([DeleteProcedure(head)], 1)

    assert all(store.step("a", number) is None for number in range(1, 10))
    assert store.size().steps == 18
    assert [record.number for record in store.steps("ab")] == list(range(1, 10))


def test_a_record_that_is_missing_is_noticed(make):
    store = _memory(make)
    store._apply([(Table.STEPS, step_key("a", 4), None)])

    with pytest.raises(StoreDamaged, match="steps a/4: the record is missing"):
        store.steps("a")


@pytest.mark.parametrize("steps", [0, -3])
def test_a_record_that_stands_for_no_step_is_damage_and_no_endless_loop(make, steps):
    store = _memory(make)
    store.commit([make.step("a", 4, steps=steps)], 1)

    with pytest.raises(StoreDamaged, match=f"stands for {steps} steps"):
        store.steps("a")
    assert len(list(keys_of_log(lambda key: store._rows.get(Table.STEPS, key), "a", 6))) == 6


def test_whatever_is_damaged_or_missing_of_a_log_the_rest_of_it_leaves(make):
    for seed in range(50):
        chance = random.Random(seed)
        store = _memory(make)
        rows: list[Row] = [
            (Table.STEPS, step_key("a", number), chance.choice((None, b"\x01rubbish")))
            for number in range(1, 7)
            if chance.random() < 0.4
        ]
        store._apply(rows)

        store.commit([DeleteProcedure(make.head("a", 1, records=6))], 1)

        assert store.size().steps == 6  # those of b
        assert len(store.steps("b")) == 6


def _memory(make):
    store = MemoryStore()
    store.own()
    store.commit([make.new("a", 1, records=6), make.new("b", 2, records=6)], 1)
    store.commit([make.step(name, number) for name in "ab" for number in range(1, 7)], 1)
    return store
