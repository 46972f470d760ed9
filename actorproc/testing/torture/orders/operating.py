"""Operators under torture: roots that are submitted again when they have ended, attempts that are killed, their judges.

A restarted root is an `Echo`. It keeps no journal, since the steps of its generations have the same numbers. Its
output is the number of its generation, and so are the names of its files: a mixture of two generations shows.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Any

from actorproc.procedure.authoring.context import Context
from actorproc.procedure.authoring.status import Status
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.orders.sturdy import Sturdy

if TYPE_CHECKING:
    from actorproc.model.rows.records import AttemptRecord, ProcedureRecord

__all__ = ["AGAIN", "Echo", "KillJudge", "RestartJudge", "draw_echo", "files_of"]

AGAIN = "again-"
"""Beginning of the ids of restarted roots, and of what runs below them."""
_TERMINAL = frozenset({"SUCCESS", "FAILED", "ROLLEDBACK"})
_ATTEMPT = re.compile(r"step (\d+).*, attempt (\d+)$")


# ------------------------------------------------------------ steps
class Echo(Sturdy):
    """A step, a child, and a step; its output is the number of its generation."""

    def __init__(self, folder: str, orders: list[dict[str, Any]], keys: list[list[str]]) -> None:
        super().__init__(folder, orders, keys)
        self.done: list[str] = []

    def execute(self, ctx: Context) -> Status:
        at = len(self.done)
        name = f"{ctx.generation}.{at}"
        self.done.append(name)  # of this generation alone, if no state of another one was kept
        if any(not earlier.startswith(f"{ctx.generation}.") for earlier in self.done):
            msg = f"{ctx.id} has {self.done} in generation {ctx.generation}"
            raise RuntimeError(msg)
        self.leave(ctx, name)
        order = self.orders[at]
        time.sleep(order["seconds"])
        if at + 1 == len(self.orders):
            return Status.done(ctx.generation)
        children = [Echo(self.folder, child["orders"], child["keys"]) for child in order.get("children", ())]
        return Status.suspended(children) if children else Status.executing()


# ------------------------------------------------------------ plans
def draw_echo(chance: Random) -> tuple[dict[str, Any], int]:
    """A root that is restarted, and how often."""
    child = _echo([_pause(chance), _pause(chance)])
    fan = {**_pause(chance), "children": [child] * chance.randint(0, 2)}
    return _echo([_pause(chance), fan, _pause(chance)]), chance.randint(1, 3)


def _echo(orders: list[dict[str, Any]]) -> dict[str, Any]:
    return {"type": "echo", "orders": orders, "keys": []}


def _pause(chance: Random) -> dict[str, Any]:
    return {"do": "work", "seconds": round(chance.uniform(0.001, 0.05), 4)}


def files_of(spec: dict[str, Any], generation: int) -> set[str]:
    """Names of the files that a generation of a root leaves in its own folder."""
    return {f"{generation}.{at}" for at in range(len(spec["orders"]))}


# ------------------------------------------------------------ judging
class RestartJudge:
    """Promises to the one who restarts a root, by its number of generations.

    1 none is acknowledged before it is durable · 4 none is lost · 13 nothing of an earlier one is left · 14 an end is
    that of its generation · 15 each begins when it was asked for · 20 none begins that was refused, or not asked for.
    """

    def __init__(self, id: str, spec: dict[str, Any], wanted: int, say: Callable[[int, str], None]) -> None:
        self.id = id
        self._spec = spec
        self._wanted = wanted
        self._say = say
        self._generation = 0
        """Of the newest head that was durable."""
        self._state = ""
        self._granted = 0
        self._refused = 0
        self._asked = 0

    def read(self, line: JournalLine) -> None:
        """The next line about this root."""
        match line.kind:
            case "durable":
                self._durable(line)
            case "restarting":
                self._asked += 1
            case "restart-refused":
                self._refused += 1
            case "restarted":
                self._granted += 1
                if self._generation <= self._granted:
                    self._say(1, f"restart {self._granted} of {self.id} is acknowledged before it is durable")
            case "generation-ended" if line.text != repr(line.step):
                self._say(14, f"generation {line.step} of {self.id} gave {line.text}")

    def _durable(self, line: JournalLine) -> None:
        generation = int(line.unit or 1)
        if generation < self._generation:
            self._say(4, f"{self.id} goes back from generation {self._generation} to {generation}")
        elif generation > self._generation > 0:
            if generation > self._generation + 1 or self._state not in _TERMINAL:
                self._say(14, f"generation {generation} of {self.id} follows {self._generation}, {self._state}")
            if generation - 1 > self._asked - self._refused:
                self._say(20, f"{self.id} began generation {generation}; {self._asked} restarts were asked for")
        self._generation, self._state = generation, line.mode

    def end(self, heads: dict[str, ProcedureRecord], world: Iterable[str]) -> None:
        """All is over: `heads` are those of its tree, `world` has the files of all procedures."""
        head = heads.get(self.id)
        if head is None:
            return  # never acknowledged, or told already
        if head.state.value != "SUCCESS":
            self._say(14 if head.state.value in _TERMINAL else 15, f"{self.id} is {head.state} at the end")
        if head.generation != self._generation:
            self._say(4, f"{self.id} has generation {head.generation}; durable was {self._generation}")
        if head.generation <= self._wanted:
            self._say(15, f"{self.id} has generation {head.generation}; {self._wanted} restarts were wanted")
        children = sum(len(order.get("children", ())) for order in self._spec["orders"])
        if len(heads) != 1 + children:
            self._say(13, f"{self.id} has {len(heads)} members, its orders say {1 + children}")
        left = {name.partition("/")[2] for name in world if name.partition("/")[0] == self.id}
        if missing := files_of(self._spec, head.generation) - left:
            self._say(3, f"{self.id} has succeeded without {sorted(missing)}")


class KillJudge:
    """Promise to operators (22): an attempt that they killed is no crash, whatever else strikes around it."""

    def __init__(self, attempts: dict[str, list[AttemptRecord]] | None, say: Callable[[int, str], None]) -> None:
        self._attempts = attempts or {}
        self._say = say

    def read(self, line: JournalLine) -> None:
        """The next line of an episode."""
        found = _ATTEMPT.search(line.text) if line.kind == "operator-killed" else None
        if found is None:
            return
        step, attempt = map(int, found.groups())
        for record in self._attempts.get(line.procedure, ()):
            if (record.step, record.attempt) == (step, attempt) and record.error.kind == "crash":
                self._say(22, f"{line.procedure} {line.text} was killed by an operator, and counts as a crash")
