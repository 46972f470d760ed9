"""A value as a tree that msgpack holds: the writing half of the "data" codec."""

from __future__ import annotations

import functools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from enum import Enum, Flag
from typing import TYPE_CHECKING, Any

from actorproc.procedure.values.adapters import ValueAdapter
from actorproc.procedure.values.kinds.base import (
    ADAPTED,
    COUNTER,
    DEFAULTDICT,
    DEQUE,
    DICT,
    ENUM,
    FACTORIES,
    FROZENSET,
    MODEL,
    OBJECT,
    ORDERED,
    PACK,
    SCALARS,
    SECRET,
    SECRET_FIELD,
    SET,
    TUPLE,
    UNSET,
    CannotKeep,
    Ext,
    encode,
    is_text,
    scalar,
)
from actorproc.procedure.values.kinds.libraries import pack_of_library
from actorproc.procedure.values.kinds.pydantic import MODEL_PARTS
from actorproc.procedure.values.secrets.secret import Secret, SecretField
from actorproc.procedure.values.type_names import module_name

if TYPE_CHECKING:
    from actorproc.procedure.values.codec import DataCodec

__all__ = ["MAX_DEPTH", "Packing", "adapter_name", "class_key", "contents_of", "is_plain"]

MAX_DEPTH = 100
"""Deepest nesting of containers."""

# What an object may be beside its fields; an enum, which may be some of these too, is written by its name.
_CONTENTS = (dict, list, set, frozenset, deque, str, bytes, bytearray, int, float, complex, tuple)


def class_key(cls: type) -> str:
    """The stored name of a class, which is the same when its module is run with ``python -m``."""
    return f"{module_name(cls)}:{cls.__qualname__}"


def adapter_name(adapter: type[ValueAdapter]) -> str:
    """The stored name of an adapter."""
    return adapter.name or class_key(adapter.kinds()[0])


class Packing:
    """One walk over one value. Holds the containers it is inside of, to find cycles."""

    def __init__(self, codec: DataCodec) -> None:
        self._codec = codec
        self._inside: set[int] = set()

    def pack(self, value: Any, room: int) -> Any:
        """A tree that msgspec writes as it is."""
        kind = type(value)
        if kind in SCALARS:
            return scalar(value)
        simple = PACK.get(kind)
        if simple is not None:
            return simple(value)
        return self._container(kind, value, room)

    def _other(self, kind: type, value: Any, room: int) -> Any:
        """A value that is no container: of the table, of an adapter, or of a library."""
        codec = self._codec
        adapter = codec.adapters.get(kind)
        if adapter is not None:
            packed = self.pack(adapter.dump(value), room)
            return Ext(ADAPTED, encode([adapter_name(adapter), adapter.version, packed]))
        if isinstance(value, Enum):
            return self._enum(kind, value, room)
        if kind not in codec._known and (packed := pack_of_library(value)) is not None:
            return packed
        return self._object(kind, value, room)

    def _container(self, kind: type, value: Any, room: int) -> Any:
        if room <= 0:
            raise CannotKeep(f"the value is nested more than {MAX_DEPTH} levels deep")
        if id(value) in self._inside:
            raise CannotKeep("the value contains itself")
        self._inside.add(id(value))
        try:
            pack = _CONTAINERS.get(kind)
            if pack is not None:
                return pack(self, value, room - 1)
            if kind in self._codec.objects:
                return self._object(kind, value, room - 1)
            return self._other(kind, value, room - 1)
        finally:
            self._inside.discard(id(value))

    def items(self, values: Iterable[Any], room: int) -> list[Any]:
        """The packed elements, in order."""
        packed = []
        for index, item in enumerate(values):
            try:
                packed.append(self.pack(item, room))
            except CannotKeep as error:
                error.path.append(f"[{index}]")
                raise
        return packed

    def sorted_items(self, values: Iterable[Any], room: int) -> list[Any]:
        """The packed elements of a set, in the order of their bytes."""
        return sorted(self.items(values, room), key=encode)

    def mapping(self, value: dict[Any, Any], room: int) -> Any:
        """A map when all keys are text, else an extension holding keys and values in turn."""
        if all(type(key) is str for key in value) and all(is_text(key) for key in value):
            return dict(zip(value, self.values(value, room), strict=True))
        return Ext(DICT, encode(self.pairs(value, room)))

    def pairs(self, value: dict[Any, Any], room: int) -> list[Any]:
        """Keys and values in turn, in insertion order."""
        flat: list[Any] = []
        for key, item in zip(self.items(value, room), self.values(value, room), strict=True):
            flat += (key, item)
        return flat

    def values(self, value: dict[Any, Any], room: int) -> list[Any]:
        """The packed values; a failure names the key."""
        packed = []
        for key, item in value.items():
            try:
                packed.append(self.pack(item, room))
            except CannotKeep as error:
                error.path.append(f"[{key!r:.40}]")
                raise
        return packed

    def envelope(self, code: int, value: Any, room: int) -> Any:
        """A secret; what is wrong with it is said without saying where in it."""
        try:
            return Ext(code, encode(self.pack(value, room)))
        except CannotKeep as error:
            error.path.clear()
            raise

    def _enum(self, kind: type, value: Any, room: int) -> Any:
        key = self._codec.key_of(kind)
        # A combination of flags has no member of its own; its value says it all.
        by_name = not isinstance(value, Flag)
        stored = value.name if by_name else self.pack(value.value, room)
        return Ext(ENUM, encode([key, by_name, stored, *self._version_of(kind)]))

    def factory_of(self, value: defaultdict[Any, Any]) -> Any:
        """The factory of a `defaultdict` as it is stored; functions are refused, for they are no data."""
        factory = value.default_factory
        if factory is None:
            return None
        if isinstance(factory, type):
            if FACTORIES.get(factory.__name__) is factory:
                return factory.__name__
            return [self._codec.key_of(factory)]
        raise CannotKeep(
            f"the default_factory {factory!r:.60} of a defaultdict is a function, which is not kept; use a class such "
            "as list or int as the factory, or convert it with dict(…)"
        )

    def _model(self, key: str, kind: type, value: Any, room: int) -> Any:
        values = self._field_values(kind, value, room)
        extra, fields_set, private = (getattr(value, name, None) for name in MODEL_PARTS)
        more = [None if part is None else self._part(part, room) for part in (extra, private)]
        parts = [key, values, more[0], sorted(fields_set or ()), more[1], *self._version_of(kind)]
        return Ext(MODEL, encode(parts))

    def _version_of(self, kind: type) -> tuple[int, ...]:
        """Stored version of a class: nothing for the first one."""
        version = self._codec.versions.get(kind)
        return () if version is None else (version,)

    def _part(self, part: dict[str, Any], room: int) -> dict[str, Any]:
        """Extra fields, or private attributes, of a model."""
        packed = {}
        for name, value in part.items():
            try:
                packed[name] = self.pack(value, room)
            except CannotKeep as error:
                error.path.append(f".{name}")
                raise
        return packed

    def _object(self, kind: type, value: Any, room: int) -> Any:
        key = self._codec.key_of(kind)
        if kind in self._codec._models:
            return self._model(key, kind, value, room)
        return Ext(OBJECT, encode([key, self._field_values(kind, value, room), *self._version_of(kind)]))

    def _field_values(self, kind: type, value: Any, room: int) -> dict[str, Any]:
        self._refuse_what_is_no_field(kind, value)
        values: dict[str, Any] = {}
        secrets = self._codec._secrets.get(kind, {})
        for name in self._codec._fields[kind]:
            try:
                part = getattr(value, name)
                hide = secrets.get(name)
                values[name] = self.pack(part if hide is None else hide(part), room)
            except AttributeError:
                # A field without a value stays without one, and is told from one that the class did not have yet.
                values[name] = PACK[type(UNSET)](UNSET)
            except CannotKeep as error:
                error.path.append(f".{name}")
                raise
        return values

    def _refuse_what_is_no_field(self, kind: type, value: Any) -> None:
        """Raise `CannotKeep` for what an object holds that would be lost."""
        held = self._codec._contents.get(kind)
        if held is not None:
            raise CannotKeep(
                f"a {kind.__qualname__} is a {held.__name__} with fields, and what it holds as a {held.__name__} would "
                "be lost; make that a field, or convert the value in dump() and load()"
            )
        names = self._codec._fields[kind]
        if not kind.__dictoffset__ or len(value.__dict__) <= len(names):
            return
        for name in value.__dict__:
            if name in names or name[:1] == "_" or isinstance(getattr(kind, name, None), functools.cached_property):
                continue
            error = CannotKeep(
                f"it is no declared field of {kind.__qualname__}, so it would be lost; declare it, or begin its name "
                "with '_' if it need not be kept"
            )
            error.path.append(f".{name}")
            raise error


def contents_of(cls: type) -> type | None:
    """Contents of an object of this class, which is no enum, beside its fields."""
    if issubclass(cls, Enum) or (issubclass(cls, tuple) and hasattr(cls, "_fields")):
        return None
    return next((held for held in _CONTENTS if issubclass(cls, held)), None)


def is_plain(value: Any, room: int) -> bool:
    """Only None, bool, int, float, str, bytes, lists and dicts with text keys: msgspec gives it back as it was."""
    kind = type(value)
    if kind in SCALARS:
        return True
    if kind is dict:
        for key, item in value.items():
            if type(key) is not str or (type(item) not in SCALARS and not (room > 0 and is_plain(item, room - 1))):
                return False
        return room > 0
    if kind is list:
        for item in value:
            if type(item) not in SCALARS and not (room > 0 and is_plain(item, room - 1)):
                return False
        return room > 0
    return False


_CONTAINERS: dict[type, Callable[[Packing, Any, int], Any]] = {
    list: Packing.items,
    dict: Packing.mapping,
    tuple: lambda walk, value, room: Ext(TUPLE, encode(walk.items(value, room))),
    set: lambda walk, value, room: Ext(SET, encode(walk.sorted_items(value, room))),
    frozenset: lambda walk, value, room: Ext(FROZENSET, encode(walk.sorted_items(value, room))),
    deque: lambda walk, value, room: Ext(DEQUE, encode([value.maxlen, walk.items(value, room)])),
    Counter: lambda walk, value, room: Ext(COUNTER, encode(walk.pairs(value, room))),
    defaultdict: lambda walk, value, room: Ext(DEFAULTDICT, encode([walk.factory_of(value), walk.pairs(value, room)])),
    OrderedDict: lambda walk, value, room: Ext(ORDERED, encode(walk.pairs(value, room))),
    Secret: lambda walk, value, room: walk.envelope(SECRET, value.reveal(), room),
    SecretField: lambda walk, value, room: walk.envelope(SECRET_FIELD, value.value, room),
}
