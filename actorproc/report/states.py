"""Stored states as people see them: decoded without the user's classes, secrets masked, sizes bounded."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from actorproc.errors import UnknownStep
from actorproc.model.messages.definitions import CALL_TYPE
from actorproc.model.names import LAST_HEARTBEAT
from actorproc.model.plain import plain_dict
from actorproc.model.rows.records import NoteRecord, ProcedureRecord, StepKind, StepRecord
from actorproc.procedure.values.viewing import ShownValue, differences, viewed, viewed_state

__all__ = [
    "OUTPUT",
    "POSITION",
    "StateChange",
    "StateInfo",
    "changes_between",
    "missing_record",
    "state_info_of",
    "state_infos_of",
    "state_of",
]


POSITION = "(position)"
"""Stands for the place of a saga or a machine among the paths of its fields."""

OUTPUT = "(output)"
"""Stands for the output among the paths of the fields."""


class StateChange(msgspec.Struct, frozen=True, kw_only=True):
    """One place where two states differ."""

    path: str
    """The field, with keys and places within it: ``order.items[3].price``."""
    before: str | None
    """The value in one line; None: it is not there."""
    after: str | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class StateInfo(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of one record of a step log: the state from which the next step runs, or the output at the end."""

    procedure: str
    number: int
    """Number of the record."""
    kind: StepKind
    at: float
    """Time of the decision on the record, in epoch seconds."""
    outcome: str
    """Result of the step that ended with this record."""
    position: str
    """Name of the step at which a saga or a machine stands; "": it has none."""
    type_name: str
    version: int
    """Version of the class that dumped the state."""
    codec: str
    size: int
    """Bytes of the state and the output."""
    state: ShownValue | None
    """None: the record has no state, and `missing` says why."""
    output: ShownValue | None
    """Of the closing record of a procedure that succeeded."""
    notes: tuple[tuple[str, ShownValue], ...]
    """Values that `ctx.remember` keeps of the step that runs from here."""
    changed: tuple[str, ...]
    """Fields that differ from the state before, each once."""
    missing: str
    """Reason in words why there is no state; "": there is one."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold, in the order of the fields; values as JSON writes them."""
        shown: dict[str, Any] = {name: getattr(self, name) for name in self.__struct_fields__}
        shown["kind"] = self.kind.name.lower()
        shown["state"] = None if self.state is None else self.state.plain()
        shown["output"] = None if self.output is None else self.output.plain()
        shown["notes"] = {name: value.plain() for name, value in self.notes}
        shown["changed"] = list(self.changed)
        return shown


def state_infos_of(head: ProcedureRecord, records: Sequence[StepRecord]) -> list[StateInfo]:
    """The states of a step log, in order, each with the fields that changed since the state before."""
    found: list[StateInfo] = []
    last: StateInfo | None = None
    for record in records:
        now = state_info_of(head, record, before=last)
        found.append(now)
        last = now if now.state is not None else last
    return found


def state_info_of(
    head: ProcedureRecord,
    record: StepRecord,
    *,
    before: StateInfo | None = None,
    notes: Sequence[NoteRecord] = (),
) -> StateInfo:
    """The public view of a record."""
    position, state = viewed_state(record.state, record.codec) if record.state else ("", None)
    changed: tuple[str, ...] = ()
    if before is not None and state is not None and before.state is not None:
        changed = tuple(dict.fromkeys(_field_of(path) for path, _, _ in differences(before.state, state)))
    return StateInfo(
        procedure=record.procedure,
        number=record.number,
        kind=record.kind,
        at=record.at,
        outcome=record.outcome,
        position=position,
        type_name=head.type_name,
        version=record.version,
        codec=record.codec,
        size=len(record.state) + len(record.output),
        state=state,
        output=_viewed_output(head, record) if record.output else None,
        notes=tuple(_viewed_note(note) for note in notes),
        changed=changed,
        missing="" if state is not None else _why_none(record),
    )


def _viewed_note(note: NoteRecord) -> tuple[str, ShownValue]:
    shown = viewed(note.value)
    if LAST_HEARTBEAT not in note.key or len(shown.items) < 3:
        return note.key, shown
    return note.key.replace(LAST_HEARTBEAT, "last heartbeat ").strip(), shown.items[2][1]  # the newest details


def _viewed_output(head: ProcedureRecord, record: StepRecord) -> ShownValue:
    # A call's output is a signed pickle inside of bytes, as its state is.
    return viewed(record.output, "pickle" if head.type_name == CALL_TYPE else "data")


def state_of(
    head: ProcedureRecord,
    records: Sequence[StepRecord],
    step: int | None,
    notes: Callable[[str, int], Sequence[NoteRecord]],
) -> StateInfo:
    """The state of a record, or the newest one. Raises `UnknownStep` in words."""
    number = step
    if number is None:
        number = next((record.number for record in reversed(records) if record.state), head.records)
    elif isinstance(step, bool) or not isinstance(step, int):
        msg = f"state(step=…) is the number of a record, not {step!r:.60}"
        raise TypeError(msg)
    place = next((place for place, record in enumerate(records) if record.number == number), None)
    if place is None:
        raise UnknownStep(missing_record(head, number, records))
    earlier = next((record for record in reversed(records[:place]) if record.state), None)
    before = None if earlier is None else state_info_of(head, earlier)
    return state_info_of(head, records[place], before=before, notes=notes(head.id, number))


def changes_between(before: StateInfo, after: StateInfo) -> list[StateChange]:
    """The places where two states of one procedure differ."""
    return list(_changes_between(before, after))


def _changes_between(before: StateInfo, after: StateInfo) -> Iterator[StateChange]:
    if before.position != after.position:
        yield StateChange(path=POSITION, before=before.position or None, after=after.position or None)
    if before.state is not None and after.state is not None:
        for path, old, new in differences(before.state, after.state):
            yield StateChange(path=path, before=old, after=new)
    if before.output != after.output:
        old, new = (None if shown is None else shown.inline() for shown in (before.output, after.output))
        yield StateChange(path=OUTPUT, before=old, after=new)


def missing_record(head: ProcedureRecord, number: int, records: Sequence[StepRecord]) -> str:
    """The reason in words why there is no record of this number."""
    if 1 < number <= head.trimmed:
        return (
            f"record {number} of {head.id} was trimmed (keep_steps): records 2 to {head.trimmed} are gone; "
            f"the first one and those from {head.trimmed + 1} on are left"
        )
    later = next((record for record in records if record.number > number), None)
    if later is not None and number >= 1:
        return (
            f"step {number} of {head.id} needed no record of its own (persist=False); record {later.number} "
            "has the state after it"
        )
    return f"{head.id} has no record {number}: its records end with {records[-1].number if records else 0}"


def _field_of(path: str) -> str:
    """The first name of a path."""
    return path.partition(".")[0].partition("[")[0]


def _why_none(record: StepRecord) -> str:
    if record.kind is StepKind.COMMIT:
        return "the end: it has the output, and the record before has the last state"
    if record.kind is StepKind.ROLLBACK:
        return "the record closes a rollback, without a state of its own"
    return "the state of a long call is dropped at its good end"
