"""Answers of every operation against the OpenAPI document, over a store in which much is stuck."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass

import pytest
from fastapi.openapi.models import OpenAPI

from actorproc import RetryPolicy
from actorproc.api.manager import ProcedureManager
from actorproc.model.policies import LockKey
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.saga import Saga, step
from actorproc.procedure.authoring.status import Status
from actorproc.web.api.openapi import openapi_document
from actorproc.web.api.table import OPERATIONS
from tests.kit.exposition import families
from tests.web.conftest import opened

pytestmark = pytest.mark.processes
BOUND = 30.0
DOCUMENT = openapi_document()
SCHEMAS = DOCUMENT["components"]["schemas"]


@dataclass
class Holder(Procedure):
    """Holds a key until it is told."""

    card: str = "4111"

    def lock_keys(self):
        return [LockKey.write("region/eu")]

    def execute(self, ctx):
        ctx.log.info("holds it")
        if ctx.event is None:
            return Status.wait("go", timeout=600)
        return Status.done({"card": self.card})


@dataclass
class Parent(Procedure):
    def execute(self, ctx):
        if ctx.step == 1:
            return Status.suspended([Leaf(number) for number in range(12)])
        return Status.done()


@dataclass
class Leaf(Procedure):
    number: int = 0

    def execute(self, ctx):
        return Status.done(self.number)


class Halves(Saga):
    """Fails, and so does its undo: its key is poisoned."""

    rollback_retry = RetryPolicy(max_attempts=1)

    def poison_keys(self):
        return ["shop/items"]

    @step
    def first(self, ctx):
        pass

    @first.undo
    def unfirst(self, ctx):
        raise OSError("disk is read-only")

    @step
    def second(self, ctx):
        raise ValueError("an item has no price")


Halves.retry = RetryPolicy(max_attempts=1)


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    path = tmp_path_factory.mktemp("answers") / "the store"
    with ProcedureManager(path, procedures=[Holder, Parent, Leaf, Halves], workers=2) as found:
        found.submit(Holder(), id="holder", tags=["eu"])
        found.submit(Holder(), id="second")
        found.submit(Parent(), id="parent").result(BOUND)
        with pytest.raises(Exception, match="price"):
            found.submit(Halves(), id="halves").result(BOUND)
        found.publish("other", {"a": 1})
        found.pause("second", "for a while", by="eve")
        yield found


@pytest.fixture(scope="module")
def page(manager):
    with opened(manager._path) as found:
        yield found


def test_the_document_is_openapi_3_1():
    assert DOCUMENT["openapi"].startswith("3.1")
    OpenAPI.model_validate(DOCUMENT)
    names = [found["operationId"] for path in DOCUMENT["paths"].values() for found in path.values()]
    assert len(names) == len(set(names))
    references = re.findall(r'"#/components/schemas/([^"]+)"', json.dumps(DOCUMENT))
    assert set(references) <= set(SCHEMAS)


def check(value, schema, where="$"):
    """Raise unless a value is what a schema says, and has no field that it does not name."""
    if "$ref" in schema:
        return check(value, SCHEMAS[schema["$ref"].rpartition("/")[2]], where)
    if "anyOf" in schema:
        problems = []
        for option in schema["anyOf"]:
            try:
                return check(value, option, where)
            except AssertionError as error:
                problems.append(str(error))
        raise AssertionError(problems)
    kinds = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None), "integer": int}
    names = schema.get("type", [])
    names = [names] if isinstance(names, str) else names
    allowed = tuple(kind for name in names for kind in ((int, float) if name == "number" else (kinds[name],)))
    assert not names or (isinstance(value, allowed) and (bool in allowed or not isinstance(value, bool))), (
        where,
        value,
    )
    assert value in schema.get("enum", [value]), (where, value)
    assert value == schema.get("const", value), (where, value)
    if schema.get("format") == "date-time" and value is not None:
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", value), (where, value)
    if isinstance(value, dict) and "properties" in schema:
        assert set(schema.get("required", ())) <= set(value), (where, set(schema["required"]) - set(value))
        for name, item in value.items():
            if name in schema["properties"]:
                check(item, schema["properties"][name], f"{where}.{name}")
            else:
                assert "required" not in schema or name in FREE, (where, name)
    if isinstance(value, list):
        for place, item in enumerate(value):
            check(item, schema.get("items", {}), f"{where}[{place}]")
    return None


FREE = {"live", "offset", "by_state", "searched", "by_cause", "slots", "previous", "next", "_"}
"""Fields of lists and records beside those of the schema."""
GETS = [
    *(
        f"/{part}"
        for part in ("status", "failures", "procedures", "procedures?limit=2", "procedures?q=price", "procedures/count")
    ),
    *("/procedures?state=FAILED,RUNNABLE&phase=paused&order=oldest", "/procedures?type=Holder&tag=eu&tag=at=1&roots=1"),
    "/procedures?where=a=1&where=b",
    *("/procedures?since=2020-01-01T00:00Z&until=2050-01-01", "/procedures/count?type=Leaf&q=leaf"),
    *(
        f"/procedures/{id}{part}"
        for id in ("holder", "second", "parent", "halves")
        for part in (
            "",
            "/why",
            "/steps",
            "/steps?limit=1&offset=1",
            "/steps/1",
            "/attempts",
            "/children",
            "/tree",
            "/state",
            "/states",
            "/diff?first=1&second=1",
            "/output",
            "/logs",
            "/stack",
            "/locks",
            "/audit",
            "/timeline",
        )
    ),
    *(
        "/locks",
        "/locks?key=region&waited=1",
        "/locks/graph",
        "/poisons",
        "/signals",
        "/workers",
        "/hosts",
        "/deaths",
        "/activity",
    ),
    *("/activity?verb=pause&by=eve&limit=1", "/types", "/types/Leaf", "/metrics", "/session", "/schema"),
]


def template_of(path):
    bare = path.partition("?")[0]
    for operation in OPERATIONS:
        pattern = re.sub(r"\{\w+\}", "[^/]+", operation.path)
        if operation.method == "GET" and re.fullmatch(pattern, bare):
            return operation.path
    return bare


@pytest.mark.parametrize("path", GETS)
def test_every_answer_is_what_the_document_says(page, path):
    found = page.get(path.lstrip("/"))
    described = DOCUMENT["paths"][f"/api/v1{template_of(path)}"]["get"]["responses"]

    assert found.status_code == 200, found.text
    check(found.json(), described["200"]["content"]["application/json"]["schema"])
    again = page.get(path.lstrip("/"), headers={"If-None-Match": found.headers["etag"]})
    assert again.status_code in (200, 304)
    assert again.status_code == 200 or again.content == b""


def test_all_operations_that_read_are_among_them():
    assert {operation.path for operation in OPERATIONS if operation.method == "GET"} <= {
        template_of(path) for path in GETS
    }


def test_a_list_is_lines_for_a_program_that_asks_so(page):
    found = page.get("procedures/parent/children?limit=5", headers={"Accept": "application/x-ndjson"})
    rows = [json.loads(line) for line in found.text.splitlines()]

    assert found.headers["content-type"] == "application/x-ndjson"
    assert [row["object"] for row in rows] == ["procedure"] * 5


def test_what_has_not_changed_is_not_sent_again(page):
    first = page.get("procedures/parent/steps")

    assert page.get("procedures/parent/steps", headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    assert page.get("procedures/parent/steps", headers={"If-None-Match": '"other"'}).status_code == 200


ERRORS = {
    "procedures/nothing": (404, "unknown-procedure"),
    "procedures/no%20id": (422, "invalid"),
    "procedures/nothing/why": (404, "unknown-procedure"),
    "procedures/nothing/stack": (404, "unknown-procedure"),
    "procedures/parent/steps/99": (404, "unknown-step"),
    "procedures/parent/steps/x": (422, "invalid"),
    "procedures/parent/diff": (422, "invalid"),
    "procedures?limit=201": (422, "invalid"),
    "procedures?limit=0": (422, "invalid"),
    "procedures?limit=" + "9" * 5000: (422, "invalid"),
    "procedures?limit=x": (422, "invalid"),
    "procedures?state=NICE": (422, "invalid"),
    "procedures?phase=nice": (422, "invalid"),
    "procedures?since=yesterday": (422, "invalid"),
    "procedures?roots=maybe": (422, "invalid"),
    "procedures?after=xyz": (422, "invalid"),
    "procedures?after=0.nothing": (404, "unknown-procedure"),
    "procedures?order=best": (422, "invalid"),
    "procedures?wrong=1": (422, "invalid"),
    "procedures?root=%00": (422, "invalid"),
    "types/Nothing": (404, "not-found"),
    "activity?after=-1": (422, "invalid"),
    "nothing": (404, "not-found"),
}


@pytest.mark.parametrize(("path", "told"), ERRORS.items(), ids=[path[:40] for path in ERRORS])
def test_an_error_is_an_object_that_says_what_is_wrong(page, path, told):
    found = page.get(path)

    assert (found.status_code, found.json()["code"]) == told
    check(found.json(), SCHEMAS["error"])
    assert len(found.json()["says"]) < 1000


# ---------------------------------------------------------------- contents
def test_the_chain_of_causes_has_its_repairs_as_requests(page, manager):
    found = page.get("procedures/holder/why").json()
    kinds = {(repair["verb"], repair["looks"]) for repair in found["repairs_to_do"]}

    assert ("signal", False) in kinds
    assert found["lines"][0].startswith("holder (Holder)")
    commands = [shlex.split(repair["command"]) for repair in found["repairs_to_do"]]
    assert all(words[:3] == ["actorproc", "--path", str(manager._path)] for words in commands)


def test_children_are_paged_from_any_place_and_by_state(page):
    whole = [row["id"] for row in page.get("procedures/parent/children?limit=200").json()["items"]]
    parts = [
        row["id"]
        for offset in range(0, 12, 5)
        for row in page.get(f"procedures/parent/children?limit=5&offset={offset}").json()["items"]
    ]
    failed = page.get("procedures/parent/children?state=FAILED").json()
    done = page.get("procedures/parent/children?state=SUCCESS&offset=10").json()

    assert len(whole) == 12
    assert parts == whole
    assert (failed["total"], failed["items"]) == (0, [])
    assert (done["total"], len(done["items"]), done["by_state"]) == (12, 2, {"SUCCESS": 12})


def test_payloads_can_be_hidden_and_changed(manager):
    with opened(manager._path, payloads="hidden") as page:
        told = "".join(
            page.get(f"procedures/holder{part}").text for part in ("", "/state", "/states", "/steps/1", "/output")
        )
        assert "4111" not in told
        assert page.get("procedures/holder").json()["fields"] == "(hidden)"
    with opened(manager._path, redact=lambda type_name, path, value: f"{path}!" if value == "4111" else value) as page:
        assert page.get("procedures/holder").json()["fields"] == {"card": "fields.card!"}
        assert page.get("procedures/holder/state").json()["state"] == {"card": "state.card!"}


def test_failures_are_grouped(page):
    (group,) = page.get("failures").json()["items"]

    assert (group["type_name"], group["count"], group["ids"]) == ("Halves", 1, ["halves"])
    assert group["message"] == "disk is read-only"


def test_metrics_are_text_for_a_scraper(page):
    found = page.request("GET", "/metrics")
    asked = page.get("metrics", headers={"Accept": "text/plain"})

    assert found.headers["content-type"] == asked.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    for text in (found.text, asked.text):
        read = families(text)
        assert read["actorproc_manager_up"].samples[0].value == 1
        assert read["actorproc_web_streams"].samples[0].value == 0
        assert "actorproc_procedures" in read
    head = page.request("HEAD", "/metrics", headers={"Accept-Encoding": "gzip"})
    assert (head.status_code, head.headers["content-encoding"]) == (200, "gzip")
    assert (
        page.request("GET", "/metrics", headers={"Accept-Encoding": "identity"}).headers.get("content-encoding") is None
    )
    assert page.request("POST", "/metrics", headers={"X-Actorproc": "1"}).status_code in (403, 405, 415)


def test_the_graph_of_locks_says_who_waits_for_whom(page):
    found = page.get("locks/graph").json()

    assert found["keys"] == ["region/eu"]
    assert {(edge["procedure"], edge["held"]) for edge in found["edges"]} >= {("holder", True)}
