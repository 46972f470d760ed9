"""Packages and programs that several machines in one need, and the commands that install what is missing."""

from __future__ import annotations

import importlib.util
import shutil

from actorproc.errors import EngineError
from actorproc.testing.database_server import find_server

__all__ = ["missing_parts"]

_EXTRAS = {"postgres": ("psycopg", "cryptography"), "ray": ("ray",)}
_SERVERS = {
    "apt-get": "apt-get install -y postgresql",
    "dnf": "dnf install -y postgresql-server",
    "apk": "apk add postgresql",
    "brew": "brew install postgresql@17",
}
"""Commands that install a server, by the program that must be there for them."""


def missing_parts(purpose: str, *, on_ray: bool = False) -> list[str]:
    """Lines about what is missing: the reason, then the commands to type; none when all is there.

    Args:
        purpose: Subject of the reason, such as "this demo".
        on_ray: Hosts run in a Ray cluster. Default: False.

    Returns:
        The lines.
    """
    extras = [
        extra
        for extra in (("postgres", "ray") if on_ray else ("postgres",))
        if any(importlib.util.find_spec(module) is None for module in _EXTRAS[extra])
    ]
    commands, reasons = [], []
    if extras:
        reasons.append(f"the extras {' and '.join(extras)}" if len(extras) > 1 else f"the extra {extras[0]}")
        commands.append(f"pip install 'actorproc[{','.join(extras)}]'")
    try:
        find_server()
    except EngineError as error:
        reasons.append(f"a PostgreSQL server ({error})")
        commands.append(_SERVERS[next(filter(shutil.which, _SERVERS), "apt-get")])
    if not reasons:
        return []
    lines = [f"{purpose} needs {', and '.join(reasons)}. Type:", *(f"  {command}" for command in commands)]
    if "ray" in extras:
        lines.append("without Ray, hosts are plain processes: actorproc demo --hosts 2")
    return lines
