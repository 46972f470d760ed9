"""Calls of `procedure` functions made in a step and dropped: nothing of them runs, as of a coroutine not awaited.

Only a process that runs steps looks for them, and only inside a step. Each such object is watched until it is
described for the store, stored in a state or run. For one that is collected before, a warning names the line that made
it.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from types import CodeType, FrameType
from typing import Any

__all__ = ["forget", "keep", "note", "steps_of", "use", "watch", "watched"]

_DEEPEST = 100
"""Frames between a call and its step that are looked at."""
steps_of: list[CodeType] = []
"""Code of the function that runs steps; empty in a process that runs none."""
watched: dict[int, weakref.ref[Any]] = {}
"""The objects of which nothing has become yet."""
_told: dict[Any, Any] = {}
"""Warnings that were issued: one for each line."""


def watch(runs_steps: Any) -> None:
    """Look for them in this process, below this function."""
    steps_of[:] = [runs_steps.__code__]


def note(made: Any, name: str) -> None:
    """A call of a procedure function was made; ``name`` is the function's."""
    frame = sys._getframe(2)
    if not _is_in_step(frame):
        return
    key, file, line = id(made), frame.f_code.co_filename, frame.f_lineno
    module = frame.f_globals.get("__name__", "")

    def dropped(_: Any) -> None:
        if watched.pop(key, None) is not None:
            _warn(name, file, line, module)

    watched[key] = weakref.ref(made, dropped)


def use(made: Any) -> None:
    """Something becomes of this procedure."""
    watched.pop(id(made), None)


def keep(procedure: Any) -> None:
    """The state of this procedure is stored, with what is in its fields."""
    _use_all(list(getattr(procedure, "__dict__", {}).values()), 3)


def forget() -> None:
    """A step failed, and with it whatever it was about to do."""
    watched.clear()


def _use_all(values: list[Any], room: int) -> None:
    for value in values:
        watched.pop(id(value), None)
        if room and isinstance(value, list | tuple | set | frozenset):
            _use_all(list(value), room - 1)
        elif room and isinstance(value, dict):
            _use_all(list(value.values()), room - 1)


def _is_in_step(frame: FrameType | None) -> bool:
    for _ in range(_DEEPEST):
        if frame is None:
            return False
        if frame.f_code in steps_of:
            return True
        frame = frame.f_back
    return False


def _warn(name: str, file: str, line: int, module: str) -> None:
    msg = (
        f"{name}(…) was called in a step and dropped, so nothing of it runs; return Status.suspended([{name}(…)]) to "
        f"run it as a child, or write {name}.function(…) to call the function here"
    )
    warnings.warn_explicit(msg, RuntimeWarning, file, line, module, _told)
