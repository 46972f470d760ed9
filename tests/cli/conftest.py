"""The command as users have it: in processes of its own, on the directory of a service in another process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.cli.forked import ForkedCommands
from tests.kit.waiting import wait_until

BOUND = 60.0

JOBS = '''
import time
from dataclasses import dataclass
from actorproc import LockKey, Procedure, RetryPolicy, Saga, Status, procedure, step

@dataclass
class Table(Procedure):
    """Takes a table, and may never give it back."""
    name: str
    stuck: bool = False
    def lock_keys(self):
        return [LockKey.write(f"catalog/{self.name}")]
    def execute(self, ctx):
        while self.stuck:
            time.sleep(0.05)
        return Status.done(self.name)

class Half(Saga):
    """Fails, and cannot be undone before `mended` exists."""
    mended: str
    def lock_keys(self):
        return [LockKey.write("catalog/half")]
    @step
    def first(self, ctx):
        pass
    @first.undo
    def unfirst(self, ctx):
        import os
        if not os.path.exists(self.mended):
            raise RuntimeError("the undo fails")
    @step
    def second(self, ctx):
        raise ValueError("the second step fails")

Half.rollback_retry = RetryPolicy(max_attempts=2, base=0.01)

class Patient(Half):
    """Its undo is tried again for a long time."""
    def lock_keys(self):
        return []

Patient.rollback_retry = RetryPolicy(max_attempts=50, base=30.0, retry_on=(RuntimeError,))

class Fragile(Saga):
    """Fails, and its undo kills its worker once."""
    @step
    def first(self, ctx):
        pass
    @first.undo
    def unfirst(self, ctx):
        if not ctx.replayed:
            import os
            os.abort()
    @step
    def second(self, ctx):
        raise ValueError("the second step fails")

@dataclass
class Loop(Procedure):
    """Never comes to an end, and says so."""
    def execute(self, ctx):
        while True:
            ctx.heartbeat(0.5, "round and round")
            time.sleep(0.05)

@dataclass
class Waits(Procedure):
    event: str = "go"
    text: str = ""
    def execute(self, ctx):
        if ctx.event is not None:
            return Status.done(ctx.event)
        if self.text:
            print(self.text)
            ctx.log.warning(self.text)
        return Status.wait(self.event)

class Parcel(Saga, searchable=("to", "weight")):
    """Is found by what it holds, and by a tag that its step sets."""
    to: str
    weight: int = 0
    @step
    def weigh(self, ctx):
        self.weight = 7
        ctx.set_tag("scale", "a")

@dataclass
class Parent(Procedure):
    started: bool = False
    def execute(self, ctx):
        if self.started:
            return Status.done(sorted(ctx.children))
        self.started = True
        return Status.suspended([(f"{ctx.id}.{n}", Waits("never")) for n in range(2)])

@dataclass
class Fails(Procedure):
    message: str
    def execute(self, ctx):
        raise ValueError(self.message)

@dataclass
class Hostile(Procedure):
    """Holds a lock of a hostile name until it is told."""
    name: str
    def lock_keys(self):
        return [LockKey.write(self.name)]
    def execute(self, ctx):
        ctx.heartbeat(0.5, self.name)
        return Status.wait("go")

@procedure
def add(a, b):
    return a + b
'''


class Place:
    """A directory with a module of procedures, a store, and perhaps a service on it."""

    def __init__(self, directory: Path, commands: ForkedCommands) -> None:
        self.directory = directory
        self._commands = commands
        self.store = directory / "state"
        (directory / "jobs.py").write_text(JOBS)
        self._service: subprocess.Popen[bytes] | None = None
        self._named: dict[str, str] = {}

    def serve_on(self, path: str) -> None:
        """Serve another directory from now on."""
        self.store = self.directory / path
        self.serve(path=path)

    def serve(self, workers: int = 2, path: str = "state") -> None:
        with (self.directory / "service.log").open("ab") as log:
            self._service = subprocess.Popen(
                [sys.executable, "-m", "actorproc", "run", "jobs", "--workers", str(workers), "--path", path],
                cwd=self.directory,
                stdout=log,
                stderr=log,
            )
        # Only a manager that runs can tell its workers; the socket may be left from one that was killed.
        self.until(lambda: self("--path", path, "workers")[0] == 0)

    def tell_service(self, number: int) -> None:
        """Send a signal to the service."""
        assert self._service is not None
        self._service.send_signal(number)

    def end(self, number: int = signal.SIGKILL) -> None:
        if self._service is not None:
            self._service.send_signal(number)
            self._service.wait(BOUND)
            self._service = None

    def run(self, *arguments: str, stdin: str | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run one command; in an interpreter of its own when it gets an environment."""
        self._claim(arguments)
        if not environment:
            return self._commands.run(arguments, cwd=self.directory, stdin=stdin or "", timeout=BOUND)
        return subprocess.run(
            [sys.executable, "-m", "actorproc", *arguments],
            cwd=self.directory,
            env=os.environ | environment,
            input=stdin or "",
            capture_output=True,
            text=True,
            timeout=BOUND,
            check=False,
        )

    def _claim(self, arguments: Sequence[str]) -> None:
        """Refuse an id that another test of this place gave: whether it is free again depends on their order."""
        test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
        for option, id in pairwise(arguments):
            if option == "--id" and self._named.setdefault(id, test) != test:
                raise AssertionError(f"{id} is an id of {self._named[id]} in the same store; take another")

    def __call__(self, *arguments: str) -> tuple[int, str, str]:
        """Exit code, output and complaints of a command."""
        done = self.run(*arguments)
        return done.returncode, done.stdout, done.stderr

    def said(self, *arguments: str) -> str:
        """Output of a command that works."""
        done = self.run(*arguments)
        assert done.returncode == 0, done
        return done.stdout

    def rows(self, *arguments: str) -> list[dict[str, Any]]:
        """The JSON lines that a command prints."""
        done = self.run("-o", "jsonl", *arguments)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def phase(self, name: str) -> str:
        return str(self.rows("show", name)[0]["phase"])

    def state(self, name: str) -> str:
        return str(self.rows("show", name)[0]["state"])

    def until(self, condition: Callable[[], Any]) -> Any:
        return wait_until(condition, BOUND)


@pytest.fixture(scope="session")
def commands() -> Iterator[ForkedCommands]:
    made = ForkedCommands()
    yield made
    made.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, commands: ForkedCommands) -> Iterator[Place]:
    """One service for all tests of a module."""
    found = Place(tmp_path_factory.mktemp("place"), commands)
    found.serve()
    yield found
    found.end()


@pytest.fixture
def quiet(tmp_path: Path, commands: ForkedCommands) -> Iterator[Place]:
    """A place of its own for one test; start its service if needed."""
    found = Place(tmp_path, commands)
    yield found
    found.end()
