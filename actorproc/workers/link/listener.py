"""The end of links that listens: accepts connections, and lets in those that know the secret."""

from __future__ import annotations

import collections
import contextlib
import logging
import socket
import ssl
import threading
import time

from actorproc.errors import EngineError
from actorproc.workers.link.addresses import address_text
from actorproc.workers.link.certificates import LinkCertificate
from actorproc.workers.link.handshake import HANDSHAKE, LinkPeer, LinkRefused, LinkRole, admit, introduce
from actorproc.workers.link.stream import LinkStream

__all__ = ["LinkGuest", "LinkListener", "dial"]

logger = logging.getLogger("actorproc")

_LOG_EVERY = 60.0
"""Seconds between two log lines about refused connections of one address."""
_ADDRESSES = 1024
"""Addresses that are remembered for that."""


class LinkListener:
    """Listens on one address.

    Args:
        host: Address to listen on.
        port: Its port; 0: a free one.
        certificate: The certificate that links show.
        secret: The secret that both ends must know.
        silence: Seconds without a byte after which a client takes this end for dead.
        roles: Roles that may come in.

    Raises:
        EngineError: It cannot listen there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        certificate: LinkCertificate,
        secret: bytes,
        silence: float,
        roles: frozenset[LinkRole] = frozenset({LinkRole.CLIENT}),
    ) -> None:
        self.certificate = certificate
        self.secret = secret
        self.silence = silence
        self.roles = roles
        self.refused: collections.Counter[str] = collections.Counter()
        """Connections that were not let in, by the reason."""
        self._lock = threading.Lock()
        self._logged: dict[str, float] = {}
        try:
            family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
                0
            ]
            self._sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                self._sock.bind(address)
                self._sock.listen(128)
            except BaseException:
                self._sock.close()
                raise
        except OSError as error:
            msg = (
                f"cannot listen on {address_text(host, port)}: {error}. Give an address of this machine with "
                "Config(listen=…)"
            )
            raise EngineError(msg) from error
        self.port: int = self._sock.getsockname()[1]

    def accept(self) -> LinkGuest:
        """Wait for a connection; its client is not known yet.

        Raises:
            OSError: It was closed, or the system has no descriptor left.
        """
        sock, address = self._sock.accept()
        return LinkGuest(self, sock, str(address[0]))

    def refuse(self, address: str, error: OSError) -> None:
        """Note that a connection was not let in: it is counted, and logged at most once a minute for each address.

        Args:
            address: The address that it came from.
            error: The reason.
        """
        kind = error.kind if isinstance(error, LinkRefused) else "tls" if isinstance(error, ssl.SSLError) else "broken"
        now = time.monotonic()
        with self._lock:
            self.refused[kind] += 1
            last = self._logged.pop(address, None)
            is_news = last is None or now - last >= _LOG_EVERY
            self._logged[address] = now if is_news or last is None else last
            while len(self._logged) > _ADDRESSES:
                del self._logged[next(iter(self._logged))]
        if is_news:
            logger.warning("a connection from %s was refused: %s", address, error)

    def close(self) -> None:
        """Listen no more. Idempotent; who waits in `accept` gets an `OSError`."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def forget(self) -> None:
        """Close the socket in a forked copy of the program, without a word to its clients."""
        self._sock.close()


class LinkGuest:
    """A connection that was accepted, before its client is known.

    Args:
        listener: The listener that accepted it.
        sock: Its socket.
        address: The address that it came from.
    """

    def __init__(self, listener: LinkListener, sock: socket.socket, address: str) -> None:
        self._listener = listener
        self._sock = sock
        self.address = address
        self.peer: LinkPeer | None = None

    def admit(self) -> LinkStream:
        """Have the client prove that it knows the secret; takes `HANDSHAKE` seconds at most.

        Returns:
            The link.

        Raises:
            OSError: It was refused, or the connection broke; that is counted.
        """
        listener = self._listener
        try:
            credentials = listener.certificate.current()
            stream = LinkStream(self._sock, credentials.context, server_side=True)
            self.peer = admit(
                stream,
                secret=listener.secret,
                pin=credentials.pin,
                roles=listener.roles,
                silence=listener.silence,
            )
        except OSError as error:
            self.refuse(error)
            raise
        return stream

    def refuse(self, error: OSError) -> None:
        """End it without a word to its client; that is counted, and logged now and then.

        Args:
            error: The reason.
        """
        self._listener.refuse(self.address, error)
        self.close()

    def hang_up(self) -> None:
        """End the connection; an `admit` on another thread ends with an error."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back."""
        self._sock.close()


def dial(
    host: str,
    port: int,
    *,
    secret: bytes,
    pin: bytes,
    role: LinkRole,
    epoch: int,
    name: str,
    within: float = HANDSHAKE,
) -> LinkStream:
    """Connect to a leader.

    Args:
        host: Its address.
        port: Its port.
        secret: The secret of both ends.
        pin: SHA-256 of the certificate that it must show.
        role: The role to connect in.
        epoch: Highest epoch seen here; 0: none.
        name: Name of this machine.
        within: Seconds for all of it.

    Returns:
        The link.

    Raises:
        LinkRefused: It is another one, or it refused.
        OSError: It cannot be reached.
    """
    until = time.monotonic() + within
    sock = socket.create_connection((host, port), timeout=within)
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False  # the certificate is pinned: no name and no authority says more
        context.verify_mode = ssl.CERT_NONE
        stream = LinkStream(sock, context, server_side=False)
        left = max(0.01, until - time.monotonic())
        introduce(stream, secret=secret, pin=pin, role=role, epoch=epoch, name=name, within=left)
    except BaseException:
        sock.close()
        raise
    return stream
