"""The judge of asks under torture: each of its rules speaks when an episode breaks it, and not else."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from actorproc.model.rows.asks import ReplyRecord
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import ProcedureState
from actorproc.procedure.values.codec import PLAIN
from actorproc.testing.histories.evidence import StoreDump
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.orders.asking import judge_asks
from actorproc.testing.torture.plan import Root, draw_plan

SPEC = {"type": "asked", "keys": [], "orders": [{"do": "ask", "name": "price"}, {"do": "work"}]}
ROOT = Root("asked-0", SPEC, ("SUCCESS",), asks=(("price", "ask-0", 0.0), ("price", "ask-1", 0.0)))
HEAD = ProcedureRecord(
    id="asked-0", type_name="t", version=1, root="asked-0", parent=None, seq=1, state=ProcedureState.SUCCESS
)
REPLY = ReplyRecord("asked-0", "price", "ask-0", PLAIN.encode(["ask-0", 2, 7]))


def told(ask: str, answer: object = None) -> JournalLine:
    kind, text = ("unanswered", "") if answer is None else ("answered", json.dumps(answer))
    return JournalLine(kind=kind, at=1, pid=1, procedure="asked-0", unit=f"price {ask}", text=text)


LINES = [told("ask-0", ["ask-0", 2, 7]), told("ask-0", ["ask-0", 2, 7]), told("ask-1")]


def judged(lines=LINES, replies=(REPLY,), state=ProcedureState.SUCCESS):
    dump = StoreDump(
        {"asked-0": replace(HEAD, state=state)}, {"asked-0": []}, [], [], replies={"asked-0": list(replies)}
    )
    return [(found.number, found.text) for found in judge_asks((ROOT,), lines, dump)]


def test_asks_that_went_well_are_no_finding():
    assert judged() == []
    assert judged(lines=[told("ask-0"), told("ask-1")], replies=(), state=ProcedureState.ROLLEDBACK) == []


@pytest.mark.parametrize(
    ("words", "broken"),
    [
        ('was told ["ask-0", 2, 8]', {"lines": [*LINES, told("ask-0", ["ask-0", 2, 8])]}),
        ("was told None", {"lines": [*LINES, told("ask-0")]}),
        ("stored is None", {"lines": [*LINES, told("ask-1", ["ask-1", 2, 8])]}),
        ("is stored to price ask-0", {"replies": (replace(REPLY, value=PLAIN.encode(["ask-1", 2, 7])),)}),
        ("is none", {"replies": (replace(REPLY, value=b""),)}),
        ("with replies {}", {"lines": [], "replies": ()}),
        ("with replies {'price': 2}", {"lines": [], "replies": (REPLY, replace(REPLY, ask="ask-1"))}),
    ],
)
def test_an_ask_that_breaks_a_promise_is_told(words, broken):
    assert [number for number, text in judged(**broken) if words in text] == [20]


def test_plans_draw_roots_that_are_asked_too_often_and_some_that_fail():
    desks = [root for seed in range(200) for root in draw_plan(seed).roots if root.asks]

    assert {root.ends for root in desks} == {("SUCCESS",), ("ROLLEDBACK",)}
    surplus = {len(root.asks) - sum(order["do"] == "ask" for order in root.spec["orders"]) for root in desks}
    assert surplus == {0, 1}
