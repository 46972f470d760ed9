"""Counters of the manager. A step costs a few additions here; the histograms are only copied when asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable

from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.outcomes import Failed, Outcome
from actorproc.model.rows.writes import PutProcedure
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.report.metrics import OTHER, TYPES, Histogram, ProcedureCounts, StepCounts

__all__ = ["STEP_NAMES", "Counters"]

_SECONDS = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5),
    *(1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0),
)
_SIZES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


STEP_NAMES = 200
"""Pairs of type and step that are told apart, the one of all further steps included."""
_FURTHER = ""
"""The name under which steps of a type are counted that have names and are not told apart."""


class _Buckets:
    """A histogram that grows."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def add_all(self, other: _Buckets) -> None:
        self.counts = [one + more for one, more in zip(self.counts, other.counts, strict=True)]
        self.sum += other.sum

    def copy(self, zeros: int = 0) -> Histogram:
        """Copy for callers; `zeros` is the number of all observations, of which those of 0 seconds were not added."""
        first, *others = self.counts
        first += max(0, zeros - sum(self.counts))
        return Histogram(bounds=self.bounds, counts=(first, *others), sum=self.sum)


class _Steps:
    __slots__ = ("crashed", "failed", "killed", "queued", "retried", "run", "seconds")

    def __init__(self) -> None:
        self.run = self.failed = self.retried = self.crashed = self.killed = 0
        self.seconds = _Buckets(_SECONDS)
        self.queued = _Buckets(_SECONDS)
        """Of those that waited for a worker; the others are the rest of `run`."""

    def add(self, other: _Steps) -> None:
        self.run += other.run
        self.failed += other.failed
        self.retried += other.retried
        self.crashed += other.crashed
        self.killed += other.killed
        self.seconds.add_all(other.seconds)
        self.queued.add_all(other.queued)

    def copy(self) -> StepCounts:
        return StepCounts(
            run=self.run,
            failed=self.failed,
            retried=self.retried,
            crashed=self.crashed,
            killed=self.killed,
            seconds=self.seconds.copy(),
            queue_seconds=self.queued.copy(zeros=self.run),
        )


class Counters:
    """Counters of one manager. Needs the manager's turn (`CombiningInbox`).

    Args:
        definitions: The types that are registered at the start. They come first among those that are told apart, in
            the order of their names, so that it is the same ones after a restart. Default: none.
    """

    def __init__(self, definitions: Iterable[Definition] = ()) -> None:
        self._submitted: defaultdict[str, int] = defaultdict(int)
        self._ended: defaultdict[tuple[str, ProcedureState], int] = defaultdict(int)
        self._steps: dict[tuple[str, str | None], _Steps] = {}
        """By type and name of the step; None: it has none."""
        self._commit_seconds = _Buckets(_SECONDS)
        self._batch_events = _Buckets(_SIZES)
        self._batch_writes = _Buckets(_SIZES)
        self._lock_waits = _Buckets(_SECONDS)
        self._waiting: dict[str, float] = {}
        """Since when procedures wait for locks; epoch seconds."""
        self._types: set[str] = set()
        """Types that are counted apart."""
        self._pairs: set[tuple[str, str]] = set()
        """Types and steps that are told apart."""
        for definition in sorted(definitions, key=lambda definition: definition.meta.type_name):
            type_name = self._label(definition.meta.type_name)
            for name in definition.step_names:
                self._is_told_apart(type_name, name)
        self._deaths: defaultdict[str, int] = defaultdict(int)
        self.replayed = 0
        """Steps handed out again because a worker or the host was gone before the answer."""
        self.lost_commits = 0
        """Commits that were durable, and that the store had no more when it was opened again."""
        self.host_losses = 0
        """Worker hosts that were lost."""
        self.adopted_steps = 0
        """Steps that a host went on with under this leader."""

    def step_ended(self, command: RunStep, outcome: Outcome) -> None:
        """A worker answered a step it had in hand."""
        name = command.step_name
        if command.unit is not None:
            name = f"undo {name}" if name else "undo"
        steps = self._steps.get((command.type_name, name)) or self._new(command.type_name, name)
        steps.run += outcome.steps
        steps.seconds.add(outcome.elapsed)
        if command.queued:
            steps.queued.add(command.queued)
        if command.token.attempt > 1:
            steps.retried += 1
        if type(outcome) is Failed:
            steps.failed += 1

    def step_lost(self, command: RunStep, *, by_operator: bool) -> None:
        """A worker died in a step: by itself or over a limit, or because an operator killed the attempt."""
        name = command.step_name
        steps = self._steps.get((command.type_name, name)) or self._new(command.type_name, name)
        if by_operator:
            steps.killed += 1
        else:
            steps.crashed += 1

    def _new(self, type_name: str, name: str | None) -> _Steps:
        """Counters of one more step, or those of all that are not told apart."""
        type_name = self._label(type_name)
        if name is not None and not self._is_told_apart(type_name, name):
            name = _FURTHER
        found = self._steps.get((type_name, name))
        if found is None:
            found = self._steps[type_name, name] = _Steps()
        return found

    def _is_told_apart(self, type_name: str, name: str) -> bool:
        pairs = self._pairs
        if (type_name, name) not in pairs and type_name != OTHER and len(pairs) < STEP_NAMES - 1:
            pairs.add((type_name, name))
        return (type_name, name) in pairs

    def _label(self, type_name: str) -> str:
        """The name under which a type is counted: its own, or that of all others."""
        known = self._types
        if type_name in known:
            return type_name
        if len(known) >= TYPES:
            return OTHER
        known.add(type_name)
        return type_name

    def worker_died(self, cause: str) -> None:
        """A worker is dead that was not asked to stop; `cause` is the kind of its report."""
        self._deaths[cause] += 1

    def committed(self, batch: CommitBatch, seconds: float | None) -> None:
        """A batch is durable; `seconds` is what its commit took, None when it had nothing to store."""
        if seconds is not None:
            self._commit_seconds.add(seconds)
            self._batch_events.add(len(batch.events))
            self._batch_writes.add(len(batch.writes))
        for command in batch.commands:
            if type(command) is RunStep and command.token.attempt > 1:
                head = batch.head(command.token.procedure)
                self.replayed += head is not None and command.token.attempt > head.record.errors + 1
        waiting, types = self._waiting, self._types
        for write in batch.writes:
            if type(write) is not PutProcedure:
                continue
            record, was = write.record, write.was
            name = record.type_name
            if name not in types:
                name = self._label(name)
            if was is None:
                self._submitted[name] += 1
            elif record.finished_at is not None and was.state is not record.state and record.state in TERMINAL:
                self._ended[name, record.state] += 1
            if not record.locked and record.ticket and record.finished_at is None:
                waiting.setdefault(record.id, record.updated_at)
            elif waiting and record.id in waiting:
                self._lock_waits.add(max(0.0, record.updated_at - waiting.pop(record.id)))

    # ------------------------------------------------------------ copies
    def deaths(self) -> dict[str, int]:
        """Deaths of workers by cause."""
        return dict(sorted(self._deaths.items()))

    def procedures(self) -> dict[str, ProcedureCounts]:
        """Counts by type."""
        ended = self._ended
        return {
            name: ProcedureCounts(
                submitted=self._submitted.get(name, 0),
                succeeded=ended.get((name, ProcedureState.SUCCESS), 0),
                failed=ended.get((name, ProcedureState.FAILED), 0),
                rolledback=ended.get((name, ProcedureState.ROLLEDBACK), 0),
            )
            for name in sorted({*self._submitted, *(name for name, _ in ended)})
        }

    def steps(self) -> dict[str, StepCounts]:
        """Counts and durations by type."""
        sums: dict[str, _Steps] = {}
        for (type_name, _), steps in self._steps.items():
            sums.setdefault(type_name, _Steps()).add(steps)
        return {name: steps.copy() for name, steps in sorted(sums.items())}

    def named_steps(self) -> dict[str, dict[str, StepCounts]]:
        """The same by type and name of the step, of those that have names; all further ones are `OTHER`."""
        sums: dict[tuple[str, str], _Steps] = {}
        for (type_name, name), steps in self._steps.items():
            if name is not None:
                sums.setdefault((OTHER, OTHER) if name == _FURTHER else (type_name, name), _Steps()).add(steps)
        found: dict[str, dict[str, StepCounts]] = {}
        for (type_name, name), steps in sorted(sums.items()):
            found.setdefault(type_name, {})[name] = steps.copy()
        return found

    def histograms(self) -> dict[str, Histogram]:
        """The histograms of commits and of waits for locks, by the names they have in `Metrics`."""
        return {
            "commit_seconds": self._commit_seconds.copy(),
            "batch_events": self._batch_events.copy(),
            "batch_writes": self._batch_writes.copy(),
            "lock_waits": self._lock_waits.copy(),
        }
