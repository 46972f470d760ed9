"""What mypy says of classes of users: each line that ends with ``# E`` is an error, and no other one."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
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


OUTPUTS = """
from __future__ import annotations
import asyncio
from concurrent.futures import Future
from dataclasses import dataclass
from actorproc import (
    Context, Procedure, ProcedureHandle, ProcedureManager, Saga, StateMachineProcedure, Status, as_completed, procedure, step,
)

@procedure
def resize(ctx: Context, path: str, width: int = 640) -> int:
    note = ctx.remember("size", lambda: len(path))
    reveal_type(note)  # R int
    wrong: str = ctx.remember("size", lambda: 7)  # E
    return note * width

@procedure(version=2)
def greet(name: str) -> str:
    return name

class Order(Saga[str]):
    item: str

    @step
    def ship(self, ctx: Context) -> str:
        return self.item

class Untyped(Saga):
    @step
    def ship(self, ctx: Context) -> str:
        return "shipped"

@dataclass
class Count(Procedure[dict[str, int]]):
    up_to: int

    def execute(self, ctx: Context) -> Status:
        return Status.done({"n": self.up_to})

class Machine(StateMachineProcedure[bytes]): ...

def use(manager: ProcedureManager) -> None:
    reveal_type(manager.run(resize("a.png")))  # R int
    reveal_type(manager.run(Order("book")))  # R str
    reveal_type(manager.run(Untyped()))  # R Any
    reveal_type(manager.run(Count(3), timeout=5))  # R dict[str, int]
    reveal_type(manager.submit(greet("Ada")).result())  # R str
    reveal_type(manager.submit_many([("a", Order("a")), ("b", Order("b"))])[0].result())  # R str
    reveal_type(manager.submit_many([Order("a"), ("id", Order("b"))])[0].result())  # R Any
    for handle in as_completed([manager.submit(Order("a"))]):
        reveal_type(handle.result())  # R str
    reveal_type(manager.submit(Count(3)).future())  # R Future[dict[str, int]]
    reveal_type(manager.get("id").result())  # R Any
    size: int = manager.run(Order("book"))  # E
    name: ProcedureHandle[str] = manager.submit(resize("a.png"))  # E
    manager.run(Order("book"), delay="5m")  # E
    manager.run(Order("book"), retries=5)  # E
    manager.submit(resize(640))  # E
    manager.submit(Order)  # E
    wide: ProcedureHandle[object] = manager.submit(Order("book"))
    manager.submit(Order("book")).result() + 1  # E

async def wait(manager: ProcedureManager) -> int:
    reveal_type(await manager.submit(Count(3)))  # R dict[str, int]
    return await manager.submit(resize("a.png"))

class Wrong(Order, limits=5): ...  # E
"""


def lines_that_end_with(mark, text):
    return {number for number, line in enumerate(text.splitlines(), 1) if line.endswith(mark)}


def test_mypy_sees_what_the_class_check_sees_and_knows_outputs_and_notes(tmp_path):
    programs = {tmp_path / "declared.py": TYPED.strip(), tmp_path / "outputs.py": OUTPUTS.strip()}
    for file, text in programs.items():
        file.write_text(text)

    # Both at once: most of the time is for the package itself.
    report, problems, _ = api.run(
        ["--strict", "--no-error-summary", f"--cache-dir={tmp_path}", *(str(file) for file in programs)]
    )

    assert problems == ""
    for file, text in programs.items():
        lines = [line.split(":", 2)[1:] for line in report.splitlines() if line.startswith(str(file))]
        assert {int(number) for number, said in lines if " error:" in said} == lines_that_end_with("# E", text), report
        revealed = {int(number): said for number, said in lines if "Revealed" in said}
        for number, line in enumerate(text.splitlines(), 1):
            if "# R " in line:
                named = revealed[number].replace("builtins.", "").replace("concurrent.futures._base.", "")
                assert f'"{line.partition("# R ")[2]}"' in named, line


@pytest.mark.nightly
@pytest.mark.parametrize("text", [TYPED, OUTPUTS], ids=["declared", "outputs"])
def test_pyright_finds_the_same_mistakes(tmp_path, text):
    command = shutil.which("pyright") or shutil.which("basedpyright")
    if command is None:
        pytest.skip("pyright is not installed: its package fetches a program of 60 MB for Node at its first use")
    file = tmp_path / "typed.py"
    file.write_text(text.strip())
    settings = {"typeCheckingMode": "standard", "pythonVersion": "3.11"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))

    done = subprocess.run(
        [command, "--outputjson", "--pythonpath", sys.executable, str(file)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    found = json.loads(done.stdout)["generalDiagnostics"]
    errors = {each["range"]["start"]["line"] + 1 for each in found if each["severity"] == "error"}
    assert errors == lines_that_end_with("# E", text.strip()), found
