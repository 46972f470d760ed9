"""Procedures that tests of several folders run."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from actorproc import Procedure, Saga, Status, step


class Order(Saga):
    """Pays, which can be undone, and ships; a stone is too heavy for that."""

    item: str
    paid: bool = False

    @step
    def pay(self, ctx):
        self.paid = True

    @pay.undo
    def refund(self, ctx):
        self.paid = False

    @step
    def ship(self, ctx):
        if self.item == "stone":
            raise ValueError("too heavy")
        return f"tracking-{self.item}-{self.paid}-{ctx.idempotency_key}"


@dataclass
class Nap(Procedure):
    """One step of so many seconds, which first writes the pid of its worker into the file `marker`."""

    seconds: float = 0.0
    marker: str = ""

    def execute(self, ctx):
        if self.marker:
            with Path(self.marker).open("a") as file:
                file.write(f"{os.getpid()}\n")
        time.sleep(self.seconds)
        return Status.done("rested")


@dataclass
class Part(Procedure):
    """One step, whose number comes out again."""

    number: int = 0

    def execute(self, ctx):
        return Status.done(self.number)


@dataclass
class Waits(Procedure):
    """Waits for the event "word", and gives its payload."""

    asked: bool = False

    def execute(self, ctx):
        if not self.asked:
            self.asked = True
            return Status.wait("word")
        return Status.done(ctx.event)


@dataclass
class Add(Procedure):
    """Its output is a sum."""

    a: int
    b: int

    def execute(self, ctx):
        return Status.done(self.a + self.b)
