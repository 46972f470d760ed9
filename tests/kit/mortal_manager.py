"""Managers in processes of their own that kill themselves between a commit and the answer to its caller."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.kit.waiting import BOUND

__all__ = ["killed_at_the_end", "mortal_manager", "while_it_dies"]

_PROGRAM = """
import os, signal, sys
from actorproc import Config, ProcedureManager
from actorproc.engine.pipeline.command_executor import CommandExecutor
from actorproc.model.rows.writes import PutProcedure

honest = CommandExecutor._reply

def die(self, command, batch):
    if any(type(write) is PutProcedure and ({stored}) for write in batch.writes):
        os.kill(os.getpid(), signal.SIGKILL)
    honest(self, command, batch)

CommandExecutor._reply = die
with ProcedureManager(sys.argv[1], workers=2, config=Config(spares=0)) as manager:
    print("up", flush=True)
    sys.stdin.read()
"""


@contextmanager
def mortal_manager(path: Path, stored: str, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A manager that dies when it has stored a `write` of a head for which this expression is true.

    The expression has `sys.argv`, in which `arguments` begin at 2.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", _PROGRAM.format(stored=stored), path, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with killed_at_the_end(process):
        yield process


@contextmanager
def killed_at_the_end(process: subprocess.Popen[str]) -> Iterator[None]:
    """A program that says that it is up, and ends with the block, whatever has become of it."""
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    yield
    process.kill()
    process.wait(BOUND)
    process.stdin.close()
    process.stdout.close()


def while_it_dies(mortal: subprocess.Popen[str], serve: Callable[..., Any], call: Callable[[], Any]) -> Any:
    """The result of a call whose first manager is killed, and which the next one answers."""
    found: list[Any] = []
    caller = threading.Thread(target=lambda: found.append(call()))
    caller.start()
    assert mortal.wait(BOUND) == -signal.SIGKILL
    serve(config="Config(spares=0)")
    caller.join(BOUND)
    return found[0]
