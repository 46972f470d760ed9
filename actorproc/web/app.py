"""The ASGI application of the pages: routes, limits, headers. Pure ASGI, so that it can be mounted anywhere."""

from __future__ import annotations

import asyncio
import getpass
import logging
import os
from collections.abc import AsyncIterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Literal

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from actorproc.errors import UsageError
from actorproc.report.schema.shape import VERSION
from actorproc.ui.text import plain_line
from actorproc.ui.verbs import VERBS
from actorproc.web.access import Access, Authorize, HostAccess, TokenAccess, cookie_name, public_address, same_origin
from actorproc.web.answers import ApiError, encoded, error_of
from actorproc.web.api.acting import WORDS
from actorproc.web.api.bulk import BulkRun
from actorproc.web.api.openapi import openapi_document
from actorproc.web.api.operations import CheckedRequest, Operation, given_of
from actorproc.web.api.reading import prometheus
from actorproc.web.api.table import OPERATIONS
from actorproc.web.dashboard import Dashboard
from actorproc.web.files import PageFiles
from actorproc.web.http import (
    WITHIN,
    NotThisMethod,
    OutcomeStream,
    answer_of,
    body_of,
    check_method,
    finish,
    json_answer,
)
from actorproc.web.live.hub import EventHub
from actorproc.web.live.opening import serve_stream
from actorproc.web.payloads import PayloadMode, Payloads, Redact
from actorproc.web.scraping import exposed
from actorproc.web.source import PageSource

if TYPE_CHECKING:
    from actorproc.api.manager import ProcedureManager

__all__ = ["PageApp", "create_app"]

logger = logging.getLogger("actorproc.web")

_AT_ONCE = 8
"""Requests that are answered at once."""
_QUEUE = 64
"""Requests that may wait for that."""
_OTHER_VERBS = ("signal", "publish", "withdraw", "clear-poison")


def create_app(
    source: str | os.PathLike[str] | ProcedureManager,
    authorize: Authorize | Literal["host"] | None = None,
    *,
    token: str | None = None,
    hosts: Sequence[str] = (),
    public_url: str | None = None,
    prefix: str = "",
    read_only: bool = False,
    payloads: PayloadMode = "shown",
    redact: Redact | None = None,
    title: str = "actorproc",
    streams: int = 64,
) -> PageApp:
    """The dashboard as an ASGI application, to be mounted below a path of another one, behind its login.

    It starts nothing before the first request, and needs no lifespan. Reading goes to the store itself and needs no
    manager.

    Args:
        source: A manager of this process, or the directory or URL of a store.
        authorize: Called as ``authorize(request, verb, id)`` for each request, a coroutine function or a plain one,
            which then runs in a thread. It returns the user's name for the audit, or None to refuse. ``verb`` is
            "look" for all that only reads, else the verb. The word "host" says that the program has checked the user
            before. One of ``authorize`` and ``token`` is needed. Default: None.
        token: Secret in place of ``authorize``, as `actorproc web` makes one. Default: None.
        hosts: Names that the header ``Host`` may have. Default: any; the login of the host then is the only guard.
        public_url: Address of the pages as browsers see it, where a proxy changes names. Default: None, that of each
            request.
        prefix: Path below which a proxy passes requests on unchanged, such as "/ops". Default: "", none.
        read_only: Refuse all verbs. Default: False.
        payloads: "hidden" shows no states, inputs and outputs. Default: "shown"; secrets are masked in any case.
        redact: Called as ``redact(type_name, path, value)`` for each value of a state; what it returns is shown.
            Default: None.
        title: Of the pages.
        streams: Live streams that may be open at once, in each process. Default: 64.

    Returns:
        The application.

    Raises:
        UsageError: Neither or both of ``authorize`` and ``token`` are given, or ``public_url`` or ``prefix`` is none.
    """
    if (authorize is None) == (token is None):
        raise UsageError(
            "say who may come in: create_app(source, authorize=…) with a function that returns the user's name or "
            'None, or authorize="host" when the program around it has checked that already'
        )
    page = PageSource(source)
    public, base = public_address(public_url)
    access: Access
    if token is not None:
        cookie = cookie_name(page.words, public_url or ",".join(sorted(hosts)))
        access = TokenAccess(token, cookie=cookie, user=_user(), hosts=hosts, public=public)
    else:
        assert authorize is not None
        access = HostAccess(authorize, hosts=hosts, public=public)
    return PageApp(
        Dashboard(page, Payloads(payloads, redact)),
        access,
        PageFiles(title),
        prefix=_prefix(prefix),
        base=base,
        read_only="the page was started read-only" if read_only else "",
        streams=streams,
    )


def _user() -> str:
    try:
        return f"{getpass.getuser()} (web)"
    except (KeyError, OSError):
        return "web"


def _prefix(text: str) -> str:
    found = text.rstrip("/")
    if found and (not found.startswith("/") or "//" in found or any(c in found for c in "?#%\\ ")):
        raise UsageError(f"prefix is a path such as /ops, not {text!r:.80}")
    return found


class PageApp:
    """The ASGI application. Made by `create_app`.

    Args:
        board: All answers.
        access: Admission of requests.
        files: Of the pages.
        prefix: Path below which it is reached, besides that of the mount.
        base: Path of the pages as browsers see it; None: that of each request.
        read_only: Reason why verbs are refused; "": they are not.
        streams: Live streams that may be open.
    """

    def __init__(
        self,
        board: Dashboard,
        access: Access,
        files: PageFiles,
        *,
        prefix: str,
        base: str | None,
        read_only: str,
        streams: int,
    ) -> None:
        self.board = board
        self.access = access
        self.read_only = read_only
        self._files = files
        self._prefix = prefix
        self._base = base
        self._executor = ThreadPoolExecutor(_AT_ONCE, "actorproc-web")
        self.hub = EventHub(board, ThreadPoolExecutor(2, "actorproc-live"), streams)
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        self._openapi = b""
        self._routes = [
            (Route(f"/api/v1{operation.path}", endpoint=_nothing, methods=[operation.method]), operation)
            for operation in OPERATIONS
        ]

    # ------------------------------------------------------------ life
    @asynccontextmanager
    async def running(self) -> AsyncIterator[PageApp]:
        """End the live streams at the end of a block, for hosts that have a lifespan of their own. May be nested."""
        try:
            yield self
        finally:
            await self.close()

    async def close(self) -> None:
        """End the live streams, and let go of the store. A request that comes later opens it again."""
        await self.hub.close()
        await asyncio.to_thread(self.board.source.close)
        self.hub.reopen()

    def shut(self) -> None:
        """Let go of the threads too, for good."""
        self._executor.shutdown(wait=False)
        self.hub.shut()

    # ------------------------------------------------------------ requests
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "lifespan":
            await _lifespan(self, receive, send)
            return
        if scope["type"] != "http":
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1003})
            return
        request = Request(scope, receive)
        path, base = self._place(scope)
        try:
            self.access.check_host(request)
            response = await self._answer(request, path, base, receive, send)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - it is answered, and an unforeseen one is logged
            response = self._refusal(request, error)
        if response is not None:
            finish(response, request)
            await response(scope, receive, send)

    def _place(self, scope: Scope) -> tuple[str, str]:
        """The path below all prefixes, and the base of all links."""
        path, root = scope["path"], scope.get("root_path", "").rstrip("/")
        if root and (path == root or path.startswith(root + "/")):
            path = path[len(root) :]
        if self._prefix and (path == self._prefix or path.startswith(self._prefix + "/")):
            path = path[len(self._prefix) :]
        base = self._base if self._base is not None else f"{root}{self._prefix}/"
        return path or "/", base

    async def _answer(self, request: Request, path: str, base: str, receive: Receive, send: Send) -> Response | None:
        if path.startswith("/static/"):
            return self._static(request, path.removeprefix("/static/"))
        if path == "/events":
            check_method(request, "GET")
            same_origin(request, self.access.public)
            await serve_stream(self.hub, self.access, request, receive, send)
            return None
        if path == "/session":
            return await self._session(request, base)
        if path in ("/metrics", "/api") or path.startswith("/api/"):
            same_origin(request, self.access.public)
            self.access.check_intent(request)
            return await self._call(request, path)
        return self._page(request, path, base)

    # ------------------------------------------------------------ pages
    def _static(self, request: Request, path: str) -> Response:
        check_method(request, "GET", "HEAD")
        found = self._files.get(path)
        if found is None:
            raise ApiError(404, f"there is no file {path!r:.80}")
        headers = {"ETag": found.tag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
        if found.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        body = found.body
        if found.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
            body, headers["Content-Encoding"] = found.packed, "gzip"
        return Response(body, media_type=found.type, headers=headers)

    def _page(self, request: Request, path: str, base: str) -> Response:
        """The shell of all pages. It has no data, so that a link from elsewhere may lead to it."""
        check_method(request, "GET", "HEAD")
        status = 200 if self._files.is_page(path) else 404
        return Response(self._files.shell(base), status, media_type="text/html; charset=utf-8")

    # ------------------------------------------------------------ sessions
    async def _session(self, request: Request, base: str) -> Response:
        """Swap the token of the address for a cookie, or give the cookie back."""
        check_method(request, "POST", "DELETE")
        same_origin(request, self.access.public)
        self.access.check_intent(request)
        body = await body_of(request)
        if request.method == "DELETE":
            response = Response(status_code=204)
            self.access.forget(response, base)
            return response
        user = await self.access.session(request, body.get("token"))
        response = json_answer(request, self._about(user))
        self.access.remember(request, response, base)
        return response

    def _about(self, user: str) -> dict[str, Any]:
        from actorproc.api.queries import _version  # noqa: PLC0415 - one answer of a session needs it

        is_mounted = self.board.source.manager is not None
        return {
            "schema": VERSION,
            "object": "session",
            "user": user,
            "read_only": bool(self.read_only),
            "why_read_only": self.read_only,
            "verbs": [] if self.read_only else [*VERBS, *_OTHER_VERBS, *(("resize",) if is_mounted else ())],
            "words": WORDS,
            "payloads": self.board.payloads.mode,
            "store": self.board.source.words,
            "version": _version(),
            "host": os.uname().nodename,
        }

    # ------------------------------------------------------------ the API
    async def _call(self, request: Request, path: str) -> Response:
        if path == "/metrics":
            check_method(request, "GET", "HEAD")
            await self.access.user(request, "look", None)
            return await self._prometheus(request)
        user = await self.access.user(request, "look", _id_in(path))
        operation, values = self._operation(request, path)
        if operation is None:  # of the page itself
            check_method(request, "GET", "HEAD")
            if path == "/api/v1/session":
                return json_answer(request, self._about(user))
            if path == "/api/v1/openapi.json":
                self._openapi = self._openapi or encoded(openapi_document())
                return answer_of(request, self._openapi)
            raise ApiError(404, f"there is nothing at {path!r:.120}", "see /api/v1/openapi.json")
        body: dict[str, Any] = {}
        if operation.method != "GET":
            if self.read_only:
                raise ApiError(403, f"{operation.verb} is refused: {self.read_only}", code="read-only")
            body = await body_of(request)
            verb = str(body.get("verb", "bulk")) if operation.verb == "bulk" else operation.verb
            user = await self.access.user(request, verb, values.get("id"))
        if operation.path == "/metrics" and "text/plain" in request.headers.get("accept", ""):
            return await self._prometheus(request)
        asked = CheckedRequest(path=values, query=given_of(operation.query, request.query_params), body=body, user=user)
        found = await self._in_thread(lambda: operation.handle(self.board, asked))
        if isinstance(found, BulkRun):
            return OutcomeStream(found, self._executor)
        return json_answer(request, found)

    def _operation(self, request: Request, path: str) -> tuple[Operation | None, dict[str, str]]:
        """The operation of a path, with the values in it. Raises `ApiError` (404, 405)."""
        if path in ("/api/v1/session", "/api/v1/openapi.json"):
            return None, {}
        method = "GET" if request.method == "HEAD" else request.method
        raw = {"type": "http", "path": path, "root_path": "", "method": method, "headers": []}
        methods: list[str] = []
        for route, operation in self._routes:
            match, found = route.matches(raw)
            if match is Match.FULL:
                return operation, {name: str(value) for name, value in found["path_params"].items()}
            if match is Match.PARTIAL:
                methods.append(operation.method)
        if methods:
            raise NotThisMethod(request.method, methods)
        return None, {}

    async def _prometheus(self, request: Request) -> Response:
        text = await self._in_thread(lambda: prometheus(self.board, len(self.hub.streams)))
        return exposed(request, text)

    async def _in_thread(self, ask: Any) -> Any:
        """The answer of what blocks. Raises `ApiError` (429) when too many wait, `TimeoutError` when it takes long."""
        if self._waiting >= _QUEUE:
            raise ApiError(429, "too many requests wait", "ask again in a moment")
        self._waiting += 1
        try:
            async with self._room:
                answer = asyncio.get_running_loop().run_in_executor(self._executor, ask)
                try:
                    return await asyncio.wait_for(asyncio.shield(answer), WITHIN)
                except TimeoutError:
                    self.board.source.leave()  # ends the call that waits
                    raise
        finally:
            self._waiting -= 1

    def _refusal(self, request: Request, error: Exception) -> Response:
        refused = error_of(error, self.board.source.option)
        if refused.status == 500:
            # Without headers and cookies, which have the session.
            logger.error("%s %s failed", request.method, plain_line(request.url.path), exc_info=error)
        headers = {"Allow": ", ".join(error.allowed)} if isinstance(error, NotThisMethod) else {}
        if refused.status in (429, 503):
            headers["Retry-After"] = "1"
        return Response(encoded(refused.body), refused.status, headers=headers, media_type="application/json")


def _id_in(path: str) -> str | None:
    """The procedure that a path of the API is about."""
    parts = path.split("/")
    return parts[4] if len(parts) > 4 and parts[3] == "procedures" and parts[4] != "count" else None


async def _nothing(request: Request) -> Response:
    raise NotImplementedError(request)


async def _lifespan(app: PageApp, receive: Receive, send: Send) -> None:
    """Follow the lifespan of a server that runs the page alone."""
    while True:
        message = await receive()
        if message["type"] == "lifespan.startup":
            await send({"type": "lifespan.startup.complete"})
        else:
            await app.close()
            await send({"type": "lifespan.shutdown.complete"})
            return
