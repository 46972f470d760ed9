"""What belongs to the whole process and a step may have changed: put back before the next step."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import fcntl
import math
import os
import resource
import signal
import sys
from collections.abc import Callable
from time import monotonic
from typing import Any

__all__ = ["PRIVATE_FROM", "Surroundings", "hide_limits"]

PRIVATE_FROM = 200
"""Private descriptors are moved up to here, where code that closes "all" small ones does not reach."""
_SIGNALS = tuple(
    int(getattr(signal, name))
    for name in (
        *("SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"),
        *("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGPIPE", "SIGCHLD"),
    )
    if hasattr(signal, name)
)
_OURS = frozenset({signal.SIGTERM, signal.SIGUSR1})
_F_SETSIG, _F_GETSIG = 10, 11
"""Of Linux; the `fcntl` module does not name them."""
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
# The wrappers in `signal` make enums of the answers, which takes ten times as long.
_plain_signal: Any = sys.modules.get("_signal", signal)
_handler_of: Callable[[int], Any] = _plain_signal.getsignal


_LIMITS = tuple(
    int(getattr(resource, name))
    for name in (
        *("RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_STACK", "RLIMIT_CPU"),
        *("RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_NPROC"),
    )
    if hasattr(resource, name)
)
"""What a step may lower so that the next one fails for it."""
_LOOK_EVERY = 0.001
"""Seconds after which the limits are looked at in any case."""


class Surroundings:
    """Working directory, umask, environment variables, standard descriptors, resource limits, signals and timers.

    Made on the main thread before the first step. `restore` takes a few microseconds when nothing was changed.
    """

    def __init__(self, arm_stacks: Callable[[], None]) -> None:
        """`arm_stacks` has SIGUSR1 write the stacks again, after a step took that signal."""
        self._arm_stacks = arm_stacks
        self._cwd = _cwd()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._environ = os.environ, os.environb
        self._variables = dict(_variables())
        self._streams = [
            (fd, copy, identity, _mark(fd)) for fd in (0, 1, 2) if (identity := _identity(fd)) and (copy := _copy(fd))
        ]
        self._limits = tuple(map(resource.getrlimit, _LIMITS))
        self._many_open = _many_open()
        self._looked = monotonic()
        self._recursion = sys.getrecursionlimit()
        self._handlers = tuple(map(_handler_of, _SIGNALS))
        self._blocked = _blocked()
        wakeup = signal.set_wakeup_fd(-1)
        self._has_wakeup = wakeup != -1
        """Somebody who was there before the steps wants to be woken by signals."""
        if self._has_wakeup:
            signal.set_wakeup_fd(wakeup)
        self.worn = ""
        """What a step did that cannot be undone: the worker should go."""

    def restore(self) -> None:
        """Undo what the steps before did. Any thread, when no step runs."""
        if sys.getrecursionlimit() != self._recursion:
            sys.setrecursionlimit(self._recursion)
        if self._limits_may_differ() and tuple(map(resource.getrlimit, _LIMITS)) != self._limits:
            self._restore_limits()
        os.umask(self._umask)
        if self._cwd is not None and _cwd() != self._cwd:
            with contextlib.suppress(OSError):
                os.chdir(self._cwd)
        os.environ, os.environb = self._environ  # a step may have put a plain dict in their place
        if _variables() != self._variables:
            self._restore_variables()
        for fd, copy, identity, mark in self._streams:
            if not (mark and _mark_of(fd) == mark) and _identity(fd) != identity:
                with contextlib.suppress(OSError):  # a step that closes everything closes the copy as well
                    os.dup2(copy, fd)
        if _lowest_free() >= self._many_open:
            self.worn = "its steps left most of the descriptors open that a process may have"

    def _limits_may_differ(self) -> bool:
        """A module is loaded with which Python code can change one, or it is long since they were looked at.

        Seven questions take as long as all the others of `restore`; of what C code does by itself nobody tells.
        """
        now, looked = monotonic(), self._looked
        if 0 <= now - looked < _LOOK_EVERY:
            modules = sys.modules
            return "resource" in modules or "_ctypes" in modules or "_cffi_backend" in modules
        self._looked = now
        return True

    def _restore_limits(self) -> None:
        for limit, before in zip(_LIMITS, self._limits, strict=True):
            if resource.getrlimit(limit) == before:
                continue
            try:
                resource.setrlimit(limit, before)
            except (OSError, ValueError):  # a hard limit is raised by the privileged only
                self.worn = "a step lowered a hard limit of its resources"

    def restore_signals(self) -> None:
        """The same for signals and timers. Main thread only."""
        for timer in _TIMERS:
            if signal.getitimer(timer)[0]:
                signal.setitimer(timer, 0)
        faulthandler.cancel_dump_traceback_later()  # which may end the process, too
        if not self._has_wakeup:
            _plain_signal.set_wakeup_fd(-1)  # of an event loop left open: the number may be another file's by now
        if _blocked() != self._blocked:
            self._restore_mask()
        if tuple(map(_handler_of, _SIGNALS)) == self._handlers:
            return
        for number, handler in zip(_SIGNALS, self._handlers, strict=True):
            if _handler_of(number) != handler:
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
                if number == signal.SIGUSR1:
                    self._arm_stacks()

    def _restore_mask(self) -> None:
        for number in signal.sigpending() - _OURS:  # what a step held back must not hit the next one
            handler = _handler_of(number)
            signal.signal(number, signal.SIG_IGN)
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, self._blocked)

    def _restore_variables(self) -> None:
        for name in [name for name in os.environb if name not in self._variables]:
            del os.environb[name]
        for name, value in self._variables.items():
            if os.environb.get(name) != value:
                os.environb[name] = value


def hide_limits() -> None:
    """Have whoever imports `resource` from now on load it anew, which can be seen, unlike a use of what was loaded.

    An audit hook would tell as well, but makes every `id()` of user code four times as slow.
    """
    sys.modules.pop("resource", None)


def _lowest_free() -> int:
    """The number that the next descriptor would get: so many are in use below it. -1 when that cannot be told."""
    try:
        number = os.dup(2)
    except OSError as error:
        return sys.maxsize if error.errno == errno.EMFILE else -1
    os.close(number)
    return number


def _many_open() -> float:
    """From which lowest free number on the worker should go: three quarters of those that are free now."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    now = max(_lowest_free(), 0)
    if most == resource.RLIM_INFINITY or now >= most:
        return math.inf
    return now + (most - now) * 3 // 4


def _blocked() -> set[int]:
    """The signals that the calling thread holds back."""
    found: set[int] = _plain_signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return found


def _variables() -> dict[bytes, bytes]:
    """What `os.environ` keeps, without decoding it all for a comparison."""
    found: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return found


def _cwd() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109 - asked after every step: a Path costs more than the question
    except OSError:
        return None


def _identity(fd: int) -> tuple[int, int] | None:
    try:
        status = os.fstat(fd)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _mark(fd: int) -> int:
    """A number on the open file behind `fd` that tells it from any other; 0 where the system has no room for one.

    It is the signal that asynchronous I/O would send, which nobody switches on: to read it takes a third of an fstat.
    """
    if sys.platform != "linux":
        return 0
    mark = signal.SIGRTMIN + fd
    try:
        if _mark_of(fd):
            return 0  # somebody uses it, or stdout and stderr are one
        fcntl.fcntl(fd, _F_SETSIG, mark)
    except OSError:
        return 0
    return mark if _mark_of(fd) == mark else 0


def _mark_of(fd: int) -> int:
    try:
        return fcntl.fcntl(fd, _F_GETSIG)
    except OSError:
        return 0


def _copy(fd: int) -> int:
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, PRIVATE_FROM)
    except OSError:  # the limit of descriptors is lower than that
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
