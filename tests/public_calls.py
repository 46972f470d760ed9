"""Public calls, found from `actorproc.__all__` and the protocols of backends, and the sections of their docstrings."""

from __future__ import annotations

import ast
import builtins
import concurrent.futures
import inspect
import re
import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import actorproc
from actorproc import embedding, errors, executor, testing
from actorproc.executor import futures, joblib as backend
from actorproc.store import base as store_base
from actorproc.workers import base as workers_base

if TYPE_CHECKING:
    from collections.abc import Iterator

_SECTION = re.compile(r"^(Args|Returns|Raises|Yields):$")
_ENTRY = re.compile(r"^ {4}(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*):(?: |$)")
_PART = re.compile(r"\n\s*\n|\n\s+(?=[\w*]+: )|\n\s*- |::\n")
_SENTENCE = re.compile(r"(?<=[.;:])\s+")
_HOMES_OF_ERRORS = (builtins, errors, executor, concurrent.futures, testing)
_NOTHING = {"None", "NoReturn", "Never"}
_MODULES = (store_base, workers_base, embedding, futures, backend)


class Call(NamedTuple):
    """One public function, method or constructor."""

    name: str
    function: Any
    owner: type | None
    """Class of a method."""

    @property
    def is_constructor(self) -> bool:
        return self.function.__name__ == "__init__"

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters of a caller, in their order."""
        names = list(inspect.signature(self.function).parameters)
        is_bound = self.owner is not None and names[:1] in (["self"], ["cls"])
        return [name for name in names[is_bound:] if not name.startswith("_")]

    @property
    def docstring(self) -> str:
        """Docstring of the call; that of a class speaks for its constructor too."""
        of_class = inspect.getdoc(self.owner) or "" if self.is_constructor else ""
        return f"{of_class}\n\n{inspect.getdoc(self.function) or ''}"

    @property
    def returns(self) -> bool:
        """True if a caller gets something else than None."""
        annotation = inspect.signature(self.function).return_annotation
        return not self.is_constructor and annotation is not inspect.Signature.empty and annotation not in _NOTHING


def public_calls() -> list[Call]:
    """All of them, each function once, in the order of their names."""
    found: dict[Any, Call] = {}
    for thing in _public_things():
        for call in _calls_of(thing):
            found.setdefault(call.function.__code__, call)
    return sorted(found.values(), key=lambda call: call.name)


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
    has = sections(call.docstring)
    documented, known = has.get("Args", []), call.parameters
    wanted = [name for name in known if name != "ctx"]
    raised = raised_by(call.function) - set(has.get("Raises", ()))
    return [
        *(f"{call.name}: Args lacks {name}" for name in wanted if name not in documented),
        *(f"{call.name}: Args names {name}, which is no parameter" for name in documented if name not in known),
        *([f"{call.name}: no Returns"] if wanted and call.returns and not {"Returns", "Yields"} & set(has) else []),
        *(f"{call.name}: Raises lacks {name}" for name in sorted(raised)),
    ]


def sentences(docstring: str) -> list[str]:
    """Sentences of a docstring; headings, entries of lists and of sections are sentences of their own."""
    parts = _PART.split(docstring)
    return [found for part in parts for found in _SENTENCE.split(" ".join(part.split())) if found]


def unknown_errors(call: Call) -> list[str]:
    """Names under `Raises:` that no module has which a caller may import errors from."""
    named = sections(call.docstring).get("Raises", [])
    return [name for name in named if not any(hasattr(module, name) for module in _HOMES_OF_ERRORS)]


def raised_by(function: Any) -> set[str]:
    """Typed errors of the package that a body raises itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    raised = [node.exc for node in ast.walk(tree) if isinstance(node, ast.Raise) and node.exc is not None]
    names = [exc.func if isinstance(exc, ast.Call) else exc for exc in raised]
    return {name.id for name in names if isinstance(name, ast.Name) and _is_error(name.id)}


def docstrings_of_fields(owner: type) -> dict[str, str]:
    """Text below each annotated field of a class, by the field's name."""
    body = ast.parse(textwrap.dedent(inspect.getsource(owner))).body[0]
    assert isinstance(body, ast.ClassDef)
    return {
        field.target.id: text.value.value
        for field, text in zip(body.body, body.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(text, ast.Expr)
        and isinstance(text.value, ast.Constant)
        and isinstance(text.value.value, str)
    }


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
    for name in vars(owner):
        function = _function_of(getattr(owner, name))
        is_constructor = name == "__init__" and not issubclass(owner, BaseException)
        if function is not None and (is_constructor or not name.startswith("_")) and _is_written(function):
            yield Call(f"{owner.__module__}.{owner.__qualname__}.{name}", function, owner)


def _function_of(member: Any) -> Any:
    member = getattr(member, "__func__", member)
    return inspect.unwrap(member) if inspect.isfunction(member) else None


def _is_written(function: Any) -> bool:
    """Generated constructors of data classes have no source; their fields speak for them."""
    return not function.__code__.co_filename.startswith("<") and function.__module__.startswith("actorproc")


def _is_error(name: str) -> bool:
    kind = getattr(errors, name, None)
    return isinstance(kind, type) and issubclass(kind, Exception)
