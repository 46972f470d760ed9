"""Procedures of the pool suite. Workers import them, wherever they run: they use no file and no clock."""

from __future__ import annotations

from actorproc.procedure.authoring.context import Context
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.status import Status

__all__ = ["Count", "Fail", "Hold", "Nothing"]


class Count(Procedure):
    """Counts to `upto`, one step for each number, and ends with it."""

    def __init__(self, upto: int = 1) -> None:
        self.upto = upto
        self.n = 0

    def execute(self, ctx: Context) -> Status:
        """One more."""
        self.n += 1
        return Status.done(self.n) if self.n >= self.upto else Status.executing()


class Nothing(Procedure):
    """Ends at once."""

    def execute(self, ctx: Context) -> Status:
        """Nothing to do."""
        return Status.done()


class Fail(Procedure):
    """Raises an error."""

    def execute(self, ctx: Context) -> Status:
        """Raise the error."""
        raise ValueError("the step of the suite fails as it should")


class Hold(Procedure):
    """Asks, and ends with its name when the answer has come: its step runs as long as the test wants."""

    def __init__(self, name: str = "hold") -> None:
        self.name = name

    def execute(self, ctx: Context) -> Status:
        """Wait for the answer."""
        return Status.done(ctx.remember("go", lambda: self.name))
