"""The judge of debounced submits under torture: each of its rules speaks when an episode breaks it, and not else."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actorproc.model.rows.record_parts import Debounce, Past
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import ProcedureState
from actorproc.testing.histories.evidence import StoreDump
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.orders.debouncing import judge_debounces
from actorproc.testing.torture.plan import draw_plan


def head(id: str, state: ProcedureState = ProcedureState.SUCCESS) -> ProcedureRecord:
    past = Past(debounce=Debounce("calm-0", 0.1, ((id, b""),), waits=False))
    return ProcedureRecord(id=id, type_name="t", version=1, root=id, parent=None, seq=1, state=state, past=past)


def line(kind: str, procedure: str = "calm-0", **fields: object) -> JournalLine:
    return JournalLine(kind=kind, at=1, pid=1, procedure=procedure, **fields)


HEADS = {"r1": head("r1"), "r2": head("r2")}
WORLD = ("r1/3.0", "r1/3.1", "r2/4.0", "r2/4.1")
LINES = [
    line("calling", step=1),
    line("durable", "r1", text="waits"),
    line("written"),
    line("called", step=1, unit="r1"),
    line("calling", step=2),
    line("call-refused", step=2),
    line("calling", step=3),  # its host died; it was done
    line("durable", "r1"),
    line("calling", step=4),
    line("durable", "r2", text="waits"),
    line("written"),
    line("called", step=4, unit="r2"),
    line("durable", "r2"),
]


def judged(lines=LINES, heads=HEADS, world=WORLD):
    dump = StoreDump(heads, {}, [], [])
    return [(found.number, found.text) for found in judge_debounces(lines, dump, world)]


def test_debounced_submits_that_went_well_are_no_finding():
    assert judged() == []
    assert judged(world=("r1/1.0", "r1/1.1", *WORLD[2:])) == []  # and it was not done


@pytest.mark.parametrize(
    ("words", "broken"),
    [
        ("ran submit 2", {"world": ("r1/2.0", "r1/2.1", *WORLD[2:])}),
        ("ran submit 3, and the last one that was granted is 4", {"world": (*WORLD[:2], "r2/3.0", "r2/3.1")}),
        ("ran as r1 and as r2", {"world": (*WORLD[:2], "r2/3.0", "r2/3.1"), "lines": LINES[:9]}),
        ("one submit leaves two", {"world": ("r1/1.0", *WORLD)}),
        ("one submit leaves two", {"world": WORLD[:2]}),
        ("no run r2 is there", {"heads": {"r1": HEADS["r1"]}}),
        ("two runs wait", {"lines": [*LINES[:7], *LINES[8:]]}),
        ("is WAITING at the end", {"heads": {**HEADS, "r1": replace(HEADS["r1"], state=ProcedureState.WAITING)}}),
    ],
)
def test_a_debounced_submit_that_breaks_a_promise_is_told(words, broken):
    assert [number for number, text in judged(**broken) if words in text] == [33]


def test_plans_draw_keys_with_and_without_a_longest_wait():
    drawn = [root.debounce for seed in range(100) for root in draw_plan(seed).roots if root.debounce]

    assert {debounce.at_most is None for debounce in drawn} == {True, False}
    assert max(sum(debounce.pauses) for debounce in drawn) < 1.5
