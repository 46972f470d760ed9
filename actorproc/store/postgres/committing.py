"""Writes of a batch as statements: the last value of each key, sweeps before all else.

The statements go in one pipeline, which is one transaction, in this order: sweeps, deletes, puts, and at the end the
fence with the number of the commit. The fence comes last, so an owner that is frozen while it sends holds no lock on
the leader's row.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from actorproc.store.postgres.rows import bound_of
from actorproc.store.postgres.schema.statements import Statements
from actorproc.store.postgres.sessions import Question, array_of, number
from actorproc.store.rows import codec
from actorproc.store.rows.layout import Row, Until, WholeLog
from actorproc.store.rows.step_log import owner_of, step_key
from actorproc.store.rows.tables import Table

__all__ = ["Batch", "fence"]

_MOST_BYTES = 4 << 20
"""Of the parameters of one statement, beyond which the next begins; a single longer value has one to itself."""
_MOST_ROWS = 10_000
_LONG_LOG = 512
"""Records of a log from which on its keys are made by the server."""
_pack = struct.Struct(">Q").pack
_STEPS = Table.STEPS


class Batch:
    """The rows of one commit, collapsed.

    Args:
        stored: Gives the stored value of a row that is only raised; it is asked once per key and owner.
    """

    def __init__(self, stored: Callable[[Table, bytes], bytes | None]) -> None:
        self._stored = stored
        self._last: dict[Table, dict[bytes, bytes | bytearray | None]] = {}
        self._sweeps: dict[Table, list[tuple[bytes, bytes]]] = {}
        self._logs: list[tuple[str, int, int]] = []
        self._keys: dict[Table, list[bytes]] = {}
        self.raised: dict[tuple[Table, bytes], bytes] = {}
        """Rows that were raised, with their new values; they count once the commit is done."""

    def add(self, rows: Sequence[Row]) -> None:
        """Take these changes, which come after those taken before."""
        tables = self._last
        for table, key, value in rows:
            last = tables.get(table)
            if last is None:
                last = tables[table] = {}
            if value is None or type(value) is bytes or type(value) is bytearray:
                last[key] = value
            elif isinstance(value, int):
                self._raise(table, key, value, last)
            elif isinstance(value, WholeLog):
                self._delete_log(value, last)
            else:
                self._sweep(table, key, value.key if isinstance(value, Until) else bound_of(key), last)

    def _raise(self, table: Table, key: bytes, least: int, last: dict[bytes, bytes | bytearray | None]) -> None:
        known = last.get(key) or self.raised.get((table, key)) or self._stored(table, key)
        raised = codec.raised(table, key, None if known is None else bytes(known), least)
        if raised is not None:
            last[key] = self.raised[table, key] = raised

    def _delete_log(self, log: WholeLog, last: dict[bytes, bytes | bytearray | None]) -> None:
        first = max(log.trimmed + 1, 2)
        if log.last >= 1:
            last[step_key(log.id, 1)] = None
        if log.last - first < _LONG_LOG:
            for number_ in range(first, log.last + 1):
                last[step_key(log.id, number_)] = None
            return
        own = log.id.encode()
        for key in [key for key in last if owner_of(key) == own and first <= int.from_bytes(key[:8]) <= log.last]:
            del last[key]
        self._logs.append((log.id, first, log.last))

    def _sweep(self, table: Table, low: bytes, high: bytes, last: dict[bytes, bytes | bytearray | None]) -> None:
        if last:
            for key in [key for key in last if low <= key < high]:
                del last[key]
        self._sweeps.setdefault(table, []).append((low, high))

    def keys_of(self, table: Table) -> Sequence[bytes]:
        """Keys of the rows that are put into a table, sorted; when all changes were taken."""
        rows = self._last.get(table)
        if not rows:
            return ()
        keys = self._keys.get(table)
        if keys is None:
            keys = self._keys[table] = sorted(key for key, value in rows.items() if value is not None)
        return keys

    def questions(self, statements: Statements) -> list[Question]:
        """The statements of the commit, without its fence."""
        asked: list[Question] = []
        for table, ranges in self._sweeps.items():
            low, high = array_of([low for low, _ in ranges]), array_of([high for _, high in ranges])
            asked.append((statements.tables[table].sweep, (low, high)))
        for id_, first, last in self._logs:
            asked.append((statements.log, (number(first), number(last), id_.encode())))
        for table, rows in self._last.items():
            _put(statements, table, rows, asked)
        return asked


def _put(
    statements: Statements, table: Table, rows: dict[bytes, bytes | bytearray | None], asked: list[Question]
) -> None:
    own = statements.tables[table]
    gone = [key for key, value in rows.items() if value is None]
    parts = (gone[start : start + _MOST_ROWS] for start in range(0, len(gone), _MOST_ROWS))
    asked.extend((own.delete, (array_of(part),)) for part in parts)
    keys: list[bytes] = []
    values: list[bytes | bytearray] = []
    size = 0
    for key in sorted(rows) if len(rows) > 1 else rows:
        value = rows[key]
        if value is None:
            continue
        if keys and (len(keys) == _MOST_ROWS or size + len(value) > _MOST_BYTES):
            asked.append((own.put, (array_of(keys), array_of(values))))
            keys, values, size = [], [], 0
        keys.append(key)
        values.append(value)
        size += len(key) + len(value)
    if keys:
        asked.append((own.put, (array_of(keys), array_of(values))))


def fence(statements: Statements, epoch: int, batch: int, before: int) -> list[Question]:
    """The end of each commit: its number, which is stored only under the owner's epoch.

    Args:
        epoch: Epoch of the owner.
        batch: Number of the commit; 0, not numbered.
        before: Number of the numbered commit before; 0: none.

    Returns:
        The statements.
    """
    asked: list[Question] = []
    if batch and before and before != batch:
        asked.append((statements.forget, (number(epoch), number(before))))
    asked.append((statements.fence, (number(epoch), number(batch))))
    return asked
