"""Workers that are forked from a process which has imported what all workers import, in place of fresh interpreters.

To start an interpreter and to import `actorproc.workers.child.main` is most of what a worker costs, and the tests start
thousands. From `boot` on a forked worker runs the same code, as a child of the same parent, in a session of its own and
with the same environment. Tests of that start itself, in `tests/processes` and others, do not use this, and with
``ACTORPROC_COLD_WORKERS=1`` no test does. Where anything else that a process inherits differs from what the forking
process has, or the system does not let a process fork for its parent, a worker is a fresh interpreter as ever.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actorproc.procedure.values.type_names import PACKAGE_HOME
from actorproc.workers.os import process
from actorproc.workers.os.interpreter import _interpreter_flags, start_interpreter
from actorproc.workers.protocol.host_program import StartPlace

__all__ = ["NAME", "warm_workers"]

NAME = "forks-workers"
"""Name of the process that forks, as `ps` shows it."""
_COLD = os.environ.get("ACTORPROC_COLD_WORKERS", "") == "1"
_BOUND = 30.0
_START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from actorproc.workers.child.boot import boot; forking = {}; "
    "exec(open(sys.argv[3]).read(), forking); forking.pop('serve')(int(sys.argv[2])); boot()"
)
_AT_START = ("PYTHON", "LC_", "LANG", "LD_", "TZ", "MALLOC", "GLIBC")
"""Beginnings of the names of variables that an interpreter reads once, when it starts."""
_LIMITS = sorted({getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_")})


def _inherited(executable: str, environment: dict[str, str]) -> tuple[Any, ...]:
    """Properties that a process has from its parent and cannot take over later."""
    return (
        executable,
        _interpreter_flags(),
        sorted(item for item in environment.items() if item[0].startswith(_AT_START)),
        [resource.getrlimit(limit) for limit in _LIMITS],
        os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None,
        os.getpriority(os.PRIO_PROCESS, 0),
        (os.getuid(), os.geteuid(), os.getgid(), os.getegid(), os.getgroups()),
        [number for number in signal.valid_signals() if signal.getsignal(number) is signal.SIG_IGN],
        signal.pthread_sigmask(signal.SIG_BLOCK, ()),
    )


class _ForkingProcess:
    """The process that forks workers for this one. May be used by several threads."""

    def __init__(self) -> None:
        self._owner = os.getpid()
        self._inherited = _inherited(sys.executable, dict(os.environ))
        self._lock = threading.Lock()
        self._socket, other = socket.socketpair()
        self._socket.settimeout(_BOUND)
        with other:
            arguments = [PACKAGE_HOME, str(other.fileno()), str(Path(__file__).with_name("forking_process.py"))]
            self._process = subprocess.Popen(
                [sys.executable, *_interpreter_flags(), "-c", _START, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,  # pipes, as workers have
                stderr=subprocess.PIPE,
                pass_fds=[other.fileno()],
                start_new_session=True,
            )
        # It forks once to see whether it can, and says which process that was; 0: it cannot.
        proof = int.from_bytes(self._socket.recv(4), "big")
        self.is_able = proof > 0
        if self.is_able:
            os.waitpid(proof, 0)

    def is_there(self) -> bool:
        return self._owner == os.getpid() and self._process.poll() is None

    def can_start(self, executable: str, environment: dict[str, str]) -> bool:
        """True if a worker that is forked begins with all that a fresh interpreter would begin with."""
        return self.is_able and self.is_there() and _inherited(executable, environment) == self._inherited

    def start(
        self, passed: tuple[int, int, int], stdout: int, stderr: int, place: StartPlace
    ) -> subprocess.Popen[bytes]:
        """Fork a worker. Raises `OSError`."""
        fds = [stdout, stderr, *passed, *([place.directory] if place.directory >= 0 else [])]
        request = json.dumps([[os.fsencode(part).hex() for part in item] for item in place.environment.items()])
        with self._lock:
            socket.send_fds(self._socket, [len(request).to_bytes(4, "big")], fds)
            self._socket.sendall(request.encode())
            answer = self._socket.recv(4)
        if len(answer) < 4:
            raise OSError("the process that forks workers is gone")
        found = subprocess.Popen.__new__(subprocess.Popen)
        found.args, found.returncode, found.pid = [NAME], None, int.from_bytes(answer, "big")
        found.stdin = found.stdout = found.stderr = None
        found._child_created, found._waitpid_lock, found._sigint_wait_secs = True, threading.Lock(), 0.25
        return found


_forking: list[_ForkingProcess] = []


def _warm(
    executable: str, passed: tuple[int, int, int], stdout: int, stderr: int, *, place: StartPlace
) -> subprocess.Popen[bytes]:
    if _forking and _forking[0].can_start(executable, place.environment):
        return _forking[0].start(passed, stdout, stderr, place)
    return start_interpreter(executable, passed, stdout, stderr, place=place)


@pytest.fixture(scope="module", autouse=True)
def warm_workers() -> Iterator[None]:
    """Workers of managers in this process are forked. The process that forks them lasts as long as this one."""
    if _COLD or sys.platform != "linux":
        yield
        return
    if not _forking or not _forking[0].is_there():
        _forking[:] = [_ForkingProcess()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "start_interpreter", _warm)
        yield
