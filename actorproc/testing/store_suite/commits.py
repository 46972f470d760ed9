"""Commits of a store: whole or not at all, by the owner only, and there to stay."""

# A record that is missing fails its test, and lists of other kinds are compared as empty ones.
# mypy: disable-error-code="comparison-overlap,union-attr"

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actorproc.errors import Deposed, EngineError, InternalError
from actorproc.model.rows.record_parts import Debounce, Past
from actorproc.model.rows.records import StepKind
from actorproc.model.rows.writes import (
    DeleteEvent,
    DeleteLock,
    DeletePoison,
    DeleteProcedure,
    DeleteUndo,
)
from actorproc.model.states import ProcedureState
from actorproc.store.base import ProcedureStore
from actorproc.testing.store_suite.base import MakeStore, SuiteFixtures, ids
from actorproc.testing.store_suite.writes import Writes

__all__ = ["CommitCases"]

SUCCESS, WAITING, RUNNABLE = ProcedureState.SUCCESS, ProcedureState.WAITING, ProcedureState.RUNNABLE


class CommitCases(SuiteFixtures):
    """Commits are atomic, fenced and durable."""

    def test_single_records_can_be_removed(self, store: ProcedureStore, make: type[Writes]) -> None:
        store.commit([make.undo("a", 1), make.lock("x", "a"), make.poison("y"), make.event("a", 1)], 1)

        store.commit([DeleteUndo("a", 1), DeleteLock("x", "a"), DeletePoison("y"), DeleteEvent("a", 1)], 1)

        assert store.tree("a")[1] == store.locks() == store.poisons() == store.events("a") == []

    def test_removing_what_is_not_there_is_no_error(self, store: ProcedureStore) -> None:
        store.commit([DeleteUndo("a", 1), DeleteLock("x", "a"), DeletePoison("y"), DeleteEvent("a", 1)], 1)

    def test_removing_a_procedure_leaves_nothing_of_it(self, store: ProcedureStore, make: type[Writes]) -> None:
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
        assert ids(store.scan()) == ids(store.scan(type_name="shop.Order")) == ["ab"]
        assert ids(store.scan(state=SUCCESS)) == ids(store.scan(tag="t")) == ids(store.scan(root="a")) == []
        assert len(store.steps("ab")) == len(store.events("ab")) == len(store.notes("ab", 1)) == 1
        assert store.load().damage == []

    @pytest.mark.parametrize("reopened", [False, True])
    @pytest.mark.parametrize(
        ("before", "after"),
        [
            ((), ("a=1",)),
            (("a=1",), ()),
            (("a=1", "b", "c=1"), ("a=2", "b", "d=1")),
            (("a=1",), ("a=" + "x" * 300,)),
            (("a=" + "x" * 300 + "1",), ("a=" + "x" * 300 + "2",)),
            (("a=1", "b"), ("b", "a=1")),
            (("a=\0",), ("a=\xff",)),
        ],
    )
    @pytest.mark.parametrize("kind", ["tag", "where"])
    def test_tags_and_fields_that_change_are_found_by_what_they_are_now(
        self,
        store: ProcedureStore,
        make: type[Writes],
        before: tuple[str, ...],
        after: tuple[str, ...],
        reopened: bool,
        kind: str,
    ) -> None:
        def fields(*texts: str) -> dict[str, Any]:
            return {"tags": texts} if kind == "tag" else {"past": Past(searchable=texts) if texts else None}

        def found(*texts: str) -> list[str]:
            return ids(store.scan(tag=texts) if kind == "tag" else store.scan(where=texts))

        record = make.head("a", 1, **fields(*before))
        store.commit([make.put(record), make.new("other", 2, **fields("a=1", "b"))], 1)

        write, record = make.change(record, **fields(*after))
        store.commit([write], 1)
        if reopened:
            store.reopen()

        for text in {*before, *after}:
            assert ("a" in found(text)) is (text in after)
        assert found("b")[-1] == "other"
        store.commit([DeleteProcedure(record)], 1)
        assert "a" not in {id for text in (*before, *after) for id in found(text)}

    def test_a_debounced_root_is_found_by_its_key_whatever_its_tags_are(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        mark = Past(debounce=Debounce("k", 1.0, ()))
        record = make.head("a", 1, past=mark, tags=("debounce k", "b"))
        store.commit([make.put(record)], 1)
        for tags in (("b",), ("debounce k",), ("debounce k=1",), ()):
            write, record = make.change(record, tags=tags)
            store.commit([write], 1)
            assert store.newest_debounced("k") == "a"
        store.commit([DeleteProcedure(record)], 1)
        assert store.newest_debounced("k") is None

    def test_removing_a_child_keeps_the_undo_units_of_its_tree(self, store: ProcedureStore, make: type[Writes]) -> None:
        child = make.head("c", 2, root="r", parent="r", state=SUCCESS)
        store.commit([make.new("r", 1), make.put(child), make.undo("r", 1, "c")], 1)

        store.commit([DeleteProcedure(child)], 1)

        assert len(store.tree("r")[1]) == 1

    def test_a_number_is_never_given_twice_even_after_the_highest_is_removed(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        heads = [make.head(name, seq, state=SUCCESS) for name, seq in [("a", 1), ("b", 2), ("c", 3)]]
        store.commit([make.put(head) for head in heads], 1)

        store.commit([DeleteProcedure(heads[2])], 1)
        store.commit([DeleteProcedure(heads[0]), DeleteProcedure(heads[1])], 1)

        assert store.load().next_seq == 4

    def test_an_old_epoch_is_fenced_off_and_changes_nothing(self, store: ProcedureStore, make: type[Writes]) -> None:
        with pytest.raises(Deposed, match="epoch 0"):
            store.commit([make.new("a", 1)], 0)

        assert store.procedure("a") is None

    def test_an_owner_that_was_deposed_commits_nothing_ever_again(
        self,
        store: ProcedureStore,
        make: type[Writes],
        make_store: MakeStore,
        depose: Callable[[ProcedureStore], None],
    ) -> None:
        store.commit([make.new("a", 1)], 1, 1)
        depose(store)

        for _ in range(2):
            with pytest.raises(Deposed):
                store.commit([make.new("b", 2)], 1, 2)
        with pytest.raises(Deposed):
            store.reopen()
        with pytest.raises(EngineError):
            store.commit([make.new("b", 2)], 1, 3)
        store.close()
        other = make_store()
        try:
            assert other.own() > 1
            assert ids(other.scan()) == ["a"]
        finally:
            other.close()

    def test_each_owner_gets_a_higher_epoch(self, store: ProcedureStore, make: type[Writes]) -> None:
        store.commit([make.new("a", 1)], 1)
        store.close()

        assert store.own() == 2
        with pytest.raises(Deposed):
            store.commit([], 1)
        store.commit([make.new("b", 2)], 2)
        assert ids(store.scan()) == ["a", "b"]
        assert store.load().epoch == 2

    def test_a_batch_with_one_record_that_cannot_be_stored_changes_nothing(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        with pytest.raises(InternalError, match="procedures b"):
            store.commit([make.new("a", 1), make.new("b", 2, owner="\ud800")], 1)

        assert store.procedure("a") is None
        assert store.load().damage == []

    def test_reopening_keeps_epoch_and_records(self, store: ProcedureStore, make: type[Writes]) -> None:
        store.commit([make.new("a", 1)], 1)

        store.reopen()

        assert ids(store.scan()) == ["a"]
        store.commit([make.new("b", 2)], 1)

    def test_closing_twice_is_no_error(self, store: ProcedureStore) -> None:
        store.close()
        store.close()

    def test_a_store_keeps_its_id(self, store: ProcedureStore) -> None:
        first = store.store_id
        store.close()
        store.own()

        assert store.store_id == first != ""

    def test_a_stored_head_is_not_the_object_given(self, store: ProcedureStore, make: type[Writes]) -> None:
        record = make.head("a", 1)
        store.commit([make.put(record)], 1)

        record.attempt = 99

        assert store.procedure("a").attempt == 0

    def test_the_number_of_the_last_batch_is_stored_with_it_and_begins_anew_with_each_owner(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        store.commit([make.new("a", 1)], 1, 7)
        assert store.load().batch == 7

        store.commit([make.new("b", 2)], 1)
        assert store.load().batch == 7, "a commit without a number leaves it"

        store.close()
        store.own()
        assert store.load().batch == 0

    def test_many_writes_are_one_commit(self, store: ProcedureStore, make: type[Writes]) -> None:
        """More than are made into rows at once; later ones of the same key win."""
        many = 1200
        new = make.new("a", 1)
        write, changed = make.change(new.record, records=many)

        store.commit([new, *(make.step("a", number + 1) for number in range(many)), write], 1, 7)

        assert store.procedure("a") == changed
        assert len(store.steps("a")) == many
        assert store.load().batch == 7

    def test_of_many_writes_none_is_stored_when_one_cannot_be(self, store: ProcedureStore, make: type[Writes]) -> None:
        many = 1200
        lone = make.new("bad", 2, owner="\ud800")
        with pytest.raises(InternalError, match="bad"):
            store.commit([make.new("a", 1), *(make.step("a", number + 1) for number in range(many)), lone], 1)

        assert store.procedure("a") is None
        assert store.step("a", 1) is None
        store.commit([make.new("a", 1)], 1)
        assert store.procedure("a") is not None
