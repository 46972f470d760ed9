"""The page as a process of its own: sockets, the token, signals, and an end that open streams do not delay."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType

import msgspec
import uvicorn
from starlette.requests import Request

from actorproc.errors import UsageError
from actorproc.web.access import Authorize
from actorproc.web.app import PageApp, create_app
from actorproc.web.place import PagePlace, PlaceFile

__all__ = ["PageSettings", "new_token", "read_token", "serve_page"]

_GRACE = 3
"""Seconds that a stop waits for requests."""
_UNHEARD = 30_000
"""Milliseconds after which a connection ends whose other end acknowledges nothing."""
_NEAR = ("127.0.0.1", "localhost", "[::1]")


class PageSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of `actorproc web`."""

    path: str
    host: str | None = None
    """Another address than that of the machine itself; it needs TLS or a proxy."""
    port: int = 0
    allow_hosts: tuple[str, ...] = ()
    uds: str | None = None
    fd: int | None = None
    certificate: str | None = None
    key: str | None = None
    public_url: str | None = None
    """Address of the proxy in front; then nothing else is believed of where browsers are."""
    prefix: str = ""
    token_file: str | None = None
    user_header: str | None = None
    """Header in which the proxy names the user; only over a unix socket."""
    companion: bool = False
    """A service has started the page, and replaces it."""
    read_only: str = ""
    payloads: str = "shown"
    title: str = "actorproc"


def new_token() -> str:
    """A token of 256 bits."""
    return secrets.token_urlsafe(32)


def read_token(name: str) -> str:
    """The token in a file, which is made where there is none. Raises `UsageError` when others may read it."""
    file = Path(name)
    with contextlib.suppress(FileExistsError):
        number = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(number, "w") as new:
            new.write(new_token() + "\n")
    facts = file.stat()
    if not stat.S_ISREG(facts.st_mode) or facts.st_mode & 0o077 or facts.st_uid != os.geteuid():
        raise UsageError(f"the token in {name} can be read by others: chmod 600 {name}, as its owner")
    text = file.read_text(encoding="utf-8").strip()
    if len(text) < 32 or not text.isascii() or not text.isprintable() or " " in text:
        raise UsageError(f"{name} holds no token: at least 32 characters without spaces; remove it to have one made")
    return text


class _Server(uvicorn.Server):
    """A server that ends the live streams first when it is to stop: it would wait for them."""

    def __init__(self, config: uvicorn.Config, app: PageApp, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._app = app
        self._ready = ready

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle signals on the loop. One that ends the page in order is no error, so it is not raised again."""
        loop = asyncio.get_running_loop()
        numbers = (signal.SIGTERM, signal.SIGINT)
        for number in numbers:
            loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._ready()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self._app.hub.refuse()
        super().handle_exit(sig, frame)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._app.hub.close()
        await super().shutdown(sockets)
        await self._app.close()


def serve_page(settings: PageSettings, tell: Callable[[str, str | None], None]) -> int:
    """Serve until SIGTERM or SIGINT; the exit code.

    Args:
        settings: Of the page.
        tell: Called once requests are taken, with the address and the token; None: there is none to tell.

    Raises:
        UsageError: The settings contradict each other, or open the page to others without protection.
        OSError: The address cannot be had.
    """
    check_settings(settings)
    sockets = _sockets(settings)
    port = sockets[0].getsockname()[1] if sockets[0].family != socket.AF_UNIX else 0
    token, authorize = None, None
    if settings.user_header is not None:
        authorize = _named_in(settings.user_header)
    else:
        token = read_token(settings.token_file) if settings.token_file is not None else new_token()
    address = _address(settings, port)
    app = create_app(
        settings.path,
        authorize=authorize,
        token=token,
        hosts=_hosts(settings, port),
        public_url=settings.public_url,
        prefix=settings.prefix,
        read_only=bool(settings.read_only),
        payloads="hidden" if settings.payloads == "hidden" else "shown",
        title=settings.title,
    )
    app.read_only = settings.read_only
    place = PlaceFile(settings.path)

    def ready() -> None:
        place.write(
            PagePlace(
                address=address,
                pid=os.getpid(),
                port=port,
                read_only=bool(settings.read_only),
                companion=settings.companion,
                token=token,
            )
        )
        tell(address, token)

    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,  # any client of the port could write them
        lifespan="off",
        timeout_graceful_shutdown=_GRACE,
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=32 << 10,
        ws="none",
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
    try:
        config.load()
    except OSError as error:
        raise UsageError(f"{settings.certificate} and {settings.key} are no pair for TLS: {error}") from None
    logging.getLogger("uvicorn.error").addFilter(_is_news)
    server = _Server(config, app, ready)
    try:
        asyncio.run(server.serve(sockets))
    finally:
        place.remove()
        for sock in sockets:
            sock.close()
        if settings.uds is not None:
            with contextlib.suppress(OSError):
                Path(settings.uds).unlink()
    return 0


def _named_in(header: str) -> Authorize:
    """The user whom the proxy names in a header; of two headers none is believed."""

    def authorize(request: Request, verb: str, id: str | None) -> str | None:
        del verb, id
        found = request.headers.getlist(header)
        return found[0] if len(found) == 1 else None

    return authorize


def _is_news(record: logging.LogRecord) -> bool:
    """Not that a stream was cut: the page did that itself."""
    return "returned without completing response" not in record.getMessage()


def check_settings(settings: PageSettings) -> None:
    """Raise `UsageError` when the page would be open to others without protection."""
    has_tls = settings.certificate is not None
    if settings.host is not None and not _is_near(settings.host) and not has_tls and settings.public_url is None:
        raise UsageError(
            f"--host {settings.host} opens the page to other machines: give --certificate and --key, or say with "
            "--behind-proxy --public-url https://… that a proxy with TLS stands before it"
        )
    if settings.user_header is not None and (settings.uds is None or settings.public_url is None):
        raise UsageError(
            "--user-header believes what the proxy says of the user, so only the proxy may reach the page: "
            "give --uds PATH, in a directory that only the proxy may enter, and --public-url"
        )
    if (settings.certificate is None) != (settings.key is None):
        raise UsageError("TLS needs both --certificate and --key")
    if settings.certificate is not None:
        for name in (settings.certificate, settings.key or ""):
            if not os.access(name, os.R_OK):
                raise UsageError(f"{name} cannot be read")


def _is_near(host: str) -> bool:
    return host in ("127.0.0.1", "::1", "localhost")


def _sockets(settings: PageSettings) -> list[socket.socket]:
    if settings.fd is not None:
        return [socket.socket(fileno=settings.fd)]
    if settings.uds is not None:
        return [_unix(settings.uds)]
    if settings.host is not None:
        family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
        return [_listening(family, settings.host, settings.port)]
    first = _listening(socket.AF_INET, "127.0.0.1", settings.port)
    found = [first]
    with contextlib.suppress(OSError):  # no IPv6 here, or the port is taken there
        found.append(_listening(socket.AF_INET6, "::1", first.getsockname()[1]))
    return found


def _listening(family: socket.AddressFamily, host: str, port: int) -> socket.socket:
    # With its protocol named asyncio sends small answers at once (TCP_NODELAY), else 40 ms later.
    sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(
            socket, "TCP_USER_TIMEOUT"
        ):  # a browser that vanished without a word is noticed, and its stream ends
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _UNHEARD)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.bind((host, port))
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"{error.strerror}: {host} port {port}") from None
    return sock


def _unix(name: str) -> socket.socket:
    path = Path(name)
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UsageError(f"{name} is there already, and no socket")
        path.unlink()
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        sock.bind(name)
        sock.listen(128)
    except OSError as error:
        sock.close()
        raise OSError(error.errno, f"{error.strerror}: {name}") from None
    finally:
        os.umask(before)
    return sock


def _hosts(settings: PageSettings, port: int) -> Sequence[str]:
    """Names that the page has, each with its port."""
    if settings.public_url is not None:
        name = settings.public_url.partition("://")[2].partition("/")[0].lower()
        return [name, *(host.lower() for host in settings.allow_hosts)]
    named = [settings.host] if settings.host is not None and not _is_near(settings.host) else []
    names = [*_NEAR, *(f"[{host}]" if ":" in host else host for host in named), *settings.allow_hosts]
    usual = port == (443 if settings.certificate is not None else 80)
    found = [name if ":" in name.rpartition("]")[2] or port == 0 else f"{name}:{port}" for name in names]
    return [*found, *names] if usual else found


def _address(settings: PageSettings, port: int) -> str:
    if settings.public_url is not None:
        return settings.public_url.rstrip("/") + "/"
    prefix = settings.prefix.rstrip("/")
    if settings.uds is not None or port == 0:
        return f"http://localhost{prefix}/"
    scheme = "https" if settings.certificate is not None else "http"
    host = settings.host or "127.0.0.1"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}{prefix}/"
