"""One TLS connection as a stream of bytes for two threads, one that reads and one that writes.

TLS runs in memory (`ssl.MemoryBIO`), and the socket below carries what it makes. So no decrypted byte waits where a
poll of the socket does not see it. A record that holds no data (a ticket, a new key) wakes no blocking read.
The socket does not block: each wait is a poll with a deadline.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import select
import socket
import ssl
import threading
import time

__all__ = ["STUCK", "LinkStream"]

STUCK = 30.0
"""Seconds for which the other end of a link may take no byte of what is sent to it."""

_CHUNK = 1 << 16
"""Bytes that are read from the socket, or encrypted, at a time."""


class LinkStream:
    """A TLS connection over a connected socket, which it takes over.

    One thread may read and another one write; `hang_up` and `close` may be called from any thread.

    Args:
        sock: The connected socket.
        context: The settings of TLS.
        server_side: True at the end that accepted the connection.
    """

    def __init__(self, sock: socket.socket, context: ssl.SSLContext, *, server_side: bool) -> None:
        sock.setblocking(False)
        if sock.family in {socket.AF_INET, socket.AF_INET6}:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.silence = math.inf
        """Seconds without a byte after which `recv` fails."""
        self.stuck = STUCK
        """Seconds after which `sendall` fails when the other end has taken no byte."""
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=server_side)
        self._coding = threading.Lock()
        """Held while OpenSSL works on this connection, never while a socket is waited for."""
        self._sending = threading.Lock()
        """Held while bytes leave, so that records leave in the order in which they were made."""
        self._left = memoryview(b"")
        """Records that the socket had no room for, after `send_now`."""

    def negotiate(self, until: float) -> None:
        """Agree on keys with the other end.

        Args:
            until: Monotonic seconds at which it must be done.

        Raises:
            OSError: The time is over, the connection ended, or the other end speaks no TLS 1.3.
        """
        while True:
            try:
                with self._coding:
                    self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._flush(until)
                self._fill(until)
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # the alert says to the other end what it did wrong
                    self._flush(until)
                raise
            else:
                self._flush(until)
                return

    @property
    def peer_pin(self) -> bytes:
        """SHA-256 of the certificate of the other end; b"" when it has shown none."""
        certificate = self._tls.getpeercert(binary_form=True)
        return hashlib.sha256(certificate).digest() if certificate else b""

    # ------------------------------------------------------------ bytes
    def recv(self, size: int, until: float | None = None) -> bytes:
        """Read what is there, at most `size` bytes; wait for the first one.

        Args:
            size: Greatest number of bytes.
            until: Monotonic seconds at which a byte must have come. Default: None, `silence` from now.

        Returns:
            The bytes; b"" at the end of the connection.

        Raises:
            OSError: The connection broke, or (`TimeoutError`) nothing came in time.
        """
        deadline = time.monotonic() + self.silence if until is None else until
        while True:
            try:
                with self._coding:
                    return self._tls.read(size)
            except ssl.SSLWantReadError:
                self._fill(deadline)
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""

    def sendall(self, data: bytes | bytearray | memoryview) -> None:
        """Send all of it.

        Args:
            data: The bytes.

        Raises:
            OSError: The connection broke, or (`TimeoutError`) the other end took nothing for `stuck` seconds.
        """
        view = memoryview(data)
        with self._sending:
            while view:
                with self._coding:
                    view = view[self._tls.write(view[:_CHUNK]) :]
                    records = self._outgoing.read()
                self._send(records, None)

    def send_now(self, data: bytes) -> bool:
        """Send what the socket has room for, without waiting.

        Args:
            data: The bytes.

        Returns:
            False if some are left: `send_rest` must send them before anything else is sent.

        Raises:
            OSError: The connection broke.
        """
        with self._sending:
            view = memoryview(data)
            with self._coding:
                while view:
                    view = view[self._tls.write(view) :]
                self._left = memoryview(self._outgoing.read())
            with contextlib.suppress(BlockingIOError):
                while self._left:
                    self._left = self._left[self._sock.send(self._left) :]
            return not self._left

    def send_rest(self) -> None:
        """Send what `send_now` has left.

        Raises:
            OSError: The connection broke, or (`TimeoutError`) the other end took nothing for `stuck` seconds.
        """
        with self._sending:
            self._send(self._left, None)
            self._left = memoryview(b"")

    def _flush(self, until: float) -> None:
        with self._sending:
            with self._coding:
                records = self._outgoing.read()
            self._send(records, until)

    def _send(self, records: bytes | memoryview, until: float | None) -> None:
        view = memoryview(records)
        while view:
            try:
                view = view[self._sock.send(view) :]
            except BlockingIOError:
                self._await(select.POLLOUT, time.monotonic() + self.stuck if until is None else until)

    def _fill(self, until: float) -> None:
        """Wait for bytes of the socket, and hand them to TLS."""
        while True:
            try:
                data = self._sock.recv(_CHUNK)
            except BlockingIOError:
                self._await(select.POLLIN, until)
                continue
            with self._coding:
                if data:
                    self._incoming.write(data)
                else:
                    self._incoming.write_eof()
            return

    def _await(self, event: int, until: float) -> None:
        poll = select.poll()
        try:
            poll.register(self._sock, event)
        except ValueError:  # another thread has closed it
            raise ConnectionAbortedError("the connection was closed here") from None
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(None if left == math.inf else min(left * 1000 + 1, 1e9)):
            msg = "the other end was silent for too long" if event == select.POLLIN else "the other end takes no bytes"
            raise TimeoutError(msg)

    # ------------------------------------------------------------ end
    def hang_up(self) -> None:
        """End the connection: the threads that read and write it notice at once. Idempotent."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the socket back. Nothing is sent: so a forked copy may call it as well. Idempotent."""
        self._sock.close()
