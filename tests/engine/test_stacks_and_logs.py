"""Where a running step is, and what procedures said, also after their worker died."""

from __future__ import annotations

import logging
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Limits, Procedure, Status
from actorproc.config import Config
from actorproc.errors import UnknownProcedure

pytestmark = pytest.mark.processes


@dataclass
class Wait(Procedure):
    gate: str
    how: str = "python"

    def execute(self, ctx):
        ctx.heartbeat(0.5, "inside")
        self.wait_here()
        return Status.done("out")

    def wait_here(self):
        if self.how == "odd file":  # its name is of bytes that are no UTF-8
            code = compile("import time\ndef wait(go): go()", "/odd/\udcff.py", "exec")
            names: dict = {}
            exec(code, names)
            names["wait"](self.wait_for_gate)
        self.wait_for_gate()

    def wait_for_gate(self):
        if self.how == "c":
            sum(range(10**12))
        while not Path(self.gate).exists():
            time.sleep(0.005)


@dataclass
class Talk(Procedure):
    words: str
    dies: bool = False

    def execute(self, ctx):
        print(f"{self.words}, attempt {ctx.attempt}")  # noqa: T201
        print("careful", file=sys.stderr)  # noqa: T201
        ctx.log.info("from the context")
        logging.getLogger("app").warning("from the application")
        if self.dies and not ctx.replayed:
            os.abort()
        return Status.done()


@pytest.mark.parametrize("how", ["python", "odd file", "c"])
def test_the_stack_of_a_running_step_can_be_seen(open_manager, until, tmp_path, how):
    manager = open_manager(workers=1)
    manager.submit(Wait(str(tmp_path / "gate"), how), id="job", limits=Limits(grace=0.1))
    until(lambda: manager.info("job").progress == 0.5)

    # The heartbeat is heard while the step may still be on its way back from telling it.
    stack = until(lambda: "wait_here" in (found := manager.stack("job")) and found)

    assert __file__ in stack
    if how == "python":  # told by the worker itself: nothing of the engine is above the step
        assert stack.splitlines()[1].startswith(f'  File "{__file__}"')
    (tmp_path / "gate").touch()
    if how == "c":
        manager.abort("job", force=True)
    manager.get("job").wait(30)
    assert manager.stack("job") == ""


def test_only_procedures_that_exist_have_stacks_and_logs(open_manager):
    manager = open_manager(workers=1)

    for look in (manager.stack, manager.logs):
        with pytest.raises(UnknownProcedure):
            look("nobody")


def test_what_a_procedure_says_is_kept_with_times_and_streams(open_manager, until):
    manager = open_manager(workers=2)
    before = time.time()

    manager.submit(Talk("hello"), id="a").result(30)
    manager.submit(Talk("goodbye"), id="b").result(30)
    lines = until(lambda: len(found := manager.logs("a")) == 4 and found)

    said = sorted((line.stream, line.text) for line in lines)
    assert said == [
        ("log", "from the application"),
        ("log", "from the context"),
        ("stderr", "careful"),
        ("stdout", "hello, attempt 1"),
    ]
    assert all(before - 1 <= line.at <= time.time() + 1 for line in lines)
    assert {line.level for line in lines if line.stream == "log"} == {logging.INFO, logging.WARNING}
    assert "hello" not in str(manager.logs("b"))


def test_the_words_of_a_dead_worker_stay(open_manager, until):
    manager = open_manager(workers=1)

    manager.submit(Talk("mayday", dies=True), id="doomed").result(30)

    def printed() -> list[str]:
        return [line.text for line in manager.logs("doomed") if line.stream == "stdout"]

    until(lambda: len(printed()) == 2)
    assert printed() == ["mayday, attempt 1", "mayday, attempt 2"]


def test_the_output_kept_is_bounded_and_may_be_nothing(open_manager):
    manager = open_manager(workers=1, config=Config(log_bytes=0))

    manager.submit(Talk("unheard"), id="a").result(30)

    assert manager.logs("a") == []


def test_health_says_how_hard_limits_are_enforced(open_manager):
    manager = open_manager(workers=1)

    assert manager.health().limits in {"cgroup", "rlimit"}
    manager.stop()
    assert manager.health().limits == "none"
