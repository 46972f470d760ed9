"""Wire format of the control socket: frames, calls, answers, and errors as data.

A frame is a 4-byte big-endian length and a msgpack array. One of length 0 is a sign of life and nothing else. A client
numbers its calls; every answer repeats the number. Nothing here is ever unpickled: values are decoded as the types that
the call's name stands for, and what does not fit is a `UsageError` for the other side.
"""

from __future__ import annotations

import builtins
import os
import socket
import struct
import sys
from pathlib import Path
from typing import Any, Protocol

import msgspec

from actorproc import errors
from actorproc.errors import ActorprocError, EngineError, InternalError
from actorproc.model.exact import as_plain

__all__ = [
    "HEADER",
    "PROTOCOL",
    "SIGN_OF_LIFE",
    "SOCKET_FILE",
    "CallAnswer",
    "ClientHello",
    "RemoteCall",
    "SocketAddress",
    "Torn",
    "decode_as",
    "encode",
    "error_from",
    "error_to",
    "framed",
    "peer_uid",
    "read_frame",
]

PROTOCOL = 1
SOCKET_FILE = "control.sock"
HEADER = struct.Struct(">I")
encode = msgspec.msgpack.Encoder(enc_hook=as_plain).encode


SIGN_OF_LIFE = HEADER.pack(0)
"""An empty frame: it says that the manager's process lives."""


class _Readable(Protocol):
    def recv(self, size: int, /) -> bytes: ...


class Torn(Exception):
    """The connection ended, or what came is no frame of this protocol."""


class RemoteCall(msgspec.Struct, frozen=True, array_like=True):
    """From a client. `kind` says what `name` is: an event, a method of the engine, or a stream."""

    number: int
    kind: str
    """request, call, end_of, watch, unwatch."""
    name: str
    body: msgspec.Raw


class CallAnswer(msgspec.Struct, frozen=True, array_like=True):
    """From the manager."""

    number: int
    kind: str
    """hello, ok, error, change."""
    body: msgspec.Raw


class ClientHello(msgspec.Struct, frozen=True):
    """The first answer on a connection, with number 0."""

    protocol: int
    pid: int
    epoch: int
    max_frame: int
    max_state: int
    limits: str
    """Enforcement of memory limits there."""
    process_limits: str = "none"
    """Protection against a fork bomb there."""


# ---------------------------------------------------------------- frames
def framed(message: RemoteCall | CallAnswer) -> bytes:
    """A message as it goes through the socket."""
    body = encode(message)
    return HEADER.pack(len(body)) + body


def read_frame(stream: _Readable, limit: int) -> bytes:
    """The next frame's body; signs of life are passed over. Raises `Torn`."""
    length = 0
    while not length:
        (length,) = HEADER.unpack(_read(stream, HEADER.size))
    if length > limit:
        msg = f"a frame of {length} bytes is longer than {limit}"
        raise Torn(msg)
    return _read(stream, length)


def _read(stream: _Readable, size: int) -> bytes:
    chunks = bytearray()
    while len(chunks) < size:
        try:
            chunk = stream.recv(min(size - len(chunks), 1 << 20))
        except OSError as error:
            raise Torn(str(error)) from error
        if not chunk:
            msg = "the connection ended"
            raise Torn(msg)
        chunks += chunk
    return bytes(chunks)


def decode_as(body: bytes | msgspec.Raw, type_: Any) -> Any:
    """A value of this type. Raises `msgspec.DecodeError`."""
    try:
        return msgspec.msgpack.decode(body, type=type_)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from None


# ---------------------------------------------------------------- errors
class _Failure(msgspec.Struct, frozen=True, array_like=True):
    name: str
    message: str
    extras: dict[str, Any]


def error_to(error: BaseException) -> bytes:
    """An error as data: an `ActorprocError` or a builtin by name, anything else as `InternalError`."""
    kind = type(error)
    is_ours = isinstance(error, ActorprocError) and getattr(errors, kind.__name__, None) is kind
    is_builtin = getattr(builtins, kind.__name__, None) is kind and isinstance(error, Exception)
    name = kind.__name__ if is_ours or is_builtin else InternalError.__name__
    message = str(error) if is_ours or is_builtin else f"{kind.__name__}: {error}"
    extras: dict[str, str | int] = {}
    for key, value in vars(error).items():
        if isinstance(value, str) and key[0] != "_":
            extras[key] = _as_utf8(value)
        elif isinstance(value, int) and key[0] != "_" and value.bit_length() < 64:
            extras[key] = value
    return encode(_Failure(name, _as_utf8(message), extras))


def _as_utf8(text: str) -> str:
    """A text that can be sent: names of files may hold bytes that are no UTF-8, and errors quote them."""
    return text.encode("utf-8", "backslashreplace").decode()


def error_from(body: msgspec.Raw) -> Exception:
    """The error that `error_to` made data of."""
    failure: _Failure = decode_as(body, _Failure)
    kind = getattr(errors, failure.name, None) or getattr(builtins, failure.name, None)
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        kind = InternalError
    try:
        error = kind(failure.message)
    except TypeError:
        error = InternalError(f"{failure.name}: {failure.message}")
    for key, value in failure.extras.items():
        setattr(error, key, value)
    return error


# ---------------------------------------------------------------- the socket's file
class SocketAddress:
    """The address of the socket in a directory, however long its path: Unix addresses hold about 100 bytes.

    A context manager: the address is good inside it.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = Path(directory)
        self._fd = -1

    def __enter__(self) -> str:
        plain = os.fspath(self._directory / SOCKET_FILE)
        if len(os.fsencode(plain)) < 100:
            return plain
        if not sys.platform.startswith("linux"):
            msg = f"the path {plain} is too long for a Unix socket on this system; use a shorter directory"
            raise EngineError(msg)
        self._fd = os.open(self._directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        return f"/proc/self/fd/{self._fd}/{SOCKET_FILE}"

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def peer_uid(sock: socket.socket) -> int:
    """The user on the other end of a Unix socket, as the kernel knows it."""
    if hasattr(socket, "SO_PEERCRED"):
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    # struct xucred of the BSDs and macOS: version, uid, …
    credentials = sock.getsockopt(0, 1, 76)
    return int(struct.unpack_from("Ii", credentials)[1])
