"""The judge of what applications enqueue under torture: each of its rules speaks when an episode breaks it, and not else."""

from __future__ import annotations

from typing import get_args

import pytest

from actorproc.model.rows.records import ProcedureRecord
from actorproc.testing.histories.evidence import StoreDump
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.cluster.plan import draw_cluster_plan
from actorproc.testing.torture.orders.enqueueing import judge_enqueued
from actorproc.testing.torture.orders.roots import Enqueueing, TransactionEnd
from actorproc.testing.torture.plan import Root

SPEC = {"type": "errand", "keys": [], "orders": [{"do": "work"}]}
ROOTS = (
    Root("kept", SPEC, ("SUCCESS",), enqueue=Enqueueing("commit")),
    Root("dropped", SPEC, ("SUCCESS",), enqueue=Enqueueing("rollback")),
    Root("other", SPEC, ("SUCCESS",)),
)


def line(kind: str, at: int, procedure: str = "kept", **fields: object) -> JournalLine:
    return JournalLine(kind=kind, at=at, pid=1, procedure=procedure, **fields)


PUT = line("row-put", 1, unit="77aa")
GONE = line("row-gone", 5, "", unit="77aa")
CREATED = line("durable", 5)
LINES = [
    line("submitted", 1, text="enqueued"),
    PUT,
    GONE,
    CREATED,
    line("enter", 6),
    line("durable", 7),
    line("enter", 8, "other"),
]


def judged(lines=LINES, heads=("kept", "other")):
    records = {id: ProcedureRecord(id=id, type_name="t", version=1, root=id, parent=None, seq=1) for id in heads}
    return [(one.number, one.text) for one in judge_enqueued(ROOTS, lines, StoreDump(records, {}, [], []))]


def without(*lines: JournalLine) -> list[JournalLine]:
    return [one for one in LINES if one not in lines]


def test_what_was_enqueued_and_went_well_is_no_finding():
    assert judged() == []
    assert judged([], ["other"]) == []  # nothing was committed


@pytest.mark.parametrize(
    ("words", "broken"),
    [
        ("kept was enqueued in a transaction that is committed, and is no procedure", {"heads": ("other",)}),
        ("dropped is a procedure, and the transaction", {"heads": ("kept", "dropped", "other")}),
        ("dropped is a procedure, and the transaction", {"lines": [*LINES, line("enter", 9, "dropped")]}),
        ("kept is a procedure, and the transaction", {"lines": LINES[1:]}),
        ("created 2 times", {"lines": [*LINES, line("removed", 9), line("durable", 10)]}),
        ("its row went in that of [4]", {"lines": [*LINES[:2], line("row-gone", 4, "", unit="77aa"), *LINES[3:]]}),
        ("its row went in that of []", {"lines": without(GONE, PUT)}),
        ("its row went in that of [5, 9]", {"lines": [*LINES, line("row-put", 8, unit="77ab"), line("row-gone", 9, "", unit="77ab")]}),
        ("created in the commit of []", {"lines": without(CREATED, LINES[5]), "heads": ("other",)}),
        ("the row 77aa of kept is left", {"lines": without(GONE)}),
    ],
)  # fmt: skip
def test_an_enqueued_procedure_that_breaks_a_promise_is_told(words, broken):
    found = judged(**broken)

    assert {number for number, _ in found} == {34}
    assert [text for _, text in found if words in text], found


def test_plans_draw_every_end_of_a_transaction_with_and_without_a_notification():
    drawn = [root.enqueue for seed in range(60) for root in draw_cluster_plan(seed).roots if root.enqueue]

    assert {terms.ends for terms in drawn} == set(get_args(TransactionEnd))
    assert {terms.notifies for terms in drawn} == {True, False}
