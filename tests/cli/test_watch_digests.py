"""``watch --digest``: what changed, each procedure once."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.processes


@pytest.fixture(scope="module", autouse=True)
def _loops(place):
    assert place("submit", "jobs:Loop", "--id", "loops")[0] == 0
    place.until(lambda: place.phase("loops") == "running")


def test_people_see_a_row_for_each_procedure_that_changed(place):
    code, shown, said = place("watch", "--digest", "100ms", "--timeout", "2s")

    heading, *rows = shown.splitlines()
    assert code == 124
    assert heading.split() == ["TIME", "ID", "STATE", "PHASE", "STEP", "TRY", "SAYS"]
    assert rows
    assert {tuple(row.split()[1:]) for row in rows} == {("loops", "RUNNABLE", "running", "1", "1", "50%")}
    assert "each procedure once" in said


def test_programs_get_digests(place):
    code, shown, _ = place("-o", "jsonl", "watch", "--digest", "--timeout", "3s")

    digests = [json.loads(line) for line in shown.splitlines()]
    assert code == 124
    assert {found["object"] for found in digests} == {"digest"}
    assert {row["id"] for found in digests for row in found["rows"]} == {"loops"}
    assert {(row["phase"], row["progress"]) for found in digests for row in found["rows"]} == {("running", 0.5)}


@pytest.mark.parametrize("others", [["loops"], ["--steps"]])
def test_a_digest_is_of_all_procedures(place, others):
    code, _, said = place("watch", "--digest", "1s", *others)

    assert (code, "all procedures" in said) == (2, True)
