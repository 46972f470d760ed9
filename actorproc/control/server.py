"""The manager's end of the control socket: a door for other processes of the same user.

The socket lies in the store's directory (mode 0700), is itself of mode 0600, and every peer's user is checked as the
kernel knows it.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat
import threading
from pathlib import Path

import msgspec

from actorproc.config import Config
from actorproc.control.connection import Connection
from actorproc.control.threads import Threads
from actorproc.control.wire import (
    PROTOCOL,
    SOCKET_FILE,
    CallAnswer,
    ClientHello,
    SocketAddress,
    error_to,
    framed,
    peer_uid,
)
from actorproc.engine.engine import EngineTree
from actorproc.errors import EngineError, ManagerBusy, NotAllowed, UsageError
from actorproc.store.lmdb.page_check import inode_of
from actorproc.workers import fork_guard

__all__ = ["ControlServer"]

_CONNECTIONS = 256
_QUESTIONS = 4
"""Threads for questions, and as many for what may take long."""


class ControlServer:
    """Serves one running engine. `close` leaves no thread and no file."""

    def __init__(self, engine: EngineTree, directory: str | os.PathLike[str], config: Config) -> None:
        self.engine = engine
        self.config = config
        self.hello = ClientHello(
            PROTOCOL,
            os.getpid(),
            engine.epoch,
            config.max_frame,
            config.max_state,
            engine.pool.limits,
            engine.pool.process_limits,
        )
        self.questions = Threads(_QUESTIONS, "actorproc-control-call")
        self.errands = Threads(_QUESTIONS, "actorproc-control-slow")
        self._directory = Path(directory)
        self._connections: set[Connection] = set()
        self._ending: tuple[threading.Thread, ...] = ()
        """Threads that end because it was closed."""
        self._lock = threading.Lock()
        self._closed = False
        self._made = ""
        """The socket as a file, by its inode."""
        self._thread = threading.Thread(target=self._accept, name="actorproc-control", daemon=True)

    def start(self) -> None:
        """Open the door. Raises `EngineError` when the socket cannot be made."""
        try:
            self._listener = self._listen()
        except (OSError, EngineError) as error:
            self.questions.close()
            self.errands.close()
            if isinstance(error, EngineError):
                raise
            msg = f"the control socket {self._directory / SOCKET_FILE} cannot be made: {error}"
            raise EngineError(msg) from error
        fork_guard.guarded(self)
        try:
            self._thread.start()
        except RuntimeError as error:
            self.close()
            msg = f"no thread for the control socket: {error}; raise the limit of processes and threads of this program"
            raise EngineError(msg) from error
        except BaseException:  # Ctrl-C: the thread may run
            self.close()
            self.join()
            raise

    def _listen(self) -> socket.socket:
        with contextlib.ExitStack() as undo:
            listener = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
            self._make_room()
            os.fchmod(listener.fileno(), 0o600)  # before it has a name, so it never has another mode
            with SocketAddress(self._directory) as address:
                listener.bind(address)
            listener.listen(64)
            self._made = self._found()
            undo.pop_all()
        return listener

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

    def close(self) -> None:
        """Shut the door and all connections. Idempotent; `join` waits for their threads."""
        with self._lock:
            closed, self._closed = self._closed, True
            connections = list(self._connections)
        if closed:
            return
        if self._made and self._found() == self._made:  # else the directory is another manager's by now
            with contextlib.suppress(OSError):
                (self._directory / SOCKET_FILE).unlink()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in connections:
            connection.close()
        self.questions.close()
        self.errands.close()
        self._ending = (self._thread, *(thread for connection in connections for thread in connection.threads))

    def join(self) -> None:
        """Wait for the threads of a closed door, once who waits for an answer of the engine was told of its end."""
        for thread in self._ending:
            if thread.is_alive() and thread is not threading.current_thread():
                thread.join(timeout=5.0)

    def forget(self) -> None:
        """Close the socket in a forked copy: else clients would connect to it when the program has died."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                if self._closed:
                    return
                threading.Event().wait(0.05)  # too many open files: it passes, and nothing else must suffer
                continue
            self._let_in(sock)

    def _let_in(self, sock: socket.socket) -> None:
        refused: UsageError | None = None
        try:
            if peer_uid(sock) != os.geteuid():
                refused = NotAllowed("this manager answers its own user only")
        except OSError:
            sock.close()
            return
        connection = Connection(self, sock)
        with self._lock:
            if self._closed:
                sock.close()
                return
            if len(self._connections) >= _CONNECTIONS:
                refused = ManagerBusy(f"{_CONNECTIONS} programs are connected to this manager; close one of them")
            else:
                self._connections.add(connection)
        if refused is not None:
            with contextlib.suppress(OSError):
                sock.settimeout(1.0)
                sock.sendall(framed(CallAnswer(0, "error", msgspec.Raw(error_to(refused)))))
            with self._lock:
                self._connections.discard(connection)
            sock.close()
            return
        try:
            connection.start()
        except RuntimeError:  # the system has no more threads: this client may come again, and the others go on
            connection.close()
            sock.close()

    def has_left(self, connection: Connection) -> None:
        """A connection has ended."""
        with self._lock:
            self._connections.discard(connection)
