"""The JSON Schema of what is shown, made of the structs themselves."""

from __future__ import annotations

import types
import typing
from enum import Enum, IntEnum
from typing import Any, Literal

import msgspec

from actorproc.report.audit import AuditInfo
from actorproc.report.changes import Change, ChangeDigest
from actorproc.report.deploy_report import DeployReport
from actorproc.report.health import Health
from actorproc.report.hosts import HostInfo
from actorproc.report.info import (
    EnqueuedInfo,
    LockInfo,
    PoisonInfo,
    ProcedureInfo,
    ProcedureTree,
    ScheduleInfo,
    SignalInfo,
)
from actorproc.report.metrics import Metrics
from actorproc.report.schema.shape import TIMES, VERSION
from actorproc.report.states import StateChange
from actorproc.report.step_log import AttemptInfo, StepInfo
from actorproc.report.why import Cause
from actorproc.workers.base import WorkerInfo
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = ["KINDS", "definitions", "document"]

KINDS: dict[str, type[msgspec.Struct] | dict[str, Any]] = {
    "procedure": ProcedureInfo,
    "procedure-detail": {
        "": ProcedureInfo,
        "last_steps": list[StepInfo],
        "held": list[LockInfo],
        "waits_for": list[LockInfo],
        "audit": list[AuditInfo],
        "failed_attempts": list[AttemptInfo],
        "input": Any,
        "fields": Any,
        "output": Any,
    },
    "tree": ProcedureTree,
    "step": StepInfo,
    "state": {
        "procedure": str,
        "number": int,
        "kind": Literal["step", "commit", "rollback"],
        "at": float,
        "outcome": str,
        "position": str,
        "type_name": str,
        "version": int,
        "codec": str,
        "size": int,
        "state": Any,
        "output": Any,
        "notes": dict[str, Any],
        "changed": list[str],
        "missing": str,
    },
    "diff": {"procedure": str, "first": int, "second": int, "changes": list[StateChange]},
    "lock": LockInfo,
    "poison": PoisonInfo,
    "signal": SignalInfo,
    "schedule": ScheduleInfo,
    "enqueued": EnqueuedInfo,
    "audit": AuditInfo,
    "worker": WorkerInfo,
    "health": Health,
    "metrics": Metrics,
    "change": Change,
    "digest": ChangeDigest,
    "log": LogEntry,
    "cause": Cause,
    "status": {
        "path": str,
        "store_id": str,
        "epoch": int,
        "owner": dict[str, Any] | None,
        "paused": str | None,
        "states": dict[str, int],
        "phases": dict[str, int],
        "types": dict[str, int],
        "oldest": dict[str, Any] | None,
        "stuck": list[str],
        "unregistered": dict[str, int],
        "locks": int,
        "lock_waiting": int,
        "poisons": list[str],
        "signals": int,
        "oldest_signal_at": float | None,
        "procedures": int,
        "steps": int,
        "file_bytes": int,
        "used_bytes": int,
        "health": Health | None,
    },
    "outcome": {
        "id": str | None,
        "verb": str,
        "ok": bool,
        "result": Any,
        "error": str | None,
        "applied_to": Literal["manager", "stopped store"] | None,
    },
    "stack": {"id": str, "stack": str},
    "backup": {"path": str, "size": int, "seconds": float, "store_id": str, "copied_from": str},
    "compaction": {"before": int, "after": int, "seconds": float, "freed": int},
    "leader": {
        "leads": bool,
        "owner": str | None,
        "epoch": int | None,
        "address": str | None,
        "since": float | None,
        "lease": float | None,
        "candidates": list[str],
    },
    "hosts": {"hosts": list[HostInfo]},
    "grants": {"owner": str, "host": str, "looker": str, "sql": str},
    "check": DeployReport,
    "replay": {
        "procedure": str,
        "type_name": str,
        "step": int,
        "step_name": str | None,
        "undo": bool,
        "outcome": str,
        "verdict": Literal["same", "differs", "nothing stored", "not replayable"],
        "reason": str,
        "changes": list[StateChange],
        "differences": list[StateChange],
        "children": list[str],
        "locks": list[str],
        "remembered": list[str],
        "refused": list[str],
        "written": list[str],
        "traceback": str,
    },
    "diagnosis": {
        "path": str,
        "checked_at": float,
        "facts": dict[str, Any],
        "owner": dict[str, Any] | None,
        "damaged": list[dict[str, Any]],
        "findings": list[dict[str, Any]],
        "ok": bool,
    },
}
"""Type of each kind of object: a struct, or fields with their types ("": those of this struct too)."""

_HIDDEN = frozenset({"pickled"})
_TIME = {"type": ["string", "null"], "format": "date-time"}


def definitions(kinds: dict[str, type[msgspec.Struct] | dict[str, Any]]) -> dict[str, Any]:
    """Schemas of further kinds of objects, by name, with the parts that they refer to (``#/$defs/…``)."""
    maker = _SchemaMaker()
    found = {name: maker.kind(name, shape) for name, shape in kinds.items()}
    return {**found, **maker.parts}


def document(only: str | None = None) -> dict[str, Any]:
    """The JSON Schema (2020-12) of all kinds, or of one with what it refers to."""
    maker = _SchemaMaker()
    kinds = {name: maker.kind(name, shape) for name, shape in KINDS.items() if only in (None, name)}
    shapes = [{"$ref": f"#/$defs/{name}"} for name in kinds]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "actorproc",
        "description": f"Version {VERSION} of the objects that actorproc shows. Times are ISO 8601 in UTC, or null.",
        "oneOf": [*shapes, {"$ref": "#/$defs/list"}],
        "$defs": {
            **kinds,
            "list": {
                "type": "object",
                "properties": {
                    "schema": {"const": VERSION},
                    "object": {"const": "list"},
                    "of": {"enum": list(kinds)},
                    "items": {"type": "array", "items": {"oneOf": shapes}},
                },
                "required": ["schema", "object", "of", "items"],
            },
            **dict(sorted(maker.parts.items())),
        },
    }


class _SchemaMaker:
    """Types to schemas; structs within others become parts that are referred to."""

    def __init__(self) -> None:
        self.parts: dict[str, Any] = {}

    def kind(self, name: str, shape: type[msgspec.Struct] | dict[str, Any]) -> dict[str, Any]:
        fields = _fields(shape) if isinstance(shape, type) else dict(shape)
        base = fields.pop("", None)
        if base is not None:
            fields = _fields(base) | fields
        found = self._object(fields)
        found["properties"] = {"schema": {"const": VERSION}, "object": {"const": name}, **found["properties"]}
        found["required"] = ["schema", "object", *found["required"]]
        return found

    def _object(self, fields: dict[str, Any]) -> dict[str, Any]:
        shown = {
            name: dict(_TIME) if name in TIMES else self.of(kind)
            for name, kind in fields.items()
            if kind is not bytes and name not in _HIDDEN
        }
        return {"type": "object", "properties": shown, "required": list(shown)}

    def of(self, kind: Any) -> dict[str, Any]:
        """The schema of a type."""
        origin, inside = typing.get_origin(kind), typing.get_args(kind)
        if origin is typing.Union or origin is types.UnionType:
            options = [self.of(part) for part in inside if part is not type(None)]
            return {"anyOf": [*options, {"type": "null"}]} if type(None) in inside else {"anyOf": options}
        if origin is typing.Literal:
            return {"enum": list(inside)}
        if origin in (list, tuple, set, frozenset):
            return {"type": "array", "items": self.of(inside[0]) if inside else {}}
        if origin is dict:
            return {"type": "object", "additionalProperties": self.of(inside[1])}
        return self._plain(kind)

    def _plain(self, kind: Any) -> dict[str, Any]:
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return self._part(kind.__name__, _fields(kind))
        if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
            return self._part(kind.__name__, typing.get_type_hints(kind))
        if isinstance(kind, type) and issubclass(kind, Enum):
            return {"enum": [m.name.lower() if issubclass(kind, IntEnum) else m.value for m in kind]}
        names = {str: "string", bool: "boolean", int: "integer"}
        if kind is float:
            return {"type": ["number", "null"]}  # JSON has no infinity
        return {"type": names[kind]} if kind in names else {}

    def _part(self, name: str, fields: dict[str, Any]) -> dict[str, Any]:
        if name not in self.parts:
            self.parts[name] = {}
            self.parts[name] = self._object(fields)
        return {"$ref": f"#/$defs/{name}"}


def _fields(kind: type[msgspec.Struct]) -> dict[str, Any]:
    hints = typing.get_type_hints(kind)
    return {name: hints[name] for name in kind.__struct_fields__}
