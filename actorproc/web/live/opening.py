"""Live events of one request: its topics, its place among the streams, and its user, who may log out meanwhile."""

from __future__ import annotations

import asyncio
import logging

from starlette.requests import Request
from starlette.types import Receive, Send

from actorproc.web.access import Access, HostAccess
from actorproc.web.answers import ApiError
from actorproc.web.live.hub import EventHub
from actorproc.web.live.stream import EventStream, Topics, event_bytes

__all__ = ["serve_stream"]

logger = logging.getLogger("actorproc.web")

_CHECK_AGAIN = 5.0
"""Seconds after which the host is asked again whether the user of a stream is still logged in."""


async def serve_stream(hub: EventHub, access: Access, request: Request, receive: Receive, send: Send) -> None:
    """Send events until the browser leaves, the page stops, or the user has logged out. Raises `ApiError`.

    Args:
        hub: All streams.
        access: Asked for the user.
        request: Of the browser.
        receive: ASGI's.
        send: ASGI's.
    """
    await access.user(request, "look", None)
    topics = Topics(_topics_of(request))
    look = await hub.look()
    if hub.is_full:  # from here to the place among the streams nothing else runs
        raise ApiError(429, f"{len(hub.streams)} live streams are open, as many as may be", "close a page")
    if hub.is_closed:
        raise ApiError(503, "the page is being stopped", "come again")
    last = request.headers.get("last-event-id") or request.query_params.get("after")
    stream = EventStream(topics)
    checking: asyncio.Task[None] | None = None
    try:
        first = list(hub.join(stream, look, last))
        if isinstance(access, HostAccess):
            checking = asyncio.get_running_loop().create_task(_check_again(access, request, stream))
        await stream.run(receive, send, first)
    finally:
        hub.leave(stream)
        if checking is not None:
            checking.cancel()
            await asyncio.gather(checking, return_exceptions=True)


async def _check_again(access: Access, request: Request, stream: EventStream) -> None:
    """End a stream whose user has logged out."""
    while not stream.is_over:
        await asyncio.sleep(_CHECK_AGAIN)
        try:
            await access.user(request, "look", None)
        except ApiError as error:
            stream.end(event_bytes("bye", {"says": str(error)}))
        except Exception:
            logger.exception("authorize= failed while a stream was open; the stream is ended")
            stream.end(event_bytes("bye", {"says": "the login could not be checked"}))


def _topics_of(request: Request) -> str:
    # Commas within an id are percent-encoded once more: so the raw text is split first.
    raw = request.scope.get("query_string", b"").decode("latin-1")
    for pair in raw.split("&"):
        name, _, value = pair.partition("=")
        if name == "topics":
            return str(value.replace("%2C", ",").replace("%2c", ",").replace("%3A", ":").replace("%3a", ":"))
    return ""
