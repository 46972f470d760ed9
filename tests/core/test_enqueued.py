"""Rows that applications enqueued: each is taken out with its procedure, or kept with the reason."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actorproc.model.messages.events import EnqueuedFound, EnqueuedRemoved, EnqueuedRow, PoisonCleared
from actorproc.model.messages.outcomes import Advanced, Finished
from actorproc.model.policies import LockKey, Scheduling
from actorproc.model.rows.enqueued import EnqueuedRecord, refused_key, waiting_key
from actorproc.model.rows.records import IdReuse, NewProcedure
from actorproc.model.rows.writes import DeleteEnqueued, PutAudit, PutEnqueued, PutProcedure
from tests.core.harness import CoreHarness, difference


def row(new: NewProcedure | None, number: int = 1, **fields: object) -> EnqueuedRecord:
    return EnqueuedRecord(key=waiting_key(5.0, number.to_bytes(8)), at=5.0, new=new, **fields)  # type: ignore[arg-type]


def found(harness: CoreHarness, *records: EnqueuedRecord, fault: str = "") -> list[object]:
    """The writes about these rows and about heads, in order."""
    event = EnqueuedFound(tuple(EnqueuedRow(record, fault, "TypeError" if fault else "") for record in records))
    kinds = (DeleteEnqueued, PutEnqueued, PutProcedure)
    return [write for write in harness.handle(event).writes if isinstance(write, kinds)]


def known(harness: CoreHarness, id: str, **fields: object) -> NewProcedure:
    return replace(harness.new(id, **fields), fresh=False)


def kinds(writes: list[object]) -> list[str]:
    return [type(write).__name__ for write in writes]


def test_a_row_goes_in_the_decision_that_creates_its_procedure_which_then_runs():
    harness = CoreHarness()
    writes = found(harness, record := row(known(harness, "a", tags=("x",), priority=3)))

    assert sorted(kinds(writes)) == ["DeleteEnqueued", "PutProcedure"]
    assert next(w.key for w in writes if isinstance(w, DeleteEnqueued)) == record.key
    assert harness.core.view("a").tags == ("x",)
    harness.answer("a", Finished(state=b"1"))


def test_the_same_submit_again_takes_the_row_out_and_creates_nothing():
    harness = CoreHarness()
    harness.submit(harness.new("a"))

    assert kinds(found(harness, row(known(harness, "a")))) == ["DeleteEnqueued"]


REFUSALS = {
    "another state": ({"digest": b"other"}, "DuplicateProcedure", "another initial state"),
    "an id that must be new": ({"reuse": IdReuse("error", bytes(8))}, "DuplicateProcedure", "on_existing='error'"),
    "a restart of what runs": ({"reuse": IdReuse("restart", bytes(8))}, "NotAllowed", "has not ended"),
    "an unknown type": ({"id": "b", "type_name": "U"}, "UnknownType", "no class is registered"),
}


@pytest.mark.parametrize(("fields", "error", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_row_that_a_submit_would_refuse_is_kept_with_the_reason_and_the_rest_is_taken(fields, error, words):
    harness = CoreHarness()
    harness.submit(harness.new("a"))
    harness.now = 9.0
    bad, good = row(replace(known(harness, "a"), **fields)), row(known(harness, "c"), 2)
    writes = found(harness, bad, good)

    (kept,) = [write.record for write in writes if isinstance(write, PutEnqueued)]
    assert (kept.key, kept.error, kept.at, kept.refused_at) == (refused_key(bad.key), error, 5.0, 9.0)
    assert words in kept.refused
    assert kept.new == bad.new
    assert [write.key for write in writes if isinstance(write, DeleteEnqueued)] == [bad.key, good.key]
    assert harness.core.view("c") is not None
    # Looked at again for the same reason it stays as it is, and nothing is written.
    assert found(harness, kept) == []


def test_a_row_that_is_wrong_by_itself_is_kept_whole():
    harness = CoreHarness()
    broken = row(None, refused="the row cannot be read: no record", error="StoreDamaged", raw=b"\x01\x02")
    writes = found(harness, broken) + found(harness, row(known(harness, "a"), 2), fault="the priority is a text")

    kept = [write.record for write in writes if isinstance(write, PutEnqueued)]
    assert [(record.refused, record.error, record.raw) for record in kept] == [
        ("the row cannot be read: no record", "StoreDamaged", b"\x01\x02"),
        ("the priority is a text", "TypeError", b""),
    ]
    assert harness.core.view("a") is None


def test_what_was_refused_for_want_of_its_class_or_for_poison_is_taken_when_that_is_over():
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p"))
    harness.answer("p", Advanced(state=b"", unit="", poisons=("k",)))
    needs, unknown = known(harness, "a", locks=(LockKey.write("k"),)), known(harness, "b", type_name="U")
    writes = found(harness, row(needs), row(unknown, 2))
    kept = [write.record for write in writes if isinstance(write, PutEnqueued)]
    assert [record.error for record in kept] == ["KeyPoisoned", "UnknownType"]

    harness.handle(PoisonCleared("k", 7))
    harness.register("U")
    taken = found(harness, *kept)
    assert [write.key for write in taken if isinstance(write, DeleteEnqueued)] == [record.key for record in kept]
    assert {id for id in ("a", "b") if harness.core.view(id)} == {"a", "b"}


def test_of_two_rows_of_one_id_the_later_stays_until_the_first_is_stored():
    harness = CoreHarness()
    first, second = row(known(harness, "a")), row(replace(known(harness, "a"), digest=b"other"), 2)

    writes = found(harness, first, second)
    assert [write.key for write in writes if isinstance(write, DeleteEnqueued)] == [first.key]
    assert kinds(found(harness, second)) == ["DeleteEnqueued", "PutEnqueued"]


def test_rows_stay_where_no_more_procedures_may_be_unfinished_and_are_taken_as_others_end():
    harness = CoreHarness()
    harness.core._state.settings.scheduling = Scheduling(max_queued=2)
    rows = [row(known(harness, name), number) for number, name in enumerate("abc")]

    assert kinds(found(harness, *rows)).count("DeleteEnqueued") == 2
    assert found(harness, rows[2]) == []
    harness.answer("a", Finished(state=b"1"))
    assert "DeleteEnqueued" in kinds(found(harness, rows[2]))


def test_a_restart_begins_the_next_generation_and_its_row_counts_once():
    harness = CoreHarness()
    harness.submit(harness.new("a"))
    harness.answer("a", Finished(state=b"1"))
    again = row(known(harness, "a", reuse=IdReuse("restart", b"token678")))

    found(harness, again)
    assert harness.core.view("a").generation == 2
    assert kinds(found(harness, again)) == ["DeleteEnqueued"]
    assert harness.core.view("a").generation == 2


def test_memory_after_a_page_is_what_a_restart_makes_of_the_store():
    harness = CoreHarness()
    found(harness, row(known(harness, "a")), row(known(harness, "b", type_name="U"), 2), row(known(harness, "c"), 3))

    assert difference(harness) is None


def test_an_operator_removes_what_was_refused_and_that_is_recorded():
    harness = CoreHarness()
    key = refused_key(waiting_key(5.0, bytes(8)))
    decision = harness.handle(EnqueuedRemoved((key,), "a", 3, "a duplicate", "anna"))

    assert DeleteEnqueued(key) in decision.writes
    (note,) = [write.record for write in decision.writes if isinstance(write, PutAudit)]
    assert (note.verb, note.reason, note.by) == ("enqueued", "a duplicate", "anna")
    assert [command.value for command in decision.commands] == [1]


@pytest.mark.parametrize("key", [b"w", b"w" + bytes(300), b"\xff\x00"])
def test_the_key_of_a_refused_row_fits_every_store_whatever_it_was_found_under(key):
    assert refused_key(key).startswith(b"r")
    assert len(refused_key(key)) == 17
    assert refused_key(key) != refused_key(key + b"\x01")
