"""Procedures that note their steps in a file: hosts import them by name."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from actorproc import Context, Limits, Procedure, Status

__all__ = ["Eater", "Noted", "around"]


class Noted(Procedure):
    """Notes each of its steps: "begin" and "end", with id, step, fence and the worker's parent."""

    def __init__(self, journal: str, steps: int = 3, seconds: float = 0.05) -> None:
        self.journal = journal
        self.steps = steps
        self.seconds = seconds
        self.done = 0

    def execute(self, ctx: Context) -> Status:
        """Note one step."""
        self._note("begin", ctx)
        time.sleep(self.seconds)
        self._note("end", ctx)
        self.done += 1
        return Status.done(self.done) if self.done >= self.steps else Status.executing()

    def _note(self, word: str, ctx: Context) -> None:
        with Path(self.journal).open("a") as file:
            file.write(f"{word} {ctx.id} {ctx.step} {ctx.fence} {os.getppid()}\n")


class Eater(Noted):
    """A step that takes its whole host along, as the end of a container does that runs out of memory."""

    limits = Limits(on=("big",))

    def execute(self, ctx: Context) -> Status:
        """End the agent, and with it all that it started."""
        self._note("begin", ctx)
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)
        return Status.done(self.done)

    def rollback(self, ctx: Context) -> Status:
        """Note that it is undone."""
        self._note("undone", ctx)
        return Status.done()


@contextmanager
def around(ctx: Context) -> Iterator[None]:
    """Note an attempt and the process above its worker."""
    yield
    with Path(os.environ["AROUND_FILE"]).open("a") as file:
        file.write(f"{ctx.id} {ctx.step} {os.getppid()}\n")
