"""Values whose classes have changed since they were stored: versions, migrations, and the plain form of the rest.

The codec reads strictly first. Only when that fails, `LenientReader` reads once more. It makes what today's classes can
make, and asks the migration of a class about the rest. Values that remain are in plain form, with the reason.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from enum import Enum
from typing import TYPE_CHECKING, Any, Self, TypeVar

import msgspec

from actorproc.errors import ValueNotDecodable
from actorproc.procedure.values.error_text import in_words
from actorproc.procedure.values.kinds.base import (
    ADAPTED,
    DEFAULTDICT,
    ENUM,
    MODEL,
    OBJECT,
    PICKLED,
    UNPACK,
    UNSET,
    pairs_of,
)

if TYPE_CHECKING:
    from actorproc.procedure.values.codec import DataCodec

__all__ = [
    "LenientReader",
    "PlainEnum",
    "PlainObject",
    "aliases_of",
    "check_alias",
    "left_in_plain_form",
    "migrates",
    "migration_of",
    "value",
    "version_of",
    "without_unset",
]

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[[Any, int], Any])
_SAID, _MIGRATION = "__actorproc_value__", "__actorproc_migration__"
_MAKERS = frozenset({ENUM, OBJECT, MODEL, ADAPTED})


class PlainObject(dict[str, Any]):
    """The fields of a stored object that today's classes cannot make, by name.

    ``class_name`` is the stored name of its class ("module:Class"), ``version`` the version it was stored under.
    """

    __slots__ = ("class_name", "version")

    def __init__(self, fields: Mapping[str, Any], class_name: str, version: int) -> None:
        super().__init__(fields)
        self.class_name = class_name
        self.version = version

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self)  # it may have been in a set


class PlainEnum(str):  # noqa: SLOT000 - a text may have attributes
    """The name of a stored member of an enum that today's class does not have (of flags: their number, as text).

    ``class_name`` is the stored name of the enum ("module:Class"), ``version`` the version it was stored under.
    """

    class_name: str
    version: int

    def __new__(cls, name: str, class_name: str, version: int) -> Self:
        """The name with where it comes from."""
        made = super().__new__(cls, name)
        made.class_name = class_name
        made.version = version
        return made


# ---------------------------------------------------------------- what a class says
def value(*, version: Any = 1, aliases: Any = ()) -> Callable[[C], C]:
    """Declare the version of a class of values, and the names it was stored under before.

    Args:
        version: Whole number from 1; raise it when stored values mean something else than they did, and write a
            migration (`migrates`). A class that is not declared has version 1.
        aliases: Earlier names of the class, as "module:Class". Default: none.

    Returns:
        A decorator of classes, which returns the class.

    Raises:
        TypeError: ``version`` is no such number, or an alias no such name, or the decorator stands above no class.
    """
    if type(version) is not int or version < 1:
        msg = f"value(version=…) is a whole number from 1, not {version!r:.60}"
        raise TypeError(msg)
    names: tuple[str, ...] = (aliases,) if isinstance(aliases, str) else tuple(aliases)
    for name in names:
        check_alias(name)

    def declare(cls: C) -> C:
        _check_class(cls, "@value(…) stands above a class")
        setattr(cls, _SAID, (version, names))
        return cls

    return declare


def _check_class(cls: object, rule: str) -> None:
    if not isinstance(cls, type):
        msg = f"{rule}, not {cls!r:.60}"
        raise TypeError(msg)


def migrates(cls: type) -> Callable[[F], F]:
    """Declare the function that reads older values of a class: ``function(plain, from_version)``.

    It is asked when the stored version differs from today's, and when today's class cannot make the value. ``plain`` is
    the mapping of the stored fields (of an enum: the member's name), with ``class_name`` and ``version``. Values inside
    of it that can be made are made. It returns the fields of today, or the value itself; an exception parks the reader.
    Write it beside the class, or in a module that is imported with it.

    Args:
        cls: The class.

    Returns:
        A decorator of functions, which returns the function.

    Raises:
        TypeError: ``cls`` is no class.
    """
    _check_class(cls, "@migrates(…) takes the class whose values it reads")

    def declare(function: F) -> F:
        setattr(cls, _MIGRATION, staticmethod(function))
        return function

    return declare


def check_alias(name: object) -> None:
    """Raise `TypeError` for what is no stored name of a class or a member."""
    module, _, rest = name.partition(":") if isinstance(name, str) else ("", "", "")
    if not module or not rest:
        msg = f'an alias is the stored name of a class, "module:Class", or of a member of an enum, not {name!r:.60}'
        raise TypeError(msg)


def version_of(cls: type) -> int:
    """The version of a class of values."""
    said: tuple[int, tuple[str, ...]] = vars(cls).get(_SAID, (1, ()))
    return said[0]


def aliases_of(cls: type) -> tuple[str, ...]:
    """Earlier names that a class declares."""
    said: tuple[int, tuple[str, ...]] = vars(cls).get(_SAID, (1, ()))
    return said[1]


def migration_of(cls: type) -> Callable[[Any, int], Any] | None:
    """The function that reads older values of a class; None: there is none."""
    found = vars(cls).get(_MIGRATION)
    function: Callable[[Any, int], Any] | None = None if found is None else found.__func__
    return function


# ---------------------------------------------------------------- reading what has changed
class LenientReader:
    """One lenient reading of stored bytes; ``failures`` are the reasons why something is in plain form."""

    def __init__(self, codec: DataCodec) -> None:
        self._codec = codec
        self._decode = msgspec.msgpack.Decoder(ext_hook=self._unpack).decode
        self.failures: list[str] = []

    def decode(self, data: bytes | memoryview) -> Any:
        """The value, with what cannot be made in plain form. Raises `ValueNotDecodable` for damaged bytes."""
        try:
            return self._decode(data)
        except ValueNotDecodable:
            raise
        except Exception as error:
            msg = f"the stored data cannot be decoded: {in_words(error)}"
            raise ValueNotDecodable(msg) from error

    def _unpack(self, code: int, payload: memoryview) -> Any:
        if code in _MAKERS:
            return self._made(code, payload)
        if code == DEFAULTDICT:
            factory, flat = self._decode(payload)
            try:
                return defaultdict(self._codec.factory(factory), pairs_of(flat))
            except ValueNotDecodable as error:
                self.failures.append(str(error))
                return dict(pairs_of(flat))
        if code == PICKLED:
            return self._codec.unpack(code, payload)
        unpack = UNPACK.get(code)
        return self._codec.unpack(code, payload) if unpack is None else unpack(payload, self._decode)

    def _made(self, code: int, payload: memoryview) -> Any:
        before = len(self.failures)
        parts = self._decode(payload)
        reason = self.failures[before] if len(self.failures) > before else ""
        if not reason:
            try:
                return self._codec.make(code, parts)
            except MemoryError:
                raise
            except Exception as error:  # noqa: BLE001 - constructors of user classes refuse in any way they like
                reason = str(error) if isinstance(error, ValueNotDecodable) else f"{parts[0]}: {in_words(error)}"
        plain = _in_plain_form(code, parts)
        if code != ADAPTED:
            migrated, why = self._migrated(code, parts, plain)
            if why is None:
                del self.failures[before:]
                return migrated
            reason = why or reason
        if len(self.failures) == before:
            self.failures.append(reason)
        elif why:
            self.failures[before] = why
        return plain

    def _migrated(self, code: int, parts: list[Any], plain: Any) -> tuple[Any, str | None]:
        """The value that the migration of its class makes of it, and why there is none ("": there is no migration)."""
        cls = self._codec.class_of(parts[0])
        migration = None if cls is None else migration_of(cls)
        if cls is None or migration is None:
            return None, ""
        try:
            found = migration(plain, plain.version)
            if isinstance(found, Mapping) and not issubclass(cls, Mapping):
                self._refuse_plain(found)
                found = self._codec.complete(cls, found)
            elif code == ENUM and isinstance(found, str) and not isinstance(found, Enum):
                found = cls[str(found)]
            self._refuse_plain(found)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - a migration is user code
            return None, f"the migration of {parts[0]!r} from version {plain.version} failed: {in_words(error)}"
        return found, None

    @staticmethod
    def _refuse_plain(found: Any) -> None:
        left = left_in_plain_form(found)
        if left is not None:
            msg = f"it left a value of {left.class_name!r} in plain form"
            raise ValueError(msg)


def _in_plain_form(code: int, parts: list[Any]) -> Any:
    if code == ENUM:
        key, _by_name, stored, *version = parts
        return PlainEnum(str(stored), key, version[0] if version else 1)
    if code == ADAPTED:
        return parts[2]
    key, fields = parts[:2]
    version = parts[2:] if code == OBJECT else parts[5:]
    extra = parts[2] or {} if code == MODEL else {}
    given = {name: field for name, field in fields.items() if field is not UNSET}
    return PlainObject(given | extra, key, version[0] if version else 1)


def without_unset(data: Any) -> Any:
    """Fields of a state but for those that were not set; anything else as it is."""
    return {name: value for name, value in data.items() if value is not UNSET} if isinstance(data, dict) else data


def left_in_plain_form(found: Any, room: int = 100) -> PlainObject | PlainEnum | None:
    """The first value in plain form that is in a container, or is it."""
    if isinstance(found, PlainObject | PlainEnum):
        return found
    if room <= 0:
        return None
    inside: Any = ()
    if isinstance(found, Mapping):
        inside = (*found.keys(), *found.values())
    elif isinstance(found, list | tuple | set | frozenset):
        inside = found
    return next((left for part in inside if (left := left_in_plain_form(part, room - 1)) is not None), None)
