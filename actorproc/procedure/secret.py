"""Values that are kept and never shown.

``Secret("…")`` is a value that hides what it holds, as pydantic's SecretStr does: wherever it is printed there are
asterisks. ``Annotated[str, Secret]`` marks a field, which stays a plain string to the program, and which the engine
does not show: not in the `repr` of its procedure, and not in an export of the store.

Neither is encrypted: the store holds the value as it is. In the stored bytes it stands in an envelope of its own, so
that those who have nothing but the bytes can leave it out (`actorproc.procedure.redaction`).
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Iterable
from typing import Any, Generic, TypeVar, final

__all__ = ["HIDDEN", "Secret", "SecretField", "is_marked", "mentions_secret", "shown"]

T_co = TypeVar("T_co", covariant=True)
HIDDEN = "**********"


@final
class Secret(Generic[T_co]):
    """A value that is shown as asterisks; `reveal` gives it. As metadata, ``Annotated[str, Secret]``, it marks a field.

    It is kept in states, outputs and payloads like any other value, as it is and not encrypted.
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
    """Whether a resolved type hint is ``Annotated[…, Secret]``, a name for that, or holds it, as an optional one."""
    hint = getattr(hint, "__value__", hint)
    if any(mark is Secret or isinstance(mark, Secret) for mark in getattr(hint, "__metadata__", ())):
        return True
    return any(is_marked(part) for part in typing.get_args(hint))


def mentions_secret(cls: type) -> bool:
    """Whether annotations of this class, or of its bases, may mark a field; they need not be resolvable yet."""
    return any(
        _may_mark(annotation, base) for base in cls.__mro__ for annotation in inspect.get_annotations(base).values()
    )


def _may_mark(annotation: object, owner: type) -> bool:
    if not isinstance(annotation, str):
        return is_marked(annotation)
    scope = vars(sys.modules.get(owner.__module__, inspect))
    return "Secret" in annotation or is_marked(scope.get(annotation))


def shown(subject: Any, names: Iterable[str], secrets: frozenset[str], most: int | None = None) -> str:
    """The `repr` of an object with these fields, with asterisks for those that are secret."""
    missing = object()
    parts = []
    for name in names:
        value = getattr(subject, name, missing)
        if value is not missing:
            parts.append(f"{name}={HIDDEN if name in secrets else repr(value)[:most]}")
    return f"{type(subject).__qualname__}({', '.join(parts)})"
