"""What mypy says of classes of users: each line that ends with ``# E`` is an error, and no other one."""

from __future__ import annotations

import textwrap

from mypy import api

TYPED = """
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar
from actorproc import (
    Context, Limits, LockKey, Procedure, RetryPolicy, Saga, StateMachineProcedure, Status, procedure, step,
)

class Phase(Enum):
    ONE = 1

class Steps(Saga):
    @step
    def untyped(self, ctx):  # type: ignore[no-untyped-def]
        return 1

    @step
    def optional(self, ctx: Context, more: int = 0) -> int:
        return more

    @step  # E
    def without(self) -> None: ...

    @step(no_return=True)  # E
    def without_too(self) -> None: ...

    @step  # E
    def more(self, ctx: Context, amount: int) -> None: ...

    @step  # E
    def wrong(self, ctx: str) -> None: ...

    @untyped.undo
    def undo(self, ctx: Context) -> None: ...

    @optional.undo  # E
    def undo_without(self) -> None: ...

    def on_completed(self) -> None: ...  # E
    def on_timeout(self) -> None: ...  # E
    def before_recover(self) -> None: ...  # E
    def after_recover(self) -> None: ...  # E
    def abort(self) -> bool: ...  # E
    def lock_keys(self, ctx: Context) -> list[LockKey]: ...  # E

class Own(Steps):
    @step
    def optional(self, ctx: Context) -> int:
        return 2

class Plain(Procedure):
    def execute(self) -> Status: ...  # E
    def rollback(self) -> None: ...  # E

class Machine(StateMachineProcedure):
    initial_state = Phase.ONE
    def execute_from_state(self, ctx: Context) -> None: ...  # E
    def rollback_state(self, state: Phase) -> None: ...  # E

class Etl(Saga):
    version: str
    codec: str
    limits: list[int]
    uses: bool = True
    retry: int = 0

    @step
    def load(self, ctx: Context) -> None: ...
    @step
    def dump(self, ctx: Context) -> None: ...

@dataclass
class Deploy(Procedure, version=3, retry=RetryPolicy(max_attempts=1), limits=Limits(crashes=1)):
    version: str

    def execute(self, ctx: Context) -> Status:
        return Status.done(self.version.upper())

class Own2(Procedure):
    def execute(self, ctx: Context) -> Status:
        return Status.done()
    def dump(self) -> str:
        return str(super().dump())
    @classmethod
    def load(cls, data: str) -> "Own2":
        return cls()
    @classmethod
    def migrate(cls, data: str, from_version: int) -> str:
        return data

class Said(Procedure):
    version: ClassVar[int] = 3
    retry = RetryPolicy()

class Ordered(Saga, kw_only=True, uses=(Deploy,), codec="pickle"):
    item: str

class Wrong(Procedure, retry=3): ...  # E
class Unknown(Procedure, retries=3): ...  # E
class WrongSaga(Saga, undo_children="no"): ...  # E

@procedure
def send(ctx: Context, version: str) -> int:
    return 1

def use(ctx: Context) -> None:
    reveal_type(Etl("1", "x", [1]).version)  # R str
    reveal_type(Own().optional(ctx))  # R int
    reveal_type(Steps.optional)  # R actorproc.procedure.authoring.saga_steps.Step[int]
    Ordered(item="x")
    Ordered("x")  # E
    send("1")
    send(1)  # E
    LockKey("a")  # E
    RetryPolicy(max_retries=3)  # E
    Limits(timeout=3)  # E
"""


def test_type_checkers_see_what_the_class_check_sees(tmp_path):
    text = textwrap.dedent(TYPED).strip()
    file = tmp_path / "typed.py"
    file.write_text(text)

    report, problems, _ = api.run(["--strict", "--no-error-summary", f"--cache-dir={tmp_path}", str(file)])

    lines = [line.split(":", 2)[1:] for line in report.splitlines() if line.startswith(str(file))]
    errors = {int(number) for number, said in lines if "error" in said}
    notes = {int(number): said for number, said in lines if "Revealed" in said}
    expected = list(enumerate(text.splitlines(), 1))
    assert problems == ""
    assert errors == {number for number, line in expected if line.endswith("# E")}, report
    for number, line in expected:
        if "# R " in line:
            assert f'"{line.partition("# R ")[2]}"' in notes[number].replace("builtins.", "")
