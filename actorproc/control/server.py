"""The manager's end of the control channel: serves the clients that come in by its door."""

from __future__ import annotations

import os
import threading

from actorproc.config import Config
from actorproc.control.connection import Connection
from actorproc.control.doors import Entrance, Guest
from actorproc.control.threads import Threads
from actorproc.control.wire import PROTOCOL, ClientHello
from actorproc.engine.engine import EngineTree
from actorproc.errors import EngineError, ManagerBusy
from actorproc.workers import fork_guard

__all__ = ["ControlServer"]

_CONNECTIONS = 256
_QUESTIONS = 4
"""Threads for questions, and as many for what may take long."""


class ControlServer:
    """Serves one running engine. `close` leaves no thread and no file."""

    def __init__(self, engine: EngineTree, entrance: Entrance, config: Config) -> None:
        self.engine = engine
        self.entrance = entrance
        entrance.take_host = getattr(engine.pool, "come", None)
        if hasattr(engine.pool, "is_fit"):
            engine.pool.is_fit = entrance.is_fit
        self.config = config
        self.hello = ClientHello(
            PROTOCOL,
            os.getpid(),
            engine.epoch,
            config.max_frame,
            config.max_state,
            engine.host.limits,
            engine.host.process_limits,
        )
        self.questions = Threads(_QUESTIONS, "actorproc-control-call")
        self.errands = Threads(_QUESTIONS, "actorproc-control-slow")
        self._connections: set[Connection] = set()
        engine.count_clients = lambda: len(self._connections)
        self._ending: tuple[threading.Thread, ...] = ()
        """Threads that end because it was closed."""
        self._lock = threading.Lock()
        self._closed = False
        self._thread = threading.Thread(target=self._accept, name="actorproc-control", daemon=True)

    def start(self) -> None:
        """Open the door. Raises `EngineError` when the socket cannot be made."""
        try:
            self.entrance.open()
        except (OSError, EngineError) as error:
            self.questions.close()
            self.errands.close()
            if isinstance(error, EngineError):
                raise
            msg = f"{self.entrance.words} cannot be made: {error}"
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

    def close(self) -> None:
        """Shut the door and all connections. Idempotent; `join` waits for their threads."""
        with self._lock:
            closed, self._closed = self._closed, True
            connections = list(self._connections)
        if closed:
            return
        self.entrance.close()
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
        """In a forked copy of the program: else clients would connect to it when the program has died."""
        self.entrance.forget()

    def _accept(self) -> None:
        while True:
            try:
                guest = self.entrance.accept()
            except OSError:
                if self._closed:
                    return
                threading.Event().wait(0.05)  # too many open files: it passes, and nothing else must suffer
                continue
            self._let_in(guest)

    def _let_in(self, guest: Guest) -> None:
        connection = Connection(self, guest)
        with self._lock:
            closed, full = self._closed, len(self._connections) >= _CONNECTIONS
            if not closed and not full:
                self._connections.add(connection)
        if closed:
            guest.close()
        elif full:
            guest.turn_away(ManagerBusy(f"{_CONNECTIONS} programs are connected to this manager; close one of them"))
        else:
            try:
                connection.start()
            except RuntimeError:  # the system has no more threads: this client may come again, and the others go on
                connection.close()
                guest.close()

    def has_left(self, connection: Connection) -> None:
        """A connection has ended."""
        with self._lock:
            self._connections.discard(connection)
