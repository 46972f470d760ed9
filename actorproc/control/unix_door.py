"""The door of a directory: a Unix socket in it, where the kernel names the user on the other end."""

from __future__ import annotations

import contextlib
import os
import socket
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from actorproc.control.doors import Stream
from actorproc.control.wire import SOCKET_FILE, CallAnswer, SocketAddress, error_to, framed, peer_uid
from actorproc.errors import EngineError, NotAllowed, UsageError
from actorproc.store.home import Home
from actorproc.store.lmdb.page_check import inode_of

__all__ = ["UnixEntrance", "UnixWay"]


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
        self.take_host: Callable[[Any, str], object] | None = None
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

    longest_pause = 0.5

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
