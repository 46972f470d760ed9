"""The files a table consists of, written so that writing twice changes nothing.

::

    DIRECTORY/
      state/                      the manager's store
      journal.jsonl               what the steps say about themselves
      catalog.sqlite              one row per table that exists
      tables/NAME/
        manifest.json             the regions and what each must hold
        region-00.sqlite …        the rows

A step may be killed anywhere and run again, and after the death of a manager its last worker may still be writing
while the successor has begun. So every write is one transaction or one rename, and gives the same bytes whichever
comes last.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from actorproc.cli.demo_app.source import Symbol

__all__ = [
    "CatalogRow",
    "Layout",
    "RegionSummary",
    "Row",
    "catalog_row",
    "digest_of",
    "read_region",
    "register_table",
    "remove_region",
    "summarise_region",
    "unregister_table",
    "write_atomically",
    "write_batch",
]

BUSY_SECONDS = 30.0

Row = tuple[str, int, int, str, str]
"""Path, line, column, kind, name."""

RegionSummary = dict[str, Any]
"""Entry of a manifest for one region: region, file, files, unparsable, symbols, digest."""

CatalogRow = dict[str, Any]
"""name, manifest, regions, files, symbols."""


@dataclass(frozen=True)
class Layout:
    """Layout of all files below one directory."""

    directory: Path

    @property
    def state(self) -> Path:
        return self.directory / "state"

    @property
    def journal(self) -> Path:
        return self.directory / "journal.jsonl"

    @property
    def catalog(self) -> Path:
        return self.directory / "catalog.sqlite"

    @property
    def service_log(self) -> Path:
        return self.directory / "service.log"

    def outcome(self, table: str) -> Path:
        return self.directory / f"outcome-{table}.json"

    def table(self, table: str) -> Path:
        return self.directory / "tables" / table

    def manifest(self, table: str) -> Path:
        return self.table(table) / "manifest.json"

    def region(self, table: str, region: int) -> Path:
        return self.table(table) / f"region-{region:02d}.sqlite"


def write_atomically(path: Path, value: object, *, drafts: Path) -> None:
    """Write JSON so that a reader, and a reader after a crash, sees the old file or the new one.

    The draft is written in `drafts`, on the same file system: what a kill leaves of it is not in the table.
    """
    draft = drafts / f".{path.name}.{os.getpid()}"
    with draft.open("w", encoding="utf-8") as file:
        json.dump(value, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)


@contextlib.contextmanager
def _transaction(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
        connection.execute("COMMIT")
    finally:
        connection.close()


# ---------------------------------------------------------------- regions
_FILES = "CREATE TABLE IF NOT EXISTS files (path TEXT PRIMARY KEY, parsed INTEGER NOT NULL) WITHOUT ROWID"
_SYMBOLS = (
    "CREATE TABLE IF NOT EXISTS symbols (path TEXT, line INTEGER, col INTEGER, kind TEXT, name TEXT,"
    " PRIMARY KEY (path, line, col)) WITHOUT ROWID"
)


def write_batch(path: Path, batch: Iterable[tuple[str, list[Symbol] | None]]) -> None:
    """Put these files and their symbols into a region, replacing what an interrupted attempt left there."""
    with _transaction(path) as connection:
        connection.execute(_FILES)
        connection.execute(_SYMBOLS)
        for name, symbols in batch:
            connection.execute("DELETE FROM symbols WHERE path = ?", (name,))
            connection.execute("INSERT OR REPLACE INTO files VALUES (?, ?)", (name, symbols is not None))
            connection.executemany(
                "INSERT INTO symbols VALUES (?, ?, ?, ?, ?)", ((name, *row) for row in symbols or ())
            )


def read_region(path: Path) -> tuple[dict[str, bool], list[Row]]:
    """The files of a region (and whether each could be parsed), and its rows in key order."""
    with contextlib.closing(sqlite3.connect(path, timeout=BUSY_SECONDS)) as connection:
        files = {name: bool(parsed) for name, parsed in connection.execute("SELECT path, parsed FROM files")}
        return files, connection.execute("SELECT * FROM symbols ORDER BY path, line, col").fetchall()


def digest_of(rows: Iterable[Row]) -> str:
    """A fingerprint of rows in key order."""
    fingerprint = hashlib.sha256()
    for row in rows:
        fingerprint.update(repr(row).encode())
    return fingerprint.hexdigest()


def summarise_region(path: Path, region: int) -> RegionSummary:
    """Summarise this region for the manifest; makes the file when the region has no source at all."""
    write_batch(path, ())
    files, rows = read_region(path)
    return {
        "region": region,
        "file": path.name,
        "files": len(files),
        "unparsable": sum(not parsed for parsed in files.values()),
        "symbols": len(rows),
        "digest": digest_of(rows),
    }


def remove_region(path: Path) -> None:
    """Remove a region's file and what SQLite may keep beside it. Removing nothing is no error."""
    for suffix in ("", "-journal"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


# ---------------------------------------------------------------- catalog
_CATALOG_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS tables (name TEXT PRIMARY KEY, manifest TEXT NOT NULL, regions INTEGER NOT NULL,"
    " files INTEGER NOT NULL, symbols INTEGER NOT NULL)"
)


def register_table(path: Path, row: CatalogRow) -> None:
    """Make the table exist."""
    with _transaction(path) as connection:
        connection.execute(_CATALOG_SCHEMA)
        connection.execute("INSERT OR REPLACE INTO tables VALUES (:name, :manifest, :regions, :files, :symbols)", row)


def unregister_table(path: Path, name: str) -> None:
    """Make the table not exist. Removing nothing is no error."""
    with _transaction(path) as connection:
        connection.execute(_CATALOG_SCHEMA)
        connection.execute("DELETE FROM tables WHERE name = ?", (name,))


def catalog_row(path: Path, name: str) -> CatalogRow | None:
    """The catalog's row of a table, None when it does not exist."""
    with _transaction(path) as connection:
        connection.execute(_CATALOG_SCHEMA)
        connection.row_factory = sqlite3.Row
        row = connection.execute("SELECT * FROM tables WHERE name = ?", (name,)).fetchone()
        return dict(row) if row is not None else None
