"""Doors of a manager: how a client's connection comes to be, and what is known of the other end.

A manager has an *entrance*, and a client a *way* to it. One kind is the Unix socket in a directory, where the kernel
names the user on the other end. The other one is the link (`actorproc.control.link_door`), where both ends prove that
they know a secret. Above a door there is a stream of bytes, the same for both.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from actorproc.control.wire import SOCKET_FILE, CallAnswer, SocketAddress, error_to, framed, peer_uid
from actorproc.errors import EngineError, NotAllowed, UsageError
from actorproc.store.home import Home
from actorproc.store.lmdb.page_check import inode_of

__all__ = ["Entrance", "Guest", "Stream", "UnixEntrance", "UnixWay", "Way", "way_to"]


class Stream(Protocol):
    """A connection that carries bytes: one thread reads, one writes, any may end it."""

    def recv(self, size: int) -> bytes:
        """At most `size` bytes; b"" at the end. Raises `OSError`."""
        ...

    def sendall(self, data: bytes) -> None:
        """Send all of it. Raises `OSError`."""
        ...

    def hang_up(self) -> None:
        """End the connection: the threads at it notice. Idempotent."""
        ...

    def close(self) -> None:
        """Give the descriptor back, without a word to the other end. Idempotent."""
        ...


class Guest(Protocol):
    """A connection that has come in, whose client is not known yet."""

    def admit(self) -> Stream:
        """Find out who it is; on the thread of the connection, as that may take seconds.

        Raises:
            OSError: The connection broke, or its client is not let in.
            NotAllowed: Its client is not let in; `turn_away` is to follow.
        """
        ...

    def turn_away(self, error: UsageError) -> None:
        """Say why it is not let in, as far as that can be said, and end it."""
        ...

    def hang_up(self) -> None:
        """End it, also in the middle of `admit`."""
        ...

    def close(self) -> None:
        """Give the descriptor back."""
        ...


class Entrance(Protocol):
    """The manager's end of a door."""

    words: str
    """The place, for messages."""
    beat: float | None
    """Seconds of silence after which a client is to be sent a sign of life; None: the kernel tells it of a death."""

    def is_fit(self) -> bool:
        """This manager may still serve clients; else their connections are closed, and they look for the next one."""
        ...

    def check_types(self, names: set[str], knows: Callable[[str], bool]) -> None:
        """Refuse a submit of a type that this manager has never heard of, where nothing brings its class along.

        Raises:
            UnknownType: It is one.
        """
        ...

    def open(self) -> None:
        """Listen. Raises `OSError` and `EngineError`."""
        ...

    def accept(self) -> Guest:
        """Wait for a connection. Raises `OSError`, also when the entrance is closed."""
        ...

    def close(self) -> None:
        """Listen no more. Idempotent."""
        ...

    def forget(self) -> None:
        """Close what is open in a forked copy of the program."""
        ...


class Way(Protocol):
    """A client's end of a door."""

    words: str
    """The place, for messages."""

    def connect(self, patience: float) -> Stream:
        """A connection to the manager that is there now.

        Args:
            patience: Seconds that it may take.

        Raises:
            OSError: There is none, or it does not answer; it may answer later.
            EngineError: The other end is no manager that may be trusted.
        """
        ...

    def greeted(self, stream: Stream, epoch: int) -> None:
        """Note that a manager answered, and its epoch; from now on its silence has another limit, or none."""
        ...

    def unanswered(self, waited: str) -> str:
        """Message for callers to whom no manager answers.

        Args:
            waited: How long, and the last error, in parentheses.
        """
        ...


def way_to(home: Home) -> Way:
    """The way to the manager of a home: the socket in its directory, or a link to the leader.

    Args:
        home: The home.

    Returns:
        The way.
    """
    if home.is_near and home.door is not None:
        return UnixWay(home, home.door)
    from actorproc.control.link_door import LinkWay  # noqa: PLC0415 - a client of a directory loads no TLS

    return LinkWay(home)


# ---------------------------------------------------------------- the Unix socket
class UnixStream:
    """A connected Unix socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.recv = sock.recv
        self.sendall = sock.sendall
        self.close = sock.close
        self.fileno = sock.fileno

    def settimeout(self, seconds: float | None) -> None:
        """Seconds that each call may take; None: any time."""
        self._sock.settimeout(seconds)

    def hang_up(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)


def _always() -> bool:
    return True


class UnixEntrance:
    """Socket in the store's directory (mode 0700), itself of mode 0600. Every peer's user is checked.

    Args:
        directory: The directory.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self.beat: float | None = None
        self.words = f"the control socket {self._directory / SOCKET_FILE}"
        self.is_fit = _always
        self._listener: socket.socket
        self._made = ""
        """The socket as a file, by its inode."""

    def open(self) -> None:
        """Make the socket."""
        with contextlib.ExitStack() as undo:
            listener = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            self._make_room()
            os.fchmod(listener.fileno(), 0o600)  # before it has a name, so it never has another mode
            with SocketAddress(self._directory) as address:
                listener.bind(address)
            listener.listen(64)
            self._made = self._found()
            undo.pop_all()
        self._listener = listener

    def _found(self) -> str:
        """The file that has the socket's name now, by its inode; "" for none."""
        try:
            return inode_of((self._directory / SOCKET_FILE).lstat())
        except OSError:
            return ""

    def _make_room(self) -> None:
        """The owner of the store is alone here, so a socket that an earlier owner left may go."""
        path = self._directory / SOCKET_FILE
        with contextlib.suppress(FileNotFoundError):
            if not stat.S_ISSOCK(path.lstat().st_mode):
                msg = f"{path} is in the way and no socket; remove it"
                raise EngineError(msg)
            path.unlink()

    def check_types(self, names: set[str], knows: Callable[[str], bool]) -> None:
        """Nothing: what is not known is parked, until its class is registered."""

    def accept(self) -> UnixGuest:
        """Wait for a connection."""
        sock, _ = self._listener.accept()
        return UnixGuest(sock)

    def close(self) -> None:
        """Remove the socket, unless the directory is another manager's by now, and close it."""
        if self._made and self._found() == self._made:
            with contextlib.suppress(OSError):
                (self._directory / SOCKET_FILE).unlink()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def forget(self) -> None:
        """Close the socket: else clients would connect to a copy when the program has died."""
        self._listener.close()


class UnixGuest:
    """A connection to the Unix socket."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock

    def admit(self) -> UnixStream:
        """Check the user on the other end."""
        if peer_uid(self._sock) != os.geteuid():
            raise NotAllowed("this manager answers its own user only")
        return UnixStream(self._sock)

    def turn_away(self, error: UsageError) -> None:
        """Send the reason in place of a greeting."""
        with contextlib.suppress(OSError):
            self._sock.settimeout(1.0)
            self._sock.sendall(framed(CallAnswer(0, "error", msgspec.Raw(error_to(error)))))
        self._sock.close()

    def hang_up(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Give the descriptor back."""
        self._sock.close()


class UnixWay:
    """Way of a client to the socket in a directory.

    Args:
        home: The home of the store, with a directory.
        directory: That directory.
    """

    def __init__(self, home: Home, directory: Path) -> None:
        self.words = home.words
        self._home = home
        self._directory = directory

    def connect(self, patience: float) -> UnixStream:
        """Connect, and check that it is our own user's."""
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(patience)  # also for connecting: the backlog of a suspended manager gets full
            with SocketAddress(self._directory) as address:
                sock.connect(address)
            self._check_user(sock)
        except PermissionError as error:
            sock.close()
            raise EngineError(f"no permission to reach the manager at {self.words}: {error}") from error
        except BaseException:
            sock.close()
            raise
        return UnixStream(sock)

    def _check_user(self, sock: socket.socket) -> None:
        """Raise `EngineError` when another user opened the door that is knocked at."""
        user = peer_uid(sock)
        if user != os.geteuid():
            msg = f"what answers at {self.words} belongs to user {user}; it is told nothing"
            raise EngineError(msg)

    def greeted(self, stream: Stream, epoch: int) -> None:  # noqa: ARG002 - a directory has one manager at a time
        """Wait without limit: the kernel tells of the manager's death."""
        assert isinstance(stream, UnixStream)
        stream.settimeout(None)

    def unanswered(self, waited: str) -> str:
        """Message with the owner, as its lock file names it."""
        owner = self._home.owner()
        if owner is None:
            here = f"no manager answers at {self.words} {waited}"
            return f"{here}. Start one on this directory, or give the client more patience"
        resume = f"is suspended (kill -CONT {owner.pid})"
        state = resume if self._home.is_suspended(owner) else "is starting, stopping or overloaded"
        here = f"process {owner.pid} has the store {self.words} and does not answer {waited}"
        return f"{here}. It {state}, or accepts no clients (Config.control)"
