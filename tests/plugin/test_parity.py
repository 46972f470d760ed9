"""The same procedures with and without processes: what they give, how they fail, what is undone and written down."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from actorproc import (
    Limits,
    LockKey,
    Procedure,
    ProcedureFailed,
    ProcedureManager,
    RetryPolicy,
    Saga,
    StateMachineProcedure,
    Status,
    procedure,
    step,
)
from actorproc.testing import InlineManager

pytestmark = pytest.mark.processes


def note(path: str, text: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{text}\n")


@dataclass
class Odd(Procedure):
    """Ends in one of many ways."""

    way: str

    def execute(self, ctx):
        match self.way:
            case "exit":
                sys.exit(3)
            case "interrupt":
                raise KeyboardInterrupt
            case "group":
                raise ExceptionGroup("several", [ValueError("one")])
            case "nothing":
                return None
            case "function":
                return Status.done(lambda: 1)
            case "note":
                first = ctx.remember("key", lambda: [1])
                first.append(2)
                return Status.done((first, ctx.remember("key", lambda: [9])))
            case "nobody":
                ctx.query("nobody")
            case "poisoned":
                return Status.poisoned(["a/b"], "broken")
        return Status.done({name: getattr(ctx, name) for name in ("id", "root_id", "step", "attempt", "event")})


@dataclass
class Flaky(Procedure):
    works_at: int
    retry = RetryPolicy(max_attempts=3, base=0.01, retry_on=(OSError,))

    def execute(self, ctx):
        if ctx.attempt < self.works_at:
            raise OSError(f"attempt {ctx.attempt}")
        return Status.done((ctx.attempt, ctx.replayed))


@dataclass
class Broken(Saga):
    """Fails in its last step; its undo fails as well unless it is sound."""

    path: str
    is_sound: bool = True
    told: list[str] = field(default_factory=list)
    rollback_retry = RetryPolicy(max_attempts=2, base=0.01)

    def lock_keys(self):
        return [LockKey.write(f"shelf/{self.is_sound}")]

    @step
    def first(self, ctx):
        self.told.append("first")

    @first.undo
    def undo_first(self, ctx):
        note(self.path, f"undo first {self.told}")
        if not self.is_sound:
            raise OSError("it cannot be taken back")

    @step
    def second(self, ctx):
        self.told.append("second")
        raise ValueError("the second does not work")

    @second.undo
    def undo_second(self, ctx):
        note(self.path, f"undo second {self.told}")


class Phase(Enum):
    BEGIN = 1
    END = 2


@dataclass
class Machine(StateMachineProcedure):
    rounds: int = 0
    initial_state = Phase.BEGIN

    def execute_from_state(self, ctx, state):
        if state is Phase.END:
            return Status.done((self.rounds, ctx.step))
        self.rounds += 1
        return Phase.END if self.rounds == 3 else Status.executing()


@dataclass
class Child(Procedure):
    path: str
    number: int
    fails: bool

    def execute(self, ctx):
        if self.fails:
            raise ValueError(f"child {self.number}")
        return Status.done(self.number)

    def rollback(self, ctx):
        note(self.path, f"undo child {self.number}")


@dataclass
class Parent(Procedure):
    path: str
    bad: int = -1
    at: int = 0
    uses = (Child,)

    def execute(self, ctx):
        self.at += 1
        if self.at == 1:
            children = [Child(self.path, number, number == self.bad) for number in range(3)]
            return Status.suspended(children, max_parallel=1)  # else how far the last one comes is chance
        return Status.done([(child.state.value, child.output, str(child.error)) for child in ctx.children.values()])

    def rollback(self, ctx):
        note(self.path, "undo parent")


class Judge(Parent):
    on_child_failure = "resume"


@dataclass
class Patient(Procedure):
    """Sleeps, then waits for what does not come."""

    at: int = 0

    def execute(self, ctx):
        self.at += 1
        return Status.sleep(0.01) if self.at == 1 else Status.wait("news", timeout=0.01)


@dataclass
class Slow(Procedure):
    limits = Limits(threads=2)

    def execute(self, ctx):
        return Status.done("on a thread")


@procedure
def add(ctx, one: int, other: int = 2):
    return (one + other, ctx.id)


WAYS = ("exit", "interrupt", "group", "nothing", "function", "note", "nobody", "poisoned", "context")
CASES = {
    **{way: lambda path, way=way: Odd(way) for way in WAYS},
    "flaky": lambda path: Flaky(3),
    "hopeless": lambda path: Flaky(9),
    "undone": Broken,
    "not-undone": lambda path: Broken(path, is_sound=False),
    "machine": lambda path: Machine(),
    "parent": Parent,
    "failing-tree": lambda path: Parent(path, 1),
    "judge": lambda path: Judge(path, 1),
    "patient": lambda path: Patient(),
    "slow": lambda path: Slow(),
    "function-call": lambda path: add(1),
}


def told(manager: ProcedureManager, name: str, path: Path) -> dict[str, Any]:
    """All that one can know of a procedure after its end."""
    handle = manager.submit(CASES[name](str(path)), name, owner="ann", tags=["one"], priority=2)
    if isinstance(manager, InlineManager):
        manager.finish(handle)
    found: dict[str, Any] = {}
    try:
        found["output"] = handle.result(30)
    except ProcedureFailed as failure:
        found["failure"] = str(failure.state), str(failure), type(failure.cause), str(failure.cause), failure.leftovers
    info = handle.info()
    names = "state phase reason step attempt errors crashes children locks owner tags priority run type_name version"
    found.update((name, getattr(info, name)) for name in names.split())
    found["steps"] = [(record.number, record.kind, record.label) for record in manager.steps(name)]
    found["poisons"] = [(poison.path, poison.by) for poison in manager.poisons()]
    for poison in manager.poisons():
        manager.clear_poison(poison.path, reason="the next one needs it")
    found["noted"] = path.read_text() if path.exists() else ""
    return found


def test_procedures_end_alike_with_and_without_processes(tmp_path):
    with ProcedureManager(tmp_path / "state", workers=1) as real, InlineManager() as inline:
        for name in CASES:
            path = tmp_path / name
            wanted = told(real, name, path)
            path.unlink(missing_ok=True)

            assert told(inline, name, path) == wanted, name
