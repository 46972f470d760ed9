"""One watch of the manager for all browsers: opened with the first stream, closed with the last one."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, TypeVar

from actorproc.errors import ActorprocError
from actorproc.model.plain import plain_dict
from actorproc.report.changes import ChangeDigest
from actorproc.report.schema.shape import iso
from actorproc.web.answers import shaped_all
from actorproc.web.api.filters import with_store
from actorproc.web.api.reading import live_part
from actorproc.web.live.stream import EventStream, event_bytes

if TYPE_CHECKING:
    from actorproc.api.watch import Watch
    from actorproc.web.dashboard import Dashboard
    from actorproc.web.source import ManagerLook

__all__ = ["EventHub"]

logger = logging.getLogger("actorproc.web")

_T = TypeVar("_T")
_TICK = 0.5
"""Seconds between looks at the manager while a stream is open."""
_KEPT = 128
"""Events that a browser which comes back may still get."""
_LIGHT = ("manager", "live", "status", "pid", "host", "says", "do", "busy", "workers", "queued", "rates")
_LOG_LINES = 200


class EventHub:
    """All streams of one page in one process. Its methods are called on one event loop.

    Args:
        board: Of the page.
        executor: Runs what blocks.
        most: Streams that may be open.
    """

    def __init__(self, board: Dashboard, executor: Executor, most: int = 64) -> None:
        self._board = board
        self._executor = executor
        self._most = most
        self.streams: set[EventStream] = set()
        self._epoch = secrets.token_hex(4)
        self._seq = 0
        self._past: deque[tuple[int, Any, bytes, bytes]] = deque(maxlen=_KEPT)
        """Number, rows, event for all and its short form."""
        self._state = ""
        self._status: dict[str, Any] | None = None
        self._is_dirty = False
        self._asked: float | None = None
        """Moment of the newest request of an operator."""
        self._task: asyncio.Task[None] | None = None
        self._watch: Watch[ChangeDigest] | None = None
        self._is_closed = False
        self._has_heard = False
        """A watch was open before, since the first stream was."""

    @property
    def is_full(self) -> bool:
        """No further stream may be opened."""
        return len(self.streams) >= self._most

    @property
    def is_watching(self) -> bool:
        """The manager is being watched for the streams."""
        return self._watch is not None

    def join(self, stream: EventStream, look: ManagerLook, last: str | None) -> Iterator[bytes]:
        """Add a stream; the events that it is sent at once.

        Args:
            stream: Of one browser.
            look: At the manager, just now.
            last: Id of the last event that it has seen; None: it is new.
        """
        is_first = not self.streams
        self.streams.add(stream)
        if is_first and self._task is None:
            # Nothing was heard meanwhile, so that no event of before can be gone on from.
            self._epoch, self._seq = secrets.token_hex(4), 0
            self._past.clear()
            self._has_heard = False
            self._task = asyncio.get_running_loop().create_task(self._run())
        hello = {"epoch": self._epoch, "seq": self._seq, "manager": look.state, "at": iso(time.time())}
        yield event_bytes("hello", hello, f"{self._epoch}-{self._seq}")
        if last is not None:
            yield from self._missed(stream, last)
        if "status" in stream.topics.plain and self._status is not None:
            yield event_bytes("status", self._status)

    async def look(self) -> ManagerLook:
        """State of the manager."""
        return await self._in_thread(self._board.source.look)

    def leave(self, stream: EventStream) -> None:
        """Remove a stream; with the last one the watch is closed."""
        self.streams.discard(stream)

    async def close(self) -> None:
        """End all streams, and the watch. Idempotent."""
        self.refuse()
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._unwatch()

    def refuse(self) -> None:
        """Take no further streams, and end those that are open."""
        self._is_closed = True
        self.end_streams("the page is being stopped")

    def shut(self) -> None:
        """Let go of the threads, for good."""
        self._executor.shutdown(wait=False)

    def reopen(self) -> None:
        """Take streams again."""
        self._is_closed = False

    def end_streams(self, says: str) -> None:
        """Tell all browsers that it is over."""
        for stream in list(self.streams):
            stream.end(event_bytes("bye", {"says": says}))

    @property
    def is_closed(self) -> bool:
        """The page is being stopped."""
        return self._is_closed

    # ------------------------------------------------------------ events
    def _missed(self, stream: EventStream, last: str) -> Iterator[bytes]:
        """Events since the one that a browser saw last, or a reset."""
        epoch, _, number = last.rpartition("-")
        seq = int(number) if number.isdecimal() and len(number) < 16 else -1
        oldest = self._past[0][0] if self._past else self._seq + 1
        if epoch != self._epoch or not oldest - 1 <= seq <= self._seq:
            yield event_bytes("reset", {"says": "events were missed: ask again for what is shown"})
            return
        for at, rows, whole, fewer in self._past:
            if at > seq:
                found = _for(stream, rows, whole, fewer)
                if found is not None:
                    yield found[0]

    def _tell(self, digest: ChangeDigest) -> None:
        """Pass on what has changed."""
        self._is_dirty = True
        self._seq += 1
        id = f"{self._epoch}-{self._seq}"
        if not digest.is_whole:
            whole = fewer = event_bytes("many", {"many": digest.omitted}, id)
            rows: Any = None
        else:
            rows = {"rows": [plain_dict(row) for row in digest.rows], "removed": list(digest.removed)}
            rows["at"] = iso(digest.at)
            whole = event_bytes("dirty", rows, id)
            fewer = event_bytes("many", {"many": len(digest.rows) + len(digest.removed)}, id)
        self._past.append((self._seq, (id, rows), whole, fewer))
        for stream in self.streams:
            found = _for(stream, (id, rows), whole, fewer)
            if found is not None:
                stream.put_rows(*found)

    # ------------------------------------------------------------ the task
    async def _run(self) -> None:
        """Watch while a stream is open."""
        hearing: asyncio.Task[None] | None = None
        try:
            while self.streams:
                look = await self.look()
                self._tell_manager(look)
                if look.is_up and (hearing is None or hearing.done()):
                    hearing = asyncio.get_running_loop().create_task(self._hear())
                await self._tick(look)
                await asyncio.sleep(_TICK)
        except Exception:
            logger.exception("the live events of the page have ended; they begin anew with the next stream")
            self.end_streams("an error inside the page; its log has the traceback")
            self.streams.clear()
        finally:
            self._task = None
            self._state = ""
            if hearing is not None:
                hearing.cancel()
                await asyncio.gather(hearing, return_exceptions=True)
            await self._unwatch()
            if self.streams and not self._is_closed:  # one came while the watch was being closed
                self._task = asyncio.get_running_loop().create_task(self._run())

    async def _hear(self) -> None:
        """Take digests until the watch ends, which it does when the manager is gone for long."""
        try:
            self._watch = await self._in_thread(self._board.source.watch)
            if self._has_heard:  # what happened in between is not known
                self._tell(ChangeDigest(at=time.time(), omitted=None))
            self._has_heard = True
            async for digest in self._watch:
                self._tell(digest)
        except ActorprocError:
            pass
        finally:
            await self._unwatch()

    async def _unwatch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            with contextlib.suppress(ActorprocError):
                await asyncio.shield(asyncio.get_running_loop().run_in_executor(None, watch.close))

    def _tell_manager(self, look: ManagerLook) -> None:
        if look.state == self._state:
            return
        self._state = look.state
        event = event_bytes("manager", {"manager": look.state, "pid": look.pid, "says": look.says, "do": look.do})
        for stream in self.streams:
            stream.put(event)

    async def _tick(self, look: ManagerLook) -> None:
        """Tell what changes without a commit, and what is told in parts only."""
        wanted = frozenset().union(*(stream.topics.plain for stream in self.streams)) if self.streams else frozenset()
        is_dirty, self._is_dirty = self._is_dirty, False
        if "status" in wanted:
            status = await self._in_thread(self._light)
            if status is not None and status != self._status:
                self._status = status
                self._put("status", event_bytes("status", status))
        if "workers" in wanted and look.is_up:
            with contextlib.suppress(ActorprocError):
                rows = await self._in_thread(self._board.workers)
                self._put("workers", event_bytes("workers", {"items": rows, "hosts": self._board.hosts()}))
        if is_dirty and "locks" in wanted:
            self._put("locks", event_bytes("locks", {}))
        if "activity" in wanted:
            await self._tell_activity()
        await self._tell_logs()

    def _put(self, topic: str, event: bytes) -> None:
        for stream in self.streams:
            if topic in stream.topics.plain:
                stream.put(event)

    def _light(self) -> dict[str, Any] | None:
        """The part of the status that is cheap."""
        source = self._board.source
        look = source.look()
        part = live_part(self._board)
        try:
            counts, paused = source.read(with_store(lambda store: (store.count_states(), store.paused)))
        except (ActorprocError, OSError):
            return None
        found = {name: part[name] for name in _LIGHT}
        states = {str(state): count for state, count in counts.items()}
        problems = list(look.health.problems) if look.health is not None else []
        return {**found, "states": states, "paused": paused, "problems": problems}

    async def _tell_activity(self) -> None:
        def newest() -> float:
            rows = self._board.source.read(lambda reader: reader.audit_log(limit=1), slow=True)
            return rows[0].at if rows else 0.0

        with contextlib.suppress(ActorprocError, OSError):
            at = await self._in_thread(lambda: self._board.kept("activity", newest))
            before, self._asked = self._asked, at
            if before is not None and at != before:
                self._put("activity", event_bytes("activity", {}))

    async def _tell_logs(self) -> None:
        for id in {id for stream in self.streams for id in stream.topics.logs}:
            try:
                entries = await self._in_thread(
                    lambda id=id: self._board.source.known(lambda source: source.logs(id))  # type: ignore[misc]
                )
            except (ActorprocError, OSError):
                continue
            for stream in self.streams:
                if id in stream.topics.logs:
                    items, after = self._board.logs_after(entries, stream.cursors.get(id), _LOG_LINES)
                    stream.cursors[id] = after
                    if items:
                        event = {"id": id, "items": shaped_all("log", items), "next": after}
                        stream.put(event_bytes("log", event))

    async def _in_thread(self, ask: Callable[[], _T]) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, ask)


def _for(stream: EventStream, told: tuple[str, Any], whole: bytes, fewer: bytes) -> tuple[bytes, bytes] | None:
    """The event as a stream wants it, and its short form; None: it does not concern it."""
    id, rows = told
    if "procedures" in stream.topics.plain:
        return whole, fewer
    wanted = stream.topics.procedures
    if not wanted:
        return None
    if rows is None:
        return whole, fewer
    found = [row for row in rows["rows"] if row["id"] in wanted or row["root"] in wanted]
    gone = [name for name in rows["removed"] if name in wanted]
    if not found and not gone:
        return None
    own = event_bytes("dirty", {"rows": found, "removed": gone, "at": rows["at"]}, id)
    return own, fewer
