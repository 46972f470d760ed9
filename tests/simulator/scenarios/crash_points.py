"""Exhaustive crashes: a small scenario, disturbed once at every place where it can be disturbed.

The driver makes no random choice. It plays a scenario undisturbed and numbers the places that the fake shell and
the fake workers pass: each decided batch, each commit, each command acted on, each answer, each step. Then it plays
the scenario once more for each of them, with exactly that one disturbance (HBase's tests of ProcedureV2 kill before
and after each store update in the same way), recovers, goes on to the end, and judges: the journal checker finds
nothing, memory equalled the store after every commit, every outcome is the undisturbed one, and no lock is left.

There are two orders of moves, since they batch differently: *prompt* commits before a worker moves on, *lazy* lets
everything happen that can happen while a commit is in flight.

A second mode, `run_everything_twice`, loses the answer of each step and of each rollback step once, with the host.
"""

from __future__ import annotations

from collections import Counter
from enum import StrEnum
from random import Random
from typing import Any, Literal

import msgspec

from actorproc.model.ids import StepToken
from actorproc.model.messages.events import StepEnded, Submitted
from actorproc.model.rows.records import StepKind
from actorproc.model.states import ProcedureState
from actorproc.testing.histories.evidence import steps_that_are_there
from tests.simulator.core_sim.faults import FaultKind, FaultPlan
from tests.simulator.core_sim.simulation import Simulation
from tests.simulator.core_sim.world import HostCrash, World
from tests.simulator.generators.scripts import Scenario
from tests.simulator.rules.invariants import Entry, Violation

__all__ = [
    "CrashPlace",
    "CrashPoint",
    "CrashPointsReport",
    "Driver",
    "Order",
    "PlayedCrash",
    "differences",
    "play_scenario",
    "points_of",
    "run_everything_twice",
    "try_every_crash_point",
]

Ending = tuple[ProcedureState, bytes, str, int]
"""State, output, class of the error, and generation of a procedure."""
Order = Literal["prompt", "lazy"]
ORDERS: tuple[Order, ...] = ("prompt", "lazy")


class CrashPlace(StrEnum):
    """Place where the host may die that only the driver's loop can see."""

    BEFORE_HEARD = "host dies before an answer is heard"
    AFTER_HEARD = "host dies after an answer is heard"
    AFTER_ACTING = "host dies after all commands of a batch"


_HOST_DEATHS = (FaultKind.HOST_BEFORE_COMMIT, FaultKind.HOST_AFTER_COMMIT, FaultKind.HOST_WHILE_ACTING, *CrashPlace)
_KINDS = (
    *_HOST_DEATHS,
    FaultKind.COMMIT_LOST,
    FaultKind.COMMIT_UNKNOWN,
    FaultKind.WORKER_BEFORE,
    FaultKind.WORKER_DURING,
    FaultKind.WORKER_AFTER,
    FaultKind.ANSWER_TWICE,
)
"""Faults that may happen at a crash point."""
_AGAIN = (FaultKind.HOST_BEFORE_COMMIT, FaultKind.HOST_AFTER_COMMIT)
_NEVER = 1_000_000_000
"""Commits; more than any scenario has."""
_LATE = (FaultKind.ANSWER_LATE, FaultKind.ANSWER_OLD)


class CrashPoint(msgspec.Struct, frozen=True):
    """One disturbance: this kind at its `number`-th opportunity, counted from 0.

    `late`: what a step that dies with its host or worker would have answered arrives afterwards.
    `again`: a host that died here dies once more in its next life, before or after its first commit.
    """

    kind: FaultKind | CrashPlace
    number: int
    order: Order = "prompt"
    late: bool = False
    again: FaultKind | None = None

    def __str__(self) -> str:
        extra = (", late answer" if self.late else "") + (f", then {self.again}" if self.again else "")
        return f"{self.kind} #{self.number} ({self.order}{extra})"


class _OnePoint(FaultPlan):
    """Counts every opportunity and fires at one of them at most."""

    def __init__(self, point: CrashPoint | None) -> None:
        super().__init__(Random(0))
        self._waiting.clear()
        self._point = point
        self.passed: Counter[str] = Counter()
        self.fired = False
        self._again_at: int | None = None

    @property
    def is_over(self) -> bool:
        """The disturbance was, or there is none."""
        return self.fired or self._point is None

    def fires(self, kind: FaultKind) -> bool:
        return self.at(kind)

    def at(self, kind: FaultKind | CrashPlace) -> bool:
        """True if the disturbance is here."""
        number = self.passed[kind]
        self.passed[kind] += 1
        point = self._point
        if point is None:
            return False
        if self.fired:
            return (point.late and kind in _LATE) or (kind is point.again and number == self._again_at)
        self.fired = kind is point.kind and number == point.number
        if self.fired and point.again is not None:
            self._again_at = self.passed[point.again]
        # The late answer is that of the step which the disturbance itself cuts short.
        return self.fired


class PlayedCrash(msgspec.Struct):
    """One played scenario."""

    outcomes: dict[str, Ending]
    violations: list[Violation]
    passed: Counter[str]
    """Opportunities by kind."""
    fired: bool
    executions: Counter[tuple[Any, ...]]
    """Number of runs of each step: by procedure, mode, undo unit and the record it started from."""
    answered: Counter[tuple[Any, ...]]
    """Answers of each step that were heard, where answers are lost on purpose: each costs two runs."""
    journal: list[Entry]


class Driver(Simulation):
    """The simulation's loop with a fixed order of moves. `lose_answers`: each answer is lost once, with its host."""

    def __init__(
        self,
        scenario: Scenario,
        point: CrashPoint | None,
        order: Order,
        *,
        lose_answers: bool,
        recovered: set[bytes] | None = None,
    ) -> None:
        self.points = _OnePoint(point)
        self._order = order
        self._lose_answers = lose_answers
        self._lost: set[tuple[Any, ...]] = set()
        self._answered: Counter[tuple[Any, ...]] = Counter()
        world = World(0, scenario, self.points)
        world.random = _never
        super().__init__(0, world=world)
        if recovered is not None:
            self.recovered = recovered

    def _turn(self) -> bool:
        """Make the first move of a fixed list that is possible."""
        # Up to the disturbance all is as in the undisturbed run, where memory was compared already.
        self.shell.check_every = 1 if self.points.is_over else _NEVER
        if self.world.inbox:
            self._hear()
        elif self._order == "prompt":
            return self._move_host() or self._move_workers() or self._move_outside() or self._idle()
        else:
            if self._move_workers() or (not self.world.scenario.is_patient and self._move_outside()):
                return True
            return self._move_host() or self._move_outside() or self._idle()
        return True

    def _hear(self) -> None:
        is_answer = isinstance(self.world.inbox[0], StepEnded)
        if is_answer and self.points.at(CrashPlace.BEFORE_HEARD):
            raise HostCrash
        self.shell.deliver()
        if is_answer and self.points.at(CrashPlace.AFTER_HEARD):
            raise HostCrash
        if self._order == "lazy" and self.shell.in_flight is None and self.shell.batch.is_open:
            # The commit is begun at once and ends as late as possible: the next batch grows meanwhile.
            self.shell.close()

    def _move_host(self) -> bool:
        shell = self.shell
        if shell.in_flight is not None:
            shell.commit()
        elif shell.batch.is_open:
            shell.close()
        else:
            return False
        if shell.in_flight is None and self.points.at(CrashPlace.AFTER_ACTING):
            raise HostCrash
        return True

    def _move_workers(self) -> bool:
        workers = self.shell.workers
        movable = [worker for worker in workers.live.values() if worker.can_move]
        if not movable:
            return False
        # The worker that has moved least recently, so that steps of two workers overlap.
        worker = movable[0]
        workers.live[worker.id] = workers.live.pop(worker.id)
        length = len(self.world.journal)
        # A step that waits for its note is heard first; else the channel waits until nothing can run.
        self.world.random = _never if worker.asked is None else _always
        workers.move(worker)
        self.world.random = _never
        if self._lose_answers and len(self.world.journal) > length:
            self._lose(self.world.journal[-1])
        return True

    def _lose(self, entry: tuple[Any, ...]) -> None:
        """Each answer dies with its host once; that of the repeated step is heard."""
        if entry[0] != "exit":
            return
        _, token, unit, _ = entry
        head = self.world.store.procedure(token.procedure)
        assert head is not None
        key = (token.procedure, token.mode, unit, self._record_of(token))
        if key in self._lost:
            self._lost.remove(key)
            self._answered[key] += 1
            return
        self._lost.add(key)
        raise HostCrash

    def _record_of(self, token: StepToken) -> int:
        """The record from which this step, entered before, started."""
        entered = next(entry for entry in reversed(self.world.journal) if entry[0] == "enter" and entry[1] == token)
        record: int = entered[4]
        return record

    def _move_outside(self) -> bool:
        if self.shell.workers.booting:
            self.shell.workers.boot()
        elif self.actions:
            self._act_as_client()
        elif self.world.late:
            self._bring_late()
        elif self.shell.reload.can_go_on:
            self._go_on_with_reload()
        else:
            return False
        return True

    def _host_died(self) -> None:
        unheard = [call for call in self.shell.callers.values() if not isinstance(call, Submitted)]
        super()._host_died()
        for call in unheard:  # callers of verbs ask again, as those of submit do
            self.shell.tell(msgspec.structs.replace(call, reply=self._reply()))

    def played(self) -> PlayedCrash:
        """Play to the end; what was seen."""
        violations = self.run().violations
        executions: Counter[tuple[Any, ...]] = Counter()
        for entry in self.world.journal:
            if entry[0] == "enter":
                _, token, unit, _, record, _, _ = entry
                executions[token.procedure, token.mode, unit, record] += 1
        return PlayedCrash(
            outcomes=self._outcomes(),
            violations=violations,
            passed=self.points.passed,
            fired=self.points.fired,
            executions=executions,
            answered=self._answered,
            journal=self.world.journal,
        )

    def _outcomes(self) -> dict[str, Ending]:
        found: dict[str, Ending] = {}
        for head in self.world.store.scan():
            log = steps_that_are_there(self.world.store, head)
            closing = [record for record in log if record.kind is StepKind.COMMIT]
            output = closing[-1].output if closing else b""
            found[head.id] = (head.state, output, "" if head.error is None else head.error.type_name, head.generation)
        return found


def _never() -> float:
    """Chance that lets nothing happen by itself."""
    return 0.999


def _always() -> float:
    return 0.0


def play_scenario(
    scenario: Scenario,
    point: CrashPoint | None = None,
    *,
    order: Order = "prompt",
    recovered: set[bytes] | None = None,
) -> PlayedCrash:
    """Play a scenario to its end with at most one disturbance (whose own order counts), and judge it.

    `recovered` remembers, over many plays of one scenario, from what recovery was tried already.
    """
    order = order if point is None else point.order
    return Driver(scenario, point, order, lose_answers=False, recovered=recovered).played()


def points_of(undisturbed: PlayedCrash, order: Order) -> list[CrashPoint]:
    """All crash points of a scenario, from its undisturbed run in this order of moves."""
    found = []
    for kind in _KINDS:
        for number in range(undisturbed.passed[kind]):
            found.append(CrashPoint(kind, number, order))
            if kind in _HOST_DEATHS or kind is FaultKind.WORKER_DURING:
                found.append(CrashPoint(kind, number, order, late=True))
            if kind in _HOST_DEATHS and order == "prompt":  # how the second life begins is the same in both
                found += [CrashPoint(kind, number, order, again=again) for again in _AGAIN]
    return found


class CrashPointsReport(msgspec.Struct):
    """Result of trying every crash point of a scenario."""

    points: Counter[str]
    """Crash points tried, by kind."""
    problems: list[str]
    """One line for each thing that was not as it must be; empty when all is well."""


def try_every_crash_point(scenario: Scenario) -> CrashPointsReport:
    """Play the scenario once per crash point in both orders and compare with the undisturbed run."""
    report = CrashPointsReport(Counter(), [])
    recovered: set[bytes] = set()
    for order in ORDERS:
        undisturbed = play_scenario(scenario, order=order)
        report.problems += [f"undisturbed ({order}): {found.number}: {found.text}" for found in undisturbed.violations]
        for point in points_of(undisturbed, order):
            report.points[point.kind] += 1
            played = play_scenario(scenario, point, recovered=recovered)
            report.problems += [f"{point}: {text}" for text in differences(played, undisturbed)]
            if not played.fired:
                report.problems.append(f"{point}: was never reached")
    return report


def run_everything_twice(scenario: Scenario) -> tuple[PlayedCrash, list[str]]:
    """Lose every answer once, with the host, so that each step and each rollback step runs twice; and what is wrong.

    One worker, so that no other step is cut short by the death of the host. A failed attempt that is retried
    is an answer like any other: its step runs twice for it.
    """
    alone = msgspec.structs.replace(scenario, slots=1)
    undisturbed = Driver(alone, None, "prompt", lose_answers=False).played()
    played = Driver(alone, None, "prompt", lose_answers=True).played()
    problems = differences(played, undisturbed)
    for key, count in played.executions.items():
        wanted = 2 * played.answered[key]
        if wanted and count != wanted:  # one that never answers is killed
            problems.append(f"{key} ran {count} times instead of {wanted}")
    missing = undisturbed.executions.keys() ^ played.executions.keys()
    problems += [f"{key} ran in one of the two runs only" for key in sorted(missing, key=repr)]
    return played, problems


def differences(played: PlayedCrash, undisturbed: PlayedCrash) -> list[str]:
    """Differences from the undisturbed run, and violations found by the checker."""
    found = [f"invariant {violation.number}: {violation.text}" for violation in played.violations]
    for id in sorted(undisturbed.outcomes.keys() | played.outcomes.keys()):
        wanted, got = undisturbed.outcomes.get(id), played.outcomes.get(id)
        if wanted != got and not _was_stopped_earlier(wanted, got):
            found.append(f"{id} ended as {got}, undisturbed as {wanted}")
    return found


def _was_stopped_earlier(wanted: Ending | None, got: Ending | None) -> bool:
    """True if a child that was undone after its end was now undone before it: its sibling's failure came first."""
    if wanted is None or got is None or got[2] != "Cancelled":
        return False
    return wanted[0] is got[0] is ProcedureState.ROLLEDBACK and wanted[1] != b"" and got[1] == b""
