"""Admission of requests: names of the host, origins, tokens, and the host's own login.

A request passes these in order: the name in ``Host``; for all but GET and HEAD the ``Origin``, a header of our own and
JSON; then who asks. None of them guesses what kind of program asks.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import inspect
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from actorproc.errors import UsageError
from actorproc.web.answers import ApiError

logger = logging.getLogger("actorproc.web")

__all__ = ["Access", "Authorize", "HostAccess", "TokenAccess", "cookie_name", "public_address", "same_origin"]

Authorize = Callable[[Request, str, str | None], Awaitable[str | None] | str | None]
"""Name of the user who may do this verb to this procedure (None: to all, or to none in particular); None: refused."""
_SAFE = ("GET", "HEAD")
_PAGES = 8
"""Cookies of other pages that a browser keeps: each start on a free port has one of its own."""


def cookie_name(store: str, port: int | str) -> str:
    """Name of the cookie of one page: cookies know no ports, so two pages on a host need two names.

    Args:
        store: Words of the store.
        port: Of the page, or what stands for it.
    """
    return "actorproc_" + hashlib.blake2b(f"{store}\0{port}".encode(), digest_size=6).hexdigest()


def public_address(url: str | None) -> tuple[str | None, str | None]:
    """Origin and base path of the address that browsers see; both None: that of each request.

    Args:
        url: The address.

    Raises:
        UsageError: It is none.
    """
    if url is None:
        return None, None
    scheme, colon, rest = url.partition("://")
    name, _, path = rest.partition("/")
    if not colon or scheme not in ("http", "https") or not name or "?" in path or "#" in path or "@" in name:
        raise UsageError(f"public_url is an address such as https://ops.example.org/actorproc/, not {url!r:.80}")
    # As a browser writes an origin: without the usual port.
    usual = ":443" if scheme == "https" else ":80"
    return f"{scheme}://{name.lower().removesuffix(usual)}", f"/{path}".rstrip("/") + "/"


def same_origin(request: Request, public: str | None) -> None:
    """Refuse a request that another site may have caused. Raises `ApiError` (403).

    Args:
        request: Of any method.
        public: Origin of the page as browsers see it; None: that of the request itself.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    is_safe = request.method in _SAFE
    if site is not None and site not in (("same-origin", "none") if is_safe else ("same-origin",)):
        raise _foreign(f"it was caused by another site (Sec-Fetch-Site: {site:.20})")
    if origin is not None and not _is_ours(origin, request, public):
        raise _foreign(f"its Origin is {origin!r:.80}")
    if origin is None and not is_safe and not _has_bearer(request):
        raise _foreign("it has no Origin")


def _foreign(says: str) -> ApiError:
    return ApiError(403, f"this request is refused: {says}", "use the page itself", code="bad-origin")


def _is_ours(origin: str, request: Request, public: str | None) -> bool:
    if public is not None:
        return origin == public
    try:
        parts = urlsplit(origin)
    except ValueError:
        return False
    # Behind a proxy the scheme is not known here; a page of the same name and port is ours with either.
    return parts.scheme in ("http", "https") and parts.netloc.lower() == request.headers.get("host", "").lower()


def _has_bearer(request: Request) -> bool:
    return request.headers.get("authorization", "")[:7].lower() == "bearer "


class Access:
    """Checks of all requests. Subclasses say who asks.

    Args:
        hosts: Names that ``Host`` may have, without ports, or with the one port that is meant; empty: any.
        public: Origin of the page as browsers see it. Default: None, that of each request.
    """

    def __init__(self, hosts: Sequence[str] = (), public: str | None = None) -> None:
        self.hosts = frozenset(name.lower() for name in hosts)
        self.public = public

    def check_host(self, request: Request) -> None:
        """Refuse a name that is not ours, as a page of another site has it that made its name lead here."""
        if not self.hosts:
            return
        given = [value.decode("latin-1") for name, value in request.scope["headers"] if name == b"host"]
        name = given[0].lower() if len(given) == 1 else ""
        bare, colon, port = name.rpartition(":")
        if not colon or "]" in port:
            bare = name
        if name not in self.hosts and bare not in self.hosts:
            shown = name if len(given) == 1 else "missing, or there twice"
            raise ApiError(
                403,
                f"the name of the host is {shown!r:.80}, which this page does not have",
                "use an address that the page printed, or name it with --allow-host",
                code="bad-host",
            )

    def check_intent(self, request: Request) -> None:
        """Refuse a request that changes something unless a program of ours has made it."""
        if request.method in _SAFE:
            return
        if request.headers.get("x-actorproc") != "1":
            raise ApiError(403, "a request that changes something needs the header X-Actorproc: 1")
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind != "application/json":
            raise ApiError(415, "a request that changes something has a body of application/json")

    async def user(self, request: Request, verb: str, id: str | None) -> str:
        """Name of the user for the audit. Raises `ApiError` (401, 403)."""
        raise NotImplementedError

    async def session(self, request: Request, token: object) -> str:
        """Name of the user whose session begins. Raises `ApiError` (401, 403)."""
        del token
        return await self.user(request, "look", None)

    def remember(self, request: Request, response: Response, base: str) -> None:
        """Give the browser the cookie of its session, where there is one."""
        del request, response, base

    def forget(self, response: Response, base: str) -> None:
        """Take the cookie back."""
        del response, base


class TokenAccess(Access):
    """The page of a process of its own: its token opens it.

    Args:
        token: Secret of 256 bits, in any text.
        cookie: Name of the cookie.
        user: Name for the audit.
        hosts: As of `Access`.
        public: As of `Access`.
    """

    def __init__(self, token: str, *, cookie: str, user: str, hosts: Sequence[str], public: str | None = None) -> None:
        super().__init__(hosts, public)
        self._token = token.encode()
        self.cookie = cookie
        self._user = user
        # Of the token, so that with a token that stays the sessions stay as well.
        self._session = hmac.new(self._token, b"actorproc session", hashlib.sha256).hexdigest()

    async def user(self, request: Request, verb: str, id: str | None) -> str:
        del verb, id
        given = request.cookies.get(self.cookie)
        if given is not None and hmac.compare_digest(given.encode(), self._session.encode()):
            return self._user
        header = request.headers.get("authorization", "")
        if _has_bearer(request) and hmac.compare_digest(header[7:].strip().encode(), self._token):
            return self._user
        raise ApiError(
            401,
            "there is no session: this link has expired, or was never complete",
            "run `actorproc web`, and open the address that it prints",
        )

    async def session(self, request: Request, token: object) -> str:
        del request
        if not isinstance(token, str) or not hmac.compare_digest(token.encode(), self._token):
            raise ApiError(
                401, "the token is not that of this page", "run `actorproc web`, and open the address that it prints"
            )
        return self._user

    def remember(self, request: Request, response: Response, base: str) -> None:
        is_tls = (self.public or f"{request.url.scheme}:").startswith("https")
        others = [name for name in request.cookies if name.startswith("actorproc_") and name != self.cookie]
        for old in others[:-_PAGES]:
            response.delete_cookie(old, path=base)
        response.set_cookie(self.cookie, self._session, path=base, httponly=True, samesite="strict", secure=is_tls)

    def forget(self, response: Response, base: str) -> None:
        response.delete_cookie(self.cookie, path=base, httponly=True, samesite="strict")


class HostAccess(Access):
    """A page that is mounted in a program with a login of its own.

    Args:
        authorize: Says who may do what; "host": the host has seen to that before a request comes here.
        hosts: As of `Access`.
        public: As of `Access`.
    """

    def __init__(
        self, authorize: Authorize | Literal["host"], *, hosts: Sequence[str] = (), public: str | None = None
    ) -> None:
        super().__init__(hosts, public)
        self._authorize = authorize

    async def user(self, request: Request, verb: str, id: str | None) -> str:
        try:
            found = await self._asked(request, verb, id)
        except Exception as error:
            logger.exception("authorize= failed for %s", verb)
            raise ApiError(500, "the login could not be checked; the log has the traceback") from error
        if found is None:
            if verb == "look":
                raise ApiError(401, "you are not logged in, or may not look here", "log in, and come again")
            raise ApiError(403, f"you may not do this: {verb}")
        return found

    async def _asked(self, request: Request, verb: str, id: str | None) -> str | None:
        if self._authorize == "host":
            return "host"
        found: Any
        if inspect.iscoroutinefunction(self._authorize):
            found = await self._authorize(request, verb, id)
        else:
            # Sessions and users are often read from a database, with calls that block.
            found = await asyncio.to_thread(self._authorize, request, verb, id)
            if inspect.isawaitable(found):
                found = await found
        if found is None or found is False or found == "":
            return None
        if not isinstance(found, str):
            msg = f"authorize= gives the name of the user, or None, not {found!r:.60}"
            raise TypeError(msg)
        return found
