"""Read of a start: every unfinished tree, and the damage in the rest.

Only indexes and unfinished trees are read, so a start costs what is unfinished and not what ever ran. The
indexes are trusted as far as they agree with the heads and with each other in number. When they do not, every head is
read instead, and the disagreement is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from operator import attrgetter
from typing import Any

from actorproc.errors import StoreDamaged
from actorproc.model.rows.cold_trees import COLD_STATES, ColdTrees, is_alone, is_asleep, only_waits
from actorproc.model.rows.records import ProcedureRecord, UndoRecord
from actorproc.model.rows.snapshot import Damage, RecoverySnapshot
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.store.rows import codec
from actorproc.store.rows.keys import head_key, number_key, prefix
from actorproc.store.rows.layout import (
    AUDITS,
    BATCH,
    EPOCH,
    LARGEST,
    LAST_BATCH,
    NEXT_SEQ,
    PAUSED,
    STATE_INDEX,
    meta_of,
)
from actorproc.store.rows.tables import STATE_TABLES, Rows, Table

__all__ = ["read_number", "read_snapshot"]

_LIVE = [state for state in ProcedureState if state not in TERMINAL]
_AT_ONCE = 512
"""Rows looked up with one call."""
_ONE_PER_HEAD = ((Table.PROCEDURES,), (Table.ORDER,), (Table.MEMBERS,), STATE_TABLES)
"""Tables that have, together, one row for each procedure."""


def read_snapshot(rows: Rows, *, whole: bool) -> RecoverySnapshot:
    """The snapshot a start or a reopen begins with. Never raises for a damaged record.

    Without `whole` trees that only wait are not loaded (`RecoverySnapshot.cold`), unless anything is damaged: what is
    missing then must be known at once.
    """
    if not whole:
        snapshot = _read(rows, _Reader(rows, leaves_cold=True))
        if not snapshot.damage:
            return snapshot
    return _read(rows, _Reader(rows))


def _read(rows: Rows, reader: _Reader) -> RecoverySnapshot:
    heads = reader.live_heads()
    units: list[UndoRecord] = []
    if not rows.is_empty(Table.UNDO):
        for root in dict.fromkeys(head.root for head in heads):
            units.extend(reader.records(Table.UNDO, prefix(root)))
    last = next(rows.scan(Table.ORDER, after=number_key(LARGEST + 1), reverse=True), None)
    highest = max([int.from_bytes(last[0]) if last else 0, *(head.seq for head in heads if head.seq <= LARGEST)])
    return RecoverySnapshot(
        epoch=reader.number(EPOCH),
        next_seq=max(highest + 1, reader.number(NEXT_SEQ)),
        next_ticket=reader.ticket + 1,
        procedures=heads,
        units=units,
        locks=list(reader.records(Table.LOCKS)),
        poisons=list(reader.records(Table.POISON)),
        events=list(reader.records(Table.EVENTS)),
        starts=list(reader.records(Table.STARTS)),
        paused=reader.switch(PAUSED),
        audits=reader.last_audit(),
        batch=reader.number(BATCH),
        last_batch=reader.number(LAST_BATCH),
        acknowledgements=sorted(reader.records(Table.ACKNOWLEDGED), key=lambda row: (row.at, row.root)),
        removals=list(reader.records(Table.REMOVALS)),
        schedules=list(reader.records(Table.SCHEDULES)),
        cold=reader.cold,
        damage=list(reader.damage.values()),  # after all that is read
    )


def read_number(rows: Rows, key: bytes) -> int:
    """A number kept in `meta`; 0 when it was never stored."""
    value = rows.get(Table.META, key)
    return 0 if value is None else int(meta_of(key, value))


def _share(head: ProcedureRecord, texts: dict[str, str]) -> None:
    """Keep one object for equal values, of this head and of all: a tenth of each head saved."""
    head.root = head.id
    head.type_name = texts.setdefault(head.type_name, head.type_name)
    if head.step_name is not None:
        head.step_name = texts.setdefault(head.step_name, head.step_name)
        if head.unit is not None:
            head.unit = texts.setdefault(head.unit, head.unit)
    if head.updated_at == head.created_at:
        head.updated_at = head.created_at


class _Disagreement(Exception):
    """An index does not fit the heads."""


class _Reader:
    """Reads records of one snapshot and keeps a list of those that are damaged."""

    def __init__(self, rows: Rows, *, leaves_cold: bool = False) -> None:
        self._rows = rows
        self._leaves_cold = leaves_cold
        self.cold = ColdTrees()
        self.ticket = 0
        """The highest ticket of a lock request that was seen in a head."""
        self.damage: dict[tuple[str, str], Damage] = {}

    def records(self, table: Table, start: bytes = b"") -> Iterator[Any]:
        """All sound records under a prefix."""
        for key, value in self._rows.scan(table, start):
            try:
                yield codec.decode(table, key, value)
            except StoreDamaged as error:
                self._report(error)

    def number(self, key: bytes) -> int:
        """A number kept in `meta`; 0 when it is damaged or was never stored."""
        try:
            return read_number(self._rows, key)
        except StoreDamaged as error:
            self._report(error)
            return 0

    def switch(self, key: bytes) -> str | None:
        """A text kept in `meta`; one that is damaged counts as set, because what stands still does no harm."""
        value = self._rows.get(Table.META, key)
        try:
            return None if value is None else str(meta_of(key, value))
        except StoreDamaged as error:
            self._report(error)
            return f"its switch is damaged ({error.reason}); resume() sets it right"

    def last_audit(self) -> int:
        """Number of the manager's last audit row, also when the count beside it is damaged."""
        last = next(self._rows.scan(Table.AUDIT, prefix(""), reverse=True), None)
        return max(self.number(AUDITS), int.from_bytes(last[0][-8:]) if last else 0)

    def live_heads(self) -> list[ProcedureRecord]:
        """Every sound head of every tree in which something has not finished, in submit order."""
        try:
            heads = self._by_index()
        except _Disagreement:
            heads = self._by_reading_all()
        return sorted(heads, key=attrgetter("seq"))

    def _by_index(self) -> list[ProcedureRecord]:
        rows = self._rows
        if len({sum(map(rows.count, tables)) for tables in _ONE_PER_HEAD}) > 1:
            counts = ", ".join(
                " + ".join(f"{table.label} {rows.count(table)}" for table in tables) for tables in _ONE_PER_HEAD
            )
            self._disagree(Table.BY_STATE, b"", f"there should be one row per procedure in each index: {counts}")
        # Those that may run first: what their trees hold is loaded, also members that only wait.
        alone: dict[bytes, ProcedureRecord] = {}
        known: dict[bytes, ProcedureRecord | None] = {}
        families: dict[str, None] = {}
        texts: dict[str, str] = {}
        for state in _LIVE:
            if not self._leaves_cold or state not in COLD_STATES:
                for id_, head in self._in_state(state):
                    if head is not None and is_alone(head):
                        _share(head, texts)
                        alone[id_] = head
                    else:
                        known[id_] = head
                        if head is not None:
                            families[head.root] = None
        for id_ in map(head_key, families):
            if id_ in alone:
                known[id_] = alone.pop(id_)
        self._check_places(alone)
        heads = list(alone.values())
        for root in families:
            heads += self._members(root, known)
        if self._leaves_cold:
            heads += self._awake(lambda root: root in families or head_key(root) in alone)
        return heads

    def _in_state(self, state: ProcedureState) -> Iterator[tuple[bytes, ProcedureRecord | None]]:
        """Ids and heads of the procedures in a state, in submit order; None for a damaged one."""
        table, start = STATE_INDEX[state]
        for key, id_, value in self._rows.heads_of(table, start):
            head = self._sound(table, key, id_, value)
            if head is not None and head.state is not state:
                self._disagree(table, key, f"the procedure it points to is {head.state}")
            yield id_, head

    def _check_places(self, alone: Mapping[bytes, ProcedureRecord]) -> None:
        """Trees of one are not looked up by their root; their rows there are wanted later all the same."""
        heads = iter(alone.items())
        while some := list(islice(heads, _AT_ONCE)):
            expected = {prefix(head.root) + number_key(head.seq): id_ for id_, head in some}
            found = self._rows.get_many(Table.MEMBERS, list(expected))
            if found == expected:
                continue
            for key, id_ in expected.items():
                if found.get(key) != id_:
                    self._disagree(Table.MEMBERS, key, f"it does not point to {alone[id_].id}, which belongs there")

    def _members(self, root: str, known: dict[bytes, ProcedureRecord | None]) -> Iterator[ProcedureRecord]:
        """The sound heads of a tree, in submit order."""
        for key, id_, value in self._rows.heads_of(Table.MEMBERS, prefix(root)):
            member = known[id_] if id_ in known else self._sound(Table.MEMBERS, key, id_, value)
            if member is None:
                continue
            if key != prefix(member.root) + number_key(member.seq):
                self._disagree(Table.MEMBERS, key, f"it points to {member.id}, which belongs elsewhere")
            yield member

    def _awake(self, is_loaded: Callable[[str], bool]) -> Iterator[ProcedureRecord]:
        """Heads of trees without a member that may run, which are no cold trees all the same; the others are noted."""
        families: dict[str, None] = {}
        for state in COLD_STATES:
            for _, head in self._in_state(state):
                if head is None or is_loaded(head.root):
                    continue
                if not is_alone(head):
                    families[head.root] = None
                elif only_waits(head):
                    self.cold.note(head)
                else:
                    yield head
        for root in families:
            members = list(self._members(root, {}))
            if members and is_asleep(members):
                for member in members:
                    if member.state not in TERMINAL:
                        self.cold.note(member)
            else:
                yield from members

    def _by_reading_all(self) -> list[ProcedureRecord]:
        self.cold = ColdTrees()
        heads: list[ProcedureRecord] = []
        for key, value in self._rows.scan(Table.PROCEDURES):
            try:
                head = codec.decode(Table.PROCEDURES, key, value)
                if head_key(head.id) != key:
                    raise codec.damaged(Table.PROCEDURES, key, f"the record is that of {head.id}")
                heads.append(head)
            except StoreDamaged as error:
                self._report(error)
        live = {head.root for head in heads if head.state not in TERMINAL}
        self.ticket = max((head.ticket for head in heads if head.ticket <= LARGEST), default=0)
        return [head for head in heads if head.root in live]

    def _sound(self, table: Table, key: bytes, id_: bytes, value: bytes | None) -> ProcedureRecord | None:
        if value is None:
            self._disagree(table, key, "the procedure it points to is missing")
        else:
            try:
                head: ProcedureRecord = codec.decode(Table.PROCEDURES, id_, value)
            except StoreDamaged as error:
                self._report(error)
                return None
            if head.seq == int.from_bytes(key[-8:]):
                if self.ticket < head.ticket <= LARGEST:
                    self.ticket = head.ticket
                return head
            self._disagree(table, key, f"the procedure it points to has the number {head.seq}")
        return None

    def _disagree(self, table: Table, key: bytes, reason: str) -> None:
        self._report(codec.damaged(table, key, reason))
        raise _Disagreement(reason)

    def _report(self, error: StoreDamaged) -> None:
        self.damage[error.table, error.key] = Damage(error.table, error.key, error.reason)
