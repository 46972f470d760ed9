"""The host dies at every line of the core: a small scenario, played once for each line that runs in it.

The core decides in memory, so a death in the middle of a decision must be a death before its commit: whatever it has
changed is gone, and nothing has left it. That is so only as long as the core keeps to itself; here it is tried. A
trace function of the interpreter counts the lines that run in `actorproc.core` and ends the host at one of them. Then
the scenario goes on to its end as in `crash_points`, and must end as it does undisturbed. The lines of a recovery are
tried too: there a host dies in the middle of its work, and the next one at each line of its way up.

    python -m tests.simulator.scenarios.core_lines --seed 7
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Sequence
from types import FrameType
from typing import Any, NamedTuple

import msgspec

import actorproc.core
from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.core_sim.world import HostCrash
from tests.simulator.generators.scripts import Scenario
from tests.simulator.scenarios.crash_points import CrashPoint, Driver, PlayedCrash, differences, points_of
from tests.simulator.scenarios.small_scenarios import SMALL_SCENARIOS

__all__ = ["LineReport", "main", "try_every_line"]

_CORE = actorproc.core.__path__[0]
_NOWHERE = CrashPoint(FaultKind.HOST_AFTER_COMMIT, 1_000_000_000)


class LineReport(msgspec.Struct):
    """Result of dying at every line of a scenario."""

    lines: int = 0
    """Different lines of the core that ran, at work or in a recovery."""
    points: int = 0
    """Deaths."""
    problems: list[str] = msgspec.field(default_factory=list)
    """One line for each thing that was not as it must be; empty when all is well."""


class _Passage(NamedTuple):
    """One passage of a line: the number of the stretch that was watched, and that of the line in it."""

    stretch: int
    line: int


class _Lines:
    """A trace function: counts the lines of the core, and ends the host at the passage `at`.

    A stretch is a turn of the loop, or a recovery. Only the one of `at` is traced, since tracing costs several times
    what the turn itself does.
    """

    def __init__(self, at: _Passage | None = None) -> None:
        self.at = at
        self.stretches = 0
        self.line = 0
        self.passages: dict[tuple[str, int], list[_Passage]] = {}
        """Those of each line, in their order."""
        self.has_struck = False

    def begin(self) -> None:
        """A new stretch: count its lines."""
        stretch, self.line = self.stretches, 0
        self.stretches += 1
        if self.at is None or stretch == self.at.stretch:
            sys.settrace(self._call)

    @staticmethod
    def end() -> None:
        """Count no longer."""
        sys.settrace(None)

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(_CORE) else None

    def _line(self, frame: FrameType, event: str, _argument: Any) -> Any:
        if event != "line":
            return self._line
        line = self.line
        self.line += 1
        if self.at is None:
            place = (frame.f_code.co_filename[len(_CORE) + 1 :], frame.f_lineno)
            self.passages.setdefault(place, []).append(_Passage(self.stretches - 1, line))
        elif line == self.at.line:
            self.has_struck = True
            sys.settrace(None)
            raise HostCrash
        return self._line


class _LineDriver(Driver):
    """Plays a scenario whose host dies at a line: of its work, or with `point` of the recovery after that death."""

    def __init__(self, scenario: Scenario, lines: _Lines, point: CrashPoint | None, recovered: set[bytes]) -> None:
        super().__init__(scenario, point or _NOWHERE, "prompt", lose_answers=False, recovered=recovered)
        self._lines = lines
        self._in_recovery = point is not None

    def _turn(self) -> bool:
        if self._in_recovery or self._lines.has_struck:
            return super()._turn()
        self._lines.begin()
        try:
            return super()._turn()
        except HostCrash:
            self.points.fired = True  # from now on memory is compared after every commit
            raise
        finally:
            self._lines.end()

    def _host_died(self) -> None:
        while True:
            try:
                super()._host_died()
            except HostCrash:
                continue
            finally:
                self._lines.end()
            return

    def _check_recovery(self) -> None:
        super()._check_recovery()  # which lets the core recover on paper
        if self._in_recovery and not self._lines.stretches:
            self._lines.begin()


def try_every_line(scenario: Scenario, *, passages: int = 1, chance: random.Random | None = None) -> LineReport:
    """Play the scenario once for each line, which ends the host at its first passage, and compare the ends.

    With more `passages` as often for each line, one at each of its first ones; with `chance` at others, drawn by it.
    """
    report = LineReport()
    recovered: set[bytes] = set()
    undisturbed = Driver(scenario, None, "prompt", lose_answers=False, recovered=recovered).played()
    found: set[tuple[str, int]] = set()
    for point in (None, _middle_of(undisturbed)):
        counting = _Lines()
        _judge(report, _LineDriver(scenario, counting, point, recovered).played(), undisturbed, "only counting")
        found |= counting.passages.keys()
        when = "at work" if point is None else f"in the recovery after {point}"
        for place, found_there in counting.passages.items():
            most = min(passages, len(found_there))
            for passage in found_there[:most] if chance is None else chance.sample(found_there, most):
                lines = _Lines(passage)
                played = _LineDriver(scenario, lines, point, recovered).played()
                report.points += 1
                where = f"{place[0]}:{place[1]}, {passage.line} lines into stretch {passage.stretch}"
                words = f"the host died at {where} {when}"
                _judge(report, played, undisturbed, words)
                if not lines.has_struck:
                    report.problems.append(f"{words}: was never reached")
    report.lines = len(found)
    return report


def _middle_of(undisturbed: PlayedCrash) -> CrashPoint:
    """A death after the commit in the middle: there is something to recover."""
    commits = [
        point
        for point in points_of(undisturbed, "prompt")
        if point.kind is FaultKind.HOST_AFTER_COMMIT and not point.late and point.again is None
    ]
    return commits[len(commits) // 2]


def _judge(report: LineReport, played: PlayedCrash, undisturbed: PlayedCrash, words: str) -> None:
    report.problems += [f"{words}: {text}" for text in differences(played, undisturbed)]


def main(arguments: Sequence[str] | None = None) -> int:
    """Try every line of all small scenarios; 0 when no death changed an outcome."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.scenarios.core_lines", description=__doc__)
    parser.add_argument("--passages", type=int, default=1, help="deaths for each line, at most (default 1)")
    parser.add_argument("--seed", type=int, help="dies at passages drawn from it; without, at the first ones")
    parser.add_argument("--scenario", choices=SMALL_SCENARIOS, help="only this one")
    options = parser.parse_args(arguments)
    if options.passages < 1:
        parser.error("--passages must be at least 1")
    points = problems = 0
    begun = time.monotonic()
    for name in [options.scenario] if options.scenario else SMALL_SCENARIOS:
        chance = None if options.seed is None else random.Random(f"{options.seed} {name}")
        report = try_every_line(SMALL_SCENARIOS[name](), passages=options.passages, chance=chance)
        points += report.points
        problems += len(report.problems)
        sys.stdout.write(f"{name}: {report.lines} lines, {report.points} deaths\n")
        sys.stdout.writelines(f"  {text}\n" for text in report.problems[:10])
        sys.stdout.flush()
    seconds = time.monotonic() - begun
    sys.stdout.write(f"{points} deaths at lines of the core in {seconds:.0f} s, {problems} that changed an outcome\n")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
