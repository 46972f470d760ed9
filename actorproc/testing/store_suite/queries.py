"""Queries of a store: scans, trees, finished roots, and loading."""

# A record that is missing fails its test, and lists of other kinds are compared as empty ones.
# mypy: disable-error-code="comparison-overlap,union-attr"

from __future__ import annotations

from typing import Any

import pytest

from actorproc.errors import UnknownProcedure
from actorproc.model.reports import Looked
from actorproc.model.rows.records import Past, ProcedureRecord
from actorproc.model.rows.writes import DeleteProcedure
from actorproc.model.states import ProcedureState
from actorproc.store.base import ProcedureStore
from actorproc.testing.store_suite.base import SuiteFixtures, ids
from actorproc.testing.store_suite.writes import Writes

__all__ = ["QueryCases"]

SUCCESS, WAITING, RUNNABLE = ProcedureState.SUCCESS, ProcedureState.WAITING, ProcedureState.RUNNABLE


def _tags_of(filters: dict[str, Any]) -> set[str]:
    wanted = filters.get("tag", ())
    return {wanted} if isinstance(wanted, str) else set(wanted)


def _has_state(head: ProcedureRecord, wanted: Any) -> bool:
    return wanted is None or (head.state is wanted if isinstance(wanted, ProcedureState) else head.state in wanted)


class QueryCases(SuiteFixtures):
    """Queries give what matches, in order."""

    def test_index_rows_follow_the_state_of_a_procedure(self, store: ProcedureStore, make: type[Writes]) -> None:
        write, waiting = make.change(make.head("a", 1), state=WAITING)
        store.commit([make.new("a", 1), make.new("b", 2)], 1)

        store.commit([write], 1)

        assert ids(store.scan(state=RUNNABLE)) == ["b"]
        assert ids(store.scan(state=WAITING)) == ["a"]
        store.commit([make.change(waiting, state=SUCCESS, finished_at=9.0)[0]], 1)
        assert ids(store.scan(state=WAITING)) == []
        assert ids(store.scan(state=SUCCESS)) == ["a"]

    def test_finished_roots_come_in_the_order_in_which_they_finished(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        for name, seq, root, at in [("a", 1, "a", 30.0), ("b", 2, "b", 10.5), ("c", 3, "b", 5.0), ("d", 4, "d", 20.0)]:
            store.commit([make.new(name, seq, root=root, state=SUCCESS, finished_at=at)], 1)

        assert store.finished() == [("b", 10.5), ("d", 20.0), ("a", 30.0)]
        assert store.finished(limit=1) == [("b", 10.5)]
        assert store.finished(before=20.0) == [("b", 10.5)]
        assert store.finished(limit=0) == []

    def test_a_procedure_that_runs_again_is_no_longer_finished(self, store: ProcedureStore, make: type[Writes]) -> None:
        failed = make.head("a", 1, state=ProcedureState.FAILED, finished_at=5.0)
        store.commit([make.put(failed)], 1)

        store.commit([make.change(failed, state=RUNNABLE, finished_at=None, run=2)[0]], 1)

        assert store.finished() == []
        assert ids(store.load().procedures) == ["a"]

    @pytest.fixture
    def crowd(self, store: ProcedureStore, make: type[Writes]) -> list[ProcedureRecord]:
        """700 procedures: every third of another type, tags, fields and ends by their numbers."""
        heads = [
            make.head(
                f"p{n}",
                n,
                type_name="b" if n % 3 == 0 else "a",
                tags=(*(("five",) if n % 5 == 0 else ()), f"rest={n % 4}"),
                state=SUCCESS if n % 7 == 0 else RUNNABLE,
                past=Past(searchable=(f"third={n % 3}", "none")) if n % 2 else None,
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
            {"tag": ("five", "rest=2")},
            {"tag": ("rest=2", "five", "none")},
            {"where": ("third=1",)},
            {"where": ("none", "third=2"), "tag": "five"},
            {"where": ("third=2",), "type_name": "a", "state": SUCCESS},
            {"where": ("third=4",)},
            {"root": "p12"},
            {"state": SUCCESS, "type_name": "a"},
            {"state": (RUNNABLE, SUCCESS)},
            {"state": frozenset({RUNNABLE, WAITING})},
            {"state": (WAITING, SUCCESS), "type_name": "b"},
            {"state": (RUNNABLE, WAITING), "tag": "five"},
            {"state": ()},
            {"state": RUNNABLE, "type_name": "b", "tag": "five"},
        ],
    )
    def test_a_scan_gives_what_matches_in_submit_order(
        self,
        store: ProcedureStore,
        crowd: list[ProcedureRecord],
        filters: dict[str, Any],
        after: str | None,
        reverse: bool,
    ) -> None:
        found = ids(store.scan(**filters, after=after, reverse=reverse))

        seq = int(after[1:]) if after else None
        expected = [
            head.id
            for head in crowd
            if _has_state(head, filters.get("state"))
            and filters.get("type_name") in (None, head.type_name)
            and filters.get("root") in (None, head.root)
            and _tags_of(filters) <= set(head.tags)
            and set(filters.get("where", ())) <= set(head.searchable)
            and (seq is None or (head.seq < seq if reverse else head.seq > seq))
        ]
        assert found == (expected[::-1] if reverse else expected)

    @pytest.mark.parametrize("reverse", [False, True])
    @pytest.mark.parametrize("filters", [{"state": SUCCESS, "type_name": "b"}, {"type_name": "a"}, {"tag": "five"}])
    def test_a_scan_that_is_cut_off_goes_on_after_what_it_read(
        self, store: ProcedureStore, crowd: list[ProcedureRecord], filters: dict[str, Any], reverse: bool
    ) -> None:
        assert len(crowd) == 700
        found: list[str] = []
        after: str | None = None
        while True:
            looked = Looked(60)
            found += ids(store.scan(**filters, after=after, reverse=reverse, looked=looked))
            assert looked.count <= 60
            if looked.cut_at is None:
                break
            after = looked.cut_at

        assert found == ids(store.scan(**filters, reverse=reverse))

    def test_few_that_failed_are_found_without_a_look_at_all_of_their_type(
        self, store: ProcedureStore, crowd: list[ProcedureRecord], make: type[Writes]
    ) -> None:
        failed = ProcedureState.FAILED
        store.commit([make.new("x", 900, type_name=crowd[0].type_name, state=failed, finished_at=1.0)], 1)

        looked = Looked(1000)

        assert ids(store.scan(type_name=crowd[0].type_name, state=failed, looked=looked)) == ["x"]
        assert looked.count == 1

    def test_ids_are_read_up_to_a_limit(self, store: ProcedureStore, crowd: list[ProcedureRecord]) -> None:
        assert store.ids("p1", 3) == ["p1", "p10", "p100"]
        assert len(store.ids("p")) == len(crowd)

    def test_a_scan_after_an_unknown_id_is_refused_at_once(self, store: ProcedureStore) -> None:
        with pytest.raises(UnknownProcedure, match="missing"):
            store.scan(after="missing")

    def test_the_store_can_be_written_while_a_scan_is_half_read(
        self, store: ProcedureStore, crowd: list[ProcedureRecord], make: type[Writes]
    ) -> None:
        scan = store.scan()
        first = next(scan)

        store.commit([make.change(crowd[600], state=WAITING)[0], make.new("late", 701)], 1)

        rest = list(scan)
        assert ids([first, *rest]) == [head.id for head in crowd] + ["late"]
        assert rest[599].state is WAITING

    def test_a_tree_is_its_root_and_all_below_in_submit_order(self, store: ProcedureStore, make: type[Writes]) -> None:
        store.commit([make.new("r", 5), make.new("x", 6), make.new("c", 300, root="r"), make.new("b", 7, root="r")], 1)

        assert ids(store.tree("r")[0]) == ["r", "b", "c"]
        assert ids(store.scan(root="r")) == ["r", "b", "c"]
        assert store.tree("missing") == ([], [])

    def test_loading_leaves_out_finished_trees_and_keeps_finished_members_of_live_ones(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        store.commit([make.new("done", 1, state=SUCCESS), make.new("done-child", 2, root="done", state=SUCCESS)], 1)
        live = make.new("live", 3, children=1)
        store.commit([live, make.new("ended", 4, root="live", parent="live", state=SUCCESS)], 1)
        store.commit([make.undo("live", 1), make.undo("done", 1)], 1)

        snapshot = store.load()

        assert ids(snapshot.procedures) == ["live", "ended"]
        assert [unit.root for unit in snapshot.units] == ["live"]

    def test_loading_keeps_a_tree_in_which_a_child_outlives_its_root(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        store.commit([make.new("root", 1, state=SUCCESS), make.new("left", 2, root="root", parent="root")], 1)

        assert ids(store.load().procedures) == ["root", "left"]

    def test_loading_gives_trees_interleaved_in_submit_order(self, store: ProcedureStore, make: type[Writes]) -> None:
        store.commit([make.new("a", 1), make.new("b", 2), make.new("a1", 3, root="a"), make.new("b1", 4, root="b")], 1)

        assert ids(store.load().procedures) == ["a", "b", "a1", "b1"]

    def test_tickets_go_on_after_the_highest_stored_one(self, store: ProcedureStore, make: type[Writes]) -> None:
        store.commit([make.new("a", 1, ticket=7), make.new("b", 2, ticket=3)], 1)

        assert store.load().next_ticket == 8

    def test_the_ending_of_a_procedure_is_its_head_and_its_closing_record(
        self, store: ProcedureStore, make: type[Writes]
    ) -> None:
        new = make.new("a", 1)
        write, ended = make.change(new.record, state=SUCCESS, records=2, finished_at=3.0)
        store.commit([new, make.step("a", 1)], 1)

        assert store.ending("a") is None
        assert store.ending("missing") is None

        closing = make.step("a", 2)
        store.commit([closing, write], 1)

        assert store.ending("a") == (ended, closing.record)

    def test_types_are_listed_once_each_while_they_are_stored(self, store: ProcedureStore, make: type[Writes]) -> None:
        heads = [make.head(f"p{n}", n, type_name=f"shop.{'ABA'[n % 3]}") for n in range(1, 7)]
        assert store.types() == []
        store.commit([make.put(head) for head in heads], 1)
        assert sorted(store.types()) == ["shop.A", "shop.B"]

        store.commit([DeleteProcedure(head) for head in heads if head.type_name == "shop.B"], 1)

        assert store.types() == ["shop.A"]
