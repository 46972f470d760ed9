"""Dashboard that all requests share: the source, what is kept of expensive answers, meters, payloads."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from actorproc.model.slots import host_of
from actorproc.report.hosts import HostInfo
from actorproc.ui.kept import Kept
from actorproc.ui.views.workers import WorkerMeter
from actorproc.web.answers import ApiError, shaped_all
from actorproc.web.children import ChildPages
from actorproc.web.payloads import Payloads
from actorproc.web.source import PageSource
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = ["Dashboard"]

_T = TypeVar("_T")
_FRESH = 0.5
"""Seconds for which a look at the workers counts."""


class Dashboard:
    """The state of a page that is no browser's own. Thread-safe.

    Args:
        source: Of all answers.
        payloads: The visible part of users' values.
    """

    def __init__(self, source: PageSource, payloads: Payloads) -> None:
        self.source = source
        self.payloads = payloads
        self.children = ChildPages()
        self._kept: dict[str, Kept[Any]] = {}
        self._locks: dict[str, threading.Lock] = {}
        self._making = threading.Lock()
        self._meter = WorkerMeter()
        self._workers: list[dict[str, Any]] = []
        self._workers_at = -1e9

    def kept(self, name: str, ask: Callable[[], _T]) -> _T:
        """The answer to an expensive question, asked so seldom that it takes a hundredth of a core at most."""
        with self._making:
            kept = self._kept.setdefault(name, Kept())
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            kept.changed()
            found: _T = kept.of(name, ask)
            return found

    def workers(self) -> list[dict[str, Any]]:
        """Workers as objects, with the part of a core that each used since the look before."""
        with self._making:
            if time.monotonic() - self._workers_at >= _FRESH:
                found = self.source.live(lambda engine: engine.workers())
                at = time.monotonic()
                percent = {(row.slot, row.pid): row.cpu_percent for row in self._meter.rows(found, at)}
                self._workers = shaped_all("worker", found)
                here = self.source.look().host or ""
                names = {host.number: host.name for host in self._joined()}
                for row in self._workers:
                    row["host"] = names.get(host_of(row["slot"]), here)
                    row["cpu_percent"] = percent.get((row["slot"], row["pid"]))
                self._workers_at = at
            return self._workers

    def hosts(self) -> list[dict[str, Any]]:
        """Worker hosts that have joined, as objects."""
        return shaped_all("host", self._joined())

    def _joined(self) -> tuple[HostInfo, ...]:
        health = self.source.look().health
        return health.hosts if health is not None else ()

    def logs_after(
        self, entries: Sequence[LogEntry], cursor: str | None, limit: int
    ) -> tuple[list[LogEntry], str | None]:
        """Entries after a place, and the place after them. A place is the time of an entry and its number therein."""
        at, number = self._place(cursor)
        found = [entry for entry in entries if entry.at >= at]
        skip = 0
        while skip < len(found) and skip < number and found[skip].at == at:
            skip += 1
        shown = found[skip : skip + limit] if cursor is not None else found[-limit:]
        if not shown:
            return [], cursor
        last = shown[-1].at
        same = sum(entry.at == last for entry in shown) + (number if last == at else 0)
        return shown, f"{last!r}:{same}"

    def _place(self, cursor: str | None) -> tuple[float, int]:
        if cursor is None:
            return 0.0, 0
        text, _, number = cursor.partition(":")
        try:
            return float(text), int(number)
        except ValueError:
            raise ApiError(422, f"after is the `next` of an answer before, not {cursor!r:.60}") from None
