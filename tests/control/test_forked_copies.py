"""Copies that a program forks of itself, and that outlive it, as idle children of `multiprocessing` do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import actorproc
from actorproc import Procedure, Status
from actorproc.control.wire import SOCKET_FILE
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes

PROGRAM = """
import os, signal, sys, warnings
import actorproc
warnings.simplefilter("ignore", DeprecationWarning)  # it has threads, and forks
{opened}
    print("up", flush=True)
    sys.stdin.readline()
    if not os.fork():
        print(os.getpid(), flush=True)  # the copy itself says so: by now it has let go of what it must not keep
    signal.pause()
"""
MANAGER = "with actorproc.ProcedureManager(sys.argv[1], workers=1, config=actorproc.Config(spares=0)):"
CLIENT = """
with actorproc.ProcedureClient(sys.argv[1]) as client:
    client.workers()
"""


CLOSES = """
import os, select, sys, warnings
import actorproc
warnings.simplefilter("ignore", DeprecationWarning)
with actorproc.ProcedureClient(sys.argv[1]) as client:
    client.workers()
    poll = select.poll()
    poll.register(client._engine._channel._stream, select.POLLIN | select.POLLRDHUP)
    pid = os.fork()
    if pid:
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
        assert poll.poll(0) == []
if not pid:
    os._exit(0)
"""


@dataclass
class Wait(Procedure):
    def execute(self, ctx):
        return Status.done(ctx.event) if ctx.step > 1 else Status.wait("go")


class Program:
    """A program that lives until it is killed, and its copy."""

    def __init__(self, opened: str, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(opened=opened.strip()), path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._copy = 0
        assert self._read() == "up"

    def _read(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().rstrip()

    def fork(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        self._copy = int(self._read())

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(BOUND)

    def close(self) -> None:
        self.kill()
        if self._copy:
            os.kill(self._copy, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()


@pytest.fixture
def program() -> Iterator[Callable[[str, Path], Program]]:
    programs: list[Program] = []

    def start(*arguments: Any) -> Program:
        programs.append(Program(*arguments))
        return programs[-1]

    yield start
    for one in programs:
        one.close()


def test_a_client_goes_on_though_a_copy_of_the_dead_manager_lives(program, serve, tmp_path):
    path = tmp_path / "state"
    manager = program(MANAGER, path)
    with actorproc.ProcedureClient(path) as client:
        handle = client.submit(Wait())
        manager.fork()
        manager.kill()
        serve(path)
        with actorproc.ProcedureClient(path) as other:
            assert other.signal(handle.id, "late") is True
        assert handle.result(BOUND) == "late"


def test_nobody_is_let_in_by_a_copy_of_the_dead_manager(program, tmp_path):
    path = tmp_path / "state"
    manager = program(MANAGER, path)
    manager.fork()
    manager.kill()
    with socket.socket(socket.AF_UNIX) as sock, pytest.raises(ConnectionRefusedError):
        sock.connect(os.fspath(path / SOCKET_FILE))


def test_a_dead_client_is_forgotten_though_a_copy_of_it_lives(program, tmp_path):
    path = tmp_path / "state"
    with actorproc.ProcedureManager(path, workers=1, **LIGHT) as manager:
        (close,) = manager._tree.at_close
        connections = close.__self__._connections
        client = program(CLIENT, path)
        assert len(connections) == 1
        client.fork()
        client.kill()
        wait_until(lambda: not connections)


def test_a_copy_of_a_client_that_is_closed_does_not_end_its_connection(tmp_path):
    with actorproc.ProcedureManager(tmp_path / "state", workers=1, **LIGHT):
        ended = subprocess.run(
            [sys.executable, "-c", CLOSES, tmp_path / "state"],
            check=False,
            capture_output=True,
            text=True,
            timeout=BOUND,
        )
    assert ended.returncode == 0, ended.stderr
