"""The JSON schema: what is printed is what it says, and it changes on purpose only."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from actorproc.api.manager import ProcedureManager
from actorproc.model.policies import LockKey
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.status import Status
from actorproc.report.schema.document import KINDS, document
from actorproc.report.schema.shape import VERSION, enveloped, iso, shaped

SNAPSHOT = Path(__file__).with_name("schema_v1.json")
DOCUMENT = document()


def test_the_schema_is_the_one_that_was_published():
    """After an addition: ``actorproc schema > tests/cli/schema_v1.json``. After anything else, `VERSION` goes up too."""
    assert json.loads(SNAPSHOT.read_text()) == DOCUMENT
    assert SNAPSHOT.name == f"schema_v{VERSION}.json"


def test_every_field_that_holds_a_moment_is_a_time():
    told = [found for found in DOCUMENT["$defs"].values() if "properties" in found]
    fields = {name: kind for found in told for name, kind in found["properties"].items() if name.endswith("_at")}

    assert {"created_at", "cancelled_at", "joined_at"} <= set(fields)
    assert not [name for name, kind in fields.items() if kind.get("format") != "date-time"]


def test_every_kind_is_documented():
    page = (Path(__file__).parents[2] / "docs" / "reference" / "json.md").read_text()

    assert [kind for kind in KINDS if f"`{kind}`" not in page] == []


def check(value, schema, where="$"):
    """Whether a value is what a schema says; for the words that our schema uses."""
    known = {
        "$ref",
        "type",
        "properties",
        "required",
        "items",
        "enum",
        "const",
        "anyOf",
        "additionalProperties",
        "format",
    }
    assert schema.keys() <= known, schema
    if "$ref" in schema:
        return check(value, DOCUMENT["$defs"][schema["$ref"].rpartition("/")[2]], where)
    if "anyOf" in schema:
        assert any(fits(value, option) for option in schema["anyOf"]), (where, value)
        return None
    types = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "number": (int, float)}
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    kinds = tuple(kind for name in names for kind in (_several(types.get(name, int))))
    assert not names or (isinstance(value, kinds) and (bool in kinds or not isinstance(value, bool))), (where, value)
    assert value in schema.get("enum", [value]), (where, value)
    assert value == schema.get("const", value), (where, value)
    if schema.get("format") == "date-time" and value is not None:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", value), (where, value)
    if isinstance(value, dict) and "properties" in schema:
        assert set(value) == set(schema["properties"]), where
        for name, item in value.items():
            check(item, schema["properties"][name], f"{where}.{name}")
    elif isinstance(value, dict) and "additionalProperties" in schema:
        for name, item in value.items():
            check(item, schema["additionalProperties"], f"{where}.{name}")
    if isinstance(value, list):
        for place, item in enumerate(value):
            check(item, schema.get("items", {}), f"{where}[{place}]")
    return None


def fits(value, schema):
    try:
        check(value, schema)
    except AssertionError:
        return False
    return True


def _several(kind):
    return kind if isinstance(kind, tuple) else (kind,)


@pytest.mark.processes
@pytest.mark.parametrize(
    "arguments",
    [
        ("list",),
        ("show", "holder"),
        ("show", "fails"),
        ("show", "waiter"),
        ("tree", "parent"),
        ("steps", "fails"),
        ("locks",),
        ("poisons",),
        ("workers",),
        ("logs", "talks"),
        ("watch", "fails"),
        ("why", "waiter"),
        ("why", "parent"),
        ("metrics", "-o", "jsonl"),
        ("status",),
        ("stack", "holder"),
        ("compact",),
        ("doctor",),
        ("abort", "holder", "--dry-run"),
        ("abort", "fails"),
        ("signal", "talks", "--dry-run"),
        ("publish", "news", "1"),
        ("signals",),
        ("withdraw", "--event", "news"),
        ("pause", "--manager", "--dry-run"),
        ("submit", "jobs:add", "a=1", "b=2"),
    ],
)
def test_what_is_printed_is_what_the_schema_says(place, arguments):
    if "holder" not in {row["id"] for row in place.rows("list")}:
        place("submit", "jobs:Table", "name=t", "stuck=true", "--id", "holder")
        place("submit", "jobs:Table", "name=t", "--id", "waiter")
        place("submit", "jobs:Parent", "--id", "parent")
        place("submit", "jobs:Waits", "text=hello", "--id", "talks")
        place("submit", "jobs:Half", "mended=/nowhere", "--id", "half")
        place("submit", "jobs:Fails", "message=no", "--id", "fails")
        place("publish", "early")
        for name in ("fails", "half"):
            place("watch", name, "--timeout", "50s")
        place.until(lambda: place.phase("talks") == "waiting" and place.phase("holder") == "running")

    rows = place.rows(*arguments)

    assert rows
    for row in rows:
        check(row, DOCUMENT["$defs"][row["object"]])


@pytest.mark.processes
def test_a_backup_is_described_too(place):
    row = place.rows("backup", str(place.directory / "copy"))[0]

    check(row, DOCUMENT["$defs"]["backup"])


def test_numbers_that_json_does_not_know_become_null():
    assert shaped("x", {"a": float("inf"), "b": [float("nan")], "at": 0.0, "n": {"at": 3}}) == {
        "schema": 1,
        "object": "x",
        "a": None,
        "b": [None],
        "at": None,
        "n": {"at": 3},
    }
    assert iso(1e30) is None
    assert enveloped("x", [])["items"] == []


class Holds(Procedure):
    def lock_keys(self):
        return [LockKey.write("k")]

    def execute(self, ctx):
        return Status.wait("go")


@pytest.mark.processes
def test_an_output_is_shown_as_it_is_whatever_its_fields_are_called():
    output = {"at": 12.5, "since": [{"deadline": 0.5}], "rate": float("inf"), 3: (1, 2)}

    shown = shaped("outcome", {"id": "order-1", "verb": "submit", "ok": True, "result": output, "error": None})

    assert shown["result"] == {"at": 12.5, "since": [{"deadline": 0.5}], "rate": None, 3: [1, 2]}


def test_the_manager_and_another_process_see_the_same_causes(tmp_path, quiet):
    with ProcedureManager(quiet.store, workers=1) as manager:
        manager.submit(Holds(), id="one")
        manager.submit(Holds(), id="two")
        quiet.until(lambda: manager.info("two").phase == "locked-out" and manager.info("one").phase == "waiting")

        here = manager.why("two")
        there = quiet.rows("why", "two")[0]

    assert [cause.kind for cause in (here, *here.causes)] == ["lock", "event"]
    assert (there["procedure"], there["causes"][0]["says"]) == ("two", here.causes[0].says)
    assert there["causes"][0]["repairs"] == ["actorproc signal one"]
