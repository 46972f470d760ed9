"""Retention in a store: finish times, trees that are removed in parts, compaction."""

# A record that is missing fails its test, and lists of other kinds are compared as empty ones.
# mypy: disable-error-code="comparison-overlap,union-attr"

from __future__ import annotations

import pytest

from actorproc.model.rows.asks import AskKey
from actorproc.model.rows.records import (
    ATTEMPTS_KEPT,
    AcknowledgementRecord,
    ProcedureRecord,
    RemovalRecord,
)
from actorproc.model.rows.writes import (
    DeleteAcknowledgement,
    DeleteProcedure,
    DeleteRemoval,
    DeleteReply,
    PutAcknowledgement,
    PutRemoval,
    TrimLog,
)
from actorproc.model.states import ProcedureState
from actorproc.store.base import ProcedureStore
from actorproc.testing.store_suite.base import SuiteFixtures, ids
from actorproc.testing.store_suite.writes import Writes

__all__ = ["RemovalCases"]

RUNNABLE, SUCCESS, FAILED = ProcedureState.RUNNABLE, ProcedureState.SUCCESS, ProcedureState.FAILED


class RemovalCases(SuiteFixtures):
    """Trees leave in parts, and completely."""

    @pytest.fixture
    def tree(self, store: ProcedureStore, make: type[Writes]) -> list[ProcedureRecord]:
        """A finished root "r" with three children, and a finished root "s"."""
        heads = [make.head("r", 1, state=SUCCESS, finished_at=20.0)]
        heads += [
            make.head(f"c{n}", 1 + n, root="r", parent="r", state=SUCCESS, finished_at=10.0 + n) for n in (1, 2, 3)
        ]
        heads.append(make.head("s", 9, state=SUCCESS, finished_at=30.0))
        store.commit([make.put(head) for head in heads] + [make.step(head.id, 1) for head in heads], 1)
        return heads

    def test_finished_roots_are_read_on_from_any_of_them_in_both_directions(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        ends = {"a": 1.0, "b": 2.0, "c": 2.0, "d": 3.5}
        store.commit(
            [make.new(name, n, state=SUCCESS, finished_at=at) for n, (name, at) in enumerate(ends.items(), 1)], 1
        )

        assert store.finished(after=("b", 2.0)) == [("c", 2.0), ("d", 3.5)]
        assert store.finished(after=("b", 2.0), limit=1) == [("c", 2.0)]
        assert store.finished(after=("b", 2.0), before=3.0) == [("c", 2.0)]
        assert store.finished(reverse=True) == [("d", 3.5), ("c", 2.0), ("b", 2.0), ("a", 1.0)]
        assert store.finished(reverse=True, after=("c", 2.0), limit=1) == [("b", 2.0)]
        assert store.finished(reverse=True, before=2.0) == [("a", 1.0)]
        assert store.finished(after=("d", 3.5)) == []

    def test_only_roots_are_listed_as_finished(self, store: ProcedureStore, tree: list[ProcedureRecord]) -> None:
        assert store.finished() == [("r", 20.0), ("s", 30.0)]

    def test_a_finished_tree_is_read_root_first_and_says_whether_that_was_all(
        self, store: ProcedureStore, tree: list[ProcedureRecord], make: type[Writes]
    ) -> None:
        whole = store.finished_tree("r", 4)
        part = store.finished_tree("r", 2)

        assert ids(whole.members) == ["r", "c1", "c2", "c3"]
        assert (whole.more, whole.units) == (False, False)
        assert ids(part.members) == ["r", "c1"]
        assert part.more
        assert store.finished_tree("missing", 4) is None
        assert store.finished_tree("c1", 4) is None
        store.commit([make.undo("r", 1)], 1)
        assert store.finished_tree("r", 1).units

    def test_a_tree_marked_as_removed_is_seen_by_nobody_and_the_others_are(
        self, store: ProcedureStore, tree: list[ProcedureRecord]
    ) -> None:
        store.commit([PutRemoval(RemovalRecord("r", 40.0))], 1)

        assert store.procedure("r") is store.procedure("c2") is None
        assert store.procedure("c2", removed=True) == tree[2]
        assert store.tree("r") == ([], [])
        assert store.finished_tree("r", 10) is None
        assert store.finished() == store.finished(reverse=True) == [("s", 30.0)]
        assert ids(store.scan()) == ids(store.scan(state=SUCCESS)) == ids(store.scan(reverse=True)) == ["s"]
        assert list(store.scan(root="r")) == []
        assert [row.root for row in store.load().removals] == ["r"]
        assert store.load().damage == []

    def test_a_removal_goes_on_with_the_latest_members_until_nothing_is_left(
        self, store: ProcedureStore, tree: list[ProcedureRecord]
    ) -> None:
        store.commit([PutRemoval(RemovalRecord("r", 40.0))], 1)

        seen = []
        more = True
        while more:
            members, more = store.removed_members("r", 3)
            seen += ids(members)
            last = [] if more else [DeleteRemoval("r")]
            store.commit([*(DeleteProcedure(member) for member in members), *last], 1)

        assert seen == ["c3", "c2", "c1", "r"]
        assert store.procedure("r", removed=True) is store.procedure("c1", removed=True) is None
        assert store.removed_members("r", None) == ([], False)
        assert store.load().removals == store.load().damage == []
        assert store.steps("r") == store.steps("c1") == []
        assert ids(store.scan()) == ["s"]

    def test_scans_after_removals_give_what_is_there_and_what_came_below(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        """A store may remember where its rows begin: rows are added before that place, and between."""
        heads = [make.head(f"m{n:02d}", 10 * n, state=SUCCESS, finished_at=10.0 * n) for n in range(1, 9)]
        store.commit([make.put(head) for head in heads], 1)
        for _ in range(2):
            assert len(list(store.scan())) == len(store.finished()) == 8
        store.commit([DeleteProcedure(head) for head in heads[:3]], 1)
        for _ in range(2):
            assert ids(store.scan()) == ids(store.scan(state=SUCCESS)) == ["m04", "m05", "m06", "m07", "m08"]
            assert store.finished(limit=1) == [("m04", 40.0)]
            assert ids(store.scan(reverse=True)) == ["m08", "m07", "m06", "m05", "m04"]

        store.commit([make.new("a", 1, state=SUCCESS, finished_at=0.5)], 1)
        store.commit([make.new("z", 55, state=SUCCESS, finished_at=55.0), DeleteProcedure(heads[5])], 1)

        assert ids(store.scan()) == ids(store.scan(state=SUCCESS)) == ["a", "m04", "m05", "z", "m07", "m08"]
        assert ids(store.scan(type_name="shop.Order", reverse=True)) == ["m08", "m07", "z", "m05", "m04", "a"]
        assert store.finished(limit=2) == [("a", 0.5), ("m04", 40.0)]
        assert store.finished(after=("m04", 40.0), limit=2) == [("m05", 50.0), ("z", 55.0)]
        store.commit([DeleteProcedure(head) for head in store.scan()], 1)
        assert list(store.scan()) == store.finished() == store.finished(reverse=True) == []
        store.commit([make.new("b", 2)], 1)
        assert ids(store.scan()) == ids(store.scan(state=RUNNABLE)) == ["b"]

    def test_an_id_is_free_once_its_tree_is_removed(
        self, store: ProcedureStore, tree: list[ProcedureRecord], make: type[Writes]
    ) -> None:
        store.commit([DeleteProcedure(member) for member in reversed(store.finished_tree("r", 10).members)], 1)

        store.commit([make.new("r", 10), make.new("c1", 11)], 1)

        assert ids(store.scan()) == ["s", "r", "c1"]
        assert store.finished() == [("s", 30.0)]
        assert store.load().damage == []

    def test_an_acknowledgement_is_kept_until_it_is_taken_back_or_its_root_goes(
        self, store: ProcedureStore, tree: list[ProcedureRecord]
    ) -> None:
        store.commit(
            [PutAcknowledgement(AcknowledgementRecord(name, at)) for name, at in (("s", 41.0), ("r", 40.0))], 1
        )
        assert [(row.root, row.at) for row in store.load().acknowledgements] == [("r", 40.0), ("s", 41.0)]

        store.commit([DeleteAcknowledgement("s")], 1)
        assert [row.root for row in store.load().acknowledgements] == ["r"]

        store.commit([DeleteProcedure(tree[0])], 1)
        assert store.load().acknowledgements == []

    def test_a_root_that_finishes_a_second_time_has_one_finish_time(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        write, failed = make.change(make.head("a", 1), state=FAILED, finished_at=5.0)
        store.commit([make.new("a", 1), write], 1)
        write, again = make.change(failed, state=ProcedureState.RUNNABLE, finished_at=None)
        store.commit([write], 1)
        store.commit([make.change(again, state=SUCCESS, finished_at=9.0)[0]], 1)

        assert store.finished() == [("a", 9.0)]

    def test_failed_attempts_take_turns_in_few_places_and_go_with_their_procedure(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        head = make.new("a", 1)
        store.commit([head, make.new("ab", 2), make.attempt("ab", 1)], 1)
        store.commit([make.attempt("a", 1, number) for number in range(1, 50)], 1)

        assert [row.attempt for row in store.attempts("a")] == list(range(50 - ATTEMPTS_KEPT, 50))
        store.commit([TrimLog("a", 1, 0, 2)], 1)
        assert store.attempts("a") == []
        store.commit([make.attempt("a", 2), DeleteProcedure(head.record)], 1)
        assert store.attempts("a") == []
        assert len(store.attempts("ab")) == 1

    def test_shown_values_are_replaced_by_key_and_go_with_their_procedure(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        head = make.new("a", 1)
        keys = ["", "b", "long" * 100, "nul\0", "umlaut-ä"]
        store.commit([head, make.new("ab", 2), make.exposed("ab", "of another")], 1)
        store.commit([make.exposed("a", key, b"\x01") for key in keys], 1)
        store.commit([make.exposed("a", "b", b"\x02"), TrimLog("a", 1, 0, 2)], 1)

        found = store.exposed(["a", "missing"])

        assert list(found) == ["a"]
        assert {row.key: row.value for row in found["a"]} == {key: b"\x02" if key == "b" else b"\x01" for key in keys}
        store.commit([DeleteProcedure(head.record)], 1)
        assert list(store.exposed(["a", "ab"])) == ["ab"]

    def test_replies_are_found_by_their_ask_and_go_one_by_one_or_with_their_procedure(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        head = make.new("a", 1)
        asks = [AskKey(name, id) for name in ("price", "nul\0", "n" * 255) for id in ("1", "10", "umlaut-ä", "i" * 256)]
        store.commit([head, make.new("ab", 2), make.reply("ab", "1", value=b"")], 1)
        store.commit([make.reply("a", ask.id, ask.name, bytes((place,))) for place, ask in enumerate(asks)], 1)
        store.commit([TrimLog("a", 1, 0, 2)], 1)

        assert [store.replies("a", ask)[0].value for ask in asks] == [bytes((place,)) for place in range(len(asks))]
        assert store.replies("a", AskKey("price", "2")) == store.replies("missing") == []
        store.commit([DeleteReply("a", asks[0].mark)], 1)
        assert {AskKey(row.name, row.ask) for row in store.replies("a")} == set(asks[1:])
        store.commit([make.reply("a", "late"), DeleteProcedure(head.record)], 1)
        assert store.replies("a") == []
        assert [row.value for row in store.replies("ab")] == [b""]

    def test_compacting_changes_nothing_that_is_stored_and_the_store_goes_on(
        self, store: ProcedureStore, tree: list[ProcedureRecord], make: type[Writes]
    ) -> None:
        store.commit([make.lock("x", "r"), make.poison("y"), make.event("r", 1), make.note("r", 1, "k")], 1)
        before = (list(store.scan()), store.locks(), store.poisons(), store.events("r"), store.store_id)

        report = store.compact()

        assert report.before >= report.after > 0
        assert (list(store.scan()), store.locks(), store.poisons(), store.events("r"), store.store_id) == before
        store.commit([make.new("later", 20)], 1, batch=1)
        assert store.procedure("later").seq == 20
        store.reopen()
        assert store.load().epoch == 1
        assert store.load().batch == 1

    def test_a_store_is_nobodys_copy_unless_it_is(self, store: ProcedureStore) -> None:
        assert store.copied_from is None

    def test_several_finished_trees_are_read_in_order_until_there_are_enough_members(
        self, store: ProcedureStore, make: type[Writes], tree: list[ProcedureRecord]
    ) -> None:
        store.commit([make.new("t", 20, state=SUCCESS, finished_at=40.0), make.undo("s", 1)], 1)
        roots = ["s", "missing", "r", "t"]

        assert store.finished_trees(roots, 10) == [store.finished_tree(root, 10) for root in roots]
        assert store.finished_trees(roots, 5) == [store.finished_tree(root, 5) for root in roots[:3]]
        assert store.finished_trees(["r", "s"], 2) == [store.finished_tree("r", 2)]
        assert store.finished_trees([], 5) == []
        store.commit([PutRemoval(RemovalRecord("r", 40.0))], 1)
        assert store.finished_trees(["r", "t"], 5) == [None, store.finished_tree("t", 5)]
