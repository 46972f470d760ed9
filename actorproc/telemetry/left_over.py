"""Spans of commits that an earlier manager had stored and not given to the SDK when it was killed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from msgspec.structs import replace

from actorproc.model.rows.records import AttemptRecord, ProcedureRecord, StepKind, StepRecord, Trace, UndoRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.telemetry.mark import Marked
from actorproc.telemetry.spans import (
    SpanFacts,
    attempt_facts,
    ended_attempt,
    failed_attempt,
    lost_facts,
    procedure_facts,
)
from actorproc.telemetry.timeline import trace_of

__all__ = ["StoredWork", "left_over"]

_MOST = 1000
"""Ended roots that are looked at, the last ones first."""
_GAP = 64
"""Numbers without a record at most between two records: such steps needed none."""


class StoredWork(Protocol):
    """Part of a store that tells what was done."""

    def tree(self, root: str) -> tuple[list[ProcedureRecord], list[UndoRecord]]:
        """Heads of a tree, and what is to be undone in it."""
        ...

    def step(self, id: str, number: int) -> StepRecord | None:
        """One record of the step log."""
        ...

    def attempts(self, id: str, step: int | None = None) -> list[AttemptRecord]:
        """Failed attempts of a procedure."""
        ...

    def finished(self, *, limit: int | None = None, reverse: bool = False) -> list[tuple[str, float]]:
        """Finished roots, and when they did."""
        ...


def left_over(store: StoredWork, heads: Iterable[ProcedureRecord], marked: Marked) -> list[SpanFacts]:
    """The spans of what the manager of the mark has stored after it.

    Procedures that went on under a later manager are left out: that one, on another machine, had a mark of its own.

    Args:
        store: The store, which is not written to meanwhile.
        heads: Heads of all trees that go on.
        marked: Up to where spans were given to the SDK.

    Returns:
        The spans.
    """
    found: list[SpanFacts] = []
    mark = marked.at
    for record in (*heads, *_ended_roots(store, mark)):
        trace = trace_of(record)
        if trace is None or record.updated_at <= mark or record.epoch > marked.epoch:
            continue
        found += _attempts(store, record, trace, mark)
        ended = _first_end(store, record)
        if ended is not None and ended.finished_at is not None and ended.finished_at > mark:
            found.append(procedure_facts(ended, trace, ended.finished_at, ended=True))
    return found


def _first_end(store: StoredWork, record: ProcedureRecord) -> ProcedureRecord | None:
    """The head as it was when its run ended, as a child that succeeded may be undone later; None: it has not ended."""
    if record.state not in TERMINAL:
        return None
    if record.state is ProcedureState.SUCCESS or record.parent is None or not record.undone:
        return record
    for number in range(record.records, max(1, record.records - _GAP), -1):
        step = store.step(record.id, number)
        if step is not None and step.kind is StepKind.COMMIT:
            return replace(record, state=ProcedureState.SUCCESS, finished_at=step.at, error=None)
    return record


def _ended_roots(store: StoredWork, mark: float) -> Iterator[ProcedureRecord]:
    for name, at in store.finished(limit=_MOST, reverse=True):
        if at <= mark:
            return
        yield from store.tree(name)[0]


def _attempts(store: StoredWork, record: ProcedureRecord, trace: Trace, mark: float) -> Iterator[SpanFacts]:
    for failed in store.attempts(record.id):
        if failed.ended_at > mark and failed.run == record.run:
            yield attempt_facts(
                record,
                trace,
                failed_attempt(failed),
                name=failed.error.step_name,
                start=failed.started_at,
                end=failed.ended_at,
                pid=failed.pid,
                error=failed.error,
                more=lost_facts(failed),
            )
    for step, number, name in _steps(store, record, mark):
        yield attempt_facts(
            record,
            trace,
            ended_attempt(step, number),
            name=name,
            start=step.at - step.elapsed,
            end=step.at,
            pid=step.pid,
            error=step.error,
            more={"actorproc.step.outcome": step.outcome},
        )


def _steps(store: StoredWork, record: ProcedureRecord, mark: float) -> Iterator[tuple[StepRecord, int, str | None]]:
    """Records after the mark of steps that workers ended, with number and name of each step, the last ones first."""
    number, position, missing = record.records, record.step, 0
    while number > 1 and missing <= _GAP:
        step = store.step(record.id, number)
        if step is None:
            number, missing = number - 1, missing + 1
            continue
        if step.at <= mark or step.outcome == "again":  # before that it was another generation
            return
        missing = 0
        if step.kind is StepKind.ROLLBACK:
            if step.slot >= 0:
                yield step, step.number, step.label
            number -= 1
            continue
        position -= step.steps
        number -= step.steps
        before = store.step(record.id, number)
        if step.slot >= 0 and step.outcome != "placed":
            yield step, position, None if before is None else before.step_name
