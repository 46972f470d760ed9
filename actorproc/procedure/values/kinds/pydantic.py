"""Models of pydantic (version 2) as values: their fields, known without loading pydantic."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["MODEL_PARTS", "build_model", "hints_of_model", "is_model", "model_defaults", "model_fields"]

MODEL_PARTS = ("__pydantic_extra__", "__pydantic_fields_set__", "__pydantic_private__")
"""Parts of a model beside its fields."""
_set = object.__setattr__


def is_model(cls: type) -> bool:
    """A class derived from pydantic's BaseModel (that one is none, having no fields)."""
    return any(base.__module__ == "pydantic.main" and base.__qualname__ == "BaseModel" for base in cls.__mro__[1:])


def model_fields(cls: Any) -> dict[str, Any]:
    """The fields with pydantic's description of each."""
    found: dict[str, Any] = cls.model_fields
    return found


def model_defaults(cls: Any, *, late: bool) -> dict[str, Callable[..., Any]]:
    """Makers of the default values of the fields that have one.

    `late`: those that are handed the model with its other fields; else those that are handed nothing.
    """
    found: dict[str, Callable[..., Any]] = {}
    for name, field in model_fields(cls).items():
        takes_data = getattr(field, "default_factory_takes_validated_data", False)
        if field.is_required() or bool(takes_data) is not late:
            continue
        found[name] = functools.partial(_late_default if late else _default, field)
    return found


def _default(field: Any) -> Any:
    return field.get_default(call_default_factory=True)


def _late_default(field: Any, made: Any) -> Any:
    return field.get_default(call_default_factory=True, validated_data=dict(vars(made)))


def hints_of_model(cls: Any) -> Iterator[Any]:
    """The hints of the fields as pydantic resolved them, those of a parametrised model in place of its variables."""
    for field in model_fields(cls).values():
        yield field.annotation
    generic = getattr(cls, "__pydantic_generic_metadata__", None) or {}
    if generic.get("origin") is not None:
        yield generic["origin"]
    yield from generic.get("args") or ()


def build_model(cls: Any, values: Mapping[str, Any], parts: tuple[Any, Any, Any] | None = None) -> Any:
    """A model with these fields. Neither validators nor ``model_post_init`` run: it is what it was.

    `parts` are those of `MODEL_PARTS`; without them, they are as a constructor leaves them.
    """
    made = cls.__new__(cls)
    _set(made, "__dict__", dict(values))
    for name, part in zip(MODEL_PARTS, _parts_of_new(cls, values) if parts is None else parts, strict=True):
        _set(made, name, part)
    return made


def _parts_of_new(cls: Any, values: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    extra: dict[str, Any] | None = {} if cls.model_config.get("extra") == "allow" else None
    private = {
        name: attribute.get_default()
        for name, attribute in cls.__private_attributes__.items()
        if attribute.default_factory is not None or type(attribute.default).__name__ != "PydanticUndefinedType"
    }
    return extra, set(values), private if cls.__private_attributes__ else None
