"""Processes that steps start: ordinary children of the program, not parts of the worker.

A worker prefers to be killed when memory runs out (``oom_score_adj``), and every process inherits that. So the score is
the host's for the moment in which a child is started, by wrappers around the functions that start one. Processes that
native code starts by itself keep the worker's.

A *resource tracker* removes shared memory, semaphores and temporary files that processes leave behind
(`actorproc.workers.resource_trackers`). It must outlive the worker, whose process group is killed, so it is started in
a group of its own. It ends by itself.
"""

from __future__ import annotations

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from actorproc.workers.resource_trackers import is_tracker

__all__ = ["Offspring"]

_OOM_SCORE = 500
_SCORE = Path("/proc/self/oom_score_adj")
_NO_GROUP = -1
_GROUP = 16
"""Place of the argument `pgid_to_set` of `_posixsubprocess.fork_exec` (Python 3.11 and later)."""


class Offspring:
    """The score of this worker and that of its children. Made once, before another thread runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starting = 0
        """Children that are being started now."""
        self._of_host = _prefer_to_be_killed()

    def watch(self) -> None:
        """Wrap the functions that start processes. Before a module of the program is imported."""
        for name in ("posix_spawn", "posix_spawnp"):
            if hasattr(os, name):
                _put(name, _Starter(getattr(os, name), getattr(os, name), self))
        if self._of_host is not None:
            _put("system", _Starter(_system, os.system, None))
        import _posixsubprocess  # noqa: PLC0415 - what `subprocess` and `multiprocessing` start processes with

        plain = _posixsubprocess.fork_exec
        _posixsubprocess.fork_exec = _Starter(_apart(plain), plain, self)
        loaded: Any = sys.modules.get("subprocess")
        if loaded is not None and getattr(loaded, "_fork_exec", None) is plain:
            loaded._fork_exec = _posixsubprocess.fork_exec

    def in_forked_copy(self) -> None:
        """This is a forked copy of the worker: it has the host's score for good."""
        self._lock = threading.Lock()
        if self._of_host is not None and _score() == _OOM_SCORE:
            _set_score(self._of_host)
        self._of_host = None

    @contextlib.contextmanager
    def being_started(self) -> Iterator[None]:
        """Inside, processes begin with the host's score."""
        if self._of_host is None:
            yield
            return
        with self._lock:
            self._starting += 1
            # Only if it is still ours: a step may have set another one.
            if self._starting == 1 and _score() == _OOM_SCORE:
                _set_score(self._of_host)
        try:
            yield
        finally:
            with self._lock:
                self._starting -= 1
                if not self._starting and self._of_host is not None and _score() == self._of_host:
                    _set_score(_OOM_SCORE)


class _Starter:
    """A function that starts a process. Not a Python function, which would be a method as an attribute of a class."""

    def __init__(self, call: Callable[..., Any], plain: Callable[..., Any], offspring: Offspring | None) -> None:
        functools.update_wrapper(self, plain)
        self.__self__ = getattr(plain, "__self__", None)
        self._call = call
        self._offspring = offspring

    def __call__(self, *args: Any, **named: Any) -> Any:
        if self._offspring is None:
            return self._call(*args, **named)
        with self._offspring.being_started():
            return self._call(*args, **named)

    def __repr__(self) -> str:
        return repr(self.__wrapped__)  # type: ignore[attr-defined]

    def __reduce__(self) -> str:
        return str(self.__name__)  # type: ignore[attr-defined]


def _put(name: str, starter: _Starter) -> None:
    for module in (os, sys.modules["posix"]):
        setattr(module, name, starter)


def _apart(fork_exec: Callable[..., int]) -> Callable[..., int]:
    """The same function, which starts a resource tracker in a process group of its own."""

    def start(*args: Any) -> int:
        if len(args) > _GROUP and args[_GROUP] == _NO_GROUP and is_tracker(args[0]):
            args = (*args[:_GROUP], 0, *args[_GROUP + 1 :])
        return fork_exec(*args)

    return start


def _system(command: str | bytes | os.PathLike[str]) -> int:
    """`os.system` in two parts: the worker must not have the host's score for as long as the command runs.

    The original ignores SIGINT and SIGQUIT meanwhile; a worker has nothing to fear of both.
    """
    text = os.fsencode(command)
    sys.audit("os.system", text)
    try:
        return os.waitpid(os.posix_spawn("/bin/sh", [b"sh", b"-c", text], os.environ), 0)[1]
    except OSError:  # as the original: no room for a process, or SIGCHLD is ignored
        return -1


def _prefer_to_be_killed() -> int | None:
    """Make the kernel choose this process before the host when memory runs out (Linux; needs no privilege).

    Returns:
        The score before, if it was changed.
    """
    before = _score()
    return before if before is not None and before < _OOM_SCORE and _set_score(_OOM_SCORE) else None


def _score() -> int | None:
    try:
        return int(_SCORE.read_bytes())
    except (OSError, ValueError):
        return None


def _set_score(score: int) -> bool:
    try:
        _SCORE.write_bytes(b"%d" % score)
    except OSError:
        return False
    return True
