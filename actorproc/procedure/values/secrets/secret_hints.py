"""Type hints that call a field secret: ``Annotated[str, Secret]``, ``Secret[str]``, and what is made of them.

A field has one function that hides what is secret in its value, worked out once. It consists of functions of this
module, since a class that is sent to a worker by value takes it along.
"""

from __future__ import annotations

import inspect
import re
import sys
import types
import typing
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain, repeat
from typing import Any

from actorproc.procedure.values.secrets.secret import Secret, SecretField

__all__ = ["Hide", "alias_in", "hide_text", "hiding", "mentions_secret"]

Hide = Callable[[Any], Any]
"""Gives the value of a field with what is secret in it as a `SecretField`."""
_NAME = re.compile(r"[\w.]+")


def hiding(hint: Any) -> Hide | None:
    """The function that hides what a resolved type hint calls secret; None: it calls nothing so.

    ``Annotated[…, Secret]``, a name for that, or what holds it, as an optional one: all of the value. ``Secret[str]``,
    and what is made of it, as ``list[Secret[str]]``: plain values that are in the place of a `Secret`, as a command
    line gives them. None, and a `Secret` itself, stay what they are.

    Raises whatever the evaluation of a name of a type raises (``type Password = …``): it happens here.
    """
    return SecretField if any(map(_is_marked, _parts_of(hint))) else _rule(hint)


def _is_marked(part: Any) -> bool:
    return any(mark is Secret or isinstance(mark, Secret) for mark in getattr(part, "__metadata__", ()))


def _is_secret(part: Any) -> bool:
    return part is Secret or typing.get_origin(part) is Secret


def _parts_of(hint: Any) -> Iterator[Any]:
    """The hint, and all that it is made of."""
    names: list[object] = []
    pending: list[Any] = [hint]
    while pending:
        part = pending.pop()
        yield part
        pending += typing.get_args(part)
        if isinstance(part, typing.NewType):
            pending.append(part.__supertype__)
        name = alias_in(part)
        if name is not None and name not in names:
            names.append(name)  # a name of a type may stand for one with itself in it
            pending.append(name.__value__)


def _rule(hint: Any, names: tuple[Any, ...] = ()) -> Hide | None:
    """The function that hides plain values in the places of secrets; `names` are the names of types around it."""
    if not any(map(_is_secret, _parts_of(hint))):
        return None
    if _is_secret(hint):
        return _hide
    name, origin, parts = alias_in(hint), typing.get_origin(hint), typing.get_args(hint)
    if name is not None:  # one with itself in it hides the inner ones as a whole
        return _hide if name in names else _rule(_meaning(name, parts), (*names, name))
    if isinstance(hint, typing.NewType):
        return _rule(hint.__supertype__, names)
    if origin in (typing.Union, types.UnionType):
        first = sorted(parts, key=lambda part: (not typing.get_args(part) or _is_secret(part), not _is_secret(part)))
        return partial(_hide_one_of, tuple((_class_of(part), _rule(part, names)) for part in first))
    rules = [_rule(part, names) for part in parts]
    if origin is tuple and parts[-1] is not ...:
        return partial(_hide_places, tuple(rules))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return partial(_hide_entries, rules[0], rules[1] if len(rules) > 1 else None)
    if rules[0] is not None and isinstance(origin, type) and issubclass(origin, Iterable):
        return partial(_hide_items, rules[0])
    return rules[0] if hasattr(hint, "__metadata__") or origin in (typing.Final, typing.ClassVar) else None


def _meaning(name: Any, arguments: tuple[Any, ...]) -> Any:
    """The type that a name stands for, with these arguments."""
    value, given = name.__value__, dict(zip(name.__type_params__, arguments, strict=False))
    wanted = getattr(value, "__parameters__", ())
    return value[tuple(given.get(one, one) for one in wanted)] if wanted else given.get(value, value)


def _class_of(part: Any) -> Any:
    """Classes of the plain values that a part of a union takes; () when that cannot be told."""
    if _is_secret(part):
        inside = [_class_of(one) for one in typing.get_args(part)]
        return inside[0] if inside and inside[0] else (str, bytes)
    name = alias_in(part)
    found = _meaning(name, typing.get_args(part)) if name is not None else part
    found = found if isinstance(found, type) and typing.get_origin(found) is None else typing.get_origin(found)
    return found if isinstance(found, type) and not getattr(found, "_is_protocol", False) else ()


def _hide(value: Any) -> Any:
    # Secrets of pydantic have envelopes of their own.
    return value if value is None or hasattr(value, "get_secret_value") else SecretField(value)


def hide_text(value: Any) -> Any:
    """Hide a text; anything else stays: for a hint that speaks of `Secret` and cannot be resolved."""
    return SecretField(value) if isinstance(value, str | bytes) else value


def _hide_one_of(parts: tuple[tuple[Any, Hide | None], ...], value: Any) -> Any:
    if value is None or type(value) is Secret:
        return value
    for kind, rule in parts:
        if isinstance(value, kind):
            return value if rule is None else rule(value)
    return _hide(value)


def _hide_items(rule: Hide, value: Any) -> Any:
    if type(value) in (list, tuple, set, frozenset):
        return type(value)(map(rule, value))
    return deque(map(rule, value), value.maxlen) if type(value) is deque else _hide(value)


def _hide_places(rules: tuple[Hide | None, ...], value: Any) -> Any:
    if type(value) not in (list, tuple):
        return _hide(value)
    pairs = zip(chain(rules, repeat(_hide)), value, strict=False)
    return type(value)(part if rule is None else rule(part) for rule, part in pairs)


def _hide_entries(keys: Hide | None, values: Hide | None, value: Any) -> Any:
    if type(value) not in (dict, defaultdict, OrderedDict, Counter):
        return _hide(value)
    pairs = {
        key if keys is None else keys(key): part if values is None else values(part) for key, part in value.items()
    }
    return defaultdict(value.default_factory, pairs) if type(value) is defaultdict else type(value)(pairs)


def alias_in(hint: object) -> Any:
    """The name of a type that a hint is or, where that is generic, is made of; None when it is none.

    As Python 3.12 has them: ``type Shape = Circle | Square``. The type behind it, its ``__value__``, is evaluated only
    on demand.
    """
    name = typing.get_origin(hint) or hint
    return name if type(name) is getattr(typing, "TypeAliasType", None) else None


def mentions_secret(cls: type) -> bool:
    """True if annotations of this class, or of its bases, may call a field secret; they need not be resolvable yet."""
    return any(
        _may_mark(annotation, base) for base in cls.__mro__ for annotation in inspect.get_annotations(base).values()
    )


def _may_mark(annotation: object, owner: type) -> bool:
    if isinstance(annotation, typing.ForwardRef):  # as a NamedTuple keeps texts
        annotation = annotation.__forward_arg__
    if not isinstance(annotation, str):
        try:
            return hiding(annotation) is not None
        except Exception:  # noqa: BLE001 - a name of a type may stand for what is not there yet
            return True
    scope = vars(sys.modules.get(owner.__module__, inspect))
    named = [_named(path, scope) for path in _NAME.findall(annotation)]
    return "Secret" in annotation or any(_may_mark(hint, owner) for hint in named if not isinstance(hint, str))


def _named(path: str, scope: dict[str, Any]) -> Any:
    name, *attributes = path.split(".")
    found = scope.get(name)
    for attribute in attributes:
        found = getattr(found, attribute, None)
    return found
