"""Check of counted rows: everything a head counts is there, and nothing that it does not know of.

A row that is gone leaves no checksum behind, and a head of yesterday is as sound as the one of today. But a head
counts the records of its step log, its children, and the requests of operators, and names its locks and undo units. So
numbers show what is missing.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from actorproc.errors import StoreDamaged
from actorproc.model.rows.records import ProcedureRecord, StepRecord
from actorproc.model.states import TERMINAL
from actorproc.store.rows import codec
from actorproc.store.rows.keys import head_key, number_key, owner_of, prefix, text_key
from actorproc.store.rows.layout import AUDITS, KEPT_AUDITS, meta_of
from actorproc.store.rows.step_log import in_pages, read_log
from actorproc.store.rows.tables import Rows, Table

__all__ = ["RowCounts"]


class RowCounts:
    """Compares the heads of a store with the rows that belong to them.

    First the sums: only when these differ, or a row in one is damaged, is it looked for where.
    """

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._counted = dict.fromkeys((Table.STEPS, Table.CHILDREN, Table.AUDIT, Table.UNDO), 0)
        """Totals of all heads."""
        self._steps = 0
        """For how many steps the records of all logs stand."""
        self._doubtful: set[Table] = set()
        """Tables with a row that cannot be read: it counts in the sum, and may be missed where it belongs."""

    def add_head(self, head: ProcedureRecord) -> Iterator[StoreDamaged]:
        """One head of all; which of its locks and undo units are missing."""
        self._counted[Table.STEPS] += head.records - max(0, head.trimmed - 1)
        self._counted[Table.CHILDREN] += head.children
        self._counted[Table.AUDIT] += head.audits
        if head.state not in TERMINAL:
            if head.parent is None:
                self._counted[Table.UNDO] += head.undo_next - 1
                if head.undo_next > 1:
                    yield from self._units(head)
            if head.locks:
                yield from self._locks(head)

    def add_step(self, record: StepRecord) -> None:
        """One sound record of all step logs."""
        self._steps += record.steps

    def add_unreadable(self, table: Table) -> None:
        """A row that is damaged, and may stand under a key that is not its own."""
        if table in (Table.CHILDREN, Table.AUDIT):
            self._doubtful.add(table)

    def differences(self) -> Iterator[tuple[str, StoreDamaged]]:
        """Owners whose numbers do not fit, and how. Once all heads and records of step logs were added."""
        found = {table: self._rows.count(table) for table in self._counted}
        found[Table.STEPS] = self._steps
        found[Table.AUDIT] -= self._count(Table.AUDIT, "")
        differing = {table for table, number in found.items() if number != self._counted[table]} | self._doubtful
        if not differing:
            return
        for key, _ in self._rows.scan(Table.PROCEDURES):
            try:
                head = self._head(key)
            except StoreDamaged:
                continue  # told of already
            if head is not None and head_key(head.id) == key:
                for error in self._compare(head, differing):
                    yield head.id, error
        if Table.STEPS in differing:
            yield from self._newer_steps()

    def _compare(self, head: ProcedureRecord, differing: set[Table]) -> Iterator[StoreDamaged]:
        """Of its step log the last record that cannot be read, and its other rows by number."""
        if Table.STEPS in differing:
            try:
                for _ in read_log(
                    in_pages(partial(self._rows.get_many, Table.STEPS), head.id), head.id, head.records, head.trimmed
                ):
                    pass
            except StoreDamaged as error:
                yield error
        if Table.UNDO in differing and head.undo_next == 1 and head.parent is None and head.state not in TERMINAL:
            yield from self._units(head)
        for table, wanted in ((Table.CHILDREN, head.children), (Table.AUDIT, head.audits)):
            if table not in differing:
                continue
            found = self._count(table, head.id)
            if found < wanted:
                yield codec.damaged(table, prefix(head.id), f"there are {found} rows, and its head counts {wanted}")
            elif found > wanted:
                yield _older(head.id, f"it counts {wanted} rows of {table.label}, and there are {found}")

    def _newer_steps(self) -> Iterator[tuple[str, StoreDamaged]]:
        for key, _ in self._rows.scan(Table.STEPS):
            try:
                head = self._head(owner_of(Table.STEPS, key))
            except StoreDamaged:
                continue
            if head is not None and int.from_bytes(key[:8]) > head.records:
                yield head.id, _older(head.id, f"{codec.show_key(Table.STEPS, key)} of its step log is newer")

    def manager_audit(self) -> StoreDamaged | None:
        """Error of the manager's own audit rows that do not fit their count."""
        value = self._rows.get(Table.META, AUDITS)
        wanted = 0 if value is None else int(meta_of(AUDITS, value))
        found = self._count(Table.AUDIT, "")
        if min(wanted, KEPT_AUDITS) <= found <= wanted:  # a store of an earlier version has them all
            return None
        return codec.damaged(Table.META, AUDITS, f"there are {found} rows about the manager, and it counts {wanted}")

    def _count(self, table: Table, name: str) -> int:
        return sum(1 for _ in self._rows.scan(table, prefix(name)))

    def _head(self, key: bytes) -> ProcedureRecord | None:
        value = self._rows.get(Table.PROCEDURES, key)
        return None if value is None else codec.decode(Table.PROCEDURES, key, value)

    def _units(self, root: ProcedureRecord) -> Iterator[StoreDamaged]:
        """Units leave only by being undone, so before the first undo there is one for each number given."""
        keys = [key for key, _ in self._rows.scan(Table.UNDO, prefix(root.id))]
        if keys and keys[-1] >= prefix(root.id) + number_key(root.undo_next):
            yield _older(root.id, "an undo unit is newer")
        elif len(keys) != root.undo_next - 1 and not self._was_undone(root):
            reason = f"{root.undo_next - 1 - len(keys)} of its {root.undo_next - 1} undo units are missing"
            yield codec.damaged(Table.PROCEDURES, head_key(root.id), reason)

    def _was_undone(self, root: ProcedureRecord) -> bool:
        try:
            members = [self._head(id_) for _, id_ in self._rows.scan(Table.MEMBERS, prefix(root.id))]
        except StoreDamaged:
            return True  # told of already
        return any(
            member is None
            or member.undone
            or member.rolling
            or member.failing
            or member.bypassed
            or member.run > 1
            or member.reverted
            or not member.undo_children
            for member in members
        )

    def _locks(self, head: ProcedureRecord) -> Iterator[StoreDamaged]:
        """Check that a holder of keys has a row for each, until it fails or ends."""
        if not head.locked or head.rolling or head.run > 1 or head.retaking or head.lock_scope != "procedure":
            return
        for wanted in head.locks:
            key = text_key(wanted.path) + b"\0" + head_key(head.id)
            value = self._rows.get(Table.LOCKS, key)
            if value is None:
                yield codec.damaged(Table.LOCKS, key, "the row is missing, and its holder was given it")


def _older(name: str, reason: str) -> StoreDamaged:
    return codec.damaged(Table.PROCEDURES, head_key(name), f"it is an older one: {reason}")
