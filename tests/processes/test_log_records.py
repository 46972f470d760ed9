"""Log records of steps in the loggers of the program: names, levels, attributes, tracebacks."""

from __future__ import annotations

import dataclasses
import datetime as dt
import io
import logging
import logging.handlers
import os
import sys
import traceback
import uuid
import warnings
from pathlib import Path

import pytest

from actorproc import Procedure, ProcedureExecutor, ProcedureManager, Secret, Status, procedure
from actorproc.engine.callers.log_forwarder import LogForwarder
from actorproc.errors import RemoteError
from actorproc.model.ids import WorkerId
from actorproc.workers.protocol.frames import LogLine
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes


class Seen(logging.Handler):
    """A handler that keeps records."""

    def __init__(self):
        super().__init__()
        self.records = []

    def emit(self, record):
        self.records.append(record)

    def one(self, text):
        """The record with this message, waiting for it."""
        wait_until(lambda: any(record.getMessage() == text for record in list(self.records)))
        return next(record for record in self.records if record.getMessage() == text)

    def texts(self):
        return [record.getMessage() for record in list(self.records)]


@pytest.fixture
def levels(monkeypatch):
    """Sets levels of loggers until the end of the test."""
    before = {}

    def set_levels(given):
        for name, level in given.items():
            logger = logging.getLogger(name)
            before.setdefault(logger, logger.level)
            logger.setLevel(level)

    yield set_levels
    for logger, level in before.items():
        logger.setLevel(level)


@pytest.fixture
def attach():
    """Adds a handler that keeps records to a logger."""
    attached = []

    def add(name=None):
        seen = Seen()
        logging.getLogger(name).addHandler(seen)
        attached.append((logging.getLogger(name), seen))
        return seen

    yield add
    for logger, seen in attached:
        logger.removeHandler(seen)


# ---------------------------------------------------------------- levels and names
@procedure
def log_all(ctx, names: list[str]):
    for name in names:
        for level in (10, 15, 20, 30):
            logging.getLogger(name).log(level, "%s at %d", name, level)
    ctx.log.debug("step at 10")
    ctx.log.info("step at 20")
    logging.getLogger("end").critical("end")


NAMES = ["myapp.db", "myapp", "other", "root"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"myapp.db": [30], "myapp": [30], "other": [30], "root": [30], "step": []}),
        ({None: 10}, {"myapp.db": [10, 15, 20, 30], "myapp": [10, 15, 20, 30], "step": [10, 20]}),
        ({None: 20}, {"myapp.db": [20, 30], "other": [20, 30], "step": [20]}),
        ({"myapp": 10}, {"myapp.db": [10, 15, 20, 30], "myapp": [10, 15, 20, 30], "other": [30], "step": []}),
        ({"myapp.db": 15}, {"myapp.db": [15, 20, 30], "myapp": [30], "other": [30]}),
        ({None: 10, "myapp": 40}, {"myapp.db": [], "myapp": [], "other": [10, 15, 20, 30]}),
        ({None: 20, "actorproc": 30}, {"myapp": [20, 30], "other": [20, 30], "step": []}),
        ({"actorproc.procedure": 10}, {"other": [30], "step": [10, 20]}),
        ({None: logging.NOTSET}, {"other": [10, 15, 20, 30], "step": [10, 20]}),
    ],
    ids=str,
)
def test_records_have_the_names_and_levels_of_the_program(tmp_path, levels, attach, given, expected):
    levels({None: logging.WARNING} | given)
    seen = attach()
    with ProcedureManager(tmp_path / "store", workers=1) as manager:
        handle = manager.submit(log_all(NAMES))
        handle.result(60)
        seen.one("end")
        kept = [line.text for line in manager.logs(handle.id) if line.stream == "log"]

    for name, numbers in expected.items():
        assert [text for text in seen.texts() if text.startswith(f"{name} at")] == [f"{name} at {n}" for n in numbers]
    assert {record.name for record in seen.records if record.getMessage().startswith("myapp.db")} <= {"myapp.db"}
    assert "step at 20" in kept, "manager.logs has INFO whatever the program shows"


def test_a_handler_of_a_logger_gets_the_records_of_that_logger(tmp_path, levels, attach):
    levels({"myapp": logging.INFO})
    seen, others = attach("myapp"), attach("other")
    with ProcedureManager(tmp_path / "store", workers=1) as manager:
        manager.run(log_all(NAMES), timeout=60)
        seen.one("myapp at 30")
        others.one("other at 30")

    assert seen.texts() == [f"{name} at {level}" for name in ("myapp.db", "myapp") for level in (20, 30)]
    assert others.texts() == ["other at 30"]


def test_filters_disabled_loggers_and_no_propagation_hold(tmp_path, attach, monkeypatch):
    root, own = attach(), attach("quiet")
    monkeypatch.setattr(logging.getLogger("quiet"), "propagate", False)
    monkeypatch.setattr(logging.getLogger("off"), "disabled", True)
    unwanted = lambda record: record.getMessage() != "myapp at 30"  # noqa: E731
    logging.getLogger("myapp").addFilter(unwanted)
    try:
        with ProcedureManager(tmp_path / "store", workers=1) as manager:
            manager.run(log_all(["off", "quiet", "myapp", "myapp.db"]), timeout=60)
            root.one("end")
    finally:
        logging.getLogger("myapp").removeFilter(unwanted)

    assert own.texts() == ["quiet at 30"]
    assert [text for text in root.texts() if " at " in text] == ["myapp.db at 30"]


def test_no_logger_is_made_in_the_program_for_a_name_that_it_does_not_have(tmp_path, attach):
    seen = attach()
    with ProcedureManager(tmp_path / "store", workers=1) as manager:
        manager.run(log_all(["nowhere.at.all"]), timeout=60)
        assert seen.one("nowhere.at.all at 30").name == "nowhere.at.all"

    assert not [name for name in logging.Logger.manager.loggerDict if name.startswith("nowhere")]


# ---------------------------------------------------------------- attributes
class Custom:
    def __repr__(self):
        return "<a custom object>"


class Broken:
    def __repr__(self):
        raise ValueError


@dataclasses.dataclass
class Account:
    name: str
    password: Secret


EXTRA = {
    "request": "r-1",
    "count": 3,
    "huge": 1 << 80,
    "ratio": 0.5,
    "none": None,
    "flag": True,
    "data": b"\x00\xff",
    "items": [1, "two"],
    "mapping": {"a": {"b": 1}},
    "a_set": {1},
    "when": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    "uid": uuid.UUID(int=1),
    "path": Path("/tmp/x"),
    "custom": Custom(),
    "inside": [Custom(), (Custom(), None)],
    "plain class": Account("anna", Secret("hidden")),
    "broken": Broken(),
    "surrogate": "a\udcff",
    "long": "x" * 100_000,
    "step": "mine",
}


@procedure
def log_extra(ctx):
    logging.getLogger("myapp").warning("extra %s", "given", extra=EXTRA)
    ctx.log.warning("by the context", extra={"request": "r-2"})
    return os.getpid()


def test_attributes_of_records_arrive(tmp_path, attach):
    seen = attach()
    with ProcedureManager(tmp_path / "store", workers=1) as manager:
        handle = manager.submit(log_extra(), "extra-1")
        pid = handle.result(60)
        record, other = seen.one("extra given"), seen.one("by the context")

    assert "hidden" not in repr(vars(record))
    found = {name: getattr(record, name) for name in EXTRA}
    assert found | {"long": "", "a_set": 0, "uid": 0} == EXTRA | {
        "huge": repr(1 << 80), "path": repr(EXTRA["path"]), "custom": "<a custom object>",
        "inside": ["<a custom object>", ["<a custom object>", None]], "plain class": repr(EXTRA["plain class"]),
        "broken": "<Broken without a repr>", "surrogate": "a\\udcff", "long": "", "a_set": 0, "uid": 0,
    }  # fmt: skip
    assert (found["a_set"], found["uid"]) == ([1], str(uuid.UUID(int=1)))
    assert found["long"].startswith("'xxx")
    assert len(found["long"]) == 1000
    assert (record.procedure, record.type, record.attempt) == ("extra-1", log_extra.procedure_class.type_name, 1)
    assert (other.procedure, other.step, other.attempt, other.request) == ("extra-1", 1, 1, "r-2")
    assert (record.process, record.funcName, record.filename) == (pid, "log_extra", "test_log_records.py")
    assert (record.levelname, record.module, record.args) == ("WARNING", "test_log_records", None)


class Twice(Procedure):
    """Logs in each of its steps; the second step is killed once."""

    def execute(self, ctx):
        logging.getLogger("myapp").warning("step %d attempt %d", ctx.step, ctx.attempt)
        if ctx.step == 2 and not ctx.replayed:
            wait_until(lambda: ctx.query(ctx.id)["step"] == 2)
            os.kill(os.getpid(), 9)
        return Status.done() if ctx.step == 2 else Status.executing()


def test_step_and_attempt_are_those_that_logged(tmp_path, attach):
    seen = attach("myapp")
    with ProcedureManager(tmp_path / "store", workers=1) as manager:
        manager.run(Twice(), timeout=60)
        seen.one("step 2 attempt 2")

    for record in seen.records:
        assert record.getMessage() == f"step {record.step} attempt {record.attempt}"
        assert record.type == Twice.type_name


def call_that_logs():
    logging.getLogger("myapp").warning("called", extra={"n": 1})


def test_records_of_calls_arrive_too(tmp_path, attach):
    seen = attach("myapp")
    with ProcedureExecutor(tmp_path / "calls", max_workers=1) as executor:
        future = executor.submit_as("call-1", call_that_logs)
        future.result(60)
        record = seen.one("called")

    assert (record.n, record.procedure, record.step) == (1, "call-1", 1)


# ---------------------------------------------------------------- exceptions
class Odd(Exception):
    def __str__(self):
        return "odd \x1b[2J"


@procedure
def log_failures(ctx, way: str):
    logger = logging.getLogger("myapp")
    try:
        raise Odd  # noqa: TRY301
    except Odd as error:
        if way == "exception":
            logger.exception("failed")
        elif way == "given":
            logger.warning("failed", exc_info=error)
        elif way == "context":
            ctx.log.exception("failed")
        elif way == "stack":
            logger.warning("failed", stack_info=True)
    if way == "without":
        logger.warning("failed", exc_info=True)  # noqa: LOG014


@pytest.mark.parametrize("way", ["exception", "given", "context", "stack", "without"])
def test_tracebacks_arrive(tmp_path, attach, way):
    seen = attach()
    with ProcedureManager(tmp_path / "store", workers=1) as manager:
        handle = manager.submit(log_failures(way))
        handle.result(60)
        record = seen.one("failed")
        kept = "\n".join(line.text for line in manager.logs(handle.id))

    shown = logging.Formatter("%(message)s").format(record)
    assert "\x1b" not in shown
    if way == "stack":
        assert "log_failures" in record.stack_info
        assert record.exc_info is None
        assert "Stack (most recent call last)" in shown
        assert "Stack (most" in kept
    elif way == "without":
        assert (shown, record.exc_info) == ("failed", None)
    else:
        kind, error, _ = record.exc_info
        assert kind is RemoteError
        assert error.type_name == f"{__name__}.Odd"
        assert "raise Odd" in record.exc_text
        assert "raise Odd" in error.traceback_text
        assert "raise Odd" in "".join(traceback.format_exception(error)), (
            "as handlers show it that format it themselves"
        )
        assert shown.count("raise Odd") == 1
        assert shown.startswith("failed\nTraceback")
        assert "\\x1b[2J" in shown
        assert "raise Odd" in kept


# ---------------------------------------------------------------- terminals
TEXT = "red \x1b[31m \x9b2J \x07 \r bell\tt\nnew line \u202e \u200d é"
SHOWN = "red \\x1b[31m \\x9b2J \\x07 \\r bell\tt\nnew line \\u202e \u200d é"


@procedure
def log_controls(ctx):
    logging.getLogger("myapp").warning(TEXT)
    sys.stdout.write("\x1b[2Jprinted\n")


def test_control_characters_are_escaped_on_their_way_to_handlers(tmp_path, attach, levels):
    levels({"actorproc.worker": logging.INFO})
    seen = attach()
    terminal = io.StringIO()
    handler = logging.StreamHandler(terminal)
    logging.getLogger().addHandler(handler)
    try:
        with ProcedureManager(tmp_path / "store", workers=1) as manager:
            manager.run(log_controls(), timeout=60)
            seen.one(SHOWN)
            wait_until(lambda: any("printed" in text for text in seen.texts()))
    finally:
        logging.getLogger().removeHandler(handler)

    assert not {"\x1b", "\x9b", "\x07", "\r"} & set(terminal.getvalue())
    assert any(text.endswith("\\x1b[2Jprinted") for text in seen.texts())


# ---------------------------------------------------------------- warnings, and records that nobody can read
@procedure
def warns(ctx):
    warnings.warn("a warning of a step", UserWarning, stacklevel=1)


def test_captured_warnings_come_as_records(tmp_path, attach):
    seen = attach("py.warnings")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        try:
            with ProcedureManager(tmp_path / "store", workers=1) as manager:
                manager.run(warns(), timeout=60)
                wait_until(lambda: seen.records)
        finally:
            logging.captureWarnings(False)

    assert "a warning of a step" in seen.records[0].getMessage()


@pytest.mark.parametrize(
    "facts", [b"", b"\xc1", b"\x01", b"\x81\x01\x02", b"\x81\xa4args\x01", b"\x81\xa8exc_info\x01"]
)
def test_attributes_that_cannot_be_read_cost_no_record(attach, facts):
    seen = attach()
    LogForwarder(lambda errand: errand()).put(LogLine(None, 30, "myapp", "100 %s", extra=facts), WorkerId(0, 1), None)

    (record,) = seen.records
    assert (record.getMessage(), record.type, record.procedure) == ("100 %s", "", "")
    assert logging.handlers.QueueHandler(None).prepare(record).getMessage() == "100 %s"
