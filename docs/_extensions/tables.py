"""Markdown of the reference pages, made of the code that they describe."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import enum
import importlib
import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin, get_type_hints

import msgspec

from actorproc import Config, Limits, RetryPolicy, errors
from actorproc.cli.main import GROUPS, build_parser
from actorproc.report import changes
from actorproc.report.metrics import Metrics
from actorproc.report.schema.document import KINDS

__all__ = ["TABLES", "in_words"]

_EXAMPLES = Path(__file__).parents[2] / "examples"
_LANGUAGES = {".py": "python", ".service": "ini", ".yaml": "yaml"}
_IN_BYTES = ("max_state", "max_call", "max_frame", "log_")
_UNITS = ((1024**3, "GiB"), (1024**2, "MiB"), (1024, "KiB"))
_HEADING = re.compile(r"^    # -{20,} (.+)$")
_ENTRY = re.compile(r"^    (\w+): (.*)$")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_WIDTH = 96


def in_words(name: str, default: object, annotation: str) -> str:
    """A default of `Config`, as a table has it."""
    if "Seconds" in annotation and isinstance(default, float):
        return f"{default / 86400:g} days" if default >= 86400 else f"{default:g} s"
    if name.startswith(_IN_BYTES) and isinstance(default, int):
        return next((f"{default // size} {unit}" for size, unit in _UNITS if default and not default % size), "0")
    if isinstance(default, dict):
        return "none"
    return f"{default:,}" if type(default) is int else str(default)


def settings() -> str:
    """Fields of `Config` below their headings, each with its default and its docstring."""
    config = Config()
    fields = {field.name: field for field in dataclasses.fields(Config)}
    lines: list[str] = []
    for heading, name, docstring in _fields_below_headings():
        if heading:
            lines += ["", f"## {heading}", "", "| setting | default | meaning |", "|---|---|---|"]
        default = in_words(name, getattr(config, name), str(fields[name].type))
        lines.append(f"| `{name}` | {default} | {_cell(docstring)} |")
    return "\n".join(lines)


def options(owner: type) -> Callable[[], str]:
    """A maker of the table of a class whose docstring lists its options under `Args:`."""

    def table() -> str:
        rows = [f"| `{name}` | {_cell(text)} |" for name, text in _entries(inspect.getdoc(owner) or "", "Args")]
        return "\n".join(["| option | meaning |", "|---|---|", *rows])

    return table


def commands() -> str:
    """Each command with its usage, arguments and options, in the groups of the help."""
    (found,) = (action for action in build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    helps = {choice.dest: choice.help or "" for choice in found._choices_actions}
    lines: list[str] = []
    for heading, names in GROUPS.items():
        lines += ["", f"## {heading}"]
        for name in names:
            lines += _command(name, helps.get(name, ""), found.choices[name])
    return "\n".join(lines)


def every_error() -> str:
    """The tree of errors, as the module draws it."""
    drawn = (inspect.getdoc(errors) or "").partition("::\n\n")[2].partition("\n\n")[0]
    return f"```text\n{textwrap.dedent(drawn)}\n```"


def events() -> str:
    """Kinds of each class of events, with the comments beside them."""
    source = inspect.getsource(changes)
    rows = [
        f"| `{owner}` | `{kind}` | {_cell(_comment(source, kind))} |"
        for owner, kinds in (
            ("ProcedureEvent", changes.EventKind),
            ("WorkerEvent", changes.WorkerEventKind),
            ("HostEvent", changes.HostEventKind),
            ("LeaderEvent", changes.LeaderEventKind),
        )
        for kind in get_args(kinds)
    ]
    return "\n".join(["| class | kind | note |", "|---|---|---|", *rows])


def metrics() -> str:
    """Names, labels, kinds and help of all metrics, read from the text of a snapshot that has one of everything."""
    text = _example(Metrics).prometheus()
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
    helps = dict(re.findall(r"^# HELP (\S+) (.*)$", text, re.MULTILINE))
    rows = [f"| `{name}{_labels(text, name)}` | {kind} | {_cell(helps[name])} |" for name, kind in kinds.items()]
    return "\n".join(["| metric | kind | meaning |", "|---|---|---|", *rows])


def objects() -> str:
    """Kinds of JSON objects, each with its fields."""
    lines: list[str] = []
    for kind, shape in KINDS.items():
        lines += ["", f"## {kind}", ""]
        if isinstance(shape, dict):
            base = shape.get("")
            named = [name for name in shape if name]
            fields = ", ".join(f"`{name}`" for name in named)
            lines.append(f"All fields of `{base.__name__}`, and {fields}." if base else f"Fields: {fields}.")
            continue
        documented = _documented(shape)
        lines += ["| field | type | meaning |", "|---|---|---|"]
        lines += [
            f"| `{name}` | `{_cell(kind)}` | {_cell(documented.get(name, '')) or '–'} |"
            for name, kind in _annotations(shape).items()
        ]
    return "\n".join(lines)


def examples() -> str:
    """Text of each file of the examples, below its name."""
    files = [path for path in sorted(_EXAMPLES.rglob("*")) if path.suffix in _LANGUAGES and path.name != "__init__.py"]
    return "\n".join(
        f"## {path.relative_to(_EXAMPLES).as_posix()}\n\n````{_LANGUAGES[path.suffix]}\n{path.read_text()}````\n"
        for path in files
        if "__pycache__" not in path.parts
    )


TABLES: dict[str, Callable[[], str]] = {
    "settings": settings,
    "limits": options(Limits),
    "retry-policy": options(RetryPolicy),
    "commands": commands,
    "errors": every_error,
    "events": events,
    "metrics": metrics,
    "objects": objects,
    "examples": examples,
}
"""Makers of what stands on the pages of the reference, by the word that a page uses."""


def _fields_below_headings() -> Iterator[tuple[str, str, str]]:
    """Heading (where one begins), name and docstring of each field of `Config`."""
    lines = inspect.getsource(Config).splitlines()
    headings = {number: match[1] for number, line in enumerate(lines, 1) if (match := _HEADING.match(line))}
    (body,) = ast.parse(inspect.getsource(Config)).body
    assert isinstance(body, ast.ClassDef)
    pending = sorted(headings)
    for field, text in zip(body.body, body.body[1:], strict=False):
        if not isinstance(field, ast.AnnAssign) or not isinstance(field.target, ast.Name):
            continue
        assert isinstance(text, ast.Expr)
        assert isinstance(text.value, ast.Constant)
        heading = ""
        while pending and pending[0] < field.lineno:
            heading = headings[pending.pop(0)]
        yield heading, field.target.id, str(text.value.value)


def _entries(docstring: str, section: str) -> list[tuple[str, str]]:
    found: list[tuple[str, list[str]]] = []
    for line in docstring.partition(f"\n{section}:\n")[2].splitlines():
        if entry := _ENTRY.match(line):
            found.append((entry[1], [entry[2]]))
        elif line.startswith("        "):
            found[-1][1].append(line.strip())
        elif line:
            break
    return [(name, " ".join(parts)) for name, parts in found]


def _command(name: str, said: str, parser: argparse.ArgumentParser) -> Iterable[str]:
    usage = re.sub(r"^usage: ", "", parser.format_usage())
    yield from ("", f"### actorproc {name}", "", f"{_sentence(parser.description or said)}", "")
    yield from (
        "```text",
        "\n".join(textwrap.wrap(" ".join(usage.split()), _WIDTH, subsequent_indent="    ")),
        "```",
        "",
    )
    rows = [row for action in parser._actions if action.help != argparse.SUPPRESS for row in _argument(parser, action)]
    if rows:
        yield from ("| argument | meaning |", "|---|---|", *rows)


def _argument(parser: argparse.ArgumentParser, action: argparse.Action) -> Iterator[str]:
    if "--help" in action.option_strings:
        return
    formatter = parser._get_formatter()
    named = formatter._format_action_invocation(action)
    said = formatter._expand_help(action) if action.help else ""
    yield f"| `{_COLOUR.sub('', named)}` | {_cell(said) or '–'} |"


def _sentence(text: str) -> str:
    words = " ".join(text.split())
    return f"{words[:1].upper()}{words[1:]}{'' if words.endswith('.') else '.'}"


def _comment(source: str, kind: str) -> str:
    found = re.search(rf'^    "{kind}",  # (.+)$', source, re.MULTILINE)
    return found[1] if found else ""


def _labels(text: str, name: str) -> str:
    found = re.search(rf"^{name}(?:_bucket)?\{{(.*?)\}} ", text, re.MULTILINE)
    labels = [label for label in re.findall(r'(\w+)="', found[1]) if label != "le"] if found else []
    return f"{{{','.join(labels)}}}" if labels else ""


def _documented(owner: type) -> dict[str, str]:
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: str(text.value.value)
        for field, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
    }


def _annotations(owner: type[msgspec.Struct]) -> dict[str, str]:
    """Types of the fields of a struct, as its source writes them."""
    written: dict[str, str] = {}
    for base in reversed(owner.__mro__):
        written |= {name: str(kind) for name, kind in vars(base).get("__annotations__", {}).items()}
    return {name: written.get(name, "Any") for name in owner.__struct_fields__}


def _example(kind: Any) -> Any:
    """A value of a type, with one entry in each container."""
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (typing.Union, types.UnionType):
        return _example(next(member for member in arguments if member is not type(None)))
    if origin is typing.Literal:
        return arguments[0]
    if origin is dict:
        return {_example(arguments[0]): _example(arguments[1])}
    if origin is tuple:
        return (_example(arguments[0]),)
    if inspect.isclass(kind) and issubclass(kind, msgspec.Struct):
        hints = get_type_hints(kind, vars(importlib.import_module(kind.__module__)))
        values = {name: _example(hints[name]) for name in kind.__struct_fields__}
        if kind.__name__ == "Histogram":
            values["counts"] = (0,) * (len(values["bounds"]) + 1)
        return kind(**values)
    if inspect.isclass(kind) and issubclass(kind, enum.Enum):
        return next(iter(kind))
    return kind() if kind in (int, float, str, bool, bytes, list, dict) else None


def _cell(text: str) -> str:
    """Text of a docstring as one cell of a table."""
    return re.sub(r"``([^`]*)``", r"`\1`", " ".join(text.split())).replace("|", "\\|")
