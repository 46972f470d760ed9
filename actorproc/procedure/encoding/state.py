"""A procedure's state as one msgpack value, and back.

The value is a map of fields (default `dump`), or a bin or a str (the result of an overridden `dump`). For classes with
a position of their own it is an array of that position and one of the former. So every state says what it is.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Mapping
from typing import Any

from actorproc.errors import ActorprocError, StateNotEncodable
from actorproc.procedure.values.codec import DataCodec
from actorproc.procedure.values.fields import MissingField, build, complete, declared_fields
from actorproc.procedure.values.hints import reachable_classes, unresolved_hints
from actorproc.procedure.values.kinds.base import UNSET
from actorproc.procedure.values.members import option

__all__ = ["StateFormat", "StateRefused", "format_of", "no_undo", "of_another_kind"]


def of_another_kind(owner: str, found: str) -> str:
    """The reason why a saga, a state machine or a plain procedure cannot read what one of another kind stored."""
    return (
        f"the state of {owner} was stored by a class of another kind (saga, state machine or plain procedure): it "
        f"holds {found}. Bring that class back until its procedures have ended, and give the new one another type_name"
    )


def no_undo(cls: type, method: str) -> str:
    """The reason why a class that once had an undo cannot undo what was done under it."""
    return (
        f"{cls.__qualname__} has no {method}() any more, and what it did is to be undone; bring it back until its "
        "procedures have ended"
    )


class StateRefused(ActorprocError):
    """The class does not accept the stored state: its procedure is parked with ``reason``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class StateFormat:
    """Format in which the fields of one class are written and read."""

    def __init__(self, cls: Any) -> None:
        self.cls = cls
        self.names = declared_fields(cls)
        self.secrets = cls._engine_secret_fields()
        """Fields that are secret, and what hides their values."""
        self._slots = _plain_slots(cls) if self.names is None else ()
        self._reads_dict = cls.__dictoffset__ != 0
        self._reserved = cls._engine_reserved - cls._engine_taken
        aliases: Mapping[str, Any] = option(cls, "aliases")
        renamed = (now if isinstance(now, type) else type(now) for now in aliases.values())
        classes = reachable_classes(
            cls, cls._engine_hinted_functions(), (*cls._engine_value_classes(), *cls._engine_shipped_classes, *renamed)
        )
        subjects = (cls, *classes, *cls._engine_hinted_functions())
        self.codec = DataCodec(cls.__qualname__, classes, lambda: unresolved_hints(subjects), aliases)

    def dump_fields(self, procedure: Any) -> bytes:
        """The fields as a msgpack map. Raises `StateNotEncodable` naming class and field."""
        values = self.values(procedure)
        if self.secrets:
            values |= {
                name: hide(values[name]) for name, hide in self.secrets.items() if values.get(name, UNSET) is not UNSET
            }
        try:
            return self.codec.encode(values, self.cls.__qualname__)
        except StateNotEncodable:
            self._explain(values)
            raise

    def load_fields(self, data: Any) -> Any:
        """An object with these fields: the bytes of `dump_fields`, or a mapping of names to values."""
        values = self.codec.decode(data) if isinstance(data, bytes | memoryview) else data
        if not isinstance(values, Mapping):
            msg = f"the state is no mapping of fields but {type(values).__name__}"
            raise StateRefused(msg)
        if self.names is None:
            return build(self.cls, values)
        unknown = [name for name in values if name not in self.names]
        if unknown:
            msg = f"the state has a field {unknown[0]!r} that {self.cls.__qualname__} does not declare; write migrate()"
            raise StateRefused(msg)
        if len(values) == len(self.names):
            return build(self.cls, values)
        try:
            return complete(self.cls, values)
        except MissingField as error:
            msg = f"the state has no field {error.name!r}, which {self.cls.__qualname__} needs; write migrate()"
            raise StateRefused(msg) from None

    def values(self, procedure: Any) -> dict[str, Any]:
        """The fields by name. Raises `StateNotEncodable` for an attribute that would be lost."""
        attributes: dict[str, Any] = procedure.__dict__ if self._reads_dict else {}
        names = self.names
        if names is None:
            if not self._reserved.isdisjoint(attributes):
                name = min(self._reserved.intersection(attributes))
                msg = (
                    f"{self.cls.__qualname__}.{name} was set on the object, but {name!r} is reserved; "
                    "rename it, or annotate it in the class"
                )
                raise StateNotEncodable(msg)
            values = {name: value for name, value in attributes.items() if name[0] != "_"}
            for name in self._slots:
                if hasattr(procedure, name):
                    values[name] = getattr(procedure, name)
            return values
        values = attributes.copy()  # as they are at one moment: a thread of the step may set another one
        if tuple(values) == names:  # as the constructor of a dataclass leaves them
            return values
        try:
            values = {name: attributes[name] for name in names}
        except KeyError:
            values = {name: getattr(procedure, name, UNSET) for name in names}
        self._refuse_undeclared(attributes, names)
        return values

    def _refuse_undeclared(self, attributes: Mapping[str, Any], names: tuple[str, ...]) -> None:
        for name in attributes:
            if name in names or name[:1] == "_":
                continue
            if not isinstance(getattr(self.cls, name, None), functools.cached_property):
                msg = (
                    f"{self.cls.__qualname__}.{name} was set but is not a declared field, so it would be lost; "
                    f"declare it, or begin its name with '_' if it need not be kept"
                )
                raise StateNotEncodable(msg)

    def _explain(self, values: dict[str, Any]) -> None:
        """Encode field by field, so that the message names the field as code does: ``Order.items[3].price``."""
        for name, value in values.items():
            self.codec.encode(value, f"{self.cls.__qualname__}.{name}")


def _plain_slots(cls: type) -> tuple[str, ...]:
    """Attributes of a class that have a slot (``__slots__``) in the place of an entry in `__dict__`."""
    return tuple(
        name
        for base in reversed(cls.__mro__)
        for name, member in base.__dict__.items()
        if isinstance(member, types.MemberDescriptorType) and not name.startswith("_")
    )


def format_of(cls: Any) -> StateFormat:
    """The format of a class; worked out once, kept for the classes used most recently."""
    return _formats(cls)


_formats = functools.lru_cache(maxsize=1024)(StateFormat)
