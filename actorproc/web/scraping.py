"""Metrics for a scraper, in an application of their own: one line in a program without the pages."""

from __future__ import annotations

import asyncio
import gzip
import os
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from actorproc.report.metrics import CONTENT_TYPE
from actorproc.web.source import PageSource

if TYPE_CHECKING:
    from actorproc.api.manager import ProcedureManager

__all__ = ["create_metrics_app", "exposed"]


def create_metrics_app(source: str | os.PathLike[str] | ProcedureManager) -> ASGIApp:
    """The metrics of a manager for Prometheus, as an ASGI application. It has no login.

    It starts nothing before the first request. Where no manager answers, ``actorproc_manager_up 0`` is all it says. In
    several server processes each answers with the values of the one manager.

    Args:
        source: A manager of this process, or the directory or URL of a store whose manager runs elsewhere.

    Returns:
        The application, for `app.add_route("/metrics", …)` of FastAPI and Starlette, or a `mount`.
    """
    return _MetricsApp(PageSource(source))


def exposed(request: Request, text: str) -> Response:
    """An answer with the text for Prometheus, packed where the scraper takes that.

    Args:
        request: Of the scraper.
        text: The metrics.

    Returns:
        The answer.
    """
    body, headers = text.encode(), {"Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        body, headers["Content-Encoding"] = gzip.compress(body, 1), "gzip"
    return Response(body, headers=headers, media_type=CONTENT_TYPE)


class _MetricsApp:
    def __init__(self, source: PageSource) -> None:
        self._source = source
        self._asking = asyncio.Semaphore(2)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1003})
            return
        if scope["method"] not in ("GET", "HEAD"):
            response = Response(status_code=405, headers={"Allow": "GET, HEAD"})
        else:
            async with self._asking:  # a manager that hangs costs two threads, not one for each scrape
                response = exposed(Request(scope), await asyncio.to_thread(self._source.exposition))
        await response(scope, receive, send)
