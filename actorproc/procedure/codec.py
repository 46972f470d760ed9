"""The "data" codec: values to msgpack and back, as exactly what they were.

msgpack knows nil, bool, int of 64 bits, float, str, bytes, arrays and maps; those are written as they are, so a
state of plain values is one call of msgspec. Every other kind is an extension: a code, and a payload that is
msgpack again. Sets are sorted by the bytes of their elements, so equal sets have equal bytes. Classes are
written as "module:qualname" and looked up in the table the codec was made with, never imported.

Not kept: that two places hold the same object (each gets its own), and attributes of an object beside its fields whose
names begin with ``_`` (those of a pydantic model are kept: they are part of what makes two models equal).
"""

from __future__ import annotations

import functools
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable
from enum import Enum, Flag
from typing import Any

import msgspec

from actorproc.errors import StateNotEncodable, StateTooLarge, UsageError, ValueNotDecodable
from actorproc.model.policies import LockKey, LockMode
from actorproc.model.states import ProcedureState
from actorproc.procedure.adapters import ValueAdapter
from actorproc.procedure.failures import in_words
from actorproc.procedure.fields import build, declared_fields, defaults_of
from actorproc.procedure.hints import secret_fields
from actorproc.procedure.kinds import (
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
    PICKLED,
    SCALARS,
    SECRET,
    SECRET_FIELD,
    SET,
    TUPLE,
    UNPACK,
    CannotKeep,
    Ext,
    encode,
    is_text,
    pairs_of,
    scalar,
)
from actorproc.procedure.library_kinds import pack_of_library
from actorproc.procedure.models import MODEL_PARTS, build_model, is_model
from actorproc.procedure.names import module_name
from actorproc.procedure.refusals import why_not_kept
from actorproc.procedure.secret import Secret, SecretField, mentions_secret

__all__ = ["MAX_DEPTH", "MAX_STATE", "PLAIN", "DataCodec", "check_size", "is_plain", "permit_calls", "permit_size"]

MAX_STATE = 16 * 1024 * 1024
"""Longest encoded value, in bytes, unless a manager of this process allows more (`permit_size`)."""
MAX_DEPTH = 100
"""Deepest nesting of containers."""

# Ours, of which steps are handed values (``ctx.children[…].state``) or make some: nobody need name them.
_OF_THE_ENGINE: tuple[type, ...] = (ProcedureState, LockKey, LockMode)
# What an object may be beside its fields; an enum, which may be some of these too, is written by its name.
_CONTENTS = (dict, list, set, frozenset, deque, str, bytes, bytearray, int, float, complex, tuple)


class _Longest:
    """How long a value may be in this process."""

    bytes = MAX_STATE
    call = MAX_STATE
    """Of an executor's call: its arguments, or its result."""


def permit_size(size: int) -> None:
    """Let values have so many bytes in this process; less than before changes nothing.

    In a worker it is said by its only manager. In a program several may say so: each looks at what it takes itself.
    """
    _Longest.bytes = max(_Longest.bytes, size)


def permit_calls(size: int) -> None:
    """Let arguments and results of an executor's calls have so many bytes in this process, as `permit_size`."""
    _Longest.call = max(_Longest.call, size)


def check_size(size: int, what: str, *, of_call: bool = False) -> None:
    """Raise `StateTooLarge` when ``what`` has more bytes than a value may have, or one of an executor's call."""
    limit, option = (_Longest.call, "max_call") if of_call else (_Longest.bytes, "max_state")
    if size > limit:
        msg = f"{what} takes {size} bytes; the limit is {limit}, which Config({option}=…) of the manager raises"
        raise StateTooLarge(msg)


def _class_key(cls: type) -> str:
    """The stored name of a class, which is the same when its module is run with ``python -m``."""
    return f"{module_name(cls)}:{cls.__qualname__}"


def _adapter_name(adapter: type[ValueAdapter]) -> str:
    return adapter.name or _class_key(adapter.kinds()[0])


class DataCodec:
    """Encodes and decodes the values of one procedure class (``owner`` is its name, for messages)."""

    def __init__(
        self,
        owner: str = "",
        classes: Iterable[type] = (),
        unresolved: Callable[[], Iterable[tuple[str, str]]] = tuple,
    ) -> None:
        """Make the tables of these classes and adapters.

        Args:
            owner: name of the procedure class, for messages.
            classes: enums, classes with declared fields, and adapters.
            unresolved: gives the type hints that do not resolve, as pairs of place and text; asked for a message.
        """
        self.owner = owner
        self.of_calls = False
        """Its values are results of an executor's calls, which have a limit of their own."""
        self.classes = tuple(classes)
        self._unresolved = unresolved
        adapters: list[type[ValueAdapter]] = [cls for cls in self.classes if issubclass(cls, ValueAdapter)]
        for adapter in adapters:
            if not adapter.kinds():
                msg = f"{adapter.__qualname__} has no kind: name the class whose values it keeps"
                raise UsageError(msg)
        self._adapters = {kind: adapter for adapter in reversed(adapters) for kind in adapter.kinds()}
        self._adapters_by_name = {_adapter_name(adapter): adapter for adapter in reversed(adapters)}
        plain = [cls for cls in self.classes if not issubclass(cls, ValueAdapter)]
        self._by_key: dict[str, type] = {}
        self._ambiguous: set[str] = set()
        for cls in plain:
            if self._by_key.setdefault(_class_key(cls), cls) is not cls:
                self._ambiguous.add(_class_key(cls))
        for cls in _OF_THE_ENGINE:
            self._by_key[_class_key(cls)] = cls
        # Found out once: when a class comes to a worker by value a second time, its module is told anew.
        self._keys = {cls: _class_key(cls) for cls in (*_OF_THE_ENGINE, *plain)}
        self._known = frozenset((*_OF_THE_ENGINE, *plain))
        self._models = frozenset(cls for cls in plain if is_model(cls))
        self._fields = {cls: declared_fields(cls) or () for cls in self._known}
        self._contents = {cls: held for cls in self._known if (held := _contents_of(cls)) is not None}
        self._secrets = {cls: secret_fields(cls) for cls in self._known if mentions_secret(cls)}
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self._unpack)

    def encode(self, value: object, where: str = "") -> bytes:
        """The bytes of ``value``. Raises `StateNotEncodable` naming the place, or `StateTooLarge`."""
        try:
            encoded = encode(value) if is_plain(value, MAX_DEPTH) else encode(self._packed(value, where))
        except (OverflowError, UnicodeEncodeError):
            # An int beyond 64 bits, or text with lone surrogates: both need an extension.
            encoded = encode(self._packed(value, where))
        if len(encoded) > MAX_STATE:
            check_size(len(encoded), where or self.owner or "the value", of_call=self.of_calls)
        return encoded

    def decode(self, data: bytes | memoryview) -> Any:
        """The value of these bytes. Raises `ValueNotDecodable`."""
        try:
            return self._decoder.decode(data)
        except ValueNotDecodable:
            raise
        except Exception as error:
            # Constructors of user classes and of the standard library may refuse in any way they like.
            msg = f"the stored data cannot be decoded: {in_words(error)}"
            raise ValueNotDecodable(msg) from error

    # ------------------------------------------------------------ packing
    def _packed(self, value: object, where: str) -> Any:
        packing = _Packing(self)
        try:
            return packing.pack(value, MAX_DEPTH)
        except CannotKeep as error:
            place = (where or self.owner or "value") + "".join(reversed(error.path))
            msg = f"{place}: {error.reason}"
            raise StateNotEncodable(msg) from None

    def key_of(self, cls: type) -> str:
        """The stored name of a class of the table; raises `CannotKeep` for any other."""
        if cls not in self._known:
            raise CannotKeep(why_not_kept(cls, self._unresolved))
        key = self._keys[cls]
        if key in self._ambiguous:
            raise CannotKeep(f"two classes are called {key!r}; rename one of them")
        return key

    # ------------------------------------------------------------ unpacking
    def _unpack(self, code: int, payload: memoryview) -> Any:
        unpack = UNPACK.get(code)
        if unpack is not None:
            return unpack(payload, self._decoder.decode)
        if code == ENUM:
            key, by_name, stored = self._decoder.decode(payload)
            cls = self._class(key)
            return cls[stored] if by_name else cls(stored)
        if code == OBJECT:
            key, values = self._decoder.decode(payload)
            cls = self._class(key)
            unknown = [name for name in values if name not in self._fields[cls]]
            if unknown:
                msg = f"the stored {key!r} has a field {unknown[0]!r} that the class does not have"
                raise ValueNotDecodable(msg)
            if len(values) < len(self._fields[cls]):
                values = {name: make() for name, make in defaults_of(cls).items() if name not in values} | values
            return build(cls, values)
        if code == MODEL:
            return self._model(*self._decoder.decode(payload))
        if code == DEFAULTDICT:
            factory, flat = self._decoder.decode(payload)
            return defaultdict(self._factory(factory), pairs_of(flat))
        if code == ADAPTED:
            return self._adapted(*self._decoder.decode(payload))
        if code == PICKLED:
            msg = "it is pickled, by a class with codec = 'pickle' that is not registered here"
            raise ValueNotDecodable(msg)
        msg = f"unknown extension code {code}; the data was written by a newer version or by something else"
        raise ValueNotDecodable(msg)

    def _model(self, key: str, values: dict[str, Any], extra: Any, fields_set: list[str], private: Any) -> Any:
        cls = self._class(key)
        unknown = [name for name in values if name not in self._fields[cls]]
        if unknown:
            msg = f"the stored {key!r} has a field {unknown[0]!r} that the class does not have"
            raise ValueNotDecodable(msg)
        if len(values) < len(self._fields[cls]):
            values = {name: make() for name, make in defaults_of(cls).items() if name not in values} | values
        return build_model(cls, values, (extra, set(fields_set), private))

    def _factory(self, stored: Any) -> Any:
        """The factory of a stored `defaultdict`: a name of `FACTORIES`, or the key of a class in a list."""
        if isinstance(stored, list):
            return self._class(stored[0])
        return None if stored is None else FACTORIES[stored]

    def _adapted(self, name: str, version: int, data: Any) -> Any:
        adapter = self._adapters_by_name.get(name)
        if adapter is None:
            owner = self.owner or "this reader"
            msg = f"the stored data has a value of the adapter {name!r}, which the hints and `uses` of {owner} lack"
            raise ValueNotDecodable(msg)
        if version != adapter.version:
            data = adapter.migrate(data, version)
        value = adapter.load(data)
        if type(value) not in adapter.kinds():
            msg = f"{adapter.__qualname__}.load() returned {value!r:.60}, which is of another class than it keeps"
            raise ValueNotDecodable(msg)
        return value

    def _class(self, key: str) -> Any:
        found = self._by_key.get(key)
        if found is None:
            owner = self.owner or "nobody"
            msg = f"the stored data names the class {key!r}, which the type hints of {owner} do not reach"
            raise ValueNotDecodable(msg)
        return found


class _Packing:
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
        adapter = codec._adapters.get(kind)
        if adapter is not None:
            packed = self.pack(adapter.dump(value), room)
            return Ext(ADAPTED, encode([_adapter_name(adapter), adapter.version, packed]))
        if isinstance(value, Enum):
            return self._enum(kind, value, room)
        if kind in codec._models:
            return self._model(kind, value, room)
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
        return Ext(ENUM, encode([key, by_name, stored]))

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

    def _model(self, kind: type, value: Any, room: int) -> Any:
        key, values = self._codec.key_of(kind), self._field_values(kind, value, room)
        extra, fields_set, private = (getattr(value, name, None) for name in MODEL_PARTS)
        more = [None if part is None else self._part(part, room) for part in (extra, private)]
        return Ext(MODEL, encode([key, values, more[0], sorted(fields_set or ()), more[1]]))

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
        return Ext(OBJECT, encode([key, self._field_values(kind, value, room)]))

    def _field_values(self, kind: type, value: Any, room: int) -> dict[str, Any]:
        self._refuse_what_is_no_field(kind, value)
        values: dict[str, Any] = {}
        secrets = self._codec._secrets.get(kind, ())
        for name in self._codec._fields[kind]:
            try:
                part = getattr(value, name)
                values[name] = self.pack(SecretField(part) if name in secrets else part, room)
            except AttributeError:
                # A field without a value stays without one.
                continue
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


def _contents_of(cls: type) -> type | None:
    """What an object of this class, which is no enum, holds beside its fields."""
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


_CONTAINERS: dict[type, Callable[[_Packing, Any, int], Any]] = {
    list: _Packing.items,
    dict: _Packing.mapping,
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


PLAIN = DataCodec()
"""The codec without classes of a user: for payloads, and for values whose class is not at hand."""
