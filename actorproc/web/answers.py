"""Answers of the API: objects of schema 1, lists of them, errors as objects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from actorproc.errors import (
    DuplicateProcedure,
    EngineError,
    InvalidId,
    KeyPoisoned,
    ManagerBusy,
    ManagerStopped,
    NotAllowed,
    OutcomeUnknown,
    StorageUnavailable,
    StoreDamaged,
    StoreFormat,
    StoreInUse,
    UnknownProcedure,
    UnknownStep,
    UsageError,
)
from actorproc.report.schema.shape import VERSION, shaped
from actorproc.ui.command_words import command_line, in_command_words
from actorproc.ui.text import plain_line

__all__ = ["ApiError", "encoded", "error_of", "listed", "object_of", "shaped_all", "tag_of"]

_CODES = {
    400: "bad-request",
    401: "no-session",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    408: "too-late",
    409: "not-allowed",
    410: "removed",
    413: "too-large",
    415: "bad-request",
    422: "invalid",
    429: "too-many",
    500: "internal",
    503: "no-manager",
}
_REFUSALS: tuple[tuple[type[BaseException], int, str], ...] = (
    (UnknownProcedure, 404, "unknown-procedure"),
    (UnknownStep, 404, "unknown-step"),
    (InvalidId, 422, "invalid"),
    (NotAllowed, 409, "not-allowed"),
    (ManagerBusy, 409, "not-allowed"),
    (KeyPoisoned, 409, "not-allowed"),
    (DuplicateProcedure, 409, "not-allowed"),
    (StoreInUse, 503, "no-manager"),
    (ManagerStopped, 503, "no-manager"),
    (OutcomeUnknown, 503, "no-manager"),
    (StorageUnavailable, 503, "no-store"),
    (StoreDamaged, 503, "damaged"),
    (StoreFormat, 503, "other-format"),
    (UsageError, 422, "invalid"),
    (msgspec.ValidationError, 422, "invalid"),
    (EngineError, 503, "no-store"),
    (OSError, 503, "no-store"),
    (ValueError, 422, "invalid"),
    (TypeError, 422, "invalid"),
)
"""Status and code of an error of the engine; the first that fits counts."""


class ApiError(Exception):
    """A refusal that is answered as an object.

    Args:
        status: Status of HTTP.
        says: The trouble in words.
        do: The next thing to do. Default: "".
        code: A word for programs. Default: that of the status.
        more: Further fields.
    """

    def __init__(self, status: int, says: str, do: str = "", *, code: str | None = None, **more: Any) -> None:
        super().__init__(says)
        self.status = status
        self.body = {
            "schema": VERSION,
            "object": "error",
            "code": code or _CODES[status],
            "says": plain_line(says),
            "do": plain_line(do),
            **more,
        }


def error_of(error: BaseException, path: str | None) -> ApiError:
    """An error of the engine as an answer, in the words of the command line; an unforeseen one tells nothing."""
    if isinstance(error, ApiError):
        return error
    if isinstance(error, TimeoutError):
        return ApiError(503, "the answer took too long", "ask again; actorproc doctor", code="too-late")
    for kind, status, code in _REFUSALS:
        if isinstance(error, kind):
            do = command_line(path, "doctor") if code == "damaged" else ""
            return ApiError(status, in_command_words(str(error), path), do, code=code)
    return ApiError(500, "an error inside the page; its log has the traceback")


def object_of(kind: str, value: msgspec.Struct | Mapping[str, Any]) -> dict[str, Any]:
    """One object of a kind."""
    return shaped(kind, value if isinstance(value, msgspec.Struct) else dict(value))


def shaped_all(kind: str, values: Iterable[msgspec.Struct | Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Objects of one kind."""
    return [object_of(kind, value) for value in values]


def listed(
    kind: str,
    items: list[dict[str, Any]],
    *,
    next: str | None = None,  # noqa: A002 - the field's name in the answer
    total: int | None = None,
    **more: Any,
) -> dict[str, Any]:
    """A list: its items, and what to ask for next."""
    return {"schema": VERSION, "object": "list", "of": kind, "items": items, "next": next, "total": total, **more}


def encoded(body: Any) -> bytes:
    """Bytes of JSON."""
    return msgspec.json.encode(body)


def tag_of(body: bytes) -> str:
    """The ETag of an answer."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'
