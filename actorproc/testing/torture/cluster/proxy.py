"""A proxy on the loopback interface that holds, cuts, delays and crumbles what goes through it."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Self

__all__ = ["Proxy"]


class Proxy:
    """Passes connections on to one address.

    Args:
        host: The address.
        port: Its port.
    """

    def __init__(self, host: str, port: int) -> None:
        self.target = (host, port)
        """The address, for connections from now on."""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._lock = threading.Condition()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._held = {"up": False, "down": False}
        self._closed = False
        self.delay = 0.0
        """Seconds before each piece is passed on."""
        self.piece = 1 << 16
        """Greatest number of bytes that are passed on at once."""
        self.refuses = False
        """New connections are closed at once."""
        self.says: bytes | None = None
        """New connections are told this in answer to their first words, and closed."""
        self.watch: Callable[[str, bytes], bytes] | None = None
        """Sees each piece with its direction, and gives what is passed on in its place."""
        self.passed: Callable[[str], None] | None = None
        """Called with the direction after each piece that was passed on."""
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._lock.notify_all()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def hold(self, *directions: str) -> None:
        """Let nothing through, as a cable that was pulled; "up" is towards the target. Default: both directions."""
        with self._lock:
            for direction in directions or ("up", "down"):
                self._held[direction] = True

    def release(self) -> None:
        """Let everything through again, with what was held."""
        with self._lock:
            self._held = dict.fromkeys(self._held, False)
            self._lock.notify_all()

    def cut(self) -> None:
        """End all connections."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            if self.refuses:
                near.close()
                continue
            if self.says is not None:
                threading.Thread(target=_turn_away, args=(near, self.says), daemon=True).start()
                continue
            try:
                far = socket.create_connection(self.target, timeout=10)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for sock in (near, far):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self._lock:
                self._pairs.append((near, far))
            ends = [2]
            for source, sink, direction in ((near, far, "up"), (far, near, "down")):
                threading.Thread(target=self._pump, args=(source, sink, direction, ends), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, direction: str, ends: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                for piece in self._pieces(direction, data):
                    sink.sendall(piece)
                    if self.passed is not None:
                        self.passed(direction)
        self._wait(direction)
        for sock in (source, sink):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        with self._lock:
            ends[0] -= 1
            last = not ends[0]
        if last:
            source.close()
            sink.close()

    def _pieces(self, direction: str, data: bytes) -> Iterator[bytes]:
        if self.watch is not None:
            data = self.watch(direction, data)
        while data:
            self._wait(direction)
            if self.delay:
                time.sleep(self.delay)
            piece, data = data[: self.piece], data[self.piece :]
            yield piece

    def _wait(self, direction: str) -> None:
        with self._lock:
            self._lock.wait_for(lambda: not self._held[direction] or self._closed)


def _turn_away(near: socket.socket, words: bytes) -> None:
    with near, contextlib.suppress(OSError):
        near.settimeout(10)
        near.recv(1 << 16)
        near.sendall(words)
