"""Processes of an episode as its runner has them: started, killed, frozen, started again."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

import psutil

from actorproc.procedure.values.type_names import command_of_module
from actorproc.testing.torture.cluster.leftovers import TOKEN, await_end
from actorproc.testing.torture.cluster.process import STOP
from actorproc.testing.torture.cluster.proxy import Proxy
from actorproc.testing.torture.record import EpisodeJournal

__all__ = ["Agent", "Application", "Candidate", "Member"]

_ENDS_WITHIN = 60.0
"""Seconds for an orderly end."""
_COMES_UP_WITHIN = 30.0
"""Seconds until an agent listens to signals."""


class Member:
    """One process, over all its lives.

    Args:
        name: Its name, for its log.
        folder: Folder of the episode.
        url: URL of the store, for it.
        mark: Beginning of the mark of its processes, unique to the episode.
    """

    kind = ""

    def __init__(self, name: str, folder: Path, url: str, mark: str) -> None:
        self.name = name
        self.url = url
        self.folder = folder
        self.journal = EpisodeJournal(folder / "journal")
        self.lock = threading.RLock()
        """Held by what strikes it: one fault at a time."""
        self.process: subprocess.Popen[bytes] | None = None
        self._mark = f"{mark}-{name}"
        self._lives = 0

    @property
    def pid(self) -> int:
        """The process; 0 when there is none."""
        return self.process.pid if self.process is not None else 0

    @property
    def is_alive(self) -> bool:
        """It runs."""
        return self.process is not None and self.process.poll() is None

    def start(self) -> None:
        """Begin a life."""
        self._lives += 1
        state = self.folder / f"{self.name}-state"
        environment = {**os.environ, TOKEN: f"{self._mark}-{self._lives}", "XDG_STATE_HOME": str(state)}
        with (self.folder / f"{self.name}.log").open("ab") as output:
            self.process = subprocess.Popen(
                command_of_module(
                    "actorproc.testing.torture.cluster.process",
                    str(self.folder),
                    self.kind,
                    self.url,
                    *self._arguments(),
                ),
                env=environment,
                stdin=subprocess.PIPE,  # closed when this process ends, however it ends
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def _arguments(self) -> list[str]:
        return []

    def workers(self) -> list[int]:
        """Its child processes."""
        try:
            return sorted(child.pid for child in psutil.Process(self.pid).children()) if self.is_alive else []
        except psutil.NoSuchProcess:
            return []

    def kill(self) -> None:
        """End it at once, and see that nothing of it is left."""
        process = self.process
        if process is None:
            return
        if process.poll() is None:
            self.journal.killing(process.pid, is_host=True)
            process.kill()
        self._reap(process)

    def leave(self) -> int | None:
        """End it in order; its exit code, None when it had to be killed."""
        process = self.process
        if process is None:
            return 0
        self._ask_to_leave(process)
        try:
            code = process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()
            return None
        self._reap(process)
        return code

    def _ask_to_leave(self, process: subprocess.Popen[bytes]) -> None:
        raise NotImplementedError

    def _reap(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()
        self.process = None
        await_end(self.journal, f"{self._mark}-{self._lives}")


class Candidate(Member):
    """A manager, with a proxy before its door and one before its database.

    Args:
        name: Its name, for its log.
        folder: Folder of the episode.
        url: URL of the store, through `base`.
        mark: Beginning of the mark of its processes.
        base: The proxy before the database.
    """

    kind = "candidate"

    def __init__(self, name: str, folder: Path, url: str, mark: str, base: Proxy) -> None:
        super().__init__(name, folder, url, mark)
        self.base = base
        self.door = Proxy("127.0.0.1", 0)

    def _arguments(self) -> list[str]:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.door.target = ("127.0.0.1", port)
        return [f"127.0.0.1:{port}", f"127.0.0.1:{self.door.port}"]

    def _ask_to_leave(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        with contextlib.suppress(OSError):
            process.stdin.write(STOP)
            process.stdin.flush()

    def close(self) -> None:
        """Close its proxies."""
        self.door.close()
        self.base.close()


class Agent(Member):
    """The agent of a host."""

    kind = "agent"

    def start(self) -> None:
        """Begin a life."""
        self._said_before = len(self._said())
        super().start()

    def _said(self) -> str:
        log = self.folder / f"{self.name}.log"
        return log.read_text(errors="replace", encoding="utf-8") if log.exists() else ""

    def _ask_to_leave(self, process: subprocess.Popen[bytes]) -> None:
        until = time.monotonic() + _COMES_UP_WITHIN
        while "offers" not in self._said()[self._said_before :] and process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)  # before that the signal ends it as it ends any program
        process.terminate()


class Application(Member):
    """A program that enqueues in transactions of its own, and kills itself in some of them.

    Args:
        number: Its number among those of the episode.
        folder: Folder of the episode.
        url: URL of the store.
        mark: Beginning of the mark of its processes.
    """

    kind = "application"

    def __init__(self, number: int, folder: Path, url: str, mark: str) -> None:
        super().__init__(f"application-{number}", folder, url, mark)
        self._number = number

    def _arguments(self) -> list[str]:
        return [str(self._number)]

    def run(self, over: threading.Event) -> None:
        """Run it, again after each kill, until it has done everything or the episode is over."""
        while not over.is_set():
            self.start()
            process = self.process
            assert process is not None
            code = process.wait()
            with self.lock:
                self._reap(process)
            if code != -signal.SIGKILL:
                if code != 0:
                    self.journal.note("stalled", text=f"{self.name} ended with {code}")
                return

    def _ask_to_leave(self, process: subprocess.Popen[bytes]) -> None:
        process.terminate()
