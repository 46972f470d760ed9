"""Settings from the environment and from files, as values of the fields of a settings class."""

from __future__ import annotations

import dataclasses
import difflib
import json
import math
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["from_environment", "from_file"]

PREFIX = "ACTORPROC_"
OTHERS = frozenset({"PATH", "OUTPUT", "CONFIG"})
"""Variables with the prefix that are no settings."""
_OURS = ("DEMO", "TORTURE", "WEB", "POSTGRES")
"""Beginnings of names that commands use among themselves."""
_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_BYTES = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
_FLAGS = {**dict.fromkeys(("1", "true", "yes", "on"), True), **dict.fromkeys(("0", "false", "no", "off"), False)}
_NUMBER = re.compile(r"\s*([-+]?[0-9_.]+(?:[eE][-+]?[0-9]+)?|inf)\s*([A-Za-z]*)\s*")


def from_environment(kind: type, environ: Mapping[str, str]) -> dict[str, Any]:
    """Settings among the variables of the environment. Raises `ValueError`."""
    names = {field.name.upper(): field.name for field in dataclasses.fields(kind)}
    found: dict[str, Any] = {}
    for variable in sorted(environ):
        if not variable.startswith(PREFIX) or not environ[variable]:
            continue
        name = variable.removeprefix(PREFIX)
        if name in names:
            found[names[name]] = _value(kind, names[name], environ[variable], f"the variable {variable}")
        elif name not in OTHERS and not name.startswith(_OURS):
            msg = f"the variable {variable} is no setting{_meant(name, names, PREFIX)}"
            raise ValueError(msg)
    return found


def from_file(kind: type, file: Path | None, directory: Path) -> dict[str, Any]:
    """Settings of a file: the given one, else actorproc.toml or pyproject.toml of the directory, if there is one.

    Raises `ValueError` for what cannot be read, and `OSError` for a given file that is not there.
    """
    if file is None:
        own = directory / "actorproc.toml"
        file = own if own.is_file() else directory / "pyproject.toml"
        if not file.is_file():
            return {}
    try:
        said: Any = tomllib.loads(file.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        msg = f"{file} is no TOML: {error}"
        raise ValueError(msg) from error
    where = str(file)
    if file.name == "pyproject.toml":
        tools, where = said.get("tool"), f"{file} [tool.actorproc]"
        said = tools.get("actorproc", {}) if isinstance(tools, dict) else {}
        if not isinstance(said, dict):
            msg = f"{file} has tool.actorproc = {said!r:.40}; it must be a table of settings, [tool.actorproc]"
            raise ValueError(msg)
    names = [field.name for field in dataclasses.fields(kind)]
    unknown = next((name for name in said if name not in names), None)
    if unknown is not None:
        msg = f"{where} has {unknown!r}, which is no setting{_meant(unknown, names)}"
        raise ValueError(msg)
    return {name: _value(kind, name, value, f"{name} in {where}") for name, value in said.items()}


def _meant(name: str, known: Any, prefix: str = "") -> str:
    near = difflib.get_close_matches(name, list(known), 1, 0.6)
    return f"; did you mean {prefix}{near[0]}?" if near else "; the settings are the fields of actorproc.Config"


def _value(kind: type, name: str, given: Any, what: str) -> Any:
    """A text, or a value of TOML, as the field has it."""
    wanted = str(next(field.type for field in dataclasses.fields(kind) if field.name == name))
    may_be_none = "None" in wanted or wanted == "OptionalSeconds"
    if may_be_none and isinstance(given, str) and given.strip().lower() == "none":
        return None
    try:
        return _converted(wanted, given)
    except (ValueError, TypeError, AttributeError) as error:
        shown = "no key" if wanted.startswith("bytes") else f"{given!r:.80}"  # what is wrong in a key is secret as well
        msg = f"{what} is {shown}: {error or 'that is no value of it'}"
        raise ValueError(msg) from None


def _converted(wanted: str, given: Any) -> Any:
    if wanted.startswith("Mapping"):
        return _mapping(wanted, given)
    if wanted.startswith("bytes"):
        keys = given.split(",") if isinstance(given, str) else given
        decoded = tuple(_hex(key) for key in keys)
        return decoded[0] if len(decoded) == 1 else decoded
    if wanted.startswith("tuple"):
        parts = given.split(",") if isinstance(given, str) else given
        return tuple(str(part).strip() for part in parts)
    if not isinstance(given, str):
        return given
    if wanted == "bool":
        if given.strip().lower() not in _FLAGS:
            raise ValueError("write true or false")
        return _FLAGS[given.strip().lower()]
    if wanted in {"Seconds", "OptionalSeconds"}:
        return seconds(given)
    return whole(given) if wanted.startswith("int") else given


def _mapping(wanted: str, given: Any) -> Any:
    if isinstance(given, str):
        try:
            given = json.loads(given)
        except json.JSONDecodeError:
            raise ValueError('write an object of JSON, as {"mail": 3}') from None
    if not isinstance(given, dict):
        raise TypeError("write a table of names, as {mail = 3}")
    if "tuple" not in wanted:
        return given
    return {key: _rate(value) for key, value in given.items()}


def _rate(value: Any) -> Any:
    if not isinstance(value, list) or len(value) != 2:
        raise ValueError('write a number and a duration, as [100, "1m"]')
    count, span = value
    return count, seconds(span) if isinstance(span, str) else span


def _hex(text: Any) -> bytes:
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError):
        raise ValueError("write a key as hexadecimal digits") from None


def _scaled(text: str, units: Mapping[str, float], example: str) -> float:
    match = _NUMBER.fullmatch(text)
    if match is None or match[2] not in units:
        msg = f"write {example}"
        raise ValueError(msg)
    return math.inf if match[1] == "inf" else float(match[1].replace("_", "")) * units[match[2]]


def seconds(text: str) -> float:
    """A duration: seconds, or a number with ms, s, m, h or d. Raises `ValueError`."""
    return _scaled(text, _UNITS, "a duration: 30, 30s, 5m, 2h, 7d")


def whole(text: str) -> int:
    """A whole number, or a size with KiB, MiB or GiB. Raises `ValueError`."""
    number = _scaled(text, _BYTES, "a whole number, or a size: 16777216, 16MiB")
    if number != number // 1:
        raise ValueError("write a whole number")
    return int(number)
