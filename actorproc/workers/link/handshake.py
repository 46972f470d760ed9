"""Handshake of a link: both ends prove, inside TLS, that they know the secret, before any other byte is decoded.

::

    client → server   magic, role, nonce, highest epoch seen, name of the machine
    server → client   nonce, HMAC("server", …)
    client → server   HMAC("client", …)
    server → client   seconds of silence that mean its death; or the reason for a refusal

Each HMAC (SHA-256) covers the certificate that the TLS session showed and both first messages. So neither a proxy with
another certificate nor a replay of an earlier session passes. The certificate itself is pinned: a client leaves before
it has said anything when it meets another one.
"""

from __future__ import annotations

import enum
import hashlib
import hmac
import math
import secrets
import struct
import time
from dataclasses import dataclass

from actorproc.workers.link.stream import LinkStream

__all__ = ["HANDSHAKE", "LinkPeer", "LinkRefused", "LinkRole", "admit", "introduce"]

HANDSHAKE = 5.0
"""Seconds that TLS and this handshake may take together."""
_MOST = 4096
"""Bytes of one message of the handshake."""
_MAGIC = b"actorproc link 1\n"
_NONCE = 32
_LENGTH = struct.Struct(">H")
_FIRST = struct.Struct(f">{len(_MAGIC)}sB{_NONCE}sQ")
_WELCOME = struct.Struct(">Bd")


class LinkRefused(ConnectionError):
    """One end did not let the other one in, or is not the one it should be.

    Args:
        why: The reason, in words.
        kind: A short name of the reason, for counters.
    """

    def __init__(self, why: str, kind: str) -> None:
        super().__init__(why)
        self.kind = kind


class LinkRole(enum.IntEnum):
    """Role in which an end connects to a leader."""

    CLIENT = 1
    HOST = 2


@dataclass(frozen=True)
class LinkPeer:
    """The client of a link, as its handshake said."""

    role: LinkRole
    epoch: int
    """Highest epoch that it has seen; 0: none."""
    name: str
    """Name of its machine, as it calls itself."""


def introduce(
    stream: LinkStream, *, secret: bytes, pin: bytes, role: LinkRole, epoch: int, name: str, within: float = HANDSHAKE
) -> None:
    """Connect as a client: TLS, then the handshake. The server says what silence of it means its death.

    Args:
        stream: The new connection.
        secret: The secret of both ends.
        pin: SHA-256 of the certificate that the server must show.
        role: The role to connect in.
        epoch: Highest epoch seen here; 0: none.
        name: Name of this machine.
        within: Seconds for all of it.

    Raises:
        LinkRefused: The server is another one, or it refused.
        OSError: The connection broke, or took too long.
    """
    until = time.monotonic() + within
    stream.negotiate(until)
    if not hmac.compare_digest(stream.peer_pin, pin):
        raise LinkRefused("it shows another certificate than the leader's row names", "certificate")
    first = _FIRST.pack(_MAGIC, role, secrets.token_bytes(_NONCE), epoch) + name.encode()[:200]
    _say(stream, first)
    answer = _hear(stream, until)
    nonce, proof = answer[:_NONCE], answer[_NONCE:]
    if not hmac.compare_digest(proof, _proof(secret, b"server", pin, first, nonce)):
        raise LinkRefused("it does not know the secret of the leader's row", "secret")
    _say(stream, _proof(secret, b"client", pin, first, nonce))
    welcome = _hear(stream, until)
    if len(welcome) < _WELCOME.size or welcome[0] != 1:
        raise LinkRefused(welcome[1:].decode(errors="replace") or "it refused without a reason", "refused")
    _, silence = _WELCOME.unpack(welcome)
    if silence > 0:
        stream.silence = stream.stuck = silence


def admit(stream: LinkStream, *, secret: bytes, pin: bytes, roles: frozenset[LinkRole], silence: float) -> LinkPeer:
    """Let a client in as the server: TLS, then the handshake, within `HANDSHAKE` seconds.

    Args:
        stream: The new connection.
        secret: The secret of both ends.
        pin: SHA-256 of the certificate of this end.
        roles: Roles that may come in.
        silence: Seconds without a byte from here after which the client is to take this end for dead.

    Returns:
        The client.

    Raises:
        LinkRefused: It does not know the secret, or speaks another protocol.
        OSError: The connection broke, or took too long.
    """
    until = time.monotonic() + HANDSHAKE
    stream.negotiate(until)
    first = _hear(stream, until)
    if len(first) < _FIRST.size or not first.startswith(_MAGIC):
        raise LinkRefused("it speaks another protocol; use the same version of actorproc on both sides", "protocol")
    _, number, _, epoch = _FIRST.unpack_from(first)
    nonce = secrets.token_bytes(_NONCE)
    _say(stream, nonce + _proof(secret, b"server", pin, first, nonce))
    if not hmac.compare_digest(_hear(stream, until), _proof(secret, b"client", pin, first, nonce)):
        raise LinkRefused("it does not know the secret", "secret")
    name = first[_FIRST.size :].decode(errors="replace")
    if number not in roles:
        why = f"the role {number} is not let in here"
        _say(stream, b"\0" + why.encode())
        raise LinkRefused(why, "role")
    _say(stream, _WELCOME.pack(1, silence if math.isfinite(silence) else 0.0))
    return LinkPeer(LinkRole(number), epoch, "".join(char if char.isprintable() else "?" for char in name))


def _proof(secret: bytes, end: bytes, pin: bytes, first: bytes, nonce: bytes) -> bytes:
    covered = b"".join(_LENGTH.pack(len(part)) + part for part in (end, pin, first, nonce))
    return hmac.new(secret, covered, hashlib.sha256).digest()


def _say(stream: LinkStream, message: bytes) -> None:
    stream.sendall(_LENGTH.pack(len(message)) + message)


def _hear(stream: LinkStream, until: float) -> bytes:
    (length,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size, until))
    if length > _MOST:
        raise LinkRefused(f"a message of {length} bytes is longer than {_MOST}", "protocol")
    return _exactly(stream, length, until)


def _exactly(stream: LinkStream, size: int, until: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = stream.recv(size - len(data), until)
        if not chunk:
            raise LinkRefused("the connection ended in the middle of the handshake", "ended")
        data += chunk
    return bytes(data)
