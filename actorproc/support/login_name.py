"""Name of the user for whom this process acts, for the audit log."""

from __future__ import annotations

import functools
import os
import pwd

__all__ = ["login_name"]

_LONGEST = 64


@functools.cache
def login_name() -> str:
    """The name of the effective user, or "uid 1000" where it has none; under sudo also the name of who called it.

    It is a word for people, no proof: a process of the same user can give any name.
    """
    name = _name_of(os.geteuid())
    caller = os.environ.get("SUDO_USER", "")[:_LONGEST]
    if not caller.isprintable() or caller in ("", name):
        return name
    return f"{name} (sudo by {caller})"


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name[:_LONGEST] or f"uid {uid}"
    except (KeyError, OSError):
        return f"uid {uid}"
