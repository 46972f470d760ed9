"""The two procedures of the demo: `CreateTable` and, one per partition, `CreateRegion`."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from actorproc import Context, Limits, LockKey, Procedure, Saga, Status, step
from actorproc.cli.demo_app.journal import journaled
from actorproc.cli.demo_app.source import python_files, region_of, symbols_in
from actorproc.cli.demo_app.tables import (
    Layout,
    register_table,
    remove_region,
    summarise_region,
    unregister_table,
    write_atomically,
    write_batch,
)

__all__ = ["BATCH_FILES", "CreateRegion", "CreateTable", "PlannedFailure"]

BATCH_FILES = 12
"""Files per step: what a kill costs at most."""

# Three crashes of one step would normally fail it. Here the killer stands outside and picks no step in particular.
CHAOS_LIMITS = Limits(crashes=1000)


class PlannedFailure(Exception):
    """The failure the second part of the demo asks for."""


@dataclass
class CreateRegion(Procedure):
    """Indexes the files of one partition into one SQLite file, a batch per step.

    `last` is the whole progress: the path up to which the files, in order, are in the region. A batch is
    written in one transaction that replaces its files' rows, so an interrupted batch simply runs again.
    """

    limits: ClassVar[Limits] = CHAOS_LIMITS

    source: str
    directory: str
    table: str
    region: int
    regions: int
    fails_half_way: bool = False
    last: str = ""

    def execute(self, ctx: Context) -> Status:
        began = time.time()
        mine = _partition(self.source, self.regions, self.region)
        ahead = [path for path in mine if path > self.last]
        if self.fails_half_way and len(ahead) <= len(mine) // 2:
            with self._journaled(ctx, "fail on purpose", began=began):
                raise PlannedFailure(f"region {self.region} gives up half-way, as it was asked to")
        if not ahead:
            with self._journaled(ctx, "seal", began=began, region_done=True):
                return Status.done(summarise_region(self._file, self.region))
        batch = ahead[:BATCH_FILES]
        with self._journaled(ctx, f"{len(batch)} files from {batch[0]}", began=began, files=len(batch)):
            root = Path(self.source)
            write_batch(self._file, [(path, symbols_in(_read(root / path))) for path in batch])
        self.last = batch[-1]
        return Status.executing()

    def rollback(self, ctx: Context) -> None:
        with self._journaled(ctx, "remove", undo=True):
            remove_region(self._file)

    @property
    def _file(self) -> Path:
        return Layout(Path(self.directory)).region(self.table, self.region)

    def _journaled(self, ctx: Context, what: str, **more: Any) -> contextlib.AbstractContextManager[None]:
        journal = Layout(Path(self.directory)).journal
        return journaled(journal, ctx, self.table, f"region {self.region:02d}: {what}", **more)


@functools.lru_cache(maxsize=4)
def _listing(source: str) -> tuple[str, ...]:
    # Listing a tree costs more than indexing a batch of it: once per worker process is enough.
    return tuple(python_files(Path(source)))


@functools.lru_cache(maxsize=64)
def _partition(source: str, regions: int, region: int) -> tuple[str, ...]:
    return tuple(path for path in _listing(source) if region_of(path, regions) == region)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b"\0"  # unreadable counts as unparsable


class CreateTable(Saga):
    """Creates a table of `regions` partitions, `parallel` at a time: its files and its catalog row, or nothing."""

    limits: ClassVar[Limits] = CHAOS_LIMITS
    uses: ClassVar[tuple[type, ...]] = (CreateRegion,)

    source: str
    directory: str
    table: str
    regions: int
    parallel: int
    failing_region: int | None = None
    totals: dict[str, int] | None = None

    def lock_keys(self) -> Iterable[LockKey]:
        return [LockKey.write(f"catalog/demo/{self.table}")]

    @step
    def create_regions(self, ctx: Context) -> Status:
        with self._journaled(ctx, "start regions"):
            self._layout.table(self.table).mkdir(parents=True, exist_ok=True)
        regions = [
            (
                f"{ctx.id}.region-{region:02d}",
                CreateRegion(
                    source=self.source,
                    directory=self.directory,
                    table=self.table,
                    region=region,
                    regions=self.regions,
                    fails_half_way=region == self.failing_region,
                ),
            )
            for region in range(self.regions)
        ]
        return Status.suspended(regions, max_parallel=self.parallel)

    @create_regions.undo
    def remove_directory(self, ctx: Context) -> None:
        with self._journaled(ctx, "remove directory", undo=True), contextlib.suppress(FileNotFoundError):
            self._layout.table(self.table).rmdir()

    @step
    def write_manifest(self, ctx: Context) -> None:
        with self._journaled(ctx, "write manifest"):
            summaries = sorted((outcome.output for outcome in ctx.children.values()), key=lambda row: row["region"])
            write_atomically(
                self._layout.manifest(self.table),
                {"table": self.table, "source": self.source, "regions": summaries} | _totals(summaries),
                drafts=self._layout.directory,
            )
            self.totals = _totals(summaries)

    @write_manifest.undo
    def remove_manifest(self, ctx: Context) -> None:
        with self._journaled(ctx, "remove manifest", undo=True):
            self._layout.manifest(self.table).unlink(missing_ok=True)

    @step
    def register(self, ctx: Context) -> dict[str, Any]:
        assert self.totals is not None
        row = {
            "name": self.table,
            "manifest": str(self._layout.manifest(self.table)),
            "regions": self.regions,
            "files": self.totals["files"],
            "symbols": self.totals["symbols"],
        }
        with self._journaled(ctx, "register"):
            register_table(self._layout.catalog, row)
        return row

    @register.undo
    def unregister(self, ctx: Context) -> None:
        with self._journaled(ctx, "unregister", undo=True):
            unregister_table(self._layout.catalog, self.table)

    @property
    def _layout(self) -> Layout:
        return Layout(Path(self.directory))

    def _journaled(self, ctx: Context, what: str, *, undo: bool = False) -> contextlib.AbstractContextManager[None]:
        return journaled(self._layout.journal, ctx, self.table, f"table: {what}", undo=undo)


def _totals(summaries: Iterable[dict[str, Any]]) -> dict[str, int]:
    rows = list(summaries)
    return {name: sum(row[name] for row in rows) for name in ("files", "unparsable", "symbols")}
