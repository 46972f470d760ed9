"""The classes a procedure's values may be made of: what its type hints reach.

The stored bytes name classes; only those reached from the hints (and from ``uses``) are ever looked up, so
what the store says is never imported.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from actorproc.procedure.values.adapters import ValueAdapter
from actorproc.procedure.values.fields import declared_fields
from actorproc.procedure.values.kinds.pydantic import hints_of_model, is_model
from actorproc.procedure.values.secrets.secret import SecretField
from actorproc.procedure.values.secrets.secret_hints import Hide, alias_in, hide_text, hiding

__all__ = ["reachable_classes", "resolved_hints", "secret_fields", "unresolved_hints"]

_DATA = (str, bytes, int)
"""Types that a `Literal` may hold beside members of enums."""


def reachable_classes(owner: type, functions: Iterable[Callable[..., Any]], uses: Iterable[Any]) -> tuple[type, ...]:
    """Enums, classes with declared fields, and adapters that the hints of ``owner``, ``functions`` and ``uses`` reach.

    Order is that of discovery. A hint that cannot be resolved (a name that exists only for type checkers, or
    only in a function) is passed over. Values of its classes are then refused with `StateNotEncodable`.
    """
    found: dict[type, None] = {}
    names: list[Any] = []
    pending: list[Any] = [*_hints_of(owner), *uses]
    for function in functions:
        pending.extend(resolved_hints(function, with_marks=True).values())
    while pending:
        hint: Any = pending.pop(0)
        if not isinstance(hint, type) or typing.get_origin(hint) is not None:
            pending.extend(_parts(hint, names))
            continue
        if hint in found or hint is owner:
            continue
        if issubclass(hint, Enum | ValueAdapter):
            found[hint] = None
        elif declared_fields(hint) is not None:
            found[hint] = None
            pending.extend(_hints_of(hint))
    return tuple(found)


def _hints_of(cls: type) -> Iterator[Any]:
    """Annotations of a class, and the values of the type variables of generic ones among its bases."""
    yield from resolved_hints(cls, with_marks=True).values()
    if is_model(cls):
        yield from hints_of_model(cls)
    for base in cls.__mro__:
        for generic in base.__dict__.get("__orig_bases__", ()):
            yield from typing.get_args(generic)


def secret_fields(owner: Any) -> dict[str, Hide]:
    """Fields that annotations of a class (bases included) or function call secret, and what hides their values.

    One that cannot be resolved and speaks of ``Annotated`` and ``Secret`` counts as marked.
    """
    found: dict[str, Hide] = {}
    known = resolved_hints(owner, with_marks=True)
    for name, hint in (known if isinstance(owner, type) else _of_parameters(owner, known)).items():
        with contextlib.suppress(Exception):  # a name of a type that stands for what is not there says nothing
            hide = hiding(hint)
            if hide is not None:
                found[name] = hide
    for source in owner.__mro__ if isinstance(owner, type) else (inspect.unwrap(owner),):
        for name, annotation in inspect.get_annotations(source).items():
            if name not in known and isinstance(annotation, str) and "Secret" in annotation:
                found[name] = SecretField if "Annotated" in annotation else hide_text
    return found


def _of_parameters(function: Callable[..., Any], hints: Mapping[str, Any]) -> dict[str, Any]:
    """Hints of what parameters hold: ``*args`` a tuple, ``**kwargs`` a dict."""
    held = dict(hints)
    for name, parameter in inspect.signature(function).parameters.items():
        if name in hints and parameter.kind is parameter.VAR_POSITIONAL:
            held[name] = types.GenericAlias(tuple, (hints[name], ...))
        elif name in hints and parameter.kind is parameter.VAR_KEYWORD:
            held[name] = types.GenericAlias(dict, (str, hints[name]))
    return held


def resolved_hints(subject: Any, *, with_marks: bool = False) -> dict[str, Any]:
    """The annotations of a class (bases included) or function that can be resolved, by name.

    `with_marks`: with what ``Annotated`` says beside the type.
    """
    try:
        return typing.get_type_hints(subject, include_extras=with_marks)
    except Exception:  # noqa: BLE001 - any annotation may fail to evaluate in any way; then one by one
        return dict(_one_by_one(subject, with_marks=with_marks))


def unresolved_hints(subjects: Iterable[Any]) -> Iterator[tuple[str, str]]:
    """The annotations of these classes and functions that do not resolve: place and text, for a message."""
    for subject in subjects:
        known = resolved_hints(subject)
        for source in subject.__mro__ if isinstance(subject, type) else (inspect.unwrap(subject),):
            for name, annotation in inspect.get_annotations(source).items():
                if name not in known:
                    yield (
                        f"{subject.__qualname__}.{name}",
                        annotation if isinstance(annotation, str) else f"{annotation}",
                    )


def _one_by_one(subject: Any, *, with_marks: bool) -> Iterator[tuple[str, Any]]:
    sources = reversed(subject.__mro__) if isinstance(subject, type) else (inspect.unwrap(subject),)
    for source in sources:
        scope = dict(vars(sys.modules.get(getattr(source, "__module__", ""), typing)))
        scope.update(getattr(source, "__globals__", {}))
        for name, annotation in inspect.get_annotations(source).items():
            yield from _evaluated(name, annotation, scope, with_marks=with_marks)


def _evaluated(name: str, annotation: Any, scope: dict[str, Any], *, with_marks: bool) -> Iterator[tuple[str, Any]]:
    # get_type_hints takes anything that has annotations: one at a time, so that one failure costs one name.
    carrier = types.SimpleNamespace(__annotations__={name: annotation})
    with contextlib.suppress(Exception):
        yield name, typing.get_type_hints(carrier, globalns=scope, include_extras=with_marks)[name]


def _parts(hint: Any, names: list[Any]) -> tuple[Any, ...]:
    """Parts of a hint that is no class; `names` are the names of types that were looked up already."""
    if isinstance(hint, Enum):  # a member, in a Literal
        return (type(hint),)
    if isinstance(hint, typing.TypeVar):
        bound = () if hint.__bound__ is None else (hint.__bound__,)
        return (*hint.__constraints__, *bound)
    if isinstance(hint, typing.NewType):
        return (hint.__supertype__,)
    if hasattr(hint, "__metadata__"):
        marks = (mark for mark in hint.__metadata__ if isinstance(mark, type) and issubclass(mark, ValueAdapter))
        return (hint.__origin__, *marks)
    arguments = tuple(part for part in typing.get_args(hint) if isinstance(part, Enum) or not isinstance(part, _DATA))
    origin = typing.get_origin(hint)
    if isinstance(origin, type):
        return (*arguments, origin)
    name = alias_in(hint)
    if name is not None and name not in names:
        names.append(name)  # it may stand for one with itself in it
        with contextlib.suppress(Exception):  # it is evaluated only now
            return (*arguments, name.__value__)
    return arguments
