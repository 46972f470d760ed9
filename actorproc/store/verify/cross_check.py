"""Every record against its checksum, and every index row against the head it belongs to.

Done when there was reason to look at each page of the file (`actorproc.store.lmdb.page_check`). Index rows have no
checksum, for they can be made again: the owner sets right those that do not fit, and a mere reader refuses. A record
cannot be made again; what it belonged to stands still. A damaged row may stand under a damaged key, so its contents are
asked too whose it was.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from pathlib import Path
from typing import TypeVar

import msgspec

from actorproc.errors import StoreDamaged
from actorproc.model.ids import new_id
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.snapshot import Damage, RecoverySnapshot
from actorproc.store.directory import damaged_pages
from actorproc.store.rows import codec
from actorproc.store.rows.keys import head_key, owner_of, time_key
from actorproc.store.rows.layout import EPOCH, STORE_ID, Row, index_rows, key_of, meta_of
from actorproc.store.rows.tables import INDEXES, STATE_TABLES, Rows, Table
from actorproc.store.verify.belongs_to import BELONGS, exists, names_in, neighbours_of, owners_of, with_gaps
from actorproc.store.verify.counts import RowCounts
from actorproc.store.verify.key_order import check_place, is_a_copy, is_sound

__all__ = ["Findings", "cross_check"]

_R = TypeVar("_R")
_OTHERS = (
    Table.ATTEMPTS,
    Table.EXPOSED,
    Table.REPLIES,
    Table.AUDIT,
    Table.POISON,
    Table.STARTS,
    Table.ACKNOWLEDGED,
    Table.REMOVALS,
    Table.SCHEDULES,
    Table.ENQUEUED,
)
_NUMBER = 8
"""Bytes of a number in a key."""
_BY_SEQ = {*STATE_TABLES, Table.BY_TYPE, Table.BY_TAG}
"""Indexes whose keys end in the place of the procedure in the order of submits."""
_HEAD_OF = {Table.TIMERS, Table.FINISHED}
"""Indexes whose values name the root; the procedure itself is in the key."""


class Findings(msgspec.Struct):
    """Errors in the rows of a store."""

    damage: dict[tuple[str, str], Damage] = msgspec.field(default_factory=dict)
    """By table and key."""
    halted: dict[str, str] = msgspec.field(default_factory=dict)
    """Procedures that lack a record of theirs, and which."""
    lost: list[str] = msgspec.field(default_factory=list)
    """Rows of records that are there, and that a search by their key does not find, in words."""
    unseen: list[str] = msgspec.field(default_factory=list)
    """Misfiled rows, in words. No look-up by key finds them, so only this scan reports them."""
    gaps: list[StoreDamaged] = msgspec.field(default_factory=list)
    """The first record of each step log, from its end, that cannot be read."""
    mended: list[Row] = msgspec.field(default_factory=list)
    """Writes that set right numbers of the store."""
    rebuilt: dict[Table, dict[bytes, bytes]] = msgspec.field(default_factory=dict)
    """Right contents of index tables that do not have them."""

    def raise_lost(self, path: Path) -> None:
        """Raise `StoreDamaged` when searches go astray: a write to such a file makes it worse."""
        if self.lost:
            raise damaged_pages(path, f"a search does not find what is there: {self.lost[0]}")

    def raise_unseen(self, path: Path) -> None:
        """Raise `StoreDamaged` when a reader would miss something without being told."""
        self.raise_lost(path)
        if self.unseen:
            more = f" (and {len(self.unseen) - 1} more)" if len(self.unseen) > 1 else ""
            raise StoreDamaged(
                f"rows of the store {path} are not where they belong: {self.unseen[0]}{more}. A manager that starts on "
                f"it sets right what can be, and tells the rest; or look with: actorproc --path {path} doctor",
                reason=self.unseen[0],
            )

    def tell(self, snapshot: RecoverySnapshot) -> RecoverySnapshot:
        """Add to what a start was told: what is damaged, and that those who lack a record stand still."""
        known = {(found.table, found.key) for found in snapshot.damage}
        snapshot.damage += [found for place, found in self.damage.items() if place not in known]
        for name, reason in self.halted.items():
            if ("procedures", name) not in known:
                snapshot.damage.append(Damage("procedures", name, reason))
        snapshot.procedures = [head for head in snapshot.procedures if head.id not in self.halted]
        if self.damage:
            snapshot.locks = self._sound(Table.LOCKS, snapshot.locks)
            snapshot.poisons = self._sound(Table.POISON, snapshot.poisons)
            snapshot.events = self._sound(Table.EVENTS, snapshot.events)
            snapshot.starts = self._sound(Table.STARTS, snapshot.starts)
            snapshot.schedules = self._sound(Table.SCHEDULES, snapshot.schedules)
        return snapshot

    def _sound(self, table: Table, records: list[_R]) -> list[_R]:
        """Records that are not damaged: a checksum that is right does not make a record right."""
        return [one for one in records if (table.label, codec.show_key(table, key_of(table, one))) not in self.damage]


def cross_check(rows: Rows) -> Findings:
    """Read everything once; changes nothing."""
    found = Findings()
    counts = RowCounts(rows)
    gaps = cache(lambda: with_gaps(rows))  # the same for every row that asks, and all logs are read for it
    heads = _check_heads(rows, found, counts)
    for table in (*BELONGS, *_OTHERS):
        for key, value in rows.scan(table):
            _search(rows, found, table, key)
            try:
                record = codec.decode(table, key, value)
                check_place(table, key, record)
                if table is Table.STEPS:
                    counts.add_step(record)
            except StoreDamaged as error:
                _note(found, error)
                counts.add_unreadable(table)
                _look_for_place(rows, found, table, key, value, error)
                reason = f"{error.table} {error.key}: {error.reason}"
                if is_a_copy(rows, table, value):  # whose it says it is lacks nothing
                    owners = [name for name in owners_of(table, key, b"") if exists(rows, name)]
                else:
                    _note_right_place(rows, found, table, value, error)
                    owners = [name for name in owners_of(table, key, value) if exists(rows, name)]
                    owners = owners or neighbours_of(rows, table, key, gaps)
                for name in owners:
                    found.halted.setdefault(name, reason)
    for name, lacking in counts.differences():
        _note_count(found, name, lacking)
    _check_meta(rows, found, heads)
    return found


def _search(rows: Rows, found: Findings, table: Table, key: bytes) -> None:
    """Look for a row that a scan has met: a page above it may lead a search for its key astray."""
    if rows.get(table, key) is None:
        found.lost.append(f"{table.label} {key.decode('utf-8', 'backslashreplace')!r}")


def _check_heads(rows: Rows, found: Findings, counts: RowCounts) -> tuple[int, int]:
    """Heads and their index rows; how many there are, and the highest life of a manager that one of them names."""
    fitting = dict.fromkeys(INDEXES, 0)
    missing: list[Row] = []
    count = epoch = 0
    seq_of = lru_cache(maxsize=1024)(lambda name: _seq_of(rows, name))
    for key, value in rows.scan(Table.PROCEDURES):
        count += 1
        head = _check_head(rows, found, key, value, seq_of)
        if head is None:
            continue
        epoch = max(epoch, head.epoch)
        for lacking in counts.add_head(head):
            _note_count(found, head.id, lacking)
        for row in index_rows(head):
            table, place, wanted = row
            if rows.get(table, place) == wanted:
                fitting[table] += 1
            else:
                missing.append(row)
    for table, place, _ in missing:
        reason = "the row is missing or points elsewhere; a start makes it again"
        _note_index(found, codec.damaged(table, place, reason))
    wrong = {table for table in INDEXES if fitting[table] != rows.count(table)} | {row[0] for row in missing}
    for table in wrong:
        found.rebuilt[table] = dict(_find_others(rows, table, found))
    if wrong:
        for _, value in rows.scan(Table.PROCEDURES):
            _add_index_rows(value, found)
    return count, epoch


def _seq_of(rows: Rows, name: str) -> int:
    """The place of a procedure in the order of submits; 0 when it cannot be read, which is told elsewhere."""
    value = rows.get(Table.PROCEDURES, head_key(name))
    try:
        return 0 if value is None else int(codec.decode(Table.PROCEDURES, head_key(name), value).seq)
    except StoreDamaged:
        return 0


def _check_head(
    rows: Rows, found: Findings, key: bytes, value: bytes, seq_of: Callable[[str], int]
) -> ProcedureRecord | None:
    """A sound head; None for another one, which is noted."""
    _search(rows, found, Table.PROCEDURES, key)
    try:
        head: ProcedureRecord = codec.decode(Table.PROCEDURES, key, value)
        check_place(Table.PROCEDURES, key, head)
        if head.parent is not None and seq_of(head.parent) >= head.seq:  # so that no two descend from each other
            raise codec.damaged(Table.PROCEDURES, key, f"it is older than its parent {head.parent}")
    except StoreDamaged as error:
        _note(found, error)
        _look_for_place(rows, found, Table.PROCEDURES, key, value, error)
        for name in names_in(Table.PROCEDURES, value, ("id",)):
            if head_key(name) == key or not is_sound(rows, name):
                found.halted.setdefault(name, f"its record: {error.reason}")
        return None
    return head


def _add_index_rows(value: bytes, found: Findings) -> None:
    head = codec.unchecked(Table.PROCEDURES, value)
    if head is None:
        return
    try:
        codec.decode(Table.PROCEDURES, head_key(head.id), value)
    except (StoreDamaged, UnicodeError):
        return
    for table, place, id_ in index_rows(head):
        if table in found.rebuilt and isinstance(id_, bytes):
            found.rebuilt[table][place] = id_


def _find_others(rows: Rows, table: Table, found: Findings) -> Iterator[tuple[bytes, bytes]]:
    """Tells of index rows that fit no head, and gives those that are all that is left of a head that cannot be read."""
    for key, value in rows.scan(table):
        id_ = key[9:] if table in _HEAD_OF else value
        head = rows.get(Table.PROCEDURES, id_)
        if head is None:
            if table is Table.ORDER or table is Table.MEMBERS:
                name = id_.decode("utf-8", "backslashreplace")
                found.halted.setdefault(name, f"its record is missing, and {table.label} names it")
            _note_index(found, codec.damaged(table, key, "it names a procedure whose record is missing"))
            if table not in _BY_SEQ or rows.get(Table.ORDER, key[-8:]) == id_:
                yield key, value
            continue
        try:
            record: ProcedureRecord = codec.decode(Table.PROCEDURES, id_, head)
            check_place(Table.PROCEDURES, id_, record)
        except StoreDamaged:
            yield key, value
            continue
        if _is_of_an_older_version(table, key, record):
            yield key, value
        elif (table, key, value) not in index_rows(record):
            _note_index(
                found, codec.damaged(table, key, f"it does not fit {record.id}, which it names; a start removes it")
            )


def _is_of_an_older_version(table: Table, key: bytes, record: ProcedureRecord) -> bool:
    """Older versions listed finished children as well."""
    return (
        table is Table.FINISHED
        and record.finished_at is not None
        and key == time_key(record.finished_at) + b"\0" + head_key(record.id)
    )


def _check_meta(rows: Rows, found: Findings, heads: tuple[int, int]) -> None:
    count, epoch = heads
    remedies = {EPOCH: epoch + 1, STORE_ID: new_id()} if count else {}
    for key, remedy in remedies.items():
        value = rows.get(Table.META, key)
        try:
            if value is None:
                raise codec.damaged(Table.META, key, "the row is missing")
            stored = meta_of(key, value)
            if isinstance(stored, int) and stored < epoch:
                raise codec.damaged(Table.META, key, f"it is {stored}, and a procedure is of life {epoch}")
        except StoreDamaged as error:
            _note(found, error)
            found.mended.append((Table.META, key, codec.encode(Table.META, key, remedy)))
    for key, value in rows.scan(Table.META):
        _search(rows, found, Table.META, key)
        try:
            meta_of(key, value)
        except StoreDamaged as error:
            _note(found, error)
    _note_manager_audit(rows, found)


def _note_manager_audit(rows: Rows, found: Findings) -> None:
    try:
        lacking = RowCounts(rows).manager_audit()
    except StoreDamaged:
        return  # told of already
    if lacking is not None:
        _note_index(found, lacking)


def _look_for_place(rows: Rows, found: Findings, table: Table, key: bytes, value: bytes, error: StoreDamaged) -> None:
    """True if a damaged record may be one that belongs elsewhere, where it is missed now."""
    body = codec.unchecked(table, value)
    try:
        elsewhere = not _is_plausible(rows, table, key) if body is None else key_of(table, body) != key
    except (UnicodeError, struct.error, OverflowError, StoreDamaged):
        elsewhere = True
    if elsewhere:
        found.unseen.append(str(error))


def _note_right_place(rows: Rows, found: Findings, table: Table, value: bytes, error: StoreDamaged) -> None:
    """Keep locked, poisoned or undeclared what is so, also when the row says it only by its contents.

    A schedule that stands in its own place was removed and declared again since, or its row there is judged by itself.
    """
    body = codec.unchecked(table, value) if table in (Table.LOCKS, Table.POISON, Table.SCHEDULES) else None
    if body is not None:
        try:
            key = key_of(table, body)
            if table is Table.SCHEDULES and rows.get(table, key) is not None:
                return
            place = codec.show_key(table, key)
        except (UnicodeError, struct.error, OverflowError, StoreDamaged):
            return
        found.damage.setdefault((error.table, place), Damage(error.table, place, error.reason))


def _is_plausible(rows: Rows, table: Table, key: bytes) -> bool:
    """True if this may well be the key under which the unreadable row was stored."""
    if table is Table.PROCEDURES or (table not in BELONGS and table is not Table.AUDIT):
        return True
    id_ = owner_of(table, key)
    rest = key[:_NUMBER] if table is Table.STEPS else key[len(id_) + 1 :]
    if table is Table.AUDIT and not id_:  # of the manager itself
        return len(rest) == _NUMBER
    value = rows.get(Table.PROCEDURES, id_)
    if value is None:
        return False
    head: ProcedureRecord = codec.decode(Table.PROCEDURES, id_, value)
    number = int.from_bytes(rest[:_NUMBER])
    match table:
        case Table.STEPS:
            return len(rest) == _NUMBER and 1 <= number <= head.records
        case Table.NOTES:
            return len(rest) > 9 and 1 <= number <= head.step
        case Table.CHILDREN:
            return len(rest) == 16 and number <= head.step
        case Table.AUDIT:
            return len(rest) == 8 and 1 <= number <= head.audits
        case Table.EVENTS:  # one for a name instead of a procedure cannot be told from one that is not in its place
            return len(rest) == 8 and number >= 1
        case _:
            return True


def _note_count(found: Findings, name: str, error: StoreDamaged) -> None:
    """A gap in a step log is met by a read that gets that far, and a lost row of the audit log does no harm."""
    if error.table == Table.STEPS.label:
        found.gaps.append(error)
        return
    _note(found, error)
    found.unseen.append(str(error))
    if error.table != Table.AUDIT.label:
        found.halted.setdefault(name, f"{error.table} {error.key}: {error.reason}")


def _note_index(found: Findings, error: StoreDamaged) -> None:
    _note(found, error)
    found.unseen.append(str(error))


def _note(found: Findings, error: StoreDamaged) -> None:
    found.damage.setdefault((error.table, error.key), Damage(error.table, error.key, error.reason))
