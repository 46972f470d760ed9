"""Procedures of the benches about scale and recovery, in a module of their own that a fresh process finds again."""

from __future__ import annotations

import contextlib
import os
import time
from dataclasses import dataclass
from pathlib import Path

from actorproc import Limits, Procedure, Status

MARK = "ACTORPROC_BENCH_MARK"
"""Environment variable: the file in which the first step of all leaves the time at which it began."""


@dataclass
class Job(Procedure):
    """Five short steps; the first one of all that run says when it began."""

    type_name = "bench.Job"
    text: str

    def execute(self, ctx):
        mark = os.environ.get(MARK)
        if mark:
            with contextlib.suppress(FileExistsError), Path(mark).open("x") as file:
                file.write(str(time.monotonic_ns()))
        return Status.done() if ctx.step >= 5 else Status.executing()


@dataclass
class Sleeper(Procedure):
    """One step, then a day of sleep."""

    type_name = "bench.Sleeper"
    number: int

    def execute(self, ctx):
        return Status.sleep(86_400) if ctx.step == 1 else Status.done()


@dataclass
class Listener(Procedure):
    """One step, then it waits for an event of its own."""

    type_name = "bench.Listener"
    number: int

    def execute(self, ctx):
        return Status.wait(f"approved-{self.number}") if ctx.step == 1 else Status.done()


@dataclass
class Hang(Procedure):
    """Says when it starts, takes some memory, says so, then waits to be killed; ends when told to."""

    journal: str
    megabytes: int = 0
    limits = Limits(crashes=1_000_000)

    def execute(self, ctx):
        with Path(self.journal).open("a", buffering=1) as file:
            file.write(f"{os.getpid()} {time.monotonic_ns()}\n")
        held = b"\1" * (self.megabytes * 1024 * 1024)
        Path(f"{self.journal}.{os.getpid()}").write_text(str(len(held)))
        while not Path(self.journal + ".stop").exists():
            time.sleep(0.001)
        return Status.done()


@dataclass
class Beat(Procedure):
    """Short steps without an end; each says when it began, and the epoch of the leader that handed it out."""

    type_name = "bench.Beat"
    journal: str
    limits = Limits(crashes=1_000_000)

    def execute(self, ctx):
        with Path(self.journal).open("a", buffering=1) as file:
            file.write(f"{time.monotonic_ns()} {ctx.fence >> 40}\n")
        time.sleep(0.005)
        return Status.executing()


@dataclass
class Nap(Procedure):
    """Steps that take their time and next to no processor."""

    type_name = "bench.Nap"
    steps: int
    seconds: float

    def execute(self, ctx):
        time.sleep(self.seconds)
        return Status.done() if ctx.step >= self.steps else Status.executing()
