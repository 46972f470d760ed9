"""Programs whose threads are not threads: gevent and eventlet put their own in place of the standard library's.

An engine needs threads that the system runs, queues between them, sockets that wait, and `subprocess`. With patched
ones a start would hang without a word.
"""

from __future__ import annotations

import sys
from typing import Any

from actorproc.errors import UsageError

__all__ = ["refuse_patched_threads"]

_ASKED = {"gevent.monkey": "is_module_patched", "eventlet.patcher": "is_monkey_patched"}
"""Modules that patch others, and what they are asked."""
_NEEDED = ("thread", "threading", "queue", "socket", "subprocess")
"""Modules whose patches stop an engine; those of ``os``, ``select``, ``time``, ``signal`` and ``ssl`` do not."""


def refuse_patched_threads(path: str) -> None:
    """Raise `UsageError` when a manager on `path` could not run here."""
    for package, question in _ASKED.items():
        is_patched: Any = getattr(sys.modules.get(package), question, None)
        found = [name for name in _NEEDED if is_patched(name)] if is_patched is not None else []
        if found:
            msg = (
                f"{package} has replaced {', '.join(found)} of this program, and a manager needs the standard "
                "library's: run it in a program of its own (`actorproc run`), and reach it from here through "
                f"ProcedureClient({path!r})"
            )
            raise UsageError(msg)
