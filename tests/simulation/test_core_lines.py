"""A host that dies at any line of the core changes no outcome: six scenarios, at work and in recovery."""

from __future__ import annotations

import pytest

from actorproc.core.book import Book, _copy
from actorproc.model.writes import PutProcedure
from actorproc.testing import core_lines
from actorproc.testing.core_lines import try_every_line
from actorproc.testing.small_scenarios import SMALL_SCENARIOS

LINES = {
    "two-step saga": 800,
    "failing child with rollback": 1100,
    "two trees contend for a lock": 1200,
    "sleep and signal": 900,
    "retry with backoff": 900,
    "rollback that gives up": 1000,
}
"""Six scenarios, and how many different lines of the core each runs at least."""


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", LINES)
def test_a_death_at_any_line_of_the_core_changes_no_outcome(name: str, record_property) -> None:
    report = try_every_line(SMALL_SCENARIOS[name]())

    assert report.problems == []
    assert report.lines >= LINES[name]
    assert report.points >= report.lines
    print(f"{name}: {report.lines} lines, {report.points} deaths")  # noqa: T201 - shown by -rP
    record_property("points", report.points)


def test_a_core_that_does_not_keep_to_itself_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A decision that reaches the store before it is committed as a whole: what a death in its middle leaves is half."""
    honest, turn = Book.touch, core_lines._LineDriver._turn
    drivers = []

    def remembering(self):
        drivers[:] = [self]
        return turn(self)

    def touch(self, record):
        honest(self, record)
        for driver in drivers:
            write = PutProcedure(_copy(record), self._stored.get(record.id))
            driver.world.store.commit([write], driver.shell.epoch)

    monkeypatch.setattr(core_lines._LineDriver, "_turn", remembering)
    monkeypatch.setattr(Book, "touch", touch)

    report = try_every_line(SMALL_SCENARIOS["two-step saga"]())

    assert any("the host died at" in problem for problem in report.problems)
