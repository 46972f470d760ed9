"""Addresses of leaders: what is listened on, what is published, and from where it can be reached."""

from __future__ import annotations

import ipaddress
import os
import socket
import uuid
from pathlib import Path

from actorproc.errors import EngineError

__all__ = [
    "address_text",
    "dialled_address",
    "is_loopback",
    "local_address_towards",
    "machine_id",
    "parsed_address",
    "published_address",
]


def parsed_address(text: str, port: int = 0) -> tuple[str, int]:
    """Host and port of an address.

    Args:
        text: ``host``, ``host:port``, ``[ipv6]:port``, or an IPv6 address.
        port: The port when the text has none. Default: 0.

    Returns:
        Host and port.

    Raises:
        ValueError: It is no address.
    """
    host, given = text, ""
    if text.startswith("["):
        host, closed, given = text[1:].partition("]")
        if not closed or (given and not given.startswith(":")):
            msg = f"{text!r:.100} is no address; write it as [::1]:4711"
            raise ValueError(msg)
        given = given[1:]
    elif text.count(":") == 1:
        host, _, given = text.partition(":")
    if not host or any(char.isspace() or not char.isprintable() or char in "/@[]" for char in host):
        msg = f"{text!r:.100} is no address; write a host, or host:port, such as 'db1.example' or '10.0.0.5:4711'"
        raise ValueError(msg)
    if given:
        if not given.isascii() or not given.isdigit() or int(given) > 65535:
            msg = f"{given!r:.20} in the address {text!r:.100} is no port; it is a number from 0 to 65535"
            raise ValueError(msg)
        port = int(given)
    return host, port


def address_text(host: str, port: int) -> str:
    """Host and port as one text, as `parsed_address` reads it.

    Args:
        host: The host.
        port: The port.

    Returns:
        The text.
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """True for an address that only this machine reaches.

    Args:
        host: A host, by name or address.

    Returns:
        True or False; a name other than ``localhost`` is taken to reach further.
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower().rstrip(".") == "localhost"


def local_address_towards(host: str, port: int = 5432) -> str:
    """Address of this machine by which it reaches another one: there it can be reached, too. Nothing is sent.

    Args:
        host: The other machine, by name or address; "" or a path: a socket of this machine.
        port: A port of it.

    Returns:
        The address; that of the loopback interface where there is no way to tell.
    """
    if not host or host.startswith(("/", "@")):
        return "127.0.0.1"
    try:
        family, kind, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def machine_id() -> str:
    """Identity of this machine as far as its loopback interface reaches: two containers have two.

    Returns:
        32 hexadecimal digits, the same for all processes between two starts of the machine.
    """
    parts = []
    for file in ("/proc/sys/kernel/random/boot_id", "/etc/machine-id"):
        try:
            parts.append(Path(file).read_text(encoding="ascii", errors="replace").strip())
        except OSError:
            parts.append("")
    try:
        parts.append(os.readlink("/proc/self/ns/net"))  # noqa: PTH115 - it is no path
    except OSError:
        parts.append("")
    if not any(parts):  # no Linux
        parts = [socket.gethostname(), str(uuid.getnode())]
    import hashlib  # noqa: PLC0415 - an import of 2 ms, for stores in a database alone

    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def published_address(host: str, port: int) -> str:
    """Address of a leader as its row has it: one that only this machine reaches names the machine.

    Args:
        host: The host.
        port: The port.

    Returns:
        The text, which `dialled_address` reads.
    """
    text = address_text(host, port)
    return f"{text}@{machine_id()}" if is_loopback(host) else text


def dialled_address(text: str) -> tuple[str, int]:
    """Host and port of a leader's row.

    Args:
        text: The address as `published_address` made it.

    Returns:
        Host and port.

    Raises:
        EngineError: It is the loopback interface of another machine, or no address.
    """
    address, _, machine = text.partition("@")
    try:
        host, port = parsed_address(address)
    except ValueError as error:
        raise EngineError(f"the leader's row holds no address: {error}") from error
    if machine and machine != machine_id():
        msg = (
            f"the leader is on another machine and can be reached at {address} there only. Give the leader an address "
            "that this machine reaches: Config(listen='10.0.0.5:4711'), or Config(advertise='host:4711') where it is "
            "known to others by another address than the one that it listens on"
        )
        raise EngineError(msg)
    return host, port
