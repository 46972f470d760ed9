"""Choice of the indexes that a list is read from, and their rows in the order of submits."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterator, Sequence
from itertools import islice

from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.store.rows.keys import prefix, text_key
from actorproc.store.rows.layout import STATE_INDEX
from actorproc.store.rows.tables import Rows, Table

__all__ = ["COUNTED", "Index", "merged", "narrowest_indexes"]

Index = tuple[Table, bytes]
"""A table and the beginning of keys."""
COUNTED = (ProcedureState.FAILED, ProcedureState.ROLLEDBACK)
"""States with an index table of their own."""
_FEW_ENDED = 10_000
"""Procedures in these states up to which their indexes are read, and not that of a type."""
_PROBED = 256
"""Rows of an index that are counted to see which of several is the shortest."""
_SEQ = 8
"""Bytes of a place in submit order, at the end of a key of an index."""


def narrowest_indexes(
    rows: Rows,
    states: Collection[ProcedureState] | None,
    type_name: str | None,
    root: str | None,
    texts: Sequence[bytes],
) -> list[Index]:
    """The indexes that probably have the fewest rows for these filters, with the prefixes of their keys."""
    if root is not None:
        return [(Table.MEMBERS, prefix(root))]
    if texts:
        return [_shortest(rows, [(Table.BY_TAG, text) for text in texts])]
    if states is not None and (type_name is None or _are_few(rows, TERMINAL.intersection(states))):
        return [STATE_INDEX[state] for state in ProcedureState if state in states]
    if type_name is not None:
        return [(Table.BY_TYPE, text_key(type_name) + b"\0")]
    return [(Table.ORDER, b"")]


def _shortest(rows: Rows, indexes: list[Index]) -> Index:
    """The index with the fewest rows, as far as the first rows of each tell; the first of those that are longer."""
    if len(indexes) == 1:
        return indexes[0]
    return min(indexes, key=lambda index: sum(1 for _ in islice(rows.scan(*index), _PROBED)))


def _are_few(rows: Rows, ended: Collection[ProcedureState]) -> bool:
    """Few procedures are in these states of ended ones, of any type. Most have succeeded."""
    return set(ended) <= set(COUNTED) and sum(rows.count(STATE_INDEX[state][0]) for state in ended) <= _FEW_ENDED


def merged(
    rows: Rows, indexes: list[Index], place: bytes | None, *, reverse: bool
) -> Iterator[tuple[Table, bytes, bytes]]:
    """Rows of indexes whose keys end in the place in submit order, merged by that; those behind `place`."""
    found = [_rows_of(rows, index, place, reverse=reverse) for index in indexes]
    return found[0] if len(found) == 1 else heapq.merge(*found, key=_place_of, reverse=reverse)


def _rows_of(rows: Rows, index: Index, place: bytes | None, *, reverse: bool) -> Iterator[tuple[Table, bytes, bytes]]:
    table, start = index
    after = None if place is None else start + place
    return ((table, key, id_) for key, id_ in rows.scan(table, start, after=after, reverse=reverse))


def _place_of(row: tuple[Table, bytes, bytes]) -> bytes:
    return row[1][-_SEQ:]
