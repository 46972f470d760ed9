"""The "data" codec: values to msgpack and back, as exactly what they were.

msgpack knows nil, bool, int of 64 bits, float, str, bytes, arrays and maps. Those are written as they are, so a state
of plain values is one call of msgspec. Every other kind is an extension: a code, and a payload that is msgpack again.
Sets are sorted by the bytes of their elements, so equal sets have equal bytes. Classes are written as
"module:qualname" and looked up in the table the codec was made with, never imported.

Two things are not kept. Two places that hold the same object get one each. Attributes beside the fields whose names
begin with ``_`` are lost, except those of a pydantic model, which take part in its equality.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from typing import Any

import msgspec

from actorproc.errors import StateNotEncodable, StateTooLarge, UsageError, ValueNotDecodable
from actorproc.model.policies import LockKey, LockMode
from actorproc.model.states import ProcedureState
from actorproc.procedure.values.adapters import ValueAdapter
from actorproc.procedure.values.evolution import LenientReader, aliases_of, migration_of, version_of
from actorproc.procedure.values.fields import MissingField, build, complete, declared_fields
from actorproc.procedure.values.hints import secret_fields
from actorproc.procedure.values.kinds.base import (
    ADAPTED,
    DEFAULTDICT,
    ENUM,
    FACTORIES,
    MODEL,
    OBJECT,
    PICKLED,
    UNPACK,
    CannotKeep,
    encode,
    pairs_of,
)
from actorproc.procedure.values.kinds.pydantic import is_model
from actorproc.procedure.values.packing import MAX_DEPTH, Packing, adapter_name, class_key, contents_of, is_plain
from actorproc.procedure.values.refusals import why_not_kept
from actorproc.procedure.values.secrets.secret_hints import mentions_secret

__all__ = ["MAX_DEPTH", "MAX_STATE", "PLAIN", "DataCodec", "check_size", "is_plain", "permit_calls", "permit_size"]

MAX_STATE = 16 * 1024 * 1024
"""Longest encoded value, in bytes, unless a manager of this process allows more (`permit_size`)."""
# Ours, of which steps are handed values (``ctx.children[…].state``) or make some: no class need name them.
_OF_THE_ENGINE: tuple[type, ...] = (ProcedureState, LockKey, LockMode)


_MADE = frozenset({ENUM, MODEL, ADAPTED})


class _Longest:
    """Longest value in this process."""

    bytes = MAX_STATE
    call = MAX_STATE
    """Of an executor's call: its arguments, or its result."""


def permit_size(size: int) -> None:
    """Let values have up to `size` bytes in this process; less than before changes nothing.

    In a worker it is said by its only manager. In a program several may say so: each looks at what it takes itself.
    """
    _Longest.bytes = max(_Longest.bytes, size)


def permit_calls(size: int) -> None:
    """Let arguments and results of an executor's calls have up to `size` bytes in this process, as `permit_size`."""
    _Longest.call = max(_Longest.call, size)


def check_size(size: int, what: str, *, of_call: bool = False) -> None:
    """Raise `StateTooLarge` when ``what`` has more bytes than a value may have, or one of an executor's call."""
    limit, option = (_Longest.call, "max_call") if of_call else (_Longest.bytes, "max_state")
    if size > limit:
        msg = f"{what} takes {size} bytes; the limit is {limit}, which Config({option}=…) of the manager raises"
        if of_call:
            msg += ". With a store in a database it is that of max_state: put large data into shared storage instead"
        raise StateTooLarge(msg)


class DataCodec:
    """Encodes and decodes the values of one procedure class (``owner`` is its name, for messages)."""

    def __init__(
        self,
        owner: str = "",
        classes: Iterable[type] = (),
        unresolved: Callable[[], Iterable[tuple[str, str]]] = tuple,
        aliases: Mapping[str, Any] | None = None,
    ) -> None:
        """Make the tables of these classes and adapters.

        Args:
            owner: name of the procedure class, for messages.
            classes: enums, classes with declared fields, and adapters.
            unresolved: gives the type hints that do not resolve, as pairs of place and text; asked for a message.
            aliases: classes and members of enums by the stored names they had before.
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
        self.adapters = {kind: adapter for adapter in reversed(adapters) for kind in adapter.kinds()}
        self._adapters_by_name = {adapter_name(adapter): adapter for adapter in reversed(adapters)}
        plain = [cls for cls in self.classes if not issubclass(cls, ValueAdapter)]
        self._by_key: dict[str, type] = {}
        self._ambiguous: set[str] = set()
        for cls in plain:
            if self._by_key.setdefault(class_key(cls), cls) is not cls:
                self._ambiguous.add(class_key(cls))
        for cls in _OF_THE_ENGINE:
            self._by_key[class_key(cls)] = cls
        # Found out once: when a class comes to a worker by value a second time, its module is told anew.
        self._keys = {cls: class_key(cls) for cls in (*_OF_THE_ENGINE, *plain)}
        self._known = frozenset((*_OF_THE_ENGINE, *plain))
        self._models = frozenset(cls for cls in plain if is_model(cls))
        self._fields = {cls: declared_fields(cls) or () for cls in self._known}
        self._contents = {cls: held for cls in self._known if (held := contents_of(cls)) is not None}
        self._secrets = {cls: secret_fields(cls) for cls in self._known if mentions_secret(cls)}
        self.versions = {cls: version for cls in plain if (version := version_of(cls)) != 1}
        """Of the classes that declare another one than 1."""
        self._members: dict[str, Enum] = {}
        self._rename({name: cls for cls in plain for name in aliases_of(cls)} | dict(aliases or {}))
        self.objects = frozenset(cls for cls in self._known if not issubclass(cls, Enum) and cls not in self.adapters)
        """Classes whose values are written field by field."""
        self._whole = {
            key: (cls, frozenset(self._fields[cls]))
            for key, cls in self._by_key.items()
            if cls not in self.versions and not issubclass(cls, Enum)
        }
        """Classes of version 1 by their names, with the names of their fields."""
        self._decoder = msgspec.msgpack.Decoder(ext_hook=self.unpack)

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
        except MemoryError:
            raise
        except Exception:  # noqa: BLE001 - constructors of user classes refuse in any way they like; so once more
            found, failures = self.decode_plain(data)
        if failures:
            raise ValueNotDecodable(failures[0])
        return found

    def decode_plain(self, data: bytes | memoryview) -> tuple[Any, list[str]]:
        """The value of these bytes, what today's classes cannot make in plain form; and why it is.

        Raises `ValueNotDecodable` for damaged bytes.
        """
        reading = LenientReader(self)
        return reading.decode(data), reading.failures

    # ------------------------------------------------------------ packing
    def _packed(self, value: object, where: str) -> Any:
        packing = Packing(self)
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
    def unpack(self, code: int, payload: memoryview) -> Any:
        """The value of an extension. Raises what makes it impossible."""
        unpack = UNPACK.get(code)
        if unpack is not None:
            return unpack(payload, self._decoder.decode)
        if code == OBJECT:
            parts = self._decoder.decode(payload)
            whole = self._whole.get(parts[0])
            if whole is not None and len(parts) == 2 and parts[1].keys() == whole[1]:  # as most: nothing has changed
                return build(whole[0], parts[1])
            return self.make(code, parts)
        if code in _MADE:
            return self.make(code, self._decoder.decode(payload))
        if code == DEFAULTDICT:
            factory, flat = self._decoder.decode(payload)
            return defaultdict(self.factory(factory), pairs_of(flat))
        if code == PICKLED:
            msg = "it is pickled, by a class with codec = 'pickle' that is not registered here"
            raise ValueNotDecodable(msg)
        msg = f"unknown extension code {code}; the data was written by a newer version or by something else"
        raise ValueNotDecodable(msg)

    def make(self, code: int, parts: list[Any]) -> Any:
        """An object, a member of an enum or an adapter's value of its stored parts. Raises what makes it impossible."""
        if code == OBJECT:
            key, values, *version = parts
            return self.complete(self._class(key, version), values)
        if code == ENUM:
            key, by_name, stored, *version = parts
            if by_name and (member := self._members.get(f"{key}.{stored}")) is not None:
                return member
            enum = self._class(key, version)
            if by_name and stored not in enum.__members__:
                msg = f"the stored {key!r} has the member {stored!r}, which the class does not have; {_advice(enum)}"
                raise ValueNotDecodable(msg)
            return enum[stored] if by_name else enum(stored)
        if code == MODEL:
            key, values, extra, fields_set, private, *version = parts
            return self.complete(self._class(key, version), values, (extra, set(fields_set), private))
        return self._adapted(*parts)

    def complete(self, cls: Any, values: Mapping[str, Any], parts: Any = None) -> Any:
        """An object of a class of the table with these fields, and the defaults of others. Raises `ValueNotDecodable`.

        `parts` are those of a pydantic model beside its fields.
        """
        names = self._fields[cls]
        for name in values:
            if name not in names:
                msg = (
                    f"the stored {self._keys[cls]!r} has a field {name!r} that the class does not have; {_advice(cls)}"
                )
                raise ValueNotDecodable(msg)
        if len(values) == len(names):
            return build(cls, values, parts)
        try:
            return complete(cls, values, parts)
        except MissingField as error:
            msg = (
                f"the stored {self._keys[cls]!r} has no field {error.name!r}, which the class needs; "
                f"give it a default, or {_advice(cls)}"
            )
            raise ValueNotDecodable(msg) from None

    def factory(self, stored: Any) -> Any:
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

    def class_of(self, key: str) -> Any:
        """The class of a stored name, or of one that it had before; None: it is not in the table."""
        return self._by_key.get(key)

    def _class(self, key: str, version: list[int] = []) -> Any:  # noqa: B006 - it is only read
        found = self._by_key.get(key)
        if found is None:
            owner = self.owner or "this reader"
            msg = (
                f"the stored data names the class {key!r}, which the type hints of {owner} do not reach; name it in "
                f"`uses`, or where it has another name now write aliases = {{{key!r}: …}}"
            )
            raise ValueNotDecodable(msg)
        if version or self.versions:
            stored, now = version[0] if version else 1, self.versions.get(found, 1)
            if stored != now:
                msg = f"the stored {key!r} has version {stored}, the class has version {now}; {_advice(found)}"
                raise ValueNotDecodable(msg)
        return found

    def _rename(self, aliases: Mapping[str, Any]) -> None:
        """Take in names that classes and members had before. Raises `UsageError` where a name is one of today too."""
        for name, now in aliases.items():
            if now in self._known or isinstance(now, Enum):
                today = self._named_today(name)
                if today is not None and today is not now:
                    msg = (
                        f"{self.owner or 'this reader'} has an alias {name!r} for {now!r:.60}, but that is the name of "
                        f"{today!r:.60} today, so that values of both would be taken for one; give it another name"
                    )
                    raise UsageError(msg)
            if isinstance(now, Enum):
                self._members[name] = now
            elif now in self._known:
                self._by_key.setdefault(name, now)

    def _named_today(self, name: str) -> Any:
        """The class or the member of an enum that has this stored name now; None: there is none."""
        key, _, member = name.rpartition(".")
        enum = self._by_key.get(key)
        members: Mapping[str, Any] = getattr(enum, "__members__", {})
        return self._by_key.get(name) or members.get(member)


def _advice(cls: Any) -> str:
    return f"write a migration, @migrates({cls.__name__})" if migration_of(cls) is None else "its migration must do it"


PLAIN = DataCodec()
"""The codec without classes of a user: for payloads, and for values whose class is not at hand."""
