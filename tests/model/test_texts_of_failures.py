"""The text of a failure is for reading, however much was left behind."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from actorproc import Config, Procedure, ProcedureFailed, Status
from actorproc.model.rows.records import Leftover
from actorproc.report.failures import _listed
from actorproc.testing.inline import InlineManager


@dataclass
class Circular(Procedure):
    depth: int = 0

    def execute(self, ctx):
        return Status.suspended([Circular(self.depth + 1)])


def test_children_without_end_are_told_of_in_a_sentence():
    with (
        InlineManager([Circular], config=Config(spares=0, max_depth=64)) as manager,
        pytest.raises(ProcedureFailed) as caught,
    ):
        manager.run(Circular(), timeout=60)

    said = str(caught.value)
    assert "nested deeper than 64 (Config.max_depth)" in said
    assert said.endswith("has no rollback) and 63 more")
    assert said.count("has no rollback") == 1
    assert len(said) < 600
    assert len(caught.value.leftovers) == 64


def test_leftovers_of_one_reason_stand_under_one_id_and_few_reasons_are_told():
    def left(name, reason, unit=""):
        return Leftover(name, unit, reason)

    assert _listed([left("a", "no")]) == "a (no)"
    assert (
        _listed([left("a", "no"), left("b", "no"), left("c", "broken", "pay")]) == "a (no) and 1 more, c pay (broken)"
    )
    assert _listed([left(f"p{n}", f"r{n}") for n in range(5)]) == (
        "p0 (r0), p1 (r1), p2 (r2), and 2 more reasons, in ProcedureInfo.leftovers"
    )
