"""Changes of rows that name others, such as "all that begin so", as the single rows they change.

A record of the log has those alone: it reads the same whatever is in the data file by then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

from actorproc.errors import InternalError
from actorproc.store.lmdb.environment import LONGEST_KEY
from actorproc.store.lmdb.log.record import LogRow
from actorproc.store.rows import codec
from actorproc.store.rows.layout import Row, Until, WholeLog
from actorproc.store.rows.step_log import keys_of_log
from actorproc.store.rows.tables import Rows, Table

__all__ = ["resolved"]


def resolved(rows: Sequence[Row], view: Callable[[], AbstractContextManager[Rows]]) -> list[LogRow]:
    """The rows of a commit as puts and deletes.

    Args:
        rows: The changes.
        view: Gives the rows before the commit; it is called only if it is needed.

    Raises:
        InternalError: A key is one that the data file cannot have.
    """
    plain: list[LogRow] = []
    for number, row in enumerate(rows):
        value = row[2]
        if not 0 < len(row[1]) <= LONGEST_KEY:
            msg = f"writing {row[0].label}: a key is empty or longer than {LONGEST_KEY} bytes"
            raise InternalError(msg)
        if value is None or type(value) is bytes:
            plain.append(row)  # type: ignore[arg-type]  # mypy does not narrow the tuple by its part
        elif type(value) is bytearray:
            plain.append((row[0], row[1], bytes(value)))
        else:
            with view() as before:
                batch = _Batch(before, plain)
                for rest in rows[number:]:
                    batch.add(rest)
            break
    return plain


class _Batch:
    """Rows as they are in the middle of a commit."""

    def __init__(self, before: Rows, plain: list[LogRow]) -> None:
        self._before = before
        self._plain = plain
        self._changed: dict[Table, dict[bytes, bytes | None]] = {}
        for table, key, value in plain:
            self._changed.setdefault(table, {})[key] = value

    def add(self, row: Row) -> None:
        """One change more."""
        table, key, value = row
        if value is None or isinstance(value, bytes | bytearray):
            self._put(table, key, None if value is None else bytes(value))
        elif isinstance(value, int):
            raised = codec.raised(table, key, self._get(table, key), value)
            if raised is not None:
                self._put(table, key, raised)
        elif isinstance(value, WholeLog):
            for step in list(keys_of_log(partial(self._get, table), value.id, value.last, value.trimmed)):
                self._put(table, step, None)
        else:
            for swept in list(self._swept(table, key, value.key if isinstance(value, Until) else None)):
                self._put(table, swept, None)

    def _put(self, table: Table, key: bytes, value: bytes | None) -> None:
        self._changed.setdefault(table, {})[key] = value
        self._plain.append((table, key, value))

    def _get(self, table: Table, key: bytes) -> bytes | None:
        changed = self._changed.get(table, {})
        if key in changed:
            return changed[key]
        value = self._before.get(table, key)
        return None if value is None else bytes(value)  # a record with a file is not to be read for it

    def _swept(self, table: Table, first: bytes, end: bytes | None) -> Iterator[bytes]:
        changed = self._changed.get(table, {})
        for key, value in changed.items():
            if value is not None and key.startswith(first) and (end is None or key < end):
                yield key
        for key, _ in self._before.scan(table, first):
            if end is not None and key >= end:
                return
            if key not in changed:
                yield key
