"""Values of libraries that the engine does not load: IP addresses, numpy's, pydantic's texts.

A library is looked at only when a value of it is there, or is read. The stored form names no module and no function:
each reader here stands for a fixed set of classes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actorproc.procedure.values.kinds import numpy
from actorproc.procedure.values.kinds.base import (
    IP_ADDRESS,
    LIBRARY_SECRET,
    NDARRAY,
    NUMPY_SCALAR,
    UNPACK,
    URL,
    Ext,
    encode,
    scalar,
)

__all__ = ["pack_of_library"]

_ADDRESSES = frozenset(
    {"IPv4Address", "IPv4Interface", "IPv4Network", "IPv6Address", "IPv6Interface", "IPv6Network"},
)
_SECRETS = frozenset({"SecretStr", "SecretBytes"})


def pack_of_library(value: Any) -> Any:
    """The extension for a value of a known library; None for any other value. Raises what refuses it."""
    for base in type(value).__mro__:  # one derived from an array is refused in words
        pack = _PACK.get(base.__module__.partition(".")[0])
        if pack is not None:
            return pack(value)
    return None


# ---------------------------------------------------------------- ipaddress
def _pack_address(value: Any) -> Any:
    name = type(value).__name__
    return Ext(IP_ADDRESS, encode([name, str(value)])) if name in _ADDRESSES else None


def _unpack_address(payload: memoryview, decode: Callable[[memoryview], Any]) -> Any:
    import ipaddress  # noqa: PLC0415 - only where such a value is: it takes milliseconds to load

    name, text = decode(payload)
    return getattr(ipaddress, _one_of(_ADDRESSES, name))(text)


# ---------------------------------------------------------------- pydantic
def _pack_of_pydantic(value: Any) -> Any:
    from pydantic import networks, types  # noqa: PLC0415 - loaded by the code that made the value

    kind = type(value)
    if kind.__name__ in _SECRETS and getattr(types, kind.__name__, None) is kind:
        return Ext(LIBRARY_SECRET, encode([kind.__name__, scalar(value.get_secret_value())]))
    if kind.__name__ in networks.__all__ and getattr(networks, kind.__name__, None) is kind:
        return Ext(URL, encode([kind.__name__, str(value)]))
    return None


def _unpack_secret(payload: memoryview, decode: Callable[[memoryview], Any]) -> Any:
    from pydantic import types  # noqa: PLC0415 - only where such a value was stored

    name, text = decode(payload)
    return getattr(types, _one_of(_SECRETS, name))(text)


def _unpack_url(payload: memoryview, decode: Callable[[memoryview], Any]) -> Any:
    from pydantic import networks  # noqa: PLC0415 - only where such a value was stored

    name, text = decode(payload)
    return getattr(networks, _one_of(frozenset(networks.__all__), name))(text)


def _one_of(names: frozenset[str], name: Any) -> str:
    """The name, which must be one of these: nothing else of a module is ever looked up."""
    if name not in names:
        msg = f"{name!r:.40} is no class that is kept"
        raise ValueError(msg)
    return str(name)


_PACK: dict[str, Callable[[Any], Any]] = {
    "ipaddress": _pack_address,
    "numpy": numpy.packed,
    "pydantic": _pack_of_pydantic,
}
UNPACK.update(
    {
        IP_ADDRESS: _unpack_address,
        LIBRARY_SECRET: _unpack_secret,
        URL: _unpack_url,
        NUMPY_SCALAR: numpy.unpacked_scalar,
        NDARRAY: numpy.unpacked_array,
    }
)
