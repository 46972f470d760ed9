"""Procedures that note their steps in a file: hosts import them by name."""

from __future__ import annotations

import os
import time
from pathlib import Path

from actorproc import Context, Procedure, Status

__all__ = ["Noted"]


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
