"""Public calls, found from `actorproc.__all__` and the protocols of backends, and the sections of their docstrings."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import actorproc
from actorproc import embedding, errors, testing
from actorproc.executor import futures, joblib as backend
from actorproc.store import base as store_base
from actorproc.workers import base as workers_base

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECTION = re.compile(r"^(Args|Returns|Raises|Yields):$")
_ENTRY = re.compile(r"^ {4}(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*):(?: |$)")
_UNNAMED = {"self", "cls", "ctx"}
_NOTHING = {"None", "NoReturn", "Never"}
_MODULES = (store_base, workers_base, embedding, futures, backend)


class Call(NamedTuple):
    """One public function, method or constructor."""

    name: str
    function: Any
    owner: type | None
    """Class whose docstring may speak for its constructor."""


def public_calls() -> list[Call]:
    """All of them, each function once, in the order of their names."""
    found: dict[Any, Call] = {}
    for thing in _public_things():
        for call in _calls_of(thing):
            found.setdefault(call.function.__code__, call)
    return sorted(found.values(), key=lambda call: call.name)


def parameters(call: Call) -> set[str]:
    """Names of a call's parameters, but for those that the engine or Python passes."""
    names = inspect.signature(call.function).parameters
    return {name for name in names if name not in _UNNAMED and not name.startswith("_")}


def sections(docstring: str) -> dict[str, list[str]]:
    """Entries of each section of a docstring in Google's form; a section of plain text has none."""
    found: dict[str, list[str]] = {}
    current = ""
    for line in docstring.splitlines():
        if heading := _SECTION.match(line):
            current = heading[1]
            found[current] = []
        elif line and not line.startswith(" "):
            current = ""
        elif current and (entry := _ENTRY.match(line)):
            found[current] += [name.lstrip("*").rpartition(".")[2] for name in entry[1].split(", ")]
    return found


def missing(call: Call) -> list[str]:
    """Sections and entries that the docstring of a call lacks, or has too many of, in words."""
    has = sections(_docstring(call))
    wanted, documented = parameters(call), set(has.get("Args", ()))
    raised = raised_by(call.function) - set(has.get("Raises", ()))
    return [
        *(f"{call.name}: Args lacks {name}" for name in sorted(wanted - documented)),
        *(f"{call.name}: Args names {name}, which is no parameter" for name in sorted(documented - wanted)),
        *([f"{call.name}: no Returns"] if wanted and _returns(call) and not {"Returns", "Yields"} & set(has) else []),
        *(f"{call.name}: Raises lacks {name}" for name in sorted(raised)),
    ]


def raised_by(function: Any) -> set[str]:
    """Typed errors of the package that a body raises itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
    names = [exc.func if isinstance(exc, ast.Call) else exc for exc in raised]
    return {name.id for name in names if isinstance(name, ast.Name) and _is_error(name.id)}


def _public_things() -> Iterator[Any]:
    for package in (actorproc, testing):
        yield from (getattr(package, name) for name in package.__all__)
    for module in _MODULES:
        yield from (
            thing
            for name, thing in vars(module).items()
            if not name.startswith("_") and getattr(thing, "__module__", "") == module.__name__
        )


def _calls_of(thing: Any) -> Iterator[Call]:
    if inspect.isfunction(thing):
        function = inspect.unwrap(thing)
        yield Call(function.__qualname__, function, None)
    elif inspect.isclass(thing):
        for owner in thing.__mro__:
            if owner.__module__.startswith("actorproc"):
                yield from _methods_of(owner)


def _methods_of(owner: type) -> Iterator[Call]:
    if owner.__name__.startswith("_"):
        return
    for name, member in vars(owner).items():
        function = _function_of(member)
        is_constructor = name == "__init__" and not issubclass(owner, BaseException)
        if function is not None and (is_constructor or not name.startswith("_")) and _is_written(function):
            yield Call(f"{owner.__module__}.{owner.__qualname__}.{name}", function, owner if is_constructor else None)


def _function_of(member: Any) -> Any:
    if isinstance(member, (staticmethod, classmethod)):
        member = member.__func__
    return inspect.unwrap(member) if inspect.isfunction(member) else None


def _is_written(function: Any) -> bool:
    """Generated constructors of data classes have no source; their fields speak for them."""
    return not function.__code__.co_filename.startswith("<") and function.__module__.startswith("actorproc")


def _docstring(call: Call) -> str:
    of_class = inspect.getdoc(call.owner) or "" if call.owner else ""
    return f"{of_class}\n\n{inspect.getdoc(call.function) or ''}"


def _returns(call: Call) -> bool:
    annotation = inspect.signature(call.function).return_annotation
    return call.owner is None and annotation is not inspect.Signature.empty and str(annotation) not in _NOTHING


def _is_error(name: str) -> bool:
    kind = getattr(errors, name, None)
    return isinstance(kind, type) and issubclass(kind, Exception)
