"""Values of classes that the engine cannot take apart by itself: how they become plain data, and come back."""

from __future__ import annotations

import inspect
from typing import Any, ClassVar

__all__ = ["ValueAdapter"]


class ValueAdapter:
    """Conversion of values of a class that is no dataclass, no enum and no other kind the engine knows.

    Derive a class, set `kind`, and write `dump` and `load`, both static methods. Name the adapter in the ``uses`` of a
    procedure, or in a type hint: ``Annotated[Money, MoneyAdapter]``. Wherever the procedure keeps values (state,
    output, notes, payloads), those of exactly this class go through it, inside of containers too.
    """

    kind: ClassVar[type | tuple[type, ...]]
    """The class, or the classes, of the values; not of classes derived from them."""
    name: ClassVar[str] = ""
    """The stored name of this adapter; default: "module:qualname" of `kind`, or of the first class of several."""
    version: ClassVar[int] = 1
    """Version of what `dump` returns; raise it together with `migrate`."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not {"kind", "dump", "load"} & vars(cls).keys():  # as cloudpickle makes a class, before it fills it in
            return
        for method in ("dump", "load", "migrate"):
            found = inspect.getattr_static(cls, method)
            if not isinstance(found, staticmethod | classmethod):
                msg = f"{cls.__qualname__}.{method} must be a static method: write @staticmethod above it"
                raise TypeError(msg)
        kinds = cls.kinds()
        if not kinds or not all(isinstance(kind, type) for kind in kinds):
            msg = f"{cls.__qualname__}.kind must be the class whose values it keeps, or a tuple of classes"
            raise TypeError(msg)
        for method in ("dump", "load"):
            if getattr(cls, method) is getattr(ValueAdapter, method):
                msg = f"{cls.__qualname__} defines no {method}()"
                raise TypeError(msg)

    @classmethod
    def kinds(cls) -> tuple[type, ...]:
        """The classes of the values."""
        kind = getattr(cls, "kind", ())
        return kind if isinstance(kind, tuple) else (kind,)

    @staticmethod
    def dump(value: Any) -> Any:
        """The value as data that can be kept: texts, numbers, containers, dataclasses of the procedure's hints.

        Equal values must give equal results: two submits under one id are compared by them.

        Args:
            value: A value of `kind`.

        Returns:
            The data.
        """
        raise NotImplementedError

    @staticmethod
    def load(data: Any) -> Any:
        """The value again. An exception parks the procedure.

        Args:
            data: The data that `dump`, or `migrate`, returned.

        Returns:
            The value.
        """
        raise NotImplementedError

    @staticmethod
    def migrate(data: Any, from_version: int) -> Any:
        """Turn what an older version's `dump` returned into the input of `load`.

        Args:
            data: The data that `dump` returned then.
            from_version: `version` of the adapter then.

        Returns:
            The input of `load`.

        Raises:
            NotImplementedError: The adapter does not override this.
        """
        del data
        msg = f"a value has version {from_version}, and its adapter has no migrate()"
        raise NotImplementedError(msg)
