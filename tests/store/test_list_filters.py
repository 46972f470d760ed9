"""Filters of lists over one store: the same procedures, in the same order, whichever indexes they are read from."""

from __future__ import annotations

import itertools
import random

import msgspec
import pytest

from actorproc.core.state.phases import is_interrupted, is_waiting_for_locks, phase_of
from actorproc.model.rows.records import ChildRecord, Past, ProcedureRecord
from actorproc.model.rows.writes import PutChild, PutProcedure
from actorproc.model.states import TERMINAL, Phase, ProcedureState
from actorproc.report.listing import ListFilter, children_by_state
from actorproc.store.memory import MemoryStore
from actorproc.store.rows.tables import Table

STATES = [state for state in ProcedureState if state is not ProcedureState.INITIALIZING]
COUNT = 700


def _head(chance: random.Random, number: int) -> ProcedureRecord:
    root = f"p{number - number % 10}" if number % 10 and number > 10 else f"p{number}"
    state = chance.choice(STATES)
    rolling = chance.random() < 0.2
    return ProcedureRecord(
        id=f"p{number}",
        type_name=chance.choice(["a", "b"]),
        version=1,
        root=root,
        parent=None if root == f"p{number}" else root,
        seq=number,
        state=state,
        rolling=rolling,
        failing=rolling and state not in TERMINAL,
        undoing=3 if rolling and chance.random() < 0.3 else 0,
        event="go" if state is ProcedureState.WAITING and chance.random() < 0.5 else None,
        paused="stop" if chance.random() < 0.1 else None,
        parked="gone" if chance.random() < 0.1 else None,
        errors=chance.choice([0, 0, 2]) if state is not ProcedureState.SUCCESS else 0,
        tags=(*(("blue",) if number % 3 else ()), f"size={number % 4}"),
        past=Past(searchable=(f"colour={number % 5}", "none")) if number % 2 else None,
    )


@pytest.fixture(scope="module")
def crowd() -> tuple[MemoryStore, list[ProcedureRecord]]:
    chance = random.Random(7)
    heads = [_head(chance, number) for number in range(1, COUNT)]
    # What is undone of finished members is part of a tree in which something fails.
    failing = {head.root for head in heads if head.failing}
    for head in heads:
        if head.state in TERMINAL and head.root not in failing:
            head.undoing = 0
    store = MemoryStore()
    store.commit([PutProcedure(head, None) for head in heads], store.own())
    return store, heads


def _phase(head: ProcedureRecord) -> Phase:
    return phase_of(head, running=is_interrupted(head), waits_for_locks=is_waiting_for_locks(head))


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize("after", [None, "p300"])
@pytest.mark.parametrize("phases", [*([phase] for phase in Phase), [Phase.QUEUED, Phase.PARKED], [*Phase]], ids=str)
def test_phases_are_found_wherever_they_are(crowd, phases, after, newest_first):
    store, heads = crowd

    wanted = ListFilter.of(phase=phases, after=after, newest_first=newest_first)
    found = [head.id for head in wanted.heads(store) if _phase(head) in phases]

    order = reversed(heads) if newest_first else heads
    behind = [head for head in order if after is None or (head.seq < 300 if newest_first else head.seq > 300)]
    assert found == [head.id for head in behind if _phase(head) in phases]


@pytest.mark.parametrize("newest_first", [False, True])
@pytest.mark.parametrize(
    "fields",
    [
        {"state": ["RUNNABLE", "FAILED"]},
        {"state": ["WAITING", "SUCCESS", "ROLLEDBACK"], "type_name": "a"},
        {"state": ["WAITING", "RUNNABLE"], "tag": "blue"},
        {"tag": ["blue", "size=2"]},
        {"tag": {"size": "3"}, "where": {"colour": 4}, "type_name": "b"},
        {"where": {"colour": "1", "none": None}, "troubled": True},
        {"where": {"colour": 7}, "tag": "blue"},
        {"tag": "size=1", "id_prefix": "p1", "after": "p300"},
        {"where": {"colour": 2}, "root": "p20"},
        {"troubled": True},
        {"state": ["RUNNABLE", "WAITING", "WAITING_TIMEOUT"], "roots_only": True, "limit": 20},
    ],
    ids=str,
)
def test_several_states_are_merged_in_order(crowd, fields, newest_first):
    store, heads = crowd
    wanted = ListFilter.of(newest_first=newest_first, **fields)

    found = [head.id for head in wanted.heads(store)]

    order = list(reversed(heads) if newest_first else heads)
    behind = 1 + [head.id for head in order].index(wanted.after) if wanted.after else 0
    assert found == [head.id for head in order[behind:] if wanted.matches(head)]


class Counting:
    """A store that counts the heads that are read."""

    def __init__(self, store: MemoryStore, patch: pytest.MonkeyPatch) -> None:
        self.read = 0
        rows = store._rows
        get = rows.get

        def counted(table: Table, key: bytes) -> bytes | None:
            self.read += table is Table.PROCEDURES
            return get(table, key)

        patch.setattr(rows, "get", counted)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": ["RUNNABLE", "WAITING"]},
        {"phase": ["waiting", "suspended"]},
        {"phase": "locked-out"},
        {"phase": "parked"},
        {"phase": "rolling-back"},
        {"troubled": True},
        {"parent": "p1", "state": ["RUNNABLE", "WAITING", "WAITING_TIMEOUT"]},
    ],
    ids=str,
)
def test_what_succeeded_is_not_read_to_find_what_has_not(fields, monkeypatch):
    store = MemoryStore()
    heads = [
        ProcedureRecord(id=f"p{n}", type_name="T", version=1, root="p1", parent="p1" if n > 1 else None, seq=n)
        for n in range(1, 2000)
    ]
    for head in heads[1:-3]:
        head.state = ProcedureState.SUCCESS
    heads[0].pending, heads[0].children = 3, len(heads) - 1
    links = [PutChild(ChildRecord("p1", 1, n, head.id)) for n, head in enumerate(heads[1:])]
    store.commit([*(PutProcedure(head, None) for head in heads), *links], store.own())
    counting = Counting(store, monkeypatch)

    list(ListFilter.of(**fields).heads(store))

    assert counting.read < 20


@pytest.mark.parametrize(
    ("fields", "most"),
    [
        ({"tag": "rare=1"}, 3),
        ({"tag": {"rare": "1", "all": "1"}}, 3),
        ({"tag": {"all": "1", "rare": "1"}, "state": "RUNNABLE"}, 3),
        ({"where": {"rare": 1}}, 3),
        ({"where": {"all": 1, "rare": 1}, "type_name": "T"}, 3),
        ({"tag": "all=1", "where": {"rare": 1}}, 3),
        ({"tag": "rare=1", "where": {"all": 1}}, 3),
        ({"tag": ["all=1", "nothing"]}, 0),
        ({"where": {"nothing": 1}, "tag": "all=1"}, 0),
        ({"tag": "all=1", "limit": 50, "newest_first": True}, 512),
    ],
    ids=str,
)
def test_a_list_by_tags_and_fields_reads_what_the_rarest_of_them_has(fields, most, monkeypatch):
    store = MemoryStore()
    heads = [
        ProcedureRecord(
            id=f"p{n}",
            type_name="T",
            version=1,
            root=f"p{n}",
            parent=None,
            seq=n,
            tags=("all=1", *(("rare=1",) if n % 1000 == 7 else ())),
            past=Past(searchable=("all=1", *(("rare=1",) if n % 1000 == 7 else ()))),
        )
        for n in range(1, 3000)
    ]
    store.commit([PutProcedure(head, None) for head in heads], store.own())
    counting = Counting(store, monkeypatch)
    wanted = ListFilter.of(**fields)

    found = list(itertools.islice(wanted.heads(store), wanted.limit))

    assert counting.read <= most
    assert len(found) == (50 if wanted.limit else most)


@pytest.mark.parametrize("newest_first", [False, True])
def test_a_page_of_many_children_reads_a_page(newest_first, monkeypatch):
    store = MemoryStore()
    root = ProcedureRecord(id="p0", type_name="T", version=1, root="p0", parent=None, seq=1, children=3000)
    heads = [
        ProcedureRecord(id=f"p{n}", type_name="T", version=1, root="p0", parent="p0", seq=n + 1) for n in range(1, 3001)
    ]
    grandchild = ProcedureRecord(id="g", type_name="T", version=1, root="p0", parent="p7", seq=4000)
    store.commit([PutProcedure(head, None) for head in (root, *heads, grandchild)], store.own())
    counting = Counting(store, monkeypatch)
    order = [head.id for head in (reversed(heads) if newest_first else heads)]

    first = ListFilter.of(parent="p0", newest_first=newest_first).heads(store)
    page = [head.id for head in itertools.islice(first, 50)]
    second = ListFilter.of(parent="p0", after=page[-1], newest_first=newest_first).heads(store)

    assert page == order[:50]
    assert [head.id for head in itertools.islice(second, 50)] == order[50:100]
    assert counting.read < 1200
    assert [head.id for head in ListFilter.of(parent="p0", newest_first=newest_first).heads(store)] == order


def test_children_are_counted_by_state_in_the_head_and_an_older_head_is_counted_from_its_links():
    store = MemoryStore()
    head = ProcedureRecord(id="p", type_name="T", version=1, root="p", parent=None, seq=1, children=2)
    child = ProcedureRecord(
        id="c", type_name="T", version=1, root="p", parent="p", seq=2, state=ProcedureState.ROLLEDBACK
    )
    other = ProcedureRecord(id="d", type_name="T", version=1, root="p", parent="p", seq=3)
    links = [PutChild(ChildRecord("p", 1, 0, "c")), PutChild(ChildRecord("p", 1, 1, "d"))]
    store.commit([*(PutProcedure(one, None) for one in (head, child, other)), *links], store.own())

    counted = msgspec.structs.replace(head, child_states=(1, 0, 0, 0, 0, 1))

    assert children_by_state(store, head) == children_by_state(MemoryStore(), counted)
    assert children_by_state(MemoryStore(), counted) == {"RUNNABLE": 1, "ROLLEDBACK": 1}
    assert children_by_state(store, msgspec.structs.replace(head, child_states=())) == {}
