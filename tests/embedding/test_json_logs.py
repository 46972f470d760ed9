"""Log lines as JSON: any record is one line, and no mistake in a call of a logger fails a step."""

from __future__ import annotations

import datetime as dt
import decimal
import enum
import io
import json
import logging
import logging.config
import os
import signal
import subprocess
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Procedure, Secret, Status
from actorproc.errors import RemoteError
from actorproc.logging import JsonFormatter
from actorproc.procedure.encoding import step_logger
from actorproc.procedure.encoding.log_records import log_parts
from actorproc.procedure.encoding.step_logger import StepLogger
from tests.kit.waiting import wait_until

ROOT = Path(__file__).parents[2]


class Broken:
    def __repr__(self):
        raise RuntimeError("no repr")

    __str__ = __repr__


class Colour(enum.Enum):
    RED = "red"


def cyclic():
    found = {}
    found["self"] = found
    return found


def wide():
    return [[[[list(range(10))] * 10] * 10] * 10] * 10


VALUES = {
    "nan": (float("nan"), "nan"),
    "infinity": (float("-inf"), "-inf"),
    "bytes": (b"\xff\x00ok", "\\xff\x00ok"),
    "surrogate": ("a\ud800b", "a\\ud800b"),
    "lines": ("one\ntwo\u2028\x1b[31m", "one\ntwo\u2028\x1b[31m"),
    "long number": (2**80, hex(2**80)),
    "very long number": (10**6000, None),
    "date": (dt.datetime(2026, 1, 2, tzinfo=dt.UTC), "2026-01-02T00:00:00+00:00"),
    "decimal": (decimal.Decimal("1.10"), "1.10"),
    "uuid": (uuid.UUID(int=1), str(uuid.UUID(int=1))),
    "path": (Path("/a"), "/a"),
    "enum": (Colour.RED, "red"),
    "tuple and set": ((1, {2}), [1, [2]]),
    "keys": ({1: "a", None: "b", (1, 2): "c"}, {"1": "a", "None": "b", "(1, 2)": "c"}),
    "cycle": (cyclic(), None),
    "wide": (wide(), None),
    "no repr": (Broken(), "<Broken without a repr>"),
    "key without a text": ({Broken(): 1}, {"<Broken without a repr>": 1}),
    "secret": (Secret("hidden"), None),
    "bool": (True, True),
    "long text": ("x" * 100_000, "x" * 16384),
}


def line_of(record):
    text = JsonFormatter().format(record)
    assert text.isascii()
    assert text.isprintable()  # one line, and nothing that a terminal obeys

    def no_constant(name):
        raise AssertionError(name)

    return json.loads(text, parse_constant=no_constant), text


@pytest.mark.parametrize("name", VALUES)
def test_any_value_of_extra_is_shown_in_one_line(name):
    value, expected = VALUES[name]

    line, text = line_of(logging.makeLogRecord({"msg": "m", "given": value}))

    assert len(text) < 200_000
    assert "hidden" not in text
    if expected is not None:
        assert line["given"] == expected
    else:
        assert "given" in line


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"msg": "a %s", "args": ("b",)}, "a b"),
        ({"msg": "a %d", "args": ("b",)}, "a %d % ('b',)"),
        ({"msg": "a", "args": ("b",)}, "a % ('b',)"),
        ({"msg": Broken(), "args": None}, "<Broken without a repr> % None"),
        ({"msg": "%s", "args": (Broken(),)}, "%s % <tuple without a repr>"),
        ({"msg": {"a": 1}, "args": None}, "{'a': 1}"),
        ({"msg": "a\ud800\n", "args": None}, "a\\ud800\n"),
    ],
    ids=["fits", "wrong", "too-many", "no-text", "argument", "dict", "surrogate"],
)
def test_a_message_is_shown_also_where_its_arguments_do_not_fit(parts, message):
    line, _ = line_of(logging.makeLogRecord(parts))

    assert line["message"] == message
    assert ("format_error" in line) == (" % " in message)


@pytest.mark.parametrize(
    "parts",
    [
        {"created": float("nan")},
        {"created": 1e300},
        {"created": None},
        {"levelname": None, "name": None, "pathname": None, "lineno": "7"},
        {"exc_info": (None, None, None)},
        {"exc_info": True},
        {"exc_info": (ValueError, ValueError(Broken()), None)},
        {"stack_info": 7},
        {"getMessage": "text"},
        {"__class__x": 1},
    ],
    ids="-".join,
)
def test_a_record_that_was_made_by_hand_never_raises(parts):
    line, _ = line_of(logging.makeLogRecord({"msg": "m"} | parts))

    assert line["level"] or line["message"]


def test_an_exception_has_its_class_message_and_trace():
    try:
        int("no\nway")
    except ValueError:
        record = logging.getLogger("x").makeRecord("x", 40, __file__, 1, "m", (), sys.exc_info(), "f", {"error": "own"})

    line, _ = line_of(record)

    assert line["exception"]["type"] == "builtins.ValueError"
    assert "no\\nway" in line["exception"]["message"]
    assert line["exception"]["trace"].startswith("Traceback")
    assert line["error"] == "own"
    assert (line["file"], line["line"], line["function"]) == (__file__, 1, "f")


class HasATypeName(Exception):
    type_name = "of the user"


def test_an_exception_of_a_worker_is_shown_as_what_it_was_and_others_as_they_are():
    def shown(error, text=None):
        record = logging.makeLogRecord({"msg": "m", "exc_info": (type(error), error, None), "exc_text": text})
        return line_of(record)[0]["exception"]

    assert shown(RemoteError("no", "Traceback…", "shop.Refused"), "Traceback…") == {
        "type": "shop.Refused",
        "message": "no",
        "trace": "Traceback…",
    }
    assert shown(HasATypeName("own"))["type"] == f"{__name__}.HasATypeName"
    assert shown(RemoteError("no", "", ""))["type"] == "actorproc.errors.RemoteError"


def test_attributes_with_names_of_keys_get_others():
    line, _ = line_of(logging.makeLogRecord({"msg": "m", "levelname": "INFO", "level": 3, "time": 4, "line": 5}))

    assert line["level"] == "INFO"
    assert (line["extra_level"], line["extra_time"], line["extra_line"]) == (3, 4, 5)
    assert line["time"].endswith("Z")


def test_a_configuration_may_name_the_class():
    stream = io.StringIO()
    handler = {"class": "logging.StreamHandler", "formatter": "json", "stream": stream}
    logging.config.dictConfig(
        {
            "version": 1,
            "disable_existing_loggers": False,
            "formatters": {"json": {"class": "actorproc.logging.JsonFormatter"}},
            "handlers": {"one": handler},
            "loggers": {"of_json_test": {"handlers": ["one"], "propagate": False}},
        }
    )

    logging.getLogger("of_json_test").error("a")

    assert json.loads(stream.getvalue())["message"] == "a"


# ---------------------------------------------------------------- calls with mistakes
NAMES = ["name", "filename", "message", "asctime", "getMessage", "taskName", "args", "exc_info", "levelno", "__class__"]


@pytest.fixture
def sent(monkeypatch):
    monkeypatch.setattr(step_logger, "_told", set())
    return []


@pytest.mark.parametrize("name", NAMES)
def test_reserved_names_in_extra_are_sent_under_others_and_it_is_said_once(sent, name):
    logger = StepLogger("T", logging.INFO, sent.append)

    for number in range(3):
        logger.info("m %d", number, extra={name: "value", "free": 1})

    assert [parts.text for parts in sent if parts.level == logging.INFO] == ["m 0", "m 1", "m 2"]
    warnings = [parts.text for parts in sent if parts.level == logging.WARNING]
    assert len(warnings) == 1
    assert f"'{name}' as 'extra_{name}'" in warnings[0]
    assert f"extra_{name}".encode() in sent[-1].extra
    assert b"free" in sent[-1].extra


class BrokenMapping(dict):
    def items(self):
        raise RuntimeError


EXTRAS = {
    "number": 7,
    "text": "text",
    "list": ["a"],
    "key": {1: 2},
    "none": {None: 3},
    "broken": BrokenMapping(a=1),
    "value": {"a": Broken()},
}


@pytest.mark.parametrize("extra", EXTRAS.values(), ids=EXTRAS)
def test_no_extra_fails_a_step(sent, extra):
    logger = StepLogger("T", logging.INFO, sent.append)

    logger.info("m", extra=extra)

    assert [parts.text for parts in sent][-1] == "m"


def test_records_of_other_loggers_travel_whatever_their_attributes_hide():
    parts = log_parts(logging.makeLogRecord({"msg": "a %s", "args": ("b",), "levelno": 20, "getMessage": 1, "own": 2}))

    assert parts.text == "a b"
    assert b"extra_getMessage" in parts.extra


# ---------------------------------------------------------------- services
@dataclass
class Logs(Procedure):
    said: str

    def execute(self, ctx):
        logging.getLogger("lib").warning("library %s", self.said)
        ctx.log.warning("hello %s", self.said, extra={"name": "taken", "sku": "pen"})  # noqa: G101 - that is tried
        return Status.done()


@pytest.mark.processes
def test_each_record_of_a_step_is_written_once_by_each_handler_of_the_program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    ended = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True,
        text=True, timeout=120, check=False,
    )  # fmt: skip

    assert ended.returncode == 0, ended.stderr
    seen = dict(map(json.loads, ended.stdout.splitlines()))
    assert seen["added"] == []  # none by the library
    assert ended.stderr.count("hello none\n") == 1  # by the handler of last resort
    assert [len(streams) for streams in (seen["root"], seen["own"], seen["both"])] == [1, 1, 2]
    for name in ("root", "own", "both"):
        for stream in seen[name]:
            lines = [json.loads(line) for line in stream]
            (hello,) = [line for line in lines if line["message"] == f"hello {name}"]
            assert (hello["extra_name"], hello["sku"], hello["slot"]) == ("taken", "pen", 0)
    messages = [[json.loads(line)["message"] for line in seen[name][0]] for name in ("root", "own", "both")]
    assert [found.count(f"library {name}") for found, name in zip(messages, ("root", "own", "both"), strict=True)] == [
        1,
        0,
        1,
    ]


PROGRAM = """
import io, json, logging

from actorproc import ProcedureManager
from actorproc.logging import JsonFormatter
from tests.embedding.test_json_logs import Logs
from tests.kit.waiting import wait_until

ROOT, OWN = logging.getLogger(), logging.getLogger("actorproc")

def handler(stream):
    found = logging.StreamHandler(stream)
    found.setFormatter(JsonFormatter())
    return found

if __name__ == "__main__":
    with ProcedureManager("state", procedures=[Logs], workers=1) as manager:
        before = ROOT.handlers + OWN.handlers
        for name, places, propagate in (
            ("none", [], True), ("root", [ROOT], True), ("own", [OWN], False), ("both", [ROOT, OWN], True)
        ):
            streams = [io.StringIO() for _ in places]
            OWN.propagate = propagate
            added = [(place, handler(stream)) for place, stream in zip(places, streams)]
            for place, one in added:
                place.addHandler(one)
            manager.run(Logs(name), timeout=60)
            manager.run(Logs(name + " later"), timeout=60)
            wait_until(lambda: all(name + " later" in stream.getvalue() for stream in streams))
            for place, one in added:
                place.removeHandler(one)
            print(json.dumps([name, [stream.getvalue().splitlines() for stream in streams]]))
        print(json.dumps(["added", [repr(one) for one in ROOT.handlers + OWN.handlers if one not in before]]))
"""


SERVICE = """
import logging
from actorproc import procedure
{setup}
@procedure
def hello(ctx):
    ctx.log.warning("hello from a step")
"""


@pytest.mark.processes
@pytest.mark.parametrize(
    ("form", "setup"),
    [("json", ""), ("text", ""), ("json", "logging.basicConfig(format='OWN %(message)s', level=20)")],
    ids=["json", "text", "own"],
)
def test_a_service_writes_its_log_as_it_is_told_unless_the_module_has_its_own(tmp_path, form, setup):
    (tmp_path / "shop.py").write_text(SERVICE.format(setup=setup))
    words = [sys.executable, "-m", "actorproc", "run", "shop", "--workers", "1", "--log-format", form]
    file = tmp_path / "log"
    with file.open("w") as log:
        service = subprocess.Popen(
            words, cwd=tmp_path, stderr=log, stdout=log, env=os.environ | {"PYTHONPATH": str(ROOT)}
        )
    wait_until(lambda: "runs" in file.read_text() or "running" in file.read_text() or service.poll() is not None)
    service.send_signal(signal.SIGTERM)
    assert service.wait(60) == 0, file.read_text()

    lines = file.read_text().splitlines()
    assert lines
    own = [line.startswith("OWN ") for line in lines]
    if setup:
        assert all(own), lines
        assert "--log-format json is not in force" in file.read_text()
    elif form == "json":
        assert all(json.loads(line)["logger"].startswith("actorproc") for line in lines)
    else:
        assert not any(line.startswith("{") for line in lines)
