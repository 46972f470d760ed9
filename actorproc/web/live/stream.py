"""The stream of one browser: server-sent events that wait to be sent, and what it wants to hear."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from typing import Any
from urllib.parse import unquote

from starlette.types import Receive, Send

from actorproc.web.answers import ApiError, encoded

__all__ = ["EventStream", "Topics", "event_bytes"]

_WAITING = 256 << 10
"""Bytes that may wait for a browser."""
_UNREAD = 30.0
"""Seconds for which a browser may take nothing."""
_PING = 15.0
_RATE = 20 << 10
"""Bytes a second that rows of changes may take of a stream; beyond it their number is told."""
_BURST = 48 << 10
_MOST_TOPICS = 64
_PLAIN = frozenset({"status", "procedures", "locks", "workers", "activity"})
_OF_ONE = ("procedure", "log")


class Topics:
    """Subjects of a stream.

    Args:
        text: Names, separated by commas.
    """

    def __init__(self, text: str) -> None:
        parts = [unquote(part) if "%" in part else part for part in text.split(",") if part]
        if len(parts) > _MOST_TOPICS:
            raise ApiError(422, f"{len(parts)} topics are too many; {_MOST_TOPICS} are the most")
        self.plain = frozenset(part for part in parts if part in _PLAIN)
        self.procedures: set[str] = set()
        self.logs: set[str] = set()
        for part in parts:
            kind, colon, id = part.partition(":")
            if colon and id and kind in _OF_ONE:
                (self.procedures if kind == "procedure" else self.logs).add(id)
            elif part not in _PLAIN:
                known = ", ".join((*sorted(_PLAIN), "procedure:ID", "log:ID"))
                raise ApiError(422, f"there is no topic {part!r:.60}", f"the topics are {known}")


def event_bytes(name: str, data: Any, id: str | None = None) -> bytes:
    """An event as it is sent."""
    head = f"id: {id}\n" if id is not None else ""
    return f"{head}event: {name}\ndata: ".encode() + encoded(data) + b"\n\n"


class EventStream:
    """Events that wait for one browser. All methods but `run` return at once.

    Args:
        topics: Its subjects.
    """

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.cursors: dict[str, str | None] = dict.fromkeys(topics.logs)
        """Place in the log of each procedure up to which it was told."""
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._in_flight = 0
        """Bytes that the server has been given and has not taken."""
        self._taken_at = time.monotonic()
        """Moment at which the browser last took something, or nothing waited."""
        self._ready = asyncio.Event()
        self._is_over = False
        self._is_cut = False
        self._room = float(_BURST)
        self._room_at = time.monotonic()

    @property
    def is_over(self) -> bool:
        """Nothing more is put in."""
        return self._is_over

    def put(self, event: bytes) -> None:
        """Send an event; a browser that does not take its events is cut."""
        if self._is_over:
            return
        if not self._bytes + self._in_flight:
            self._taken_at = time.monotonic()
        if self._bytes + self._in_flight + len(event) > _WAITING or self.is_stuck:
            self.cut("the browser did not take its events in time")
            return
        self._waiting.append(event)
        self._bytes += len(event)
        self._ready.set()

    @property
    def is_stuck(self) -> bool:
        """Something has waited too long."""
        return self._bytes + self._in_flight > 0 and time.monotonic() - self._taken_at > _UNREAD

    def put_rows(self, event: bytes, fewer: bytes) -> None:
        """Send rows of changes, or `fewer` when they would take more bytes a second than a stream may."""
        now = time.monotonic()
        self._room = min(float(_BURST), self._room + (now - self._room_at) * _RATE)
        self._room_at = now
        if len(event) <= self._room:
            self._room -= len(event)
            self.put(event)
        else:
            self.put(fewer)

    def cut(self, says: str) -> None:
        """End it: what waits is dropped, and the browser is told to ask again for what it shows."""
        self._waiting.clear()
        self._is_cut = True
        self.end(event_bytes("reset", {"says": says}))

    def end(self, last: bytes) -> None:
        """End it after what waits, and a last event."""
        if not self._is_over:
            self._is_over = True
            self._waiting.append(last)
            self._ready.set()

    async def run(self, receive: Receive, send: Send, first: Iterable[bytes]) -> None:
        """Send until the browser leaves or the stream ends.

        Args:
            receive: Of the request; told of the browser's end.
            send: Of the request.
            first: Events that are sent at once.
        """
        headers = [
            (b"content-type", b"text/event-stream; charset=utf-8"),
            (b"cache-control", b"no-store, no-transform"),
            (b"x-accel-buffering", b"no"),
            (b"content-encoding", b"identity"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": [*headers, *_SAFE_HEADERS]})
        gone = asyncio.ensure_future(_until_gone(receive))
        sending = asyncio.ensure_future(self._send_all(send, b"".join(first)))
        try:
            while not sending.done() and not gone.done():
                await asyncio.wait((gone, sending), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                if self.is_stuck and not self._is_over:
                    self.cut("the browser did not take its events in time")
                if self._is_cut and not sending.done():
                    await asyncio.wait((gone, sending), timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
                    break
        finally:
            self._is_over = True
            for task in (gone, sending):
                task.cancel()
            await asyncio.gather(gone, sending, return_exceptions=True)

    async def _send_all(self, send: Send, first: bytes) -> None:
        await send({"type": "http.response.body", "body": b"retry: 1000\n: actorproc\n\n" + first, "more_body": True})
        while True:
            if not self._waiting:
                if self._is_over:
                    break
                self._ready.clear()
                try:
                    await asyncio.wait_for(self._ready.wait(), _PING)
                except TimeoutError:
                    await self._send(send, b": ping\n\n")
                continue
            body = b"".join(self._waiting)
            self._waiting.clear()
            self._bytes = 0
            await self._send(send, body)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send, body: bytes) -> None:
        """Give the server some bytes; they count as waiting until it has taken them."""
        self._in_flight = len(body)
        self._taken_at = time.monotonic()
        await send({"type": "http.response.body", "body": body, "more_body": True})
        self._in_flight = 0
        self._taken_at = time.monotonic()


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


_SAFE_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
