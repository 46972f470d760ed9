"""A host that dies at any line of the core changes no outcome: six scenarios, at work and in recovery."""

from __future__ import annotations

import re

import pytest

from actorproc.core.state.parts.decision import PendingDecision
from actorproc.model.rows.records import copied
from actorproc.model.rows.writes import PutProcedure
from tests.simulator.scenarios import core_lines
from tests.simulator.scenarios.core_lines import try_every_line
from tests.simulator.scenarios.small_scenarios import SMALL_SCENARIOS

LINES = {
    "two-step saga": 800,
    "failing child with rollback": 1100,
    "two trees contend for a lock": 1200,
    "sleep and signal": 900,
    "retry with backoff": 900,
    "rollback that gives up": 1000,
}
"""Six scenarios, and how many different lines of the core each runs at least."""
LONG = {"two trees contend for a lock", "rollback that gives up"}
"""Scenarios that take a third of the time each."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.nightly] * (name in LONG)) for name in LINES])
def test_a_death_at_any_line_of_the_core_changes_no_outcome(name: str, record_property) -> None:
    report = try_every_line(SMALL_SCENARIOS[name]())

    assert report.problems == []
    assert report.lines >= LINES[name]
    assert report.points >= report.lines
    print(f"{name}: {report.lines} lines, {report.points} deaths")  # noqa: T201 - shown by -rP
    record_property("points", report.points)


def test_a_core_that_does_not_keep_to_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that reaches the store before it is committed as a whole: what a death in its middle leaves is half."""
    honest, turn = PendingDecision.touch, core_lines._LineDriver._turn
    drivers = []

    def remembering(self):
        drivers[:] = [self]
        return turn(self)

    def touch(self, record):
        honest(self, record)
        for driver in drivers:
            stored = driver.shell.core._state.residents.stored
            write = PutProcedure(copied(record), stored.get(record.id))
            driver.world.store.commit([write], driver.shell.epoch)

    monkeypatch.setattr(core_lines._LineDriver, "_turn", remembering)
    monkeypatch.setattr(PendingDecision, "touch", touch)

    report = try_every_line(SMALL_SCENARIOS["two-step saga"]())

    assert any("the host died at" in problem for problem in report.problems)


def test_the_command_tries_other_passages_with_each_seed_and_says_how_many(capsys, monkeypatch) -> None:
    monkeypatch.setattr(core_lines, "_CORE", f"{core_lines._CORE}/st")  # a few modules: the steps, the worker table
    struck = []
    honest = core_lines._LineDriver.__init__

    def remembering(self, scenario, lines, *rest):
        struck.append(lines.at)
        honest(self, scenario, lines, *rest)

    monkeypatch.setattr(core_lines._LineDriver, "__init__", remembering)
    found = []
    for seed in (7, 7, 8):
        struck.clear()
        assert core_lines.main(["--scenario", "two-step saga", "--seed", str(seed)]) == 0
        found.append(list(struck))

    assert found[0] == found[1] != found[2]
    said = capsys.readouterr().out
    deaths = len([at for at in found[0] if at is not None])
    assert f"{deaths} deaths at lines of the core" in said
    assert ", 0 that changed an outcome" in said


def test_the_command_ends_with_1_for_a_death_that_changed_an_outcome(capsys, monkeypatch) -> None:
    monkeypatch.setattr(core_lines, "_CORE", f"{core_lines._CORE}/st")
    monkeypatch.setattr(core_lines, "differences", lambda played, undisturbed: ["something is different"])

    assert core_lines.main(["--scenario", "two-step saga"]) == 1

    said = capsys.readouterr().out
    assert "  only counting: something is different\n" in said
    assert re.search(r"[1-9]\d+ that changed an outcome", said)


def test_the_command_refuses_no_passage_at_all(capsys) -> None:
    with pytest.raises(SystemExit):
        core_lines.main(["--passages", "0"])

    assert "--passages must be at least 1" in capsys.readouterr().err
