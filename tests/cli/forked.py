"""Commands in processes of their own that are forked from one where everything is imported already.

Most of what a command costs is the start of an interpreter and its imports, and the tests give hundreds of commands.
The process that is forked has no threads, has opened nothing, and does nothing but import before it forks.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

__all__ = ["ForkedCommands"]


class ForkedCommands:
    """Runs the command line tool; may be used by several threads."""

    def __init__(self) -> None:
        self._socket, other = socket.socketpair()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(other.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[other.fileno()],
        )
        other.close()

    def run(
        self, arguments: Sequence[str], *, cwd: Path, stdin: str, timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end, as `subprocess.run` does; it is killed when `timeout` seconds are over."""
        ours, theirs = socket.socketpair()
        with ours, theirs, contextlib.ExitStack() as files:
            given, out, err = (files.enter_context(tempfile.TemporaryFile("w+")) for _ in range(3))
            given.write(stdin)
            given.seek(0)
            request = json.dumps({"arguments": list(arguments), "cwd": str(cwd), "timeout": timeout}).encode()
            with tempfile.TemporaryFile() as text:
                text.write(request)
                text.seek(0)
                fds = [text.fileno(), given.fileno(), out.fileno(), err.fileno(), theirs.fileno()]
                socket.send_fds(self._socket, [b"r"], fds)
                theirs.close()
                answer = ours.recv(16)
            assert answer, "the process that forks commands is gone"
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(list(arguments), int(answer), out.read(), err.read())

    def close(self) -> None:
        """End the process that forks; commands that run go on."""
        self._socket.close()
        self._process.wait(30)


def _import_all() -> None:
    for package in ("actorproc.cli", "actorproc.report.schema"):
        path = importlib.import_module(package).__path__
        for module in pkgutil.walk_packages(path, f"{package}."):
            importlib.import_module(module.name)
    for name in ("api.client", "api.reader", "api.stopped", "report.why", "store.lmdb.store"):
        importlib.import_module(f"actorproc.{name}")


def _serve(requests: socket.socket) -> None:
    """Fork for each request, until nobody is there who could ask; returns in the process of a command."""
    while True:
        _, fds, _, _ = socket.recv_fds(requests, 1, 5)
        if not fds:
            os._exit(0)
        if os.fork() == 0:
            requests.close()
            _attend(*fds)
            return
        for fd in fds:
            os.close(fd)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def _attend(text: int, stdin: int, stdout: int, stderr: int, answer: int) -> None:
    """Fork the command, and tell how it ends; returns in the process of the command."""
    with open(text, "rb") as file:
        request = json.load(file)
    pid = os.fork()
    if pid:
        signal.signal(signal.SIGALRM, lambda *_: os.kill(pid, signal.SIGKILL))
        signal.setitimer(signal.ITIMER_REAL, request["timeout"])
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        os.write(answer, str(code).encode())
        os._exit(0)
    for number, fd in enumerate((stdin, stdout, stderr)):
        os.dup2(fd, number)
        os.close(fd)
    os.close(answer)
    os.chdir(request["cwd"])
    # What `python -m actorproc` has.
    sys.path[0] = request["cwd"]
    sys.argv[1:] = request["arguments"]


def _become_the_command() -> NoReturn:
    from actorproc.cli.main import main

    try:
        code: int | str | None = main()
    except SystemExit as told:
        code = told.code
    if not isinstance(code, int):
        sys.exit(code)
    # The rest of an interpreter's end would only tidy up, and copy pages that the processes share.
    threading._shutdown()
    sys.stdout.flush()
    os._exit(code)


if __name__ == "__main__":
    sys.path[:] = ["", *(place for place in sys.path if place != str(Path(__file__).parent))]
    _import_all()
    gc.freeze()  # so that the collector writes to no page that processes share
    _serve(socket.socket(fileno=int(sys.argv[1])))
    _become_the_command()
