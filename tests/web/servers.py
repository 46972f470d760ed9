"""Processes of their own for tests of the page: a service, and the page itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import contextmanager

MODULE = """
from dataclasses import dataclass
from actorproc import Procedure, Status

@dataclass
class Waits(Procedure):
    def execute(self, ctx):
        return Status.wait("go") if ctx.event is None else Status.done(1)
"""
BOUND = 30.0


def command(*words, **options):
    return subprocess.Popen(
        [sys.executable, "-m", "actorproc", *map(str, words)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def until(holds, process=None):
    end = time.monotonic() + BOUND
    while not (found := holds()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not come about in time"
        time.sleep(0.02)
    return found


@contextmanager
def service(folder, *words):
    """A manager as a service; gives its store and its process. One procedure of it waits."""
    from actorproc.api.client import ProcedureClient

    (folder / "works.py").write_text(MODULE)
    path = folder / "store"
    process = command("run", "works", "--path", path, "--workers", "1", *words, cwd=folder)
    try:
        until((path / "control.sock").exists, process)
        subprocess.run(
            [sys.executable, "-m", "actorproc", "--path", path, "submit", "works:Waits", "--id", "waits"],
            cwd=folder,
            check=True,
            capture_output=True,
        )
        with ProcedureClient(path) as client:
            until(lambda: client.info("waits").phase == "waiting", process)
        yield path, process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


@contextmanager
def web(path, *words, env=None, cwd=None):
    """The page as a process of its own; gives its address, its token and its process."""
    process = command("--path", path, "web", *words, env={**os.environ, **(env or {})}, cwd=cwd)
    try:
        address = process.stdout.readline().strip()
        assert address.startswith("http"), process.communicate()
        place = json.loads((path / "web.json").read_text())
        yield address, place["token"], process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()
