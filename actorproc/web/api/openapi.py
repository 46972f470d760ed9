"""The OpenAPI 3.1 document of the API, made of the table of operations and of the schemas of what is shown."""

from __future__ import annotations

import json
from typing import Any, Literal

import msgspec

from actorproc.report.hosts import HostInfo
from actorproc.report.info import ProcedureInfo
from actorproc.report.metrics import ProcedureCounts
from actorproc.report.schema.document import KINDS, definitions
from actorproc.report.schema.shape import VERSION
from actorproc.report.step_log import AttemptInfo
from actorproc.ui.views.failures import FailureGroup
from actorproc.ui.views.header import Rates
from actorproc.ui.views.timeline import Timeline
from actorproc.ui.views.wait_graph import WaitGraph
from actorproc.web.api.operations import Operation, Parameter
from actorproc.web.api.table import OPERATIONS

__all__ = ["answer_schemas", "openapi_document"]

_PAGE_KINDS: dict[str, type[msgspec.Struct] | dict[str, Any]] = {
    "attempt": AttemptInfo,
    "host": HostInfo,
    "failure-group": FailureGroup,
    "count": {"count": int, "is_exact": bool},
    "wait-graph": {"": WaitGraph, "roots": list[str]},
    "timeline": {"procedure": str, "": Timeline},
    "type": {
        "type_name": str,
        "unfinished": int,
        "registered": bool | None,
        "since_start": ProcedureCounts | None,
    },
    "type-detail": {
        "type_name": str,
        "failures": list[FailureGroup],
        "unfinished": list[ProcedureInfo],
        "steps": list[dict[str, Any]],
        "since_start": ProcedureCounts | None,
    },
    "output": {"id": str, "output": Any},
    "bulk": {"count": int, "ids": list[str], "done": int, "failed": int, "dry_run": bool},
    "session": {
        "user": str,
        "read_only": bool,
        "why_read_only": str,
        "verbs": list[str],
        "words": dict[str, dict[str, Any]],
        "payloads": Literal["shown", "hidden"],
        "store": str,
        "version": str,
        "host": str,
    },
    "error": {"code": str, "says": str, "do": str},
}
"""Kinds of objects that only the page has."""
_MORE: dict[str, dict[str, Any]] = {
    "status": {
        "manager": Literal["up", "down", "hung", "refused", "no store"],
        "live": bool,
        "status": str | None,
        "pid": int | None,
        "host": str | None,
        "says": str,
        "do": str,
        "uptime": float | None,
        "busy": int,
        "workers": int,
        "queued": int,
        "rates": Rates,
    },
    "cause": {"lines": list[str], "repairs_to_do": list[dict[str, Any]]},
    "worker": {"cpu_percent": float | None, "host": str},
}
"""Fields that the page adds to objects of the schema."""
_SPANS = ("timeline", "Bar", "Band", "Wait")
_TIME = {"type": ["string", "null"], "format": "date-time"}
_ERRORS = {
    "401": "There is no session.",
    "403": "It is refused.",
    "404": "There is no such thing.",
    "409": "The engine refuses, or the number has changed.",
    "410": "The procedure was removed.",
    "422": "A value makes no sense.",
    "429": "Too many requests wait.",
    "503": "No manager answers, or the store cannot be read.",
}


def answer_schemas() -> dict[str, Any]:
    """Schemas of all objects, by name, with references to ``#/components/schemas``."""
    kinds: dict[str, type[msgspec.Struct] | dict[str, Any]] = {**KINDS, **_PAGE_KINDS}
    for name, fields in _MORE.items():
        shape = kinds[name]
        kinds[name] = {**(shape if isinstance(shape, dict) else {"": shape}), **fields}
    found = definitions(kinds)
    for name in _SPANS:
        for field in ("start", "end"):
            found[name]["properties"][field] = dict(_TIME)
    found["error"]["properties"]["audit"] = {"type": "array", "items": {"$ref": "#/$defs/audit"}}
    found["error"]["properties"]["count"] = {"type": "integer"}
    text = json.dumps(found).replace("#/$defs/", "#/components/schemas/")
    schemas: dict[str, Any] = json.loads(text)
    return schemas


def openapi_document() -> dict[str, Any]:
    """The document."""
    paths: dict[str, Any] = {}
    for operation in OPERATIONS:
        paths.setdefault(f"/api/v1{operation.path}", {})[operation.method.lower()] = _described(operation)
    paths["/api/v1/session"] = {"get": _described_plain("getSession", "session", "What this browser may do")}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "actorproc",
            "version": f"{VERSION}.0",
            "description": (
                "What `actorproc web` and a mounted page answer. All objects are of schema 1; fields may be added. "
                "Requests that change something need the header X-Actorproc: 1."
            ),
        },
        "paths": paths,
        "components": {
            "schemas": {**answer_schemas(), **_body_schemas()},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "The token of the printed address."}
            },
        },
        "security": [{"token": []}],
    }


def _described(operation: Operation) -> dict[str, Any]:
    found = _described_plain(operation.name, operation.answer, operation.summary)
    names = [part[1:-1] for part in operation.path.split("/") if part.startswith("{")]
    found["parameters"] = [
        *({"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names),
        *(_parameter(parameter) for parameter in operation.query),
    ]
    if operation.body is not None:
        found["parameters"].append({"name": "X-Actorproc", "in": "header", "required": True, "schema": {"const": "1"}})
        reference = {"$ref": f"#/components/schemas/{operation.body.__name__}"}
        found["requestBody"] = {"required": True, "content": {"application/json": {"schema": reference}}}
    return found


def _described_plain(name: str, answer: str, summary: str) -> dict[str, Any]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/error"}}}
    content: dict[str, Any] = {"application/json": {"schema": _answer(answer)}}
    kind = answer.removeprefix("list of ")
    if kind != answer or answer == "bulk":
        line = {"$ref": f"#/components/schemas/{kind if answer != 'bulk' else 'outcome'}"}
        content["application/x-ndjson"] = {"schema": line}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {
            "200": {"description": f"A {answer}.", "content": content},
            **{status: {"description": says, "content": error} for status, says in _ERRORS.items()},
        },
    }


def _answer(answer: str) -> dict[str, Any]:
    if answer == "schema":
        return {"type": "object"}
    kind = answer.removeprefix("list of ")
    reference = {"$ref": f"#/components/schemas/{kind}"}
    if kind == answer:
        return reference
    return {
        "type": "object",
        "properties": {
            "schema": {"const": VERSION},
            "object": {"const": "list"},
            "of": {"const": kind},
            "items": {"type": "array", "items": reference},
            "next": {"type": ["string", "null"]},
            "total": {"type": ["integer", "null"]},
        },
        "required": ["schema", "object", "of", "items", "next", "total"],
    }


def _parameter(parameter: Parameter) -> dict[str, Any]:
    schema: dict[str, Any]
    match parameter.kind:
        case "int":
            schema = {"type": "integer", "minimum": parameter.least}
            if parameter.most is not None:
                schema["maximum"] = parameter.most
            if parameter.default is not None:
                schema["default"] = parameter.default
        case "bool":
            schema = {"enum": ["0", "1", "true", "false"]}
        case "texts" | "each":
            schema = {"type": "array", "items": {"type": "string"}}
        case "moment":
            schema = {"type": "string", "description": "ISO 8601, or epoch seconds"}
        case _:
            schema = {"type": "string"}
    return {"name": parameter.name, "in": "query", "description": parameter.says, "schema": schema}


def _body_schemas() -> dict[str, Any]:
    bodies = [operation.body for operation in OPERATIONS if operation.body is not None]
    _, found = msgspec.json.schema_components(dict.fromkeys(bodies), ref_template="#/components/schemas/{name}")
    return found
