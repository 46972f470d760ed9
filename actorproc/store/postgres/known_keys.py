"""Keys that the owner of a store knows, so that no scan walks over what was removed.

A row that was removed stays in its index until vacuum comes by, and as long as any snapshot in the server may see it.
A scan walks over all of these: in a table through which procedures go, its low end is hundreds of thousands of them.
The owner is the only one that adds rows. So it remembers the keys that were in a range when it was scanned, and adds
those of its own commits. The next scan looks these up, and walks from the end of the range on.

The keys that are remembered are those that are there, and more. That holds for a snapshot that is no older than the
newest commit that had begun when it was learned: an older one may show rows that were removed meanwhile.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from actorproc.store.rows.tables import INDEXES, Table

__all__ = ["MOST_KEYS", "TABLES", "CommitRows", "Known", "KnownKeys"]

TABLES = frozenset({*INDEXES, Table.REMOVALS}) - {Table.MEMBERS, Table.TIMERS}
"""Tables that are scanned from an end, and whose values are short."""
MOST_KEYS = 600
"""Keys that are learned of a range; when commits have made them twice as many, its end comes nearer."""
_MOST_RANGES = 32
_MOST_COMMITS = 256
"""Commits that are looked through for what they add; a snapshot that is older than these teaches nothing."""


class CommitRows(Protocol):
    """The rows of a commit."""

    def keys_of(self, table: Table) -> Sequence[bytes]:
        """Keys of the rows that are put into a table, sorted."""
        ...


class Known(NamedTuple):
    """The keys of a range that may be there."""

    keys: Sequence[bytes]
    """Sorted."""
    end: bytes
    """From here on nothing is known."""


class _Range:
    def __init__(self, keys: set[bytes], end: bytes, since: int) -> None:
        self.keys = keys
        self.end = end
        self.since = since
        """Commit from which on snapshots may use it."""


class KnownKeys:
    """Keys that the owner of a store knows; for commits of one thread, and scans of any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ranges: dict[tuple[Table, bytes], _Range] = {}
        self._begun = 0
        """Commits that have begun; one at a time is under way."""
        self._ended = 0
        self._views = 0
        """Snapshots that are open."""
        self._commits: list[tuple[int, CommitRows]] = []
        """Commits that a snapshot may not show: that under way, and those since the oldest one that is open."""
        self._forgotten = 0
        """The newest commit of which it is no longer known what it added."""

    # ------------------------------------------------------------ commits
    def begin(self, added: CommitRows) -> None:
        """A commit is sent next, which adds these rows."""
        with self._lock:
            self._begun += 1
            self._commits.append((self._begun, added))
            if len(self._commits) > _MOST_COMMITS:
                self._forgotten = self._commits.pop(0)[0]
            for (table, prefix), known in self._ranges.items():
                keys = added.keys_of(table)
                if keys:
                    known.keys.update(_between(keys, prefix, known.end))
                    if len(known.keys) > 2 * MOST_KEYS:
                        _shorten(known)

    def done(self) -> None:
        """The commit is done."""
        with self._lock:
            self._ended = self._begun
            self._forget_commits()

    def reset(self) -> None:
        """It is not known what became of the commit: begin anew."""
        with self._lock:
            self._ended = self._forgotten = self._begun
            self._ranges.clear()
            self._commits.clear()

    # ------------------------------------------------------------ scans
    def enter(self) -> int:
        """A snapshot is taken next; the number to give to the other methods, and `leave` at its end."""
        with self._lock:
            self._views += 1
            return self._ended

    def leave(self) -> None:
        """The snapshot is given back."""
        with self._lock:
            self._views -= 1
            self._forget_commits()

    def known(self, table: Table, prefix: bytes, seen: int) -> Known | None:
        """The keys with this prefix that a snapshot may show, up to an end; None: nothing is known."""
        with self._lock:
            found = self._ranges.get((table, prefix))
            if found is None or found.since > seen:
                return None
            return Known(sorted(found.keys), found.end)

    def learn(self, table: Table, prefix: bytes, keys: Iterable[bytes], end: bytes, seen: int) -> bool:
        """A snapshot shows these keys with this prefix up to an end, and no others.

        Args:
            table: The table.
            prefix: Beginning of the keys that were scanned.
            keys: All that were found.
            end: The key before which all were found.
            seen: Number of the snapshot.

        Returns:
            True if it is remembered; False when they are too many, or the snapshot is too old.
        """
        found = set(keys)
        if len(found) > MOST_KEYS:
            return False
        with self._lock:
            if seen < self._forgotten:
                return False
            for number, added in self._commits:
                if number > seen:
                    found.update(_between(added.keys_of(table), prefix, end))
            self._ranges.pop((table, prefix), None)
            self._ranges[table, prefix] = _Range(found, end, self._begun)
            if len(self._ranges) > _MOST_RANGES:
                del self._ranges[next(iter(self._ranges))]
        return True

    def _forget_commits(self) -> None:
        if not self._views:
            self._commits = [one for one in self._commits if one[0] > self._ended]


def _between(keys: Sequence[bytes], low: bytes, high: bytes) -> Sequence[bytes]:
    return keys[bisect_left(keys, low) : bisect_left(keys, high)]


def _shorten(known: _Range) -> None:
    keys = sorted(known.keys)
    known.end = keys[MOST_KEYS]
    known.keys = set(keys[:MOST_KEYS])
