"""JSON arguments of commands: the fields of a procedure, the payload of a signal."""

from __future__ import annotations

import argparse
import json
from typing import Any, NoReturn

from actorproc.errors import UsageError

__all__ = ["fields_of", "strict_json"]


def strict_json(text: str) -> Any:
    """The value of a JSON text. Raises `ValueError` for any other, also for NaN and Infinity, which are none."""
    return json.loads(text, parse_constant=_refused)


def _refused(name: str) -> NoReturn:
    msg = f"{name} is no JSON"
    raise ValueError(msg)


def fields_of(options: argparse.Namespace) -> dict[str, Any]:
    """Fields that --json and FIELD=VALUE give. Raises `UsageError`."""
    fields: dict[str, Any] = {}
    if options.json_fields is not None:
        try:
            fields = strict_json(options.json_fields)
        except ValueError as error:
            raise UsageError(f"--json is no JSON: {error}") from None
        if not isinstance(fields, dict):
            raise UsageError('--json is an object: {"field": value}')
    for text in options.fields:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier():
            raise UsageError(f"{text!r} is no FIELD=VALUE")
        try:
            fields[name] = strict_json(value)
        except ValueError:
            fields[name] = value
    return fields


def payload_of(text: str | None) -> Any:
    """The payload of a signal, from its JSON; None: there is none. Raises `UsageError`."""
    try:
        return strict_json(text) if text is not None else None
    except ValueError as error:
        raise UsageError(f"the payload {text!r} is no JSON ({error}); a text needs quotes: '\"text\"'") from None
