"""Values that are kept and never shown.

``Secret("…")`` is a value that hides its content, as pydantic's SecretStr does: wherever it is printed there are
asterisks. ``Annotated[str, Secret]`` marks a field, which stays a plain string to the program. The engine shows it
neither in the `repr` of its procedure nor in an export of the store.

Neither is encrypted: the store holds the value as it is. In the stored bytes it stands in an envelope of its own, so
that readers of the bytes alone can leave it out (`actorproc.procedure.values.redaction`).
"""

from __future__ import annotations

import inspect
import re
import sys
import typing
from collections.abc import Iterable
from typing import Any, Generic, TypeVar, final

__all__ = ["HIDDEN", "Secret", "SecretField", "alias_in", "is_marked", "mentions_secret", "shown"]

T_co = TypeVar("T_co", covariant=True)
HIDDEN = "**********"
_NAME = re.compile(r"[\w.]+")


@final
class Secret(Generic[T_co]):
    """A value that is shown as asterisks; `reveal` gives it. As metadata, ``Annotated[str, Secret]``, it marks a field.

    It is kept in states, outputs and payloads like any other value, as it is and not encrypted. The idea is pydantic's
    ``SecretStr``.

    Args:
        value: The value.
    """

    __slots__ = ("_value",)

    def __init__(self, value: T_co) -> None:
        self._value = value

    def reveal(self) -> T_co:
        """The value itself."""
        return self._value

    get_secret_value = reveal
    """As pydantic's SecretStr calls it."""

    def __repr__(self) -> str:
        return f"Secret({HIDDEN!r})"

    def __str__(self) -> str:
        return HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and bool(self._value == other._value)

    def __hash__(self) -> int:
        return hash((Secret, self._value))


@final
class SecretField:
    """On the way to the stored bytes: the plain value of a marked field."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value


def is_marked(hint: object) -> bool:
    """True if a resolved type hint is ``Annotated[…, Secret]``, a name for that, or holds it, as an optional one.

    Raises whatever the evaluation of a name of a type raises (``type Password = …``): it happens here.
    """
    names: list[object] = []
    pending: list[Any] = [hint]
    while pending:
        part = pending.pop()
        if any(mark is Secret or isinstance(mark, Secret) for mark in getattr(part, "__metadata__", ())):
            return True
        pending += typing.get_args(part)
        name = alias_in(part)
        if name is not None and name not in names:
            names.append(name)  # a name of a type may stand for one with itself in it
            pending.append(name.__value__)
    return False


def alias_in(hint: object) -> Any:
    """The name of a type that a hint is or, where that is generic, is made of; None when it is none.

    As Python 3.12 has them: ``type Shape = Circle | Square``. The type behind it, its ``__value__``, is evaluated only
    on demand.
    """
    name = typing.get_origin(hint) or hint
    return name if type(name) is getattr(typing, "TypeAliasType", None) else None


def mentions_secret(cls: type) -> bool:
    """True if annotations of this class, or of its bases, may mark a field; they need not be resolvable yet."""
    return any(
        _may_mark(annotation, base) for base in cls.__mro__ for annotation in inspect.get_annotations(base).values()
    )


def _may_mark(annotation: object, owner: type) -> bool:
    if not isinstance(annotation, str):
        try:
            return is_marked(annotation)
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


def shown(subject: Any, names: Iterable[str], secrets: frozenset[str], most: int | None = None) -> str:
    """The `repr` of an object with these fields, with asterisks for those that are secret."""
    missing = object()
    parts = []
    for name in names:
        value = getattr(subject, name, missing)
        if value is not missing:
            parts.append(f"{name}={HIDDEN if name in secrets else repr(value)[:most]}")
    return f"{type(subject).__qualname__}({', '.join(parts)})"
