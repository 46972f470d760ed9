"""Rows that are in the log and not in the data file yet, as readers see them: over a snapshot of the data file.

There are two layers at most. Commits change the *active* one. A checkpoint makes it the *frozen* one and begins a new
one; when the frozen rows are in the data file, the layer goes. A snapshot of the data file says which records it has.
So a layer that it has already is left out of a view. No lock is held while a checkpoint commits.

A view does not change while it is open: before a commit changes rows, each open view notes what they were.
"""

from __future__ import annotations

import threading
import weakref
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence

from actorproc.store.lmdb.log.record import LogRow
from actorproc.store.rows.tables import Table

__all__ = ["ABSENT", "Absent", "Layer", "Layers", "Overlay"]

_CHUNK = 128
"""Keys taken at once while a view is scanned."""
_FEW = 16
"""Share of new keys among the sorted ones up to which each is put in its place by itself."""
_PAST_ALL = b"\xff" * 512


class Absent:
    """A layer has no row of this key, deleted or not."""


ABSENT = Absent()


class Layer:
    """Rows of consecutive commits: new values, and None for deleted rows."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tables: list[dict[bytes, bytes | None]] = [{} for _ in Table]
        self._below: tuple[int, list[dict[bytes, bool]]] = (0, [])
        self.last = 0
        """Place of the last record whose rows are here."""
        self.changes = 0
        self._sorted: list[list[bytes]] = [[] for _ in Table]
        self._new: list[list[bytes]] = [[] for _ in Table]

    def put(self, rows: Sequence[LogRow], place: int) -> None:
        """Take the rows of a commit."""
        tables, new = self.tables, self._new
        for table, key, value in rows:
            known = tables[table]
            if key not in known:
                new[table].append(key)
            known[key] = value
        self.last = place
        self.changes += len(rows)

    def below(self, snapshot: int) -> list[dict[bytes, bool]]:
        """Keys, by table, of which it is known whether the rows below have them, over this snapshot of the file."""
        found = self._below
        if found[0] != snapshot:
            found = self._below = snapshot, [{} for _ in Table]
        return found[1]

    def keys(self, table: Table, prefix: bytes, after: bytes | None, *, reverse: bool) -> Iterator[bytes]:
        """Keys that begin with a prefix, in order; with `after` those behind that key."""
        while True:
            with self.lock:
                keys = self._in_order(table)
                if reverse:
                    end = bisect_left(keys, prefix + _PAST_ALL if after is None else after)
                    some = keys[max(0, end - _CHUNK) : end][::-1]
                else:
                    start = bisect_left(keys, prefix) if after is None else bisect_right(keys, after)
                    some = keys[start : start + _CHUNK]
            for key in some:
                if not key.startswith(prefix):
                    return
                yield key
            if len(some) < _CHUNK:
                return
            after = some[-1]

    def _in_order(self, table: Table) -> list[bytes]:
        keys, new = self._sorted[table], self._new[table]
        if new:
            if len(new) * _FEW > len(keys):
                keys += new
                keys.sort()
            else:
                for key in new:
                    insort(keys, key)
            new.clear()
        return keys


class Layers:
    """The layers of a view, over its snapshot of the data file, the newest first."""

    __slots__ = ("__weakref__", "_lasts", "before", "found")

    def __init__(self, found: tuple[Layer, ...]) -> None:
        self.found = found
        self._lasts = [layer.last for layer in found]
        self.before: dict[tuple[Table, bytes], bytes | Absent | None] = {}
        """Old values of rows that a commit has changed since."""

    def leave_out(self, place: int) -> bool:
        """Only the layers with records behind this place are needed. False: it is behind all of them."""
        self.found = self.found[: len([last for last in self._lasts if last > place])]
        return place <= self._lasts[0]

    def get(self, table: Table, key: bytes) -> bytes | Absent | None:
        """The value under a key; None: it was deleted; `ABSENT`: the data file says."""
        value = self._now(table, key)
        # In this order: a commit notes the old value first, and then changes it.
        return self.before.get((table, key), value) if self.before else value

    def _now(self, table: Table, key: bytes) -> bytes | Absent | None:
        for layer in self.found:
            value = layer.tables[table].get(key, ABSENT)
            if value is not ABSENT:
                return value
        return ABSENT

    def note(self, rows: Sequence[LogRow]) -> None:
        """These rows are about to be changed."""
        for table, key, _ in rows:
            if (table, key) not in self.before:
                self.before[table, key] = self._now(table, key)

    def has(self, table: Table) -> bool:
        """True if there may be rows of this table."""
        return any(layer.tables[table] for layer in self.found)

    def scan(
        self, table: Table, prefix: bytes, after: bytes | None, *, reverse: bool
    ) -> Iterator[tuple[bytes, bytes | None]]:
        """Rows whose keys begin with a prefix, in order of keys, those that were deleted as None."""
        keys = [layer.keys(table, prefix, after, reverse=reverse) for layer in self.found if layer.tables[table]]
        for key in keys[0] if len(keys) == 1 else _merged(keys, reverse=reverse):
            value = self.get(table, key)
            if not isinstance(value, Absent):
                yield key, value


def _merged(keys: Sequence[Iterator[bytes]], *, reverse: bool) -> Iterator[bytes]:
    """Keys of several layers in order, each once."""
    heads = {number: key for number, some in enumerate(keys) if (key := next(some, None)) is not None}
    while heads:
        best = max(heads.values()) if reverse else min(heads.values())
        yield best
        for number in [number for number, key in heads.items() if key == best]:
            key = next(keys[number], None)
            if key is None:
                del heads[number]
            else:
                heads[number] = key


class Overlay:
    """The layers of an open store. Changed by the thread that commits and by that of checkpoints, viewed by any."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.active = Layer()
        self.frozen: Layer | None = None
        self._views: set[weakref.ref[Layers]] = set()

    def put(self, rows: Sequence[LogRow], place: int) -> None:
        """Show the rows of a commit, the record at this place, to later views."""
        active = self.active
        with self.lock, active.lock:
            # In one call: a view that goes away meanwhile, in any thread, takes itself off.
            for view in [view for known in list(self._views) if (view := known()) is not None]:
                if active in view.found:
                    view.note(rows)
            active.put(rows, place)

    def layers(self) -> Layers:
        """The layers for a view."""
        with self.lock:
            found = tuple(layer for layer in (self.active, self.frozen) if layer is not None and layer.changes)
            layers = Layers(found)
            if found and found[0] is self.active:
                self._views.add(weakref.ref(layers, self._views.discard))
            return layers

    def freeze(self) -> Layer:
        """Begin a checkpoint: the rows that go into the data file. Nothing is frozen."""
        with self.lock:
            self.frozen, self.active = self.active, Layer()
            return self.frozen

    def thaw(self) -> None:
        """The frozen rows are in the data file."""
        with self.lock:
            self.frozen = None

    def clear(self) -> None:
        """All rows are in the data file."""
        with self.lock:
            self.active, self.frozen = Layer(), None

    def __len__(self) -> int:
        """Changes of rows that are not in the data file."""
        with self.lock:
            return self.active.changes + (self.frozen.changes if self.frozen is not None else 0)
