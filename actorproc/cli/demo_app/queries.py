"""Questions to a finished table, asked of its region files as any reader would."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter

from actorproc.cli.demo_app.tables import Layout

__all__ = ["common_functions", "rich_files"]


def common_functions(layout: Layout, table: str, limit: int = 6) -> list[tuple[str, int]]:
    """The names most functions have, and how many have it."""
    return _count(layout, table, "SELECT name, COUNT(*) FROM symbols WHERE kind <> 'class' GROUP BY name", limit)


def rich_files(layout: Layout, table: str, limit: int = 3) -> list[tuple[str, int]]:
    """The files that define most, and how much."""
    return _count(layout, table, "SELECT path, COUNT(*) FROM symbols GROUP BY path", limit)


def _count(layout: Layout, table: str, query: str, limit: int) -> list[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for region in sorted(layout.table(table).glob("region-*.sqlite")):
        with contextlib.closing(sqlite3.connect(region)) as connection:
            counts.update(dict(connection.execute(query)))
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:limit]
