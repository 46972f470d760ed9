"""Exceptions as data: those of classes that a procedure class names in `uses` come back to callers as objects.

Nothing is pickled. The stored name of the class is kept, and the result of its ``__reduce__``: arguments and
attributes, as values of the procedure class. Only a class that is named in `uses` where it is read is ever built.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from actorproc.errors import ActorprocError
from actorproc.procedure.values.codec import DataCodec
from actorproc.procedure.values.error_text import OF_USERS
from actorproc.procedure.values.type_names import module_name

__all__ = ["dump_exception", "exceptions_among", "load_exception"]

_LONGEST = 16 * 1024
"""Bytes of an exception that are kept: it stands in the head of its procedure. Of a longer one its text is kept."""
_encode = msgspec.msgpack.Encoder().encode
_named = msgspec.msgpack.Decoder(tuple[str, bytes])


def exceptions_among(used: tuple[Any, ...]) -> dict[str, type[BaseException]]:
    """The exception classes among these, by the name under which they are stored."""
    return {
        f"{module_name(cls)}:{cls.__qualname__}": cls
        for cls in used
        if isinstance(cls, type) and issubclass(cls, BaseException)
    }


def dump_exception(error: BaseException, classes: Mapping[str, type[BaseException]], codec: DataCodec) -> bytes:
    """The exception as data; none when its class is not among these, or it holds what cannot be kept."""
    name = next((name for name, cls in classes.items() if type(error) is cls), None)
    if name is None:
        return b""
    try:
        parts: Any = error.__reduce_ex__(2)
        if not isinstance(parts, tuple) or parts[0] is not type(error):
            return b""
        attributes = dict(parts[2] or {}) if len(parts) > 2 else {}
        data = _encode((name, codec.encode([list(parts[1]), attributes], name)))
    except (*OF_USERS, ActorprocError):  # __reduce__ and attributes are user code; the text of the exception is kept
        return b""
    return data if len(data) <= _LONGEST else b""


def load_exception(data: bytes, classes: Mapping[str, type[BaseException]], codec: DataCodec) -> BaseException | None:
    """The exception of `dump_exception`; None when these classes cannot build it."""
    try:
        name, values = _named.decode(data)
        cls = classes.get(name)
        if cls is None:
            return None
        arguments, attributes = codec.decode(values)
        error = _built(cls, arguments)
        vars(error).update(attributes)
    except OF_USERS:  # it is of another version of the class, or no such data at all
        return None
    return error


def _built(cls: type[BaseException], arguments: list[Any]) -> BaseException:
    """An exception with these arguments, built as states are: without its ``__init__``, unless its class pickles."""
    if cls.__reduce__ is not BaseException.__reduce__ and _is_of_users(cls, "__reduce__", "__reduce_ex__"):
        return cls(*arguments)  # what it gave are arguments of its own choice
    base = next(base for base in cls.__mro__ if "__init__" in vars(base) and not _is_function(base, "__init__"))
    maker = next(base for base in cls.__mro__ if "__new__" in vars(base) and not _is_function(base, "__new__"))
    error: BaseException = maker.__new__(cls, *arguments)
    vars(base)["__init__"](error, *arguments)
    return error


def _is_of_users(cls: type, *names: str) -> bool:
    """One of these methods is written in Python."""
    return any(_is_function(base, name) for base in cls.__mro__ for name in names)


def _is_function(cls: type, name: str) -> bool:
    found = vars(cls).get(name)
    return hasattr(getattr(found, "__func__", found), "__code__")
