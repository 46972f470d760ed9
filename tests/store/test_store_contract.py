"""What every store promises. Run against each implementation."""

from __future__ import annotations

import msgspec
import pytest

from actorproc.errors import InternalError, StoreInUse, UnknownProcedure
from actorproc.model.rows.records import StartRecord, StepKind
from actorproc.model.rows.writes import (
    DeleteEvent,
    DeleteLock,
    DeletePoison,
    DeleteProcedure,
    DeleteUndo,
    PutProcedure,
    PutStart,
)
from actorproc.model.states import ProcedureState

SUCCESS, WAITING, RUNNABLE = ProcedureState.SUCCESS, ProcedureState.WAITING, ProcedureState.RUNNABLE


def ids(heads):
    return [head.id for head in heads]


def test_a_new_store_is_empty(store):
    snapshot = store.load()

    assert (snapshot.epoch, snapshot.next_seq, snapshot.next_ticket) == (1, 1, 1)
    assert not any([snapshot.procedures, snapshot.units, snapshot.locks, snapshot.poisons, snapshot.events])
    assert snapshot.damage == []
    assert list(store.scan()) == []
    assert store.procedure("a") is None
    assert store.step("a", 1) is None


def test_every_record_comes_back_as_it_was_stored(store, make):
    writes = [
        make.new("a", 1, tags=("red", "big"), due_at=12.25, error=None, locks=()),
        make.step("a", 1),
        make.child("a", 1, 0, "b"),
        make.undo("a", 1),
        make.lock("cat/db", "a"),
        make.poison("cat/other"),
        make.event("a", 1),
        make.note("a", 1, "old"),
    ]

    store.commit(writes, 1)

    procedure, step, child, undo, lock, poison, event, note = (write.record for write in writes)
    assert store.procedure("a") == procedure
    assert store.step("a", 1) == step
    assert store.steps("a") == [step]
    assert store.children("a") == [child]
    assert store.tree("a") == ([procedure], [undo])
    assert store.locks() == [lock]
    assert store.poisons() == [poison]
    assert store.events("a") == [event]
    assert store.notes("a", 1) == [note]
    snapshot = store.load()
    assert snapshot.procedures == [procedure]
    assert (snapshot.units, snapshot.locks, snapshot.poisons, snapshot.events) == ([undo], [lock], [poison], [event])
    assert snapshot.damage == []


def test_what_belongs_to_one_id_is_not_seen_under_an_id_that_begins_alike(store, make):
    store.commit([make.new(name, n) for n, name in enumerate(("a", "a0", "a-"), 1)], 1)
    store.commit(
        [w for name in ("a", "a0", "a-") for w in (make.step(name, 1), make.note(name, 1, "k"), make.event(name, 1))], 1
    )

    assert [s.procedure for s in store.steps("a")] == ["a"]
    assert [n.procedure for n in store.notes("a", 1)] == ["a"]
    assert [e.target for e in store.events("a")] == ["a"]


def test_records_are_ordered_by_number_past_one_byte(store, make):
    numbers = [300, 2, 256, 1, 255]
    below = dict(zip(sorted(numbers), [0, *sorted(numbers)], strict=False))
    store.commit([make.new("a", 1, records=300)], 1)
    store.commit([make.step("a", n, steps=n - below[n]) for n in numbers], 1)
    store.commit([make.child("a", n, i, f"c{n}-{i}") for n in numbers for i in (1, 0)], 1)
    store.commit([make.undo("a", n) for n in numbers], 1)
    store.commit([make.event("a", n) for n in numbers], 1)

    assert [s.number for s in store.steps("a")] == sorted(numbers)
    assert [(c.step, c.index) for c in store.children("a")] == [(n, i) for n in sorted(numbers) for i in (0, 1)]
    assert [c.child for c in store.children("a", 256)] == ["c256-0", "c256-1"]
    assert [u.seq for u in store.tree("a")[1]] == sorted(numbers)
    assert [e.seq for e in store.events("a")] == sorted(numbers)


def test_single_records_can_be_removed(store, make):
    store.commit([make.undo("a", 1), make.lock("x", "a"), make.poison("y"), make.event("a", 1)], 1)

    store.commit([DeleteUndo("a", 1), DeleteLock("x", "a"), DeletePoison("y"), DeleteEvent("a", 1)], 1)

    assert store.tree("a")[1] == store.locks() == store.poisons() == store.events("a") == []


def test_removing_what_is_not_there_is_no_error(store):
    store.commit([DeleteUndo("a", 1), DeleteLock("x", "a"), DeletePoison("y"), DeleteEvent("a", 1)], 1)


def test_one_path_can_be_locked_by_several_readers(store, make):
    store.commit([make.lock("x", "a"), make.lock("x", "b"), DeleteLock("x", "a")], 1)

    assert [lock.holder for lock in store.locks()] == ["b"]


def test_index_rows_follow_the_state_of_a_procedure(store, make):
    write, waiting = make.change(make.head("a", 1), state=WAITING)
    store.commit([make.new("a", 1), make.new("b", 2)], 1)

    store.commit([write], 1)

    assert ids(store.scan(state=RUNNABLE)) == ["b"]
    assert ids(store.scan(state=WAITING)) == ["a"]
    store.commit([make.change(waiting, state=SUCCESS, finished_at=9.0)[0]], 1)
    assert ids(store.scan(state=WAITING)) == []
    assert ids(store.scan(state=SUCCESS)) == ["a"]


def test_finished_roots_come_in_the_order_in_which_they_finished(store, make):
    for name, seq, root, at in [("a", 1, "a", 30.0), ("b", 2, "b", 10.5), ("c", 3, "b", 5.0), ("d", 4, "d", 20.0)]:
        store.commit([make.new(name, seq, root=root, state=SUCCESS, finished_at=at)], 1)

    assert store.finished() == [("b", 10.5), ("d", 20.0), ("a", 30.0)]
    assert store.finished(limit=1) == [("b", 10.5)]
    assert store.finished(before=20.0) == [("b", 10.5)]
    assert store.finished(limit=0) == []


def test_a_procedure_that_runs_again_is_no_longer_finished(store, make):
    failed = make.head("a", 1, state=ProcedureState.FAILED, finished_at=5.0)
    store.commit([make.put(failed)], 1)

    store.commit([make.change(failed, state=RUNNABLE, finished_at=None, run=2)[0]], 1)

    assert store.finished() == []
    assert ids(store.load().procedures) == ["a"]


@pytest.mark.parametrize("at", [0.0, -5.0, 1e300, 1700000000.123456])
def test_any_due_time_can_be_stored_and_moved(store, make, at):
    record = make.head("a", 1, due_at=at)
    store.commit([make.put(record)], 1)

    store.commit([make.change(record, due_at=None)[0]], 1)

    assert store.load().damage == []


@pytest.fixture
def crowd(store, make):
    """700 procedures: every third of another type, every fifth tagged, every seventh finished."""
    heads = [
        make.head(
            f"p{n}",
            n,
            type_name="b" if n % 3 == 0 else "a",
            tags=("five",) if n % 5 == 0 else (),
            state=SUCCESS if n % 7 == 0 else RUNNABLE,
        )
        for n in range(1, 701)
    ]
    store.commit([make.put(head) for head in heads], 1)
    return heads


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("after", [None, "p3", "p256", "p257", "p700"])
@pytest.mark.parametrize(
    "filters",
    [
        {},
        {"state": RUNNABLE},
        {"state": SUCCESS},
        {"type_name": "b"},
        {"tag": "five"},
        {"tag": "none"},
        {"root": "p12"},
        {"state": SUCCESS, "type_name": "a"},
        {"state": RUNNABLE, "type_name": "b", "tag": "five"},
    ],
)
def test_a_scan_gives_what_matches_in_submit_order(store, crowd, filters, after, reverse):
    found = ids(store.scan(**filters, after=after, reverse=reverse))

    seq = int(after[1:]) if after else None
    expected = [
        head.id
        for head in crowd
        if filters.get("state") in (None, head.state)
        and filters.get("type_name") in (None, head.type_name)
        and filters.get("root") in (None, head.root)
        and (filters.get("tag") is None or filters["tag"] in head.tags)
        and (seq is None or (head.seq < seq if reverse else head.seq > seq))
    ]
    assert found == (expected[::-1] if reverse else expected)


def test_a_scan_after_an_unknown_id_is_refused_at_once(store):
    with pytest.raises(UnknownProcedure, match="nobody"):
        store.scan(after="nobody")


def test_the_store_can_be_written_while_a_scan_is_half_read(store, crowd, make):
    scan = store.scan()
    first = next(scan)

    store.commit([make.change(crowd[600], state=WAITING)[0], make.new("late", 701)], 1)

    rest = list(scan)
    assert ids([first, *rest]) == [head.id for head in crowd] + ["late"]
    assert rest[599].state is WAITING


def test_a_tree_is_its_root_and_all_below_in_submit_order(store, make):
    store.commit([make.new("r", 5), make.new("x", 6), make.new("c", 300, root="r"), make.new("b", 7, root="r")], 1)

    assert ids(store.tree("r")[0]) == ["r", "b", "c"]
    assert ids(store.scan(root="r")) == ["r", "b", "c"]
    assert store.tree("nobody") == ([], [])


def test_loading_leaves_out_finished_trees_and_keeps_finished_members_of_live_ones(store, make):
    store.commit([make.new("done", 1, state=SUCCESS), make.new("done-child", 2, root="done", state=SUCCESS)], 1)
    live = make.new("live", 3, children=1)
    store.commit([live, make.new("ended", 4, root="live", parent="live", state=SUCCESS)], 1)
    store.commit([make.undo("live", 1), make.undo("done", 1)], 1)

    snapshot = store.load()

    assert ids(snapshot.procedures) == ["live", "ended"]
    assert [unit.root for unit in snapshot.units] == ["live"]


def test_loading_keeps_a_tree_in_which_a_child_outlives_its_root(store, make):
    store.commit([make.new("root", 1, state=SUCCESS), make.new("left", 2, root="root", parent="root")], 1)

    assert ids(store.load().procedures) == ["root", "left"]


def test_loading_gives_trees_interleaved_in_submit_order(store, make):
    store.commit([make.new("a", 1), make.new("b", 2), make.new("a1", 3, root="a"), make.new("b1", 4, root="b")], 1)

    assert ids(store.load().procedures) == ["a", "b", "a1", "b1"]


def test_tickets_go_on_after_the_highest_stored_one(store, make):
    store.commit([make.new("a", 1, ticket=7), make.new("b", 2, ticket=3)], 1)

    assert store.load().next_ticket == 8


def test_the_starts_a_rate_counts_are_kept_by_key_and_place(store):
    rows = [StartRecord("smtp", 0, 1.0), StartRecord("smtp", 1, 2.0), StartRecord("x" * 255, 0, 3.0)]
    store.commit([PutStart(row) for row in rows], 1)
    store.commit([PutStart(StartRecord("smtp", 0, 4.0))], 1)

    store.reopen()
    assert sorted(store.load().starts, key=lambda row: row.at) == [rows[1], rows[2], StartRecord("smtp", 0, 4.0)]


def test_removing_a_procedure_leaves_nothing_of_it(store, make):
    record = make.head("a", 1, state=SUCCESS, finished_at=3.0, tags=("t",), due_at=8.0)
    other = make.head("ab", 2)
    store.commit([make.put(record), make.put(other), make.step("a", 1), make.step("a", 2, StepKind.COMMIT)], 1)
    store.commit([make.step("ab", 1), make.child("a", 1, 0, "c"), make.note("a", 1, "k")], 1)
    store.commit([make.undo("a", 1), make.event("a", 1), make.event("ab", 1), make.note("ab", 1, "k")], 1)

    store.commit([DeleteProcedure(record)], 1)

    assert store.procedure("a") is None
    assert store.steps("a") == store.children("a") == store.notes("a", 1) == store.events("a") == []
    assert store.tree("a") == ([], [])
    assert store.finished() == []
    for filters in ({}, {"type_name": "shop.Order"}):
        assert ids(store.scan(**filters)) == ["ab"]
    for filters in ({"state": SUCCESS}, {"tag": "t"}, {"root": "a"}):
        assert ids(store.scan(**filters)) == []
    assert len(store.steps("ab")) == len(store.events("ab")) == len(store.notes("ab", 1)) == 1
    assert store.load().damage == []


def test_removing_a_child_keeps_the_undo_units_of_its_tree(store, make):
    child = make.head("c", 2, root="r", parent="r", state=SUCCESS)
    store.commit([make.new("r", 1), make.put(child), make.undo("r", 1, "c")], 1)

    store.commit([DeleteProcedure(child)], 1)

    assert len(store.tree("r")[1]) == 1


def test_a_number_is_never_given_twice_even_after_the_highest_is_removed(store, make):
    heads = [make.head(name, seq, state=SUCCESS) for name, seq in [("a", 1), ("b", 2), ("c", 3)]]
    store.commit([make.put(head) for head in heads], 1)

    store.commit([DeleteProcedure(heads[2])], 1)
    store.commit([DeleteProcedure(heads[0]), DeleteProcedure(heads[1])], 1)

    assert store.load().next_seq == 4


def test_an_old_epoch_is_fenced_off_and_changes_nothing(store, make):
    with pytest.raises(StoreInUse, match="epoch 0"):
        store.commit([make.new("a", 1)], 0)

    assert store.procedure("a") is None


def test_each_owner_gets_a_higher_epoch(store, make):
    store.commit([make.new("a", 1)], 1)
    store.close()

    assert store.own() == 2
    with pytest.raises(StoreInUse):
        store.commit([], 1)
    store.commit([make.new("b", 2)], 2)
    assert ids(store.scan()) == ["a", "b"]
    assert store.load().epoch == 2


def test_a_batch_with_one_record_that_cannot_be_stored_changes_nothing(store, make):
    with pytest.raises(InternalError, match="procedures b"):
        store.commit([make.new("a", 1), make.new("b", 2, owner="\ud800")], 1)

    assert store.procedure("a") is None
    assert store.load().damage == []


def test_reopening_keeps_epoch_and_records(store, make):
    store.commit([make.new("a", 1)], 1)

    store.reopen()

    assert ids(store.scan()) == ["a"]
    store.commit([make.new("b", 2)], 1)


def test_closing_twice_is_no_error(store):
    store.close()
    store.close()


def test_a_store_keeps_its_id(store):
    first = store.store_id
    store.close()
    store.own()

    assert store.store_id == first != ""


@pytest.mark.parametrize("name", ["x" * 5000, "с" * 300, "with\0nul", "", "\x00\x00", "\udcff"])
def test_any_type_tag_key_and_event_name_can_be_stored(store, make, name):
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


def test_long_names_that_differ_only_at_the_end_stay_apart(store, make):
    store.commit([make.new("a", 1, type_name="x" * 900 + "1"), make.new("b", 2, type_name="x" * 900 + "2")], 1)

    assert ids(store.scan(type_name="x" * 900 + "1")) == ["a"]


def test_the_longest_keys_fit(store, make):
    name = "i" * 128
    path = "p" * 255
    store.commit([make.new(name, 2**63), make.lock(path, name), make.note(name, 2**63, "k" * 5000)], 1)
    store.commit([make.child(name, 2**63, 2**63, name), make.event("e" * 5000, 2**63)], 1)

    assert store.locks()[0].path == path
    assert store.notes(name, 2**63)[0].key == "k" * 5000


def test_writes_of_one_batch_are_applied_in_order(store, make):
    record = make.head("a", 1)
    write, done = make.change(record, state=SUCCESS, finished_at=1.0)

    store.commit([make.put(record), write, make.lock("x", "a"), DeleteLock("x", "a"), DeleteProcedure(done)], 1)

    assert list(store.scan()) == store.finished() == store.locks() == []


def test_a_stored_head_is_not_the_object_given(store, make):
    record = make.head("a", 1)
    store.commit([make.put(record)], 1)

    record.attempt = 99

    assert store.procedure("a").attempt == 0


def test_a_head_without_change_of_state_moves_no_index_row(make):
    from actorproc.store.rows.layout import rows_of

    record = make.head("a", 1, due_at=3.0)
    write, _ = make.change(record, attempt=2)

    assert [table.label for table, _, _ in rows_of([write, make.step("a", 2)])] == ["procedures", "steps"]


def test_coalescing_keeps_the_first_was_and_the_last_record(make):
    from actorproc.store.committer import coalesce

    first = make.head("a", 1)
    to_waiting, waiting = make.change(first, state=WAITING)
    to_done, done = make.change(waiting, state=SUCCESS, finished_at=2.0)
    other = make.new("b", 2)

    merged = coalesce([to_waiting, make.step("a", 2), other, to_done])

    assert merged == [PutProcedure(done, to_waiting.was), make.step("a", 2), other]
    assert coalesce([make.put(first), to_waiting]) == [PutProcedure(waiting, None)]


def test_coalescing_never_crosses_a_removal(store, make):
    from actorproc.store.committer import coalesce

    record = make.head("a", 1, state=RUNNABLE)
    to_done, done = make.change(record, state=SUCCESS)
    again = msgspec.structs.replace(record, seq=2)
    store.commit([make.put(record)], 1)

    store.commit(coalesce([to_done, DeleteProcedure(done), make.put(again)]), 1)

    assert [head.seq for head in store.scan()] == [2]
    assert ids(store.scan(state=SUCCESS)) == []
    assert store.load().damage == []


def test_a_memory_store_is_copied_by_clone(make):
    from actorproc.store.memory import MemoryStore

    store = MemoryStore()
    store.own()
    store.commit([make.new("a", 1)], 1)

    twin = store.clone()
    store.commit([make.new("b", 2)], 1)

    assert twin.own() == 2
    assert ids(twin.load().procedures) == ["a"]
    assert ids(store.load().procedures) == ["a", "b"]


def test_the_number_of_the_last_batch_is_stored_with_it_and_begins_anew_with_each_owner(store, make):
    store.commit([make.new("a", 1)], 1, 7)
    assert store.load().batch == 7

    store.commit([make.new("b", 2)], 1)
    assert store.load().batch == 7, "a commit without a number leaves it"

    store.close()
    store.own()
    assert store.load().batch == 0


def test_the_ending_of_a_procedure_is_its_head_and_its_closing_record(store, make):
    new = make.new("a", 1)
    write, ended = make.change(new.record, state=SUCCESS, records=2, finished_at=3.0)
    store.commit([new, make.step("a", 1)], 1)

    assert store.ending("a") is None
    assert store.ending("nobody") is None

    closing = make.step("a", 2)
    store.commit([closing, write], 1)

    assert store.ending("a") == (ended, closing.record)


def test_many_writes_are_one_commit(store, make):
    """More than are made into rows at once; later ones of the same key win."""
    many = 1200
    new = make.new("a", 1)
    write, changed = make.change(new.record, records=many)

    store.commit([new, *(make.step("a", number + 1) for number in range(many)), write], 1, 7)

    assert store.procedure("a") == changed
    assert len(store.steps("a")) == many
    assert store.load().batch == 7


def test_of_many_writes_none_is_stored_when_one_cannot_be(store, make):
    many = 1200
    lone = make.new("bad", 2, owner="\ud800")
    with pytest.raises(InternalError, match="bad"):
        store.commit([make.new("a", 1), *(make.step("a", number + 1) for number in range(many)), lone], 1)

    assert store.procedure("a") is None
    assert store.step("a", 1) is None
    store.commit([make.new("a", 1)], 1)
    assert store.procedure("a") is not None
