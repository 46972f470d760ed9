"""Text of steps in log records is data: none of its control characters reaches a terminal, and each line names its step."""

from __future__ import annotations

import logging
import re
import sys

import pytest

from actorproc import LockKey, Procedure, RetryPolicy, Saga, Status, step
from actorproc.cli.main import main
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

EVIL = "a\x1b[31mred\x07\x9b2J\u202egnp.exe\u2066x\u200f\u2028y"
HARMFUL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


class Says(Saga):
    """Says the same thing in each way that there is."""

    @step
    def speak(self, ctx):
        evil = self.evil()
        sys.stdout.write(f"{evil}\n")
        sys.stderr.write(f"{evil}\n")
        ctx.log.warning("%s", evil)
        logging.getLogger("mylib.part").error(evil)
        logging.getLogger(f"mylib.{evil}").error("odd name")
        try:
            int(evil)
        except ValueError:
            logging.getLogger("mylib").exception("with a traceback", stack_info=True)

    @step
    def fail(self, ctx):
        raise RuntimeError(self.evil())

    @staticmethod
    def evil():
        return "a\x1b[31mred\x07\x9b2J\u202egnp.exe\u2066x\u200f\u2028y"


class Clutches(Procedure):
    """Leaves a key poisoned."""

    rollback_supported = True
    rollback_retry = RetryPolicy(max_attempts=1)

    def lock_keys(self):
        return [LockKey.write("shop/key")]

    def execute(self, ctx):
        raise ValueError("no")

    def rollback(self, ctx):
        raise ValueError("a\x1b[31mred")


class _Lines(logging.Handler):
    """Keeps what a handler would print, and the records."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        facts = "%(procedure)s %(root)s %(type)s %(step)s %(step_name)s %(attempt)s"
        self.setFormatter(logging.Formatter("%(name)s %(threadName)s %(funcName)s %(pathname)s: %(message)s"))
        self.facts = logging.Formatter(facts)
        self.lines: list[str] = []
        self.records: list[logging.LogRecord] = []

    def emit(self, record):
        self.lines.append(self.format(record))
        self.records.append(record)


@pytest.fixture
def seen(monkeypatch):
    monkeypatch.setattr(logging.getLogger("actorproc"), "propagate", True)  # a command in this process ends it
    root, handler = logging.getLogger(), _Lines()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler
    root.removeHandler(handler)
    root.setLevel(before)


def test_no_logger_brings_a_terminal_what_a_step_says(open_manager, seen):
    manager = open_manager(workers=1, procedures=[Says, Clutches])
    manager.submit(Says(), id="says").wait(60)
    manager.submit(Clutches(), id="clutches").wait(60)
    manager.delete("says", reason=EVIL)
    manager.clear_poison("shop/key", reason=EVIL)
    manager.stop()

    said = "\n".join(seen.lines)
    loggers = {
        record.name.split(".")[0] + "." + record.name.split(".")[1] for record in seen.records if "." in record.name
    }
    assert {"actorproc.worker", "actorproc.procedure", "mylib.part", "actorproc.events"} <= loggers
    assert [line for line in seen.lines if HARMFUL.search(line)] == []
    assert said.count("\\x1b[31mred") >= 9
    assert "procedure says was deleted: a\\x1b[31mred" in said
    assert "was cleared: a\\x1b[31mred" in said


@pytest.mark.parametrize("name", ["actorproc.worker", "actorproc.procedure", "mylib.part", "mylib"])
def test_each_line_of_a_step_says_which_it_is_of(name, open_manager, seen):
    manager = open_manager(workers=1, procedures=[Says])
    manager.submit(Says(), id="says").wait(60)
    (pid,) = {worker.pid for worker in manager.workers()}

    records = [
        record for record in seen.records if f"{record.name}.".startswith(f"{name}.") and "red" in record.getMessage()
    ]
    records += [record for record in seen.records if record.name == name == "mylib"]

    assert len(records) >= (2 if name == "actorproc.worker" else 1)
    for record in records:
        found = (record.procedure, record.root, record.type, record.step, record.step_name, record.attempt)
        assert found == ("says", "says", Says.type_name, 1, "speak", 1)
        assert (record.slot, record.pid) == (0, pid)


class Cries(Procedure):
    """Prints in each attempt, also from C."""

    def execute(self, ctx):
        import os

        sys.stdout.write(f"attempt {ctx.attempt}\n")
        sys.stdout.flush()
        os.write(1, b"from C\n")
        if ctx.attempt == 1:
            os.kill(os.getpid(), 9)
        return Status.done()


def test_lines_of_a_log_have_step_and_attempt_on_disk_too(open_manager, tmp_path, capsys):
    manager = open_manager(workers=1, procedures=[Cries, Says])
    manager.submit(Cries(), id="cries").result(60)
    manager.submit(Says(), id="says").wait(60)

    wait_until(lambda: len(manager.logs("cries")) == 4)
    assert [(entry.text, entry.step, entry.attempt) for entry in manager.logs("cries")] == [
        ("attempt 1", 1, 1),
        ("from C", 1, 1),
        ("attempt 2", 1, 2),
        ("from C", 1, 2),
    ]
    assert {(entry.step, entry.step_name, entry.attempt) for entry in manager.logs("says")} == {(1, "speak", 1)}
    manager.stop()
    assert main(["--path", str(tmp_path / "state"), "-o", "table", "logs", "says"]) == 0
    shown = capsys.readouterr().out
    assert "1.1 speak" in shown
    assert not HARMFUL.search(shown)
