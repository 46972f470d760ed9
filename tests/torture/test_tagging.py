"""The judge of lists under torture: each of its rules speaks when a store breaks it, and not else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actorproc.model.rows.record_parts import Past
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutProcedure, Was
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.store import LmdbStore
from actorproc.testing.histories.evidence import StoreDump
from actorproc.testing.torture.orders.tagging import judge_lists, read_lists
from actorproc.testing.torture.plan import Root, draw_plan

ROOT = Root("root-0", {"type": "journey", "keys": [], "orders": [{"do": "work", "tag": True}] * 4}, ("SUCCESS",))
HEAD = ProcedureRecord(
    id="root-0",
    type_name="t",
    version=1,
    root="root-0",
    parent=None,
    seq=1,
    state=ProcedureState.SUCCESS,
    tags=("at=3.2",),
    past=Past(searchable=("place=4",)),
)


CLOSING = StepRecord("root-0", 5, StepKind.COMMIT, 1.0, attempts=2, slot=0)
LISTS = {"tag at=3.2": ["root-0"], "field place=4": ["root-0"]}


def judged(head=HEAD, lists=LISTS):
    dump = StoreDump({head.id: head}, {head.id: [CLOSING]}, [], [], lists=lists)
    return [(found.number, found.text) for found in judge_lists((ROOT,), dump)]


def test_lists_that_say_what_heads_say_are_no_finding():
    assert judged() == []


@pytest.mark.parametrize(
    ("words", "broken"),
    [
        ("by tag at=3.2 finds []", {"lists": {**LISTS, "tag at=3.2": []}}),
        ("by field place=4 finds []", {"lists": {**LISTS, "field place=4": []}}),
        ("by field place=4 finds ['root-0', 'x']", {"lists": {**LISTS, "field place=4": ["root-0", "x"]}}),
        ("row b'x'", {"lists": {**LISTS, "row b'x' of root-0, missing": ["root-0"]}}),
        ("has the tags ('at=3.1',)", {"head": replace(HEAD, tags=("at=3.1",)), "lists": {}}),
        ("is found by ('place=3',)", {"head": replace(HEAD, past=Past(searchable=("place=3",))), "lists": {}}),
    ],
)
def test_a_list_that_breaks_a_promise_is_told(words, broken):
    assert [number for number, text in judged(**broken) if words in text] == [35]


def test_rows_of_the_index_that_no_head_has_are_read(tmp_path):
    store = LmdbStore(str(tmp_path / "state"))
    epoch = store.own()
    store.commit([PutProcedure(HEAD, None)], epoch)
    changed = replace(HEAD, tags=("at=4.1",), past=Past(searchable=("place=5",)))
    # As a manager would that forgets which tags it had stored.
    store.commit([PutProcedure(changed, Was(HEAD.state, None, None, (), HEAD.searchable))], epoch)
    dump = StoreDump({"root-0": changed}, {}, [], [])

    read_lists(store, dump)
    store.close()

    (wrong,) = [what for what in dump.lists if what.startswith("row ")]
    assert "at=3.2" in wrong
    assert "without a head" in wrong
    assert (dump.lists["tag at=4.1"], dump.lists["field place=5"]) == (["root-0"], ["root-0"])


def test_in_half_of_the_trees_that_are_drawn_all_orders_set_tags():
    specs = [root.spec for seed in range(100) for root in draw_plan(seed).roots if root.id.startswith("root-")]
    share = sum(bool(spec["orders"][0].get("tag")) for spec in specs) / len(specs)

    assert 0.4 < share < 0.6
    assert all(len({bool(order.get("tag")) for order in spec["orders"]}) == 1 for spec in specs)
