"""A private PostgreSQL server for tests, benches and examples: made in a moment, gone with its process.

    with DatabaseServer() as server:
        with ProcedureManager(server.url(), procedures=[Order]) as manager:
            ...

It listens on loopback, trusts every user of this machine, and does not wait for its disk unless it is asked to. It runs
as the user ``postgres`` where the program runs as root, which PostgreSQL refuses.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import queue
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from actorproc.errors import EngineError

__all__ = ["DatabaseServer", "find_server"]

_BINARIES = "ACTORPROC_POSTGRES_BIN"
"""The environment's word for the directory of ``postgres`` and ``initdb``."""
_SYSTEM = Path("/usr/lib/postgresql")
_STARTS_WITHIN = 30.0
_PAUSE = 0.02
_TRIES = 5
_USER = "actorproc"


def find_server() -> Path:
    """The directory of the server's programs.

    That of ``ACTORPROC_POSTGRES_BIN``, else the newest below ``/usr/lib/postgresql``, else that of the path.

    Returns:
        The directory.

    Raises:
        EngineError: There is none, or this user cannot run it.
    """
    given = os.environ.get(_BINARIES)
    found = Path(given) if given else _installed()
    if found is None or not (found / "initdb").exists() or not (found / "postgres").exists():
        raise EngineError(
            f"no PostgreSQL server was found{f' in {given}' if given else ''}: install postgresql (version 15 to 18), "
            f"or name the directory of its programs in {_BINARIES}"
        )
    if os.geteuid() == 0 and (shutil.which("setpriv") is None or _postgres_user() is None):
        raise EngineError("PostgreSQL refuses to run as root, and there is no setpriv or no user 'postgres' here")
    return found


def _installed() -> Path | None:
    versions = [path for path in _SYSTEM.glob("*/bin") if path.parent.name.isdecimal() and (path / "postgres").exists()]
    if versions:
        return max(versions, key=lambda path: int(path.parent.name))
    on_path = shutil.which("postgres")
    return Path(on_path).parent if on_path else None


def _postgres_user() -> pwd.struct_passwd | None:
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return None


class DatabaseServer:
    """A server of its own, with its data in a temporary directory. A context manager.

    Args:
        fsync: Wait for the disk, as a server that is not for tests does. Default: False.
        settings: Further settings, such as ``"max_connections=20"``. Default: none.
    """

    def __init__(self, *, fsync: bool = False, settings: Sequence[str] = ()) -> None:
        self._binaries = find_server()
        self._settings = (*_settings(fsync=fsync), *settings)
        self.directory = Path(tempfile.mkdtemp(prefix="actorproc-pg-"))
        self.port = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._made = False

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def url(self, store: str = "", **parameters: str) -> str:
        """The URL of a store in it.

        Args:
            store: Name of the schema. Default: that of a URL without one.
            parameters: Further ones of the URL. Default: none.

        Returns:
            The URL.
        """
        named = {**parameters, "store": store} if store else parameters
        tail = "&".join(f"{name}={value}" for name, value in named.items())
        return f"postgresql://{_USER}@127.0.0.1:{self.port}/postgres{'?' if tail else ''}{tail}"

    @property
    def pid(self) -> int:
        """Process of the server; 0 when it does not run."""
        lines = _lines(self.directory / "data" / "postmaster.pid")
        return int(lines[0]) if lines else 0

    @property
    def log(self) -> str:
        """Text of the server's log."""
        return "\n".join(_lines(self.directory / "log"))

    def start(self) -> None:
        """Start it, on the port that it had before if it ran already.

        Raises:
            EngineError: It does not start; the message has the end of its log.
        """
        if not self._made:
            self._make()
        for last in range(_TRIES):
            self.port = self.port or _free_port()
            if self._starts():
                return
            if self._made and last:
                continue
            self.port = 0  # another process was given it meanwhile
        raise EngineError(f"PostgreSQL does not start: {self.log[-2000:]}")

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """End it, and wait for that.

        Args:
            how: SIGINT ends its sessions, SIGTERM waits for them, SIGQUIT is a crash: nothing is written any more.
                Default: SIGINT.
        """
        process, self._process = self._process, None
        if process is not None:
            process.send_signal(how)
            process.wait()

    def restart(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """End it and start it again.

        Args:
            how: As `stop` has it. Default: SIGQUIT, as ``pg_ctl restart -m immediate``.
        """
        self.stop(how)
        self.start()

    def close(self) -> None:
        """End it, and remove its data. Idempotent."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.directory, ignore_errors=True)

    def _make(self) -> None:
        user = _postgres_user() if os.geteuid() == 0 else None
        if user is not None:
            os.chown(self.directory, user.pw_uid, user.pw_gid)
        command = [*_as_user(), str(self._binaries / "initdb"), "-D", str(self.directory / "data"), "-A", "trust"]
        command += ["-U", _USER, "--no-sync", "-E", "UTF8", "--locale=C"]
        done = subprocess.run(command, cwd=self.directory, capture_output=True, check=False)  # noqa: S603
        if done.returncode:
            raise EngineError(f"initdb ended with {done.returncode}: {done.stderr.decode(errors='replace')[-2000:]}")
        self._made = True

    def _starts(self) -> bool:
        command = [*_as_user(dies_with_us=True), str(self._binaries / "postgres"), "-D", str(self.directory / "data")]
        for setting in (*self._settings, f"port={self.port}", f"unix_socket_directories={self.directory}"):
            command += ["-c", setting]
        self._process = self._launched(command)
        until = time.monotonic() + _STARTS_WITHIN
        while self._process.poll() is None and time.monotonic() < until:
            if "ready" in "".join(_lines(self.directory / "data" / "postmaster.pid")[7:8]):
                return True
            time.sleep(_PAUSE)
        self.stop(signal.SIGQUIT)
        return False

    def _launched(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start the process on a thread that lives as long as it: the system ends it with the thread that starts it."""
        started: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()

        def keep() -> None:
            try:
                with (self.directory / "log").open("ab") as log:
                    process = subprocess.Popen(  # noqa: S603
                        command,
                        cwd=self.directory,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=log,
                        start_new_session=True,  # Ctrl-C is for the program that has it
                    )
            except OSError as error:
                started.put(error)
                return
            started.put(process)
            process.wait()

        threading.Thread(target=keep, name="database-server", daemon=True).start()
        found = started.get()
        if isinstance(found, OSError):
            raise found
        return found


def _settings(*, fsync: bool) -> list[str]:
    settings = ["listen_addresses=127.0.0.1", "max_connections=100", "shared_buffers=64MB", "log_min_messages=warning"]
    return settings if fsync else [*settings, "fsync=off", "full_page_writes=off"]


def _as_user(*, dies_with_us: bool = False) -> list[str]:
    """The beginning of a command that runs as a user other than root, and is ended when this process is."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return []
    command = [setpriv, "--no-new-privs"]
    if os.geteuid() == 0:
        command += ["--reuid=postgres", "--regid=postgres", "--init-groups"]
    if dies_with_us and _knows_deathsig(setpriv):
        command += ["--pdeathsig", "QUIT"]
    return command if len(command) > 2 else []


def _knows_deathsig(setpriv: str) -> bool:
    shown = subprocess.run([setpriv, "--help"], capture_output=True, check=False)  # noqa: S603
    return b"--pdeathsig" in shown.stdout


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _lines(file: Path) -> list[str]:
    with contextlib.suppress(OSError):
        return re.split(r"\n", file.read_text(encoding="utf-8", errors="replace"))
    return []
