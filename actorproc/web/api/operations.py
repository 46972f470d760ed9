"""The table of operations: paths, methods, parameters and answers. Routes and the OpenAPI document are made of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import msgspec

from actorproc.support.durations import EARLIEST, moment_near
from actorproc.web.answers import ApiError

__all__ = ["CheckedRequest", "Handler", "Operation", "Parameter", "given_of"]

ParameterKind = Literal["text", "texts", "int", "bool", "moment", "each"]
LIMIT = 200
"""Greatest length of a page of a list."""


class Parameter(NamedTuple):
    """A value of the query."""

    name: str
    kind: ParameterKind
    says: str
    least: int = 0
    most: int | None = None
    default: int | None = None


class CheckedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request, checked."""

    path: dict[str, str]
    """Values in the path, by name."""
    query: dict[str, Any]
    """Parameters that are given, and defaults."""
    body: dict[str, Any]
    user: str
    """Name for `by` of the audit."""


Handler = Callable[[Any, CheckedRequest], Any]
"""Answers in a thread, given the source of the page: with an object or a list."""


class Operation(NamedTuple):
    """One method of one path."""

    method: Literal["GET", "POST"]
    path: str
    """Below ``/api/v1``; ``{id}`` is a value."""
    answer: str
    """Kind of the object, or "list of " and the kind of the items."""
    handle: Handler
    summary: str
    query: tuple[Parameter, ...] = ()
    body: type[msgspec.Struct] | None = None
    verb: str = "look"
    """Word that `authorize` is asked about."""

    @property
    def name(self) -> str:
        """Its id in the OpenAPI document."""
        words = self.path.strip("/").replace("{", "").replace("}", "").replace(".", "/").replace("-", "/").split("/")
        return self.method.lower() + "".join(word.capitalize() for word in words)


def given_of(parameters: tuple[Parameter, ...], query: Any) -> dict[str, Any]:
    """The values of a query. Raises `ApiError` (422) that names the parameter.

    Args:
        parameters: Those that are known.
        query: Pairs of the query, as starlette has them.
    """
    known = {parameter.name: parameter for parameter in parameters}
    for name in query:
        if name not in known:
            names = ", ".join(known) or "none"
            raise ApiError(422, f"there is no parameter {name!r:.60} here", f"the parameters are {names}")
    found: dict[str, Any] = {p.name: p.default for p in parameters if p.default is not None}
    for name, parameter in known.items():
        texts = [text for text in query.getlist(name) if text != ""]
        if texts:
            found[name] = _value(parameter, texts)
    return found


def _value(parameter: Parameter, texts: list[str]) -> Any:
    last = texts[-1]
    match parameter.kind:
        case "texts":
            return [part for text in texts for part in text.split(",") if part]
        case "each":
            return texts
        case "int":
            return _number(parameter, last)
        case "bool":
            if last not in ("0", "1", "true", "false"):
                raise ApiError(422, f"{parameter.name} is 1 or 0, not {last!r:.60}")
            return last in ("1", "true")
        case "moment":
            return _moment(parameter.name, last)
        case _:
            return last


def _number(parameter: Parameter, text: str) -> int:
    try:
        value = int(text) if len(text) < 20 else -1
    except ValueError:
        value = parameter.least - 1
    if value < parameter.least or (parameter.most is not None and value > parameter.most):
        bounds = f"at least {parameter.least}" if parameter.most is None else f"{parameter.least} to {parameter.most}"
        raise ApiError(422, f"{parameter.name} is a whole number, {bounds}, not {text!r:.60}")
    return value


def _moment(name: str, text: str) -> float:
    from datetime import UTC, datetime  # noqa: PLC0415 - few requests have one

    try:
        if text.replace(".", "", 1).isdigit() and float(text) >= EARLIEST:
            return float(text)
        found = datetime.fromisoformat(text)
        return moment_near((found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp())
    except (ValueError, OverflowError, OSError):
        says = f"{name} is a time such as 2026-11-21T12:00Z, or epoch seconds, not {text!r:.60}"
        raise ApiError(422, says) from None
