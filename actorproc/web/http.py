"""Requests and answers of HTTP: bodies, methods, headers, ETags, and outcomes that are told one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from actorproc.web.answers import ApiError, encoded, tag_of
from actorproc.web.api.bulk import BulkRun

__all__ = ["WITHIN", "NotThisMethod", "OutcomeStream", "answer_of", "body_of", "check_method", "finish", "json_answer"]

_BODY = 1 << 20
"""Bytes of the body of a request."""
WITHIN = 10.0
"""Seconds for an answer."""
_CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'self'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _CSP,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "X-Frame-Options": "DENY",
}


class NotThisMethod(ApiError):
    """The refusal of a method.

    Args:
        method: That of the request.
        allowed: Those that the path has.
    """

    def __init__(self, method: str, allowed: Sequence[str]) -> None:
        super().__init__(405, f"{method:.20} is not possible here", f"the methods are {', '.join(allowed)}")
        self.allowed = allowed


class OutcomeStream(Response):
    """Outcomes of a bulk run, one line each, as they come. A browser that leaves stops it."""

    media_type = "application/x-ndjson"

    def __init__(self, run: BulkRun, executor: Executor) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._run = run
        self._executor = executor

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        loop = asyncio.get_running_loop()
        rows = iter(self._run)
        leaving = loop.create_task(self._until_gone(receive))
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        try:
            while (row := await loop.run_in_executor(self._executor, next, rows, None)) is not None:
                line = encoded(row) + b"\n"
                await send({"type": "http.response.body", "body": line, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._run.stop()
            leaving.cancel()
            await asyncio.gather(leaving, return_exceptions=True)

    async def _until_gone(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._run.stop()


def check_method(request: Request, *methods: str) -> None:
    """Refuse other methods. Raises `NotThisMethod`."""
    if request.method not in methods:
        raise NotThisMethod(request.method, methods)


async def body_of(request: Request) -> dict[str, Any]:
    """The JSON object that a request brings. Raises `ApiError` (413, 400)."""
    given = request.headers.get("content-length", "0")
    if given.isdecimal() and int(given) > _BODY:
        raise ApiError(413, f"the body has {given} bytes; {_BODY} are the most")
    body = bytearray()
    async with asyncio.timeout(WITHIN):
        async for chunk in request.stream():
            body += chunk
            if len(body) > _BODY:
                raise ApiError(413, f"the body has more than {_BODY} bytes")
    try:
        found = msgspec.json.decode(body or b"{}")
    except (msgspec.DecodeError, RecursionError) as error:
        raise ApiError(400, f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body is no JSON object")
    return found


def json_answer(request: Request, body: dict[str, Any]) -> Response:
    """An object or a list; a list as lines, for a request that accepts them."""
    if body.get("object") == "list" and "application/x-ndjson" in request.headers.get("accept", ""):
        lines = b"".join(encoded(item) + b"\n" for item in body["items"])
        return answer_of(request, lines, "application/x-ndjson")
    return answer_of(request, encoded(body))


def answer_of(request: Request, body: bytes, kind: str = "application/json") -> Response:
    """Bytes of a kind, with their tag; nothing when the client has them already."""
    headers = {"Vary": "Accept, Cookie, Authorization"}
    if request.method in ("GET", "HEAD"):
        headers["ETag"] = tag_of(body)
        if headers["ETag"] in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
    return Response(body, headers=headers, media_type=kind)


def finish(response: Response, request: Request) -> None:
    """Headers of all answers; a HEAD has no body."""
    for name, value in _HEADERS.items():
        response.headers[name] = value
    if "cache-control" not in response.headers:
        response.headers["Cache-Control"] = "no-store"
    if request.method == "HEAD":
        response.body = b""
