"""Options and hooks of a procedure class, told apart from fields and steps of the same names.

`Procedure` has some 26 names of its own, ordinary words among them (``load``, ``version``, ``limits``). A class may use
any of them for a field (it annotates the name) or for a step. The names that are the class's own are settled once,
when the class is made. The engine reads options and hooks through the functions here, never by attribute.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import msgspec

from actorproc.procedure.values.fields import declared_fields

__all__ = [
    "OptionsOf",
    "Reserved",
    "called",
    "class_hook",
    "convert_inherited",
    "hook",
    "is_class_variable",
    "member",
    "names_of_class",
    "option",
    "overrides",
    "own_annotations",
    "reserve",
    "said_by",
    "type_name_of",
]

_NONE: frozenset[str] = frozenset()


class Reserved:
    """A member of `Procedure` that gives way to a field or step: looked up on such a class, it is not there.

    So a dataclass does not take the member for the default of its field.
    """

    __slots__ = ("name", "value")

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        owner = type(instance) if owner is None else owner
        if self.name in owner._engine_taken:
            msg = f"{owner.__qualname__} has a field or step {self.name!r}, which hides Procedure.{self.name}"
            raise AttributeError(msg)
        return _bound(self.value, instance, owner)


def reserve(cls: Any, names: Iterable[str]) -> None:
    """Let members of an engine's class give way to what subclasses call by the same names."""
    for name in names:
        if name in cls.__dict__:
            setattr(cls, name, Reserved(name, _plain(cls.__dict__[name])))


# ---------------------------------------------------------------- when a class is made
def own_annotations(cls: type) -> Mapping[str, Any]:
    """The annotations of a class without those of its bases, unevaluated where they need not be evaluated."""
    if sys.version_info >= (3, 14):
        import annotationlib  # noqa: PLC0415

        return annotationlib.get_annotations(cls, format=annotationlib.Format.FORWARDREF)
    return inspect.get_annotations(cls)


def is_class_variable(annotation: Any) -> bool:
    """An annotation says ``ClassVar``."""
    if isinstance(annotation, str):
        return "ClassVar" in annotation.partition("[")[0]
    return annotation is ClassVar or getattr(annotation, "__origin__", None) is ClassVar


def names_of_class(cls: Any, parts: Callable[[Mapping[str, Any]], Iterable[str]]) -> frozenset[str]:
    """Reserved names that the class or a base uses for fields and steps. ``parts``: the steps of a namespace."""
    reserved: frozenset[str] = cls._engine_reserved
    own, found = cls.__dict__, set[str]()
    for base in reversed(cls.__mro__[1:]):
        known = base.__dict__.get("_engine_taken")
        found |= known if known is not None else reserved.intersection((*_fields_of(base), *parts(base.__dict__)))
        if found:
            found -= _class_variables(base)
    found |= own.get("_engine_taken", frozenset())  # it was made before, by `@dataclass(slots=True)` or attrs
    annotations = own_annotations(cls)
    found |= {name for name in reserved & annotations.keys() if not is_class_variable(annotations[name])}
    found |= reserved.intersection(parts(own))
    found |= {name for name in reserved & own.keys() if type(own[name]).__name__ == "_CountingAttr"}  # attr.ib()
    return frozenset(found - _class_variables(cls)) if found else _NONE


def _class_variables(cls: type) -> set[str]:
    return {name for name, annotation in own_annotations(cls).items() if is_class_variable(annotation)}


def said_by(cls: Any, keywords: Mapping[str, Any]) -> dict[str, Any]:
    """Options of the class line whose names belong to fields or steps; others become attributes of the class.

    Raises `TypeError` for an option that is said twice.
    """
    taken, own = cls._engine_taken, cls.__dict__
    said = dict(own.get("_engine_said", ()))
    for name, value in keywords.items():
        if name in taken:
            said[name] = value
        elif name in own:
            msg = f"{cls.__qualname__} says {name!r} twice, in the class line and as an attribute; drop one of them"
            raise TypeError(msg)
        else:
            setattr(cls, name, value)
    return said


def convert_inherited(cls: Any) -> None:
    """Let an option or hook of a base class give way to a field of this class, as `Procedure`'s own do."""
    for name in cls._engine_taken.difference(cls.__dict__):
        for base in cls.__mro__[1:]:
            own = base.__dict__
            if name in own and "_engine_taken" in own and name not in own["_engine_taken"]:
                reserve(base, (name,))


def _fields_of(base: type) -> tuple[str, ...]:
    return () if base is object or base is msgspec.Struct else declared_fields(base) or ()


# ---------------------------------------------------------------- what the engine reads
def member(cls: Any, name: str) -> Any:
    """An option or hook as it stands in its class, unbound, whatever fields and steps have its name.

    Raises `AttributeError` when no class has it.
    """
    for base in cls.__mro__:
        own = base.__dict__
        said = own.get("_engine_said")
        if said and name in said:
            return said[name]
        if name in own and name not in _taken_of(base, name):
            return _plain(own[name])
    msg = f"{cls.__qualname__} has no {name}"
    raise AttributeError(msg)


def _taken_of(base: type, name: str) -> Iterable[str]:
    known: frozenset[str] | None = base.__dict__.get("_engine_taken")
    if known is not None:
        return known
    return (name,) if name in _fields_of(base) or getattr(base.__dict__[name], "_engine_is_step", False) else ()


def option(cls: Any, name: str) -> Any:
    """The value of an option of a class."""
    if name not in cls._engine_taken:
        return getattr(cls, name)
    return _bound(member(cls, name), None, cls)


def type_name_of(cls: Any) -> str:
    """The name in the store of a procedure class, before anything of the class was checked; else no text."""
    if getattr(cls, "_engine_taken", ()):
        return str(option(cls, "type_name"))
    return getattr(cls, "type_name", "")


class OptionsOf:
    """The options of a class, each read as an attribute."""

    def __init__(self, cls: Any) -> None:
        self._cls = cls

    def __getattr__(self, name: str) -> Any:
        return option(self._cls, name)


def hook(cls: Any, name: str) -> Callable[..., Any]:
    """A method that the engine calls, as a function of the object and its other arguments."""
    found = member(cls, name)
    if isinstance(found, types.FunctionType):
        return found
    return lambda live, *args: _bound(found, live, type(live))(*args)


def class_hook(cls: Any, name: str) -> Callable[..., Any]:
    """A class method that the engine calls, bound to the class."""
    bound: Callable[..., Any] = _bound(member(cls, name), None, cls)
    return bound


def called(live: Any, name: str) -> Any:
    """The value of a hook that takes nothing but the object."""
    cls = type(live)
    return hook(cls, name)(live) if name in cls._engine_taken else getattr(live, name)()


def overrides(cls: Any, base: Any, name: str) -> bool:
    """The class has a hook of its own in the place of the one of ``base``."""
    return member(cls, name) is not member(base, name)


def _plain(found: Any) -> Any:
    return found.value if type(found) is Reserved else found


def _bound(found: Any, instance: Any, owner: Any) -> Any:
    bind = getattr(type(found), "__get__", None)
    return found if bind is None else bind(found, instance, owner)
