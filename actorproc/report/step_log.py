"""The step log as people see it: one row for each record, under the path it has in GreptimeDB's Procedure RFC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from actorproc.model.ids import Mode
from actorproc.model.plain import plain_dict
from actorproc.model.rows.records import AttemptRecord, ErrorInfo, ProcedureRecord, StepKind, StepRecord
from actorproc.report.info import as_text

__all__ = ["AttemptInfo", "StepInfo", "attempt_info_of", "step_infos_of"]

_BYTES = {"state", "output", "event"}
AttemptMode = Literal["execute", "rollback", "on_timeout"]
_MODES: dict[Mode, AttemptMode] = {Mode.ROLLBACK: "rollback", Mode.ON_TIMEOUT: "on_timeout"}


class StepInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One record of a step log; times in epoch seconds (UTC), sizes in bytes.

    A ``.step`` record n holds the state from which step n runs. The facts of a run (`started_at`, `elapsed`, worker,
    attempts, `outcome`) are about the step that ended with this record. The first record, written by the submit, has
    none.
    """

    path: str
    """``/procedures/{id}/000001.step``, ``.commit`` or ``.rollback``."""
    procedure: str
    number: int
    generation: int
    """Generation of the procedure to which the record belongs, from 1: `Status.again` and restarts begin new ones."""
    kind: StepKind
    at: float
    """Time of the decision on the record."""
    started_at: float | None
    """Time at which the step began, its last attempt; None when no step ended here."""
    finished_at: float | None
    elapsed: float | None
    """Seconds it took in its worker: its state was loaded, if the worker did not have it, and it ran."""
    outcome: str
    """Result of the step: submitted, executing, suspended, sleep, wait, done, failed, undone …"""
    step_name: str | None
    """Name of the step that ended with this record, or the label of what was undone; None: it has a number only."""
    next_name: str | None
    """Name of the step that runs from this record; None: it has a number only, or none follows."""
    label: str | None
    """The undo unit that was undone, or that the next step belongs to."""
    attempts: int
    """Attempts it took."""
    slot: int
    """Worker slot; -1: no worker."""
    incarnation: int
    pid: int | None
    """Process of that worker; None when it is not known."""
    state_bytes: int
    output_bytes: int
    codec: str
    version: int
    awaits: str | None
    """Name of the event that the procedure waits for from this record on; None: for none."""
    event_bytes: int | None
    """Size of `event`; None when the step had waited for no event."""
    error: ErrorInfo | None
    crash: ErrorInfo | None
    """The last death of a worker in an earlier attempt of the step; `ErrorInfo.crash` is its report."""
    state: bytes
    """Result of `dump`."""
    output: bytes
    """Of a ``.commit``: the encoded output."""
    event: bytes
    """Payload of the event that woke the step which ended with this record, encoded; `decode_value` reads it."""

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        """Fields for people: of states and outputs there are the sizes."""
        return [(name, getattr(self, name)) for name in self.__struct_fields__ if name not in _BYTES]

    def __repr__(self) -> str:
        return f"StepInfo({', '.join(f'{name}={value!r}' for name, value in self.__rich_repr__())})"

    @property
    def duration(self) -> float | None:
        """The same as `elapsed`."""
        return self.elapsed

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in this order of fields: the kind by name, without states and payloads."""
        return plain_dict(self)


class AttemptInfo(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of a step that did not succeed; times in epoch seconds (UTC)."""

    procedure: str
    step: int
    """Number of the step; of an undo, the number that its record gets."""
    step_name: str | None
    """Name of the step, or label of the undo; None: it has a number only."""
    mode: AttemptMode
    attempt: int
    run: int
    """Run of the procedure, from 1: a retry of a failed procedure begins another one."""
    started_at: float
    ended_at: float
    slot: int
    incarnation: int
    pid: int | None
    """Process of the worker; None when it is not known."""
    error: ErrorInfo
    """The error, or the words of the worker's death; `ErrorInfo.crash` is its report."""

    @property
    def duration(self) -> float:
        """Seconds that it ran, as far as known."""
        return self.ended_at - self.started_at

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in this order of fields."""
        return plain_dict(self)


def attempt_info_of(record: AttemptRecord) -> AttemptInfo:
    """The public view of a failed attempt."""
    return AttemptInfo(
        procedure=record.procedure,
        step=record.step,
        step_name=record.error.step_name or None,
        mode=_MODES.get(record.mode, "execute"),
        attempt=record.attempt,
        run=record.run,
        started_at=record.started_at,
        ended_at=record.ended_at,
        slot=record.slot,
        incarnation=record.incarnation,
        pid=record.pid or None,
        error=record.error,
    )


def step_infos_of(head: ProcedureRecord, records: Sequence[StepRecord]) -> list[StepInfo]:
    """The public view of a step log, in order; `head` was stored with the newest of the records."""
    found = []
    generation = head.generation
    names = {record.number: record.step_name for record in records}
    for record in reversed(records):
        # Records between the first one and those that are left may be trimmed, and beginnings of generations with them.
        step = record.label if record.kind is StepKind.ROLLBACK else names.get(record.number - 1)
        found.append(_step_info_of(record, head.first_generation if record.number == 1 else generation, step or None))
        generation -= record.outcome == "again"
    return found[::-1]


def _step_info_of(record: StepRecord, generation: int, step_name: str | None) -> StepInfo:
    """The public view of a record of the step log."""
    is_run = record.slot >= 0
    return StepInfo(
        path=f"/procedures/{record.procedure}/{record.number:06d}.{record.kind.name.lower()}",
        procedure=record.procedure,
        number=record.number,
        generation=generation,
        kind=record.kind,
        at=record.at,
        started_at=record.at - record.elapsed if is_run else None,
        finished_at=record.at if is_run else None,
        elapsed=record.elapsed if is_run else None,
        outcome=record.outcome,
        step_name=step_name,
        next_name=record.step_name,
        label=record.label,
        attempts=record.attempts,
        slot=record.slot,
        incarnation=record.incarnation,
        pid=record.pid or None,
        state_bytes=len(record.state),
        output_bytes=len(record.output),
        codec=record.codec,
        version=record.version,
        awaits=record.awaits,
        event_bytes=None if record.event is None else len(record.event),
        error=as_text(record.error),
        crash=as_text(record.crash),
        state=record.state,
        output=record.output,
        event=record.event or b"",
    )
