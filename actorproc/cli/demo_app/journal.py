"""Journal of the demo's steps: an append-only file outside the engine.

The engine's own log says what was recorded. This one says what really ran: a step writes a line when it
begins and one when it ends, so a step that was cut off shows as begun twice. It is the witness the demo
calls against the engine, hence it shares nothing with it.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actorproc import Context

__all__ = ["DemoJournal", "Entry", "JournalReader", "StepKey", "journaled"]

StepKey = tuple[str, int]
"""Procedure id and step number."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One line. `at` in epoch seconds; `kind` is begin, end or failed."""

    at: float
    kind: str
    procedure: str
    step: int
    attempt: int
    pid: int
    what: str
    table: str
    files: int = 0
    """Source files this step indexes."""
    region_done: bool = False
    undo: bool = False

    @property
    def key(self) -> StepKey:
        return self.procedure, self.step


@contextlib.contextmanager
def journaled(
    path: Path,
    ctx: Context,
    table: str,
    what: str,
    *,
    began: float | None = None,
    files: int = 0,
    region_done: bool = False,
    undo: bool = False,
) -> Iterator[None]:
    """Note the beginning and the end of a step around its work.

    `began` (epoch seconds) is when the step was entered, for one that must find out first what its work is.
    """
    fields = {
        "procedure": ctx.id,
        "step": ctx.step,
        "attempt": ctx.attempt,
        "pid": os.getpid(),
        "what": what,
        "table": table,
        "files": files,
        "region_done": region_done,
        "undo": undo,
    }
    _append(path, {"at": began or time.time(), "kind": "begin", **fields})
    try:
        yield
    except Exception:
        _append(path, {"at": time.time(), "kind": "failed", **fields})
        raise
    _append(path, {"at": time.time(), "kind": "end", **fields})


def _append(path: Path, line: dict[str, object]) -> None:
    # One write to a file opened for appending: lines of several processes never mix.
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(descriptor, json.dumps(line).encode() + b"\n")
    finally:
        os.close(descriptor)


class JournalReader:
    """Follows a journal while others write it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def fresh(self) -> list[Entry]:
        """The complete lines written since the last call."""
        if not self._path.exists():
            return []
        with self._path.open("rb") as file:
            file.seek(self._offset)
            chunk = file.read()
        complete = chunk[: chunk.rfind(b"\n") + 1]
        self._offset += len(complete)
        return [Entry(**json.loads(line)) for line in complete.splitlines()]


class DemoJournal:
    """The entries of one table, and the questions the demo asks of them."""

    def __init__(self, table: str) -> None:
        self.table = table
        self.entries: list[Entry] = []
        self._open: dict[int, Entry] = {}
        self._ended: dict[StepKey, Entry] = {}

    def add(self, entries: list[Entry]) -> None:
        for entry in entries:
            if entry.table != self.table:
                continue
            self.entries.append(entry)
            if entry.kind == "begin":
                self._open[entry.pid] = entry
            else:
                self._open.pop(entry.pid, None)
                if entry.kind == "end":
                    self._ended[entry.key] = entry

    @property
    def running(self) -> dict[int, Entry]:
        """Steps begun and not ended, by the process that runs them; a dead process keeps its last one."""
        return dict(self._open)

    @property
    def files_done(self) -> int:
        return sum(entry.files for entry in self._ended.values() if not entry.undo)

    @property
    def regions_done(self) -> int:
        return sum(entry.region_done for entry in self._ended.values())

    @property
    def steps_run(self) -> int:
        """Different steps that began at least once."""
        return len({entry.key for entry in self.entries})

    @property
    def begun_again(self) -> dict[StepKey, int]:
        """Steps whose work began more than once, and how often."""
        counts = Counter(entry.key for entry in self.entries if entry.kind == "begin")
        return {key: count for key, count in counts.items() if count > 1}

    @property
    def handed_out_again(self) -> set[StepKey]:
        """Steps the engine gave out more than once, begun or not."""
        return {entry.key for entry in self.entries if entry.attempt > 1}

    @property
    def undone(self) -> list[Entry]:
        return [entry for entry in self.entries if entry.undo and entry.kind == "end"]

    def next_begin(self, key: StepKey, after: float) -> Entry | None:
        """The first time this step began after a moment."""
        return next((e for e in self.entries if e.key == key and e.kind == "begin" and e.at >= after), None)
