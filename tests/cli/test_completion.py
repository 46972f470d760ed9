"""Completion as people have it: real shells on a terminal, a script of ours, and the TAB key."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from actorproc import LockKey, Procedure, ProcedureManager, Status

pytestmark = pytest.mark.processes
pytest.importorskip("shtab")

BOUND = 60.0
START = {
    "bash": (["bash", "--norc", "--noprofile", "-i"], "PS1='$ '; source {script}"),
    "zsh": (
        ["zsh", "-f", "-i"],
        "PS1='$ '; fpath=({script.parent} $fpath); autoload -Uz compinit; compinit -u -D",
    ),
    "fish": (["fish", "--no-config", "-i"], "source {script}"),
}


class Holds(Procedure):
    def lock_keys(self):
        return [LockKey.write("catalog/table")]

    def execute(self, ctx):
        return Status.wait("never")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in `other`, none in `state`, and a command `actorproc` that is this one."""
    found = tmp_path_factory.mktemp("shells")
    with ProcedureManager(found / "other", workers=1) as manager:
        manager.submit(Holds(), "unmistakable-1")
        deadline = time.monotonic() + BOUND
        while manager.info("unmistakable-1").phase != "waiting":
            assert time.monotonic() < deadline
            time.sleep(0.01)
    command = found / "bin" / "actorproc"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m actorproc "$@"\n')
    command.chmod(0o755)
    return found


class Shell:
    """An interactive shell on a terminal, with our script."""

    def __init__(self, name: str, place: Path) -> None:
        script = place / name / "_actorproc"
        script.parent.mkdir(exist_ok=True)
        environment = os.environ | {
            "PATH": f"{place / 'bin'}:{os.environ['PATH']}",
            "TERM": "dumb",
            "HOME": os.fspath(place),
            "PYTHONPATH": os.fspath(Path(__file__).parents[2]),
        }
        script.write_bytes(
            subprocess.run(
                [place / "bin" / "actorproc", "completion", name], env=environment, stdout=subprocess.PIPE, check=True
            ).stdout
        )
        start, prepare = START[name]
        self._terminal, child = pty.openpty()
        self._process = subprocess.Popen(
            start,
            cwd=place,
            env=environment,
            pass_fds=[child],
            preexec_fn=lambda: os.login_tty(child),  # noqa: PLW1509 - a shell wants a terminal of its own
        )
        os.close(child)
        self._seen = ""
        self.type(prepare.format(script=script) + "\r")
        self.type("echo re''ady\r")
        self.until("ready")

    def type(self, text: str) -> None:
        os.write(self._terminal, text.encode())

    def until(self, wanted: str) -> str:
        """What was printed until this was."""
        deadline = time.monotonic() + BOUND
        while wanted not in self._seen:
            ready, _, _ = select.select([self._terminal], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"{wanted!r} did not come: {self._seen[-2000:]!r}"
            self._seen += re.sub(
                r"\x1b\[[0-9;?]*[A-Za-z]|\x1b[=>]|\x07", "", os.read(self._terminal, 65536).decode("utf-8", "replace")
            )
        before, _, self._seen = self._seen.partition(wanted)
        return before + wanted

    def end(self) -> None:
        self._process.kill()
        self._process.wait(BOUND)
        os.close(self._terminal)


@pytest.fixture(params=sorted(START))
def shell(request, place):
    if shutil.which(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    found = Shell(request.param, place)
    yield found
    found.end()


def test_commands_ids_and_keys_are_completed_in_the_store_of_the_line(shell):
    shell.type("actorproc --path other doct\t")
    shell.until("doctor")
    shell.type("\x15actorproc --path other show unmis\t")
    shell.until("unmistakable-1")
    shell.type("\x15actorproc retry --path other unmis\t")
    shell.until("unmistakable-1")
    shell.type("\x15actorproc --path other locks catal\t")
    shell.until("catalog/table")
    shell.type("\x15actorproc list --olde\t")
    shell.until("--oldest")


def test_where_there_is_no_store_nothing_is_completed_and_nothing_complains(shell):
    shell.type("actorproc show unmis\t")
    shell.type("X\r")
    said = shell.until("no store")
    assert "unmistakable" not in said
    assert "unmisX" in said.replace("\r", "").replace("\n", "")
