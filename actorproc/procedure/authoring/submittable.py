"""The base of `Procedure` that other modules of this package may name without importing it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

__all__ = ["R_co", "Submittable"]

if TYPE_CHECKING:
    R_co = TypeVar("R_co", covariant=True, default=Any)  # checkers know defaults; Python does from 3.13 on
    """The output of a procedure: ``class Order(Saga[str])``."""

    class Submittable(Generic[R_co]):
        """A procedure, as `Status` sees it: it is told from other values, and nothing of it is called."""

        __slots__ = ()

else:
    R_co = TypeVar("R_co", covariant=True)

    class Submittable:
        """A procedure, as `Status` sees it: it is told from other values, and nothing of it is called."""

        __slots__ = ()

        def __class_getitem__(cls, parameters: Any) -> Any:
            """The class itself: what stands in the brackets is for type checkers, unless the class is generic."""
            return super().__class_getitem__(parameters) if issubclass(cls, Generic) else cls
