"""Looks at a store, for a screen: through the store itself, and what only a manager knows through its client.

Lists, locks and details are read from the store, which costs the manager nothing. A look asks the manager for its
health, its counters and its workers. An expensive question is asked seldom: each one may take a hundredth of a core.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, TimeoutError as FutureTimeout
from typing import TypeVar

from msgspec.structs import replace

from actorproc.api.client import ProcedureClient
from actorproc.api.reader import StoreReader
from actorproc.api.watch import Watch
from actorproc.errors import ActorprocError, ManagerStopped, ResultTimeout
from actorproc.model.names import no_class_registered
from actorproc.model.states import TERMINAL, Phase, ProcedureState
from actorproc.report.changes import ChangeDigest, DigestRow
from actorproc.report.hosts import HostInfo
from actorproc.report.info import ProcedureInfo
from actorproc.ui.command_words import path_option, whole_type
from actorproc.ui.kept import Kept
from actorproc.ui.text import plain_line
from actorproc.ui.top.detail import detail_lines
from actorproc.ui.top.look import Look, Wanted
from actorproc.ui.views.failures import FailureGroup, failure_groups
from actorproc.ui.views.header import Header, RateMeter, header_of
from actorproc.ui.views.rows import ProcedureRow, row_of, told
from actorproc.ui.views.wait_graph import graph_lines, wait_graph_of
from actorproc.ui.views.words import request_words
from actorproc.ui.views.workers import WorkerMeter, WorkerRow

__all__ = ["StoreSource"]

_T = TypeVar("_T")
_PATIENCE = 1.0
"""Seconds that a call waits for a manager that does not answer."""
_AGAIN = 3.0
"""Seconds until a manager that did not answer is asked again."""
_TROUBLE = (Phase.STUCK, Phase.RETRYING, Phase.ROLLING_BACK, Phase.LOCKED_OUT, Phase.PARKED, Phase.PAUSED)
_ENDED_WELL = frozenset({ProcedureState.SUCCESS, ProcedureState.ROLLEDBACK})
_LIVE = frozenset(ProcedureState) - TERMINAL
_FAILED = 200
"""Failed procedures that are put into groups: the newest ones."""
_REQUESTS = 200
"""Requests of operators that are shown: the newest ones."""
_SEARCHED = 1000
"""Rows that are searched for a text."""


class StoreSource:
    """Answers the questions of one screen. Not thread-safe: one look at a time.

    Args:
        path: of the store.
        clock: Epoch seconds. Default: the system's.
    """

    def __init__(self, path: str, clock: Callable[[], float] = time.time) -> None:
        self.path = path
        self._clock = clock
        self._reader: StoreReader | None = None
        self._client: ProcedureClient | None = None
        self._watch: Watch[ChangeDigest] | None = None
        self._ask_at = 0.0
        """Monotonic time before which a manager that did not answer is not asked."""
        self._refusal, self._problem = "hung", ""
        """Status and words while it is not asked."""
        self._asker = ThreadPoolExecutor(1, "actorproc-top")
        self._rates = RateMeter()
        self._meter = WorkerMeter()
        self._counts: Kept[dict[str, int]] = Kept()
        self._listed: Kept[list[ProcedureRow]] = Kept()
        self._groups: Kept[list[FailureGroup]] = Kept()
        self._locks: Kept[list[tuple[str, str]]] = Kept()
        self._details: Kept[list[tuple[str, str]]] = Kept()
        self._known_types: tuple[str, ...] = ()
        """Types that are registered; none: no manager has said so."""
        self._told: dict[str, DigestRow] = {}

    def close(self) -> None:
        """Let go of the store and of the manager, for good."""
        self._forget()
        self._asker.shutdown()

    def _forget(self) -> None:
        self._leave()
        if self._reader is not None:
            self._reader.close()
            self._reader = None

    def look(self, wanted: Wanted) -> Look:
        """Answer a question. Never raises what the store or the manager brings about: the look says it."""
        at = self._clock()
        try:
            if self._reader is None:
                self._reader = StoreReader(self.path)
            header, workers, hosts = self._manager(self._reader)
        except (ActorprocError, OSError) as error:
            self._forget()
            return Look(wanted=wanted, at=at, header=header_of(status="no store", problems=(plain_line(error),)))
        look = Look(wanted=wanted, at=at, header=header, workers=tuple(workers), hosts=hosts)
        try:
            return self._part(look, self._reader)
        except (ActorprocError, OSError, ValueError, TypeError) as error:
            return replace(look, trouble=plain_line(error))

    # ------------------------------------------------------------ the manager
    def _manager(self, reader: StoreReader) -> tuple[Header, list[WorkerRow], tuple[HostInfo, ...]]:
        owner = reader.owner()
        counts = self._counts.of(None, lambda: reader.stats().states)
        if owner is None:
            self._leave()
            self._all_changed()
            self._known_types = ()
            return header_of(status="stopped", counts=counts), [], ()
        now = time.monotonic()
        if now >= self._ask_at:
            try:
                client = self._open()
                metrics, health, workers = self._timed(lambda: (client.metrics(), client.health(), client.workers()))
                self._hear()
                self._known_types = health.types
                rates = self._rates.take(metrics)
                header = header_of(pid=owner.pid, health=health, metrics=metrics, rates=rates, counts=counts)
                return header, self._meter.rows(workers, time.monotonic()), health.hosts
            except ActorprocError as error:
                self._leave()
                self._refusal = "hung" if isinstance(error, ManagerStopped) else "refused"
                self._problem, self._ask_at = plain_line(error), time.monotonic() + _AGAIN
        self._all_changed()
        return header_of(status=self._refusal, pid=owner.pid, counts=counts, problems=(self._problem,)), [], ()

    def _timed(self, ask: Callable[[], _T]) -> _T:
        """The answer of a manager that may be stopped in the middle. Raises `ManagerStopped` when none comes."""
        answer = self._asker.submit(ask)
        try:
            return answer.result(_PATIENCE + 0.5)
        except FutureTimeout:
            owner = self._reader.owner() if self._reader is not None else None
            self._leave()  # ends the call that waits
            pid = f"process {owner.pid}" if owner is not None else "the manager"
            advice = f"; if it was stopped: kill -CONT {owner.pid}" if owner is not None else ""
            raise ManagerStopped(f"{pid} has the store and does not answer{advice}") from None

    def _open(self) -> ProcedureClient:
        if self._client is None:
            self._client = ProcedureClient(self.path, patience=_PATIENCE)
            self._watch = self._client.watch(digest=0.5)
            self._all_changed()
        return self._client

    def _leave(self) -> None:
        for part in (self._watch, self._client):
            if part is not None:
                with contextlib.suppress(ActorprocError):
                    part.close()
        self._watch = self._client = None

    def _hear(self) -> None:
        """Take what has changed since the last look; it is shown until the rows are read again."""
        if len(self._told) > _SEARCHED:
            self._told.clear()
        while self._watch is not None:
            try:
                digest = self._watch.next(0)
            except ResultTimeout:
                return
            except ManagerStopped:  # it never answered
                digest = None
            if digest is None:
                self._leave()
                return
            self._all_changed()
            for row in digest.rows:
                self._told[row.id] = row

    def _all_changed(self) -> None:
        for kept in (self._counts, self._listed, self._groups, self._locks, self._details):
            kept.changed()

    # ------------------------------------------------------------ parts
    def _part(self, look: Look, reader: StoreReader) -> Look:
        wanted = look.wanted
        match wanted.pane:
            case "now":
                known = self._known_types
                rows = self._listed.of((wanted, known), lambda: self._in_trouble(reader, wanted.limit, known))
                groups = self._groups.of(None, lambda: self._failures(reader))
                return replace(look, rows=self._live(rows, look), groups=tuple(groups))
            case "procedures":
                rows = self._listed.of(wanted, lambda: self._matching(reader, wanted))
                shown = self._live(rows[: wanted.limit], look)
                return replace(look, rows=shown, is_more=len(rows) > wanted.limit)
            case "hosts":
                return look
            case "locks":
                lines = self._locks.of(None, lambda: list(graph_lines(wait_graph_of(reader.locks()))))
            case "activity":
                requests = reader.audit_log(limit=_REQUESTS)
                lines = [(f"{row.id or 'manager'}  {request_words(row, look.at)}", row.id or "") for row in requests]
            case "procedure":
                if wanted.detail in ("why", "logs", "stack"):  # these change without a commit
                    self._details.changed()
                client = self._client
                question = (wanted, client is None)
                path = path_option(self.path, reader.path)
                answers = lambda: list(detail_lines(client, reader, wanted, look.at, path))  # noqa: E731
                lines = self._timed(lambda: self._details.of(question, answers))
        return replace(look, lines=tuple((plain_line(text), id) for text, id in lines))

    def _in_trouble(self, reader: StoreReader, limit: int, known: tuple[str, ...]) -> list[ProcedureRow]:
        """Rows of what stands still, and of types that the manager does not know."""
        self._told.clear()
        found = {info.id: row_of(info) for info in reader.list(phase=_TROUBLE, limit=limit)}
        for name in reader.types() if known else ():
            if name not in known:
                says = plain_line(no_class_registered(name, known))
                for info in reader.list(type_name=name, state=_LIVE, limit=limit):
                    found[info.id] = replace(row_of(info), phase="parked", tone="bad", why=says)
        return list(found.values())[:limit]

    def _failures(self, reader: StoreReader) -> list[FailureGroup]:
        failed = reader.list(state=ProcedureState.FAILED, newest_first=True, limit=_FAILED)
        return failure_groups(failed)

    def _matching(self, reader: StoreReader, wanted: Wanted) -> list[ProcedureRow]:
        """One row more than is wanted, if there is one."""
        self._told.clear()
        found: list[ProcedureRow] = []
        for info in self._infos(reader, wanted):
            row = row_of(info)
            if wanted.text.lower() in f"{row.id} {row.type_name} {row.why}".lower():
                found.append(row)
                if len(found) > wanted.limit:
                    break
        return found

    def _infos(self, reader: StoreReader, wanted: Wanted) -> Iterator[ProcedureInfo]:
        filters = dict(wanted.filters)
        limit = _SEARCHED if wanted.text else wanted.limit + 1
        if filters.get("type_name"):
            filters["type_name"] = whole_type(filters["type_name"], reader.types())
        if filters:
            yield from reader.list(newest_first=True, limit=limit, **filters)
            return
        for states in (frozenset(ProcedureState) - _ENDED_WELL, _ENDED_WELL):
            yield from reader.list(state=states, roots_only=True, newest_first=True, limit=limit)

    def _live(self, rows: Sequence[ProcedureRow], look: Look) -> tuple[ProcedureRow, ...]:
        """Rows with what digests and workers have told since they were read."""
        in_hand = {worker.procedure: worker for worker in look.workers if worker.procedure is not None}
        found = []
        for row in rows:
            shown = told(row, self._told[row.id], look.at) if row.id in self._told else row
            worker = in_hand.get(row.id)
            if worker is not None:
                shown = replace(shown, progress=worker.progress, why=worker.message or shown.why)
            found.append(shown)
        return tuple(found)
