"""The names of the package, and what importing it loads."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap

import pytest
from mypy import api

import actorproc
import actorproc.errors

AUTHORING = {
    "AsyncContext",
    "ChildOutcome", "Context", "Limits", "LockKey", "Procedure", "RetryPolicy", "Saga", "Secret", "StateMachineProcedure",
    "Status", "ValueAdapter", "decode_value", "migrates", "procedure", "step", "value",
}  # fmt: skip
ENGINE = {
    "StateInfo",
    "Calendar", "ScheduleInfo",
    "AttemptInfo",
    "AuditInfo", "BackupReport", "Change", "ChangeDigest", "DigestRow", "EnqueuedInfo", "CompactionReport", "Config", "CrashReport", "DeployReport", "Deposed",
    "ErrorInfo", "Health", "HostEvent", "HostInfo", "LeaderEvent", "LockInfo",
    "LogEntry", "SignalInfo", "as_completed", "ConnectedManager", "Environment", "connect", "freeze_support", "check_deploy",
    "Metrics", "Overflow", "Phase", "PoisonInfo", "ProcedureEvent", "ProcedureExecutor", "ProcedureHandle", "ProcedureInfo",
    "ProcedureClient", "ProcedureManager", "ProcedureState", "ProcedureTree", "StepInfo", "StoreReader", "Watch",
    "WorkerEvent", "WorkerInfo",
}  # fmt: skip


def test_the_public_names_are_exactly_these():
    assert set(actorproc.__all__) == AUTHORING | ENGINE | set(actorproc.errors.__all__)
    assert actorproc.__all__ == sorted(actorproc.__all__)


@pytest.mark.parametrize("name", actorproc.__all__)
def test_every_public_name_is_there(name):
    assert getattr(actorproc, name).__name__ == name


RESULTS = {
    "StateInfo", "ScheduleInfo",
    "AttemptInfo",
    "AuditInfo", "BackupReport", "Change", "ChangeDigest", "DigestRow", "EnqueuedInfo", "CompactionReport", "Health", "HostEvent", "HostInfo", "LeaderEvent", "LockInfo", "LogEntry", "Metrics", "Overflow",
    "PoisonInfo", "ProcedureEvent", "ProcedureInfo", "ProcedureTree", "StepInfo", "WorkerEvent", "WorkerInfo", "SignalInfo",
    "DeployReport",
}  # fmt: skip


def test_every_result_can_be_plain_data():
    line = actorproc.LogEntry(at=1.0, stream="log", text="hello", level=20, logger="shop")
    copy = actorproc.BackupReport("there", 4096, 0.5, "copy", "original")
    smaller = actorproc.CompactionReport(before=8192, after=4096, seconds=0.5)

    assert {name for name in ENGINE if hasattr(getattr(actorproc, name), "to_dict")} == RESULTS
    assert json.loads(json.dumps(line.to_dict()))["logger"] == "shop"
    assert json.loads(json.dumps(copy.to_dict()))["copied_from"] == "original"
    assert smaller.to_dict() == {"before": 8192, "after": 4096, "seconds": 0.5, "freed": 4096}


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing"):
        _ = actorproc.nothing


def test_the_decorator_is_not_hidden_by_the_package_of_its_name():
    import actorproc.procedure.authoring.saga

    assert callable(actorproc.procedure)
    assert sys.modules["actorproc.procedure.authoring.saga"].Saga is actorproc.Saga


def test_importing_the_package_loads_neither_lmdb_nor_actors():
    code = "import sys, actorproc, actorproc.procedure.runtime.class_shipping; print({'lmdb', 'pykka', 'asyncio'} & set(sys.modules))"

    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    ).stdout

    assert printed.strip() == "set()"


TYPED = """
from actorproc import Context, Procedure, Saga, Status, procedure, step

class Order(Saga):
    item: str
    paid: bool = False

    @step
    def pay(self, ctx: Context) -> None:
        self.paid = True

    @pay.undo
    def refund(self, ctx: Context) -> None:
        self.paid = False

    @step(no_return=True)
    def ship(self, ctx: Context) -> str:
        return ctx.idempotency_key

@procedure
def resize(path: str, width: int = 640) -> str:
    return path

@procedure(name="x")
def remove(ctx: Context, path: str) -> int:
    return ctx.step

def use(ctx: Context) -> Status:
    reveal_type(Order("book", paid=True).item)
    reveal_type(Order("book").ship(ctx))
    children: list[Procedure] = [Order("a"), resize("p", width=3), remove("p")]
    Order(3)
    resize(3)
    remove(path=3)
    resize("p", height=3)
    return Status.suspended(children)
"""


def test_type_checkers_see_fields_arguments_and_steps(tmp_path):
    file = tmp_path / "typed.py"
    file.write_text(textwrap.dedent(TYPED))

    report, problems, _ = api.run(["--strict", "--no-error-summary", f"--cache-dir={tmp_path}", str(file)])

    lines = [line.split(":", 2)[1:] for line in report.splitlines() if line.startswith(str(file))]
    found = {int(number): text.strip() for number, text in lines}
    first = TYPED.splitlines().index('    reveal_type(Order("book", paid=True).item)') + 1
    assert problems == ""
    assert '"str"' in found.pop(first).replace("builtins.", "")
    assert '"str"' in found.pop(first + 1).replace("builtins.", "")
    assert sorted(found) == [first + 3, first + 4, first + 5, first + 6], report
