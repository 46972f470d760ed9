"""Values that are kept and never shown.

``Secret("…")`` is a value that hides its content, as pydantic's SecretStr does: wherever it is printed there are
asterisks. ``Annotated[str, Secret]`` marks a field, which stays a plain string to the program. The engine shows it
neither in the `repr` of its procedure nor in an export of the store.

Neither is encrypted: the store holds the value as it is. In the stored bytes it stands in an envelope of its own, so
that readers of the bytes alone can leave it out (`actorproc.procedure.values.redaction`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, TypeVar, final

__all__ = ["HIDDEN", "Secret", "SecretField", "shown"]

T_co = TypeVar("T_co", covariant=True)
HIDDEN = "**********"


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
    """On the way to the stored bytes or to a `repr`: a plain value that is secret by the hint of its field."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        self.value = value

    def __repr__(self) -> str:
        return HIDDEN


def shown(
    subject: Any, names: Iterable[str], secrets: Mapping[str, Callable[[Any], Any]], most: int | None = None
) -> str:
    """The `repr` of an object with these fields, with asterisks for what is secret in them."""
    missing = object()
    parts = []
    for name in names:
        value = getattr(subject, name, missing)
        if value is not missing:
            hide = secrets.get(name)
            parts.append(f"{name}={repr(value if hide is None else hide(value))[:most]}")
    return f"{type(subject).__qualname__}({', '.join(parts)})"
