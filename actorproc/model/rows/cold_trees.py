"""Trees that nothing can move but a time, a signal or an operator: what memory must know of them, and no more.

A million sleepers are a million entries here and not a million objects: an entry of a timer is one `bytes` object that
sorts as its time does.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import msgspec

from actorproc.model.rows.record_parts import Debounce
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = [
    "COLD_STATES",
    "ColdTrees",
    "debounce_of",
    "due_key",
    "is_alone",
    "is_asleep",
    "is_debounced",
    "named_by",
    "only_waits",
    "time_of",
]

COLD_STATES = frozenset({ProcedureState.WAITING, ProcedureState.WAITING_TIMEOUT})
_pack = struct.Struct(">d").pack
_unpack = struct.Struct(">d").unpack_from


def due_key(at: float, procedure: str) -> bytes:
    """One timer as bytes, which sort by time; a time before 1970 counts as 1970."""
    # The bytes of a double that is not negative, the highest first, sort as the numbers do.
    return _pack(at if at > 0 else 0.0) + procedure.encode()


def time_of(key: bytes) -> float:
    """Time at which a timer goes off, in epoch seconds."""
    at: float = _unpack(key)[0]
    return at


def named_by(key: bytes) -> str:
    """Procedure that a timer belongs to."""
    return key[8:].decode()


class ColdTrees(msgspec.Struct):
    """Facts that a start must know of the cold trees that it does not load."""

    procedures: int = 0
    """Members that have not ended."""
    roots: int = 0
    """Roots that have not ended."""
    due: list[bytes] = msgspec.field(default_factory=list)
    """Timers of waits and deadlines, as `due_key` makes them."""
    listeners: list[tuple[int, str, str]] = msgspec.field(default_factory=list)
    """Procedures that wait for events: submit number, event, procedure."""
    admitted: list[ProcedureRecord] = msgspec.field(default_factory=list)
    """Heads that hold places of limits."""

    def note(self, record: ProcedureRecord) -> None:
        """Add a member that has not ended."""
        self.procedures += 1
        self.roots += record.parent is None
        for at in (record.due_at, record.deadline):
            if at is not None:
                self.due.append(due_key(at, record.id))
        if record.event is not None:
            self.listeners.append((record.seq, record.event, record.id))
        if record.admitted:
            self.admitted.append(record)


def is_alone(record: ProcedureRecord) -> bool:
    """It is a tree by itself."""
    return record.parent is None and not record.children and record.root == record.id


def is_asleep(members: Sequence[ProcedureRecord]) -> bool:
    """True if a whole tree can be left in the store at a start; in doubt it is loaded, and leaves memory again.

    `members` are all heads that were found, in submit order.
    """
    found = {record.id: 0 for record in members}
    for record in members:
        if not only_waits(record) and (record.state not in TERMINAL or record.undoing):
            return False
        if record.parent is not None:
            if record.parent not in found:
                return False
            found[record.parent] += 1
    return members[0].parent is None and all(found[record.id] == record.children for record in members)


def debounce_of(record: ProcedureRecord) -> Debounce | None:
    """The debounce of a root, whether it waits still or not; None: it was submitted without one."""
    return None if record.past is None else record.past.debounce


def is_debounced(record: ProcedureRecord) -> bool:
    """True if it waits for further submits of its key, one of which would take its place."""
    mark = debounce_of(record)
    if mark is None or not mark.waits:
        return False
    is_unbegun = record.state is ProcedureState.RUNNABLE and record.run == 1 and record.due_at is not None
    return is_unbegun and not (record.rolling or record.aborting or record.bypassing)


def only_waits(record: ProcedureRecord) -> bool:
    """It waits, and no request to it is still to be carried out."""
    return record.state in COLD_STATES and not (
        record.aborting
        or record.failing
        or record.undoing
        or record.rolling
        or record.bypassing
        or record.ending
        or record.retaking
        or record.parked is not None
        or (record.pending and record.started < record.width)
    )
