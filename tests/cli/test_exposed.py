"""Values that procedures show, on the command line: ``show``, ``list``, ``state``, an export and an import."""

from __future__ import annotations

import json

import pytest

pytestmark = pytest.mark.processes

JOBS = """
from dataclasses import dataclass
from datetime import date
from actorproc import Procedure, RetryPolicy, Secret, Status

@dataclass
class Point:
    x: int
    y: int

@dataclass
class Copy(Procedure):
    n: int
    uses = (Point,)
    retry = RetryPolicy(max_attempts=3, base=0.001)
    def execute(self, ctx):
        ctx.expose("copied", 42)
        ctx.expose("at", 1.5)
        ctx.expose("day", date(2026, 1, 2))
        ctx.expose("place", Point(1, 2))
        ctx.expose("token", Secret("hunter2"))
        ctx.expose("escape", "a\\x1b[31m")
        ctx.heartbeat(0.5, details={"row": ctx.attempt, "token": Secret("hunter2")})
        if ctx.attempt == 1:
            raise ConnectionError("busy")
        return Status.done()
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory, commands):
    from tests.cli.conftest import Place

    found = Place(tmp_path_factory.mktemp("shown"), commands)
    (found.directory / "jobs.py").write_text(JOBS)
    found.serve()
    found("submit", "jobs:Copy", "n=1", "--id", "copy", "--wait")
    yield found
    found.end()


def test_shown_values_are_told_with_their_types_and_without_secrets_or_control_characters(place):
    shown = place.said("-o", "table", "show", "copy")

    block = shown[shown.index("exposed\n") :].splitlines()[1:7]
    assert block == [
        "  at: 1.5",
        "  copied: 42",
        "  day: 2026-01-02  (date)",
        "  escape: 'a\\x1b[31m'",
        "  place: Point(x=1, y=2)",
        f"  token: {'*' * 10}",
    ]
    assert "hunter2" not in shown


@pytest.mark.parametrize("looks", [("show", "copy"), ("list",)])
def test_json_has_them_as_json_writes_values(place, looks):
    (row,) = place.rows(*looks)

    assert row["exposed"] == {
        "at": 1.5,
        "copied": 42,
        "day": {"$type": "date", "text": "2026-01-02"},
        "escape": "a\x1b[31m",
        "place": {"$type": "jobs:Point", "x": 1, "y": 2},
        "token": {"$type": "secret", "text": "*" * 10},
    }


def test_wide_lists_have_a_column_of_them_and_the_state_has_the_last_heartbeat(place):
    assert "copied=42" in place.said("-o", "wide", "list")
    (state,) = place.rows("state", "copy", "--step", "1")
    assert state["notes"] == {"last heartbeat": {"row": 2, "token": {"$type": "secret", "text": "*" * 10}}}


def test_an_export_has_them_without_secrets_and_an_import_brings_them_in(place, tmp_path):
    from actorproc.cli.main import main

    file = tmp_path / "copy.json"
    place("export", "copy", "--out", str(file))
    assert b"hunter2" not in file.read_bytes()
    (tree,) = json.loads(file.read_text())["trees"]
    assert [row["key"] for row in tree["exposed"]] == ["at", "copied", "day", "escape", "place", "token"]

    assert main(["--path", str(tmp_path / "other"), "import", str(file)]) == 0
    from actorproc import StoreReader

    with StoreReader(tmp_path / "other") as reader:
        assert reader.info("copy").exposed["copied"] == 42
