"""State of the whole process that a step may have changed, restored before the next step."""

from __future__ import annotations

import contextlib
import errno
import faulthandler
import fcntl
import functools
import math
import os
import resource
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from fcntl import fcntl as _fcntl
from os import getcwd as _getcwd, umask as _set_umask
from resource import getrlimit as _limit_of
from sys import getrecursionlimit as _recursion_limit
from time import CLOCK_MONOTONIC, clock_gettime
from typing import Any

from actorproc.workers.child.process_state.change_hooks import changes

__all__ = ["PRIVATE_FROM", "ProcessState"]

PRIVATE_FROM = 200
"""Private descriptors are moved up to here, where code that closes "all" small ones does not reach."""
_SIGNALS = tuple(
    int(getattr(signal, name))
    for name in (
        *("SIGHUP", "SIGINT", "SIGTERM", "SIGUSR1", "SIGUSR2"),
        *("SIGALRM", "SIGVTALRM", "SIGPROF", "SIGPIPE", "SIGCHLD", "SIGURG"),
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
_timer_of: Callable[[int], tuple[float, float]] = _plain_signal.getitimer
_held_back: Callable[[int, tuple[int, ...]], set[int]] = _plain_signal.pthread_sigmask
_set_wakeup_fd: Callable[[int], int] = _plain_signal.set_wakeup_fd
_cancel_traceback: Callable[[], object] = faulthandler.cancel_dump_traceback_later
_set_timer: Callable[[int, float], object] = _plain_signal.setitimer
_BLOCK, _SETMASK = int(signal.SIG_BLOCK), int(signal.SIG_SETMASK)
# Libraries that freeze time put another `monotonic` into all modules that have it.
_now: Callable[[], float] = functools.partial(clock_gettime, CLOCK_MONOTONIC)
_OFF = ((0.0, 0.0),) * len(_TIMERS)
_GETSIG = (_F_GETSIG,) * 3

_LIMITS = tuple(
    int(getattr(resource, name))
    for name in (
        *("RLIMIT_AS", "RLIMIT_DATA", "RLIMIT_STACK", "RLIMIT_CPU"),
        *("RLIMIT_FSIZE", "RLIMIT_NOFILE", "RLIMIT_NPROC"),
    )
    if hasattr(resource, name)
)
"""Limits that a step may lower so that the next one fails for it."""
_LOOK_EVERY = 0.001
"""Seconds between two looks at state that native code can change: directory, umask, signal mask, timers, limits."""
_TO_OPEN = 1e-7
"""Seconds: less than it takes to open one descriptor, in whatever language."""


class ProcessState:
    """Working directory, umask, environment variables, standard descriptors, resource limits, signals and timers.

    Made on the main thread before the first step. `tidy` takes a few microseconds when nothing was changed.
    """

    def __init__(self, arm_stacks: Callable[[], None]) -> None:
        """`arm_stacks` has SIGUSR1 write the stacks again, after a step took that signal."""
        self._arm_stacks = arm_stacks
        self._cwd = _cwd()
        self._umask = os.umask(0o077)
        os.umask(self._umask)
        self._environ, self._environb = os.environ, os.environb
        self._variables = dict(_variables())
        self._streams = [
            (fd, copy, identity, _mark(fd)) for fd in (0, 1, 2) if (identity := _identity(fd)) and (copy := _copy(fd))
        ]
        self._note_marks()
        self._limits = tuple(map(_limit_of, _LIMITS))
        self._looked = self._counted = _now()
        self._many_open, self._filling_takes = _many_open()
        self._recursion = sys.getrecursionlimit()
        self._handlers = tuple(map(_handler_of, _SIGNALS))
        self._blocked = _blocked()
        wakeup = signal.set_wakeup_fd(-1)
        self._has_wakeup = wakeup != -1
        """Code that ran before the steps wants to be woken by signals."""
        if self._has_wakeup:
            signal.set_wakeup_fd(wakeup)
        self.worn = ""
        """Act of a step that cannot be undone: the worker should go."""

    def tidy(self) -> None:
        """Undo what the steps before did. Main thread, when no step runs."""
        if not self._is_as_before():
            self.restore()
            self._restore_signals()

    def _is_as_before(self) -> bool:
        """Nothing has to be undone. Asked after every step, hence one expression, of functions looked up beforehand.

        Where to put a thing right takes no longer than to ask for it, that is done, and what was there is the answer.
        """
        try:
            return (
                _recursion_limit() == self._recursion
                and os.environ is self._environ
                and os.environb is self._environb
                and self._environ._data == self._variables  # type: ignore[attr-defined]
                and tuple(map(_fcntl, self._marked, _GETSIG)) == self._marks
                and not (self._unmarked and self._has_other_streams())
                and tuple(map(_handler_of, _SIGNALS)) == self._handlers
                and (self._has_wakeup or _set_wakeup_fd(-1) == -1)
                and _cancel_traceback() is None  # which may end the process, too
                and not (not 0 <= (now := _now()) - self._counted < self._filling_takes and self._is_filling(now))
                and not (
                    (changes.can_have_been_made() or not 0 <= now - self._looked < _LOOK_EVERY) and self._differs(now)
                )
            )
        except Exception:  # noqa: BLE001 - of a directory or a descriptor that is gone, an environment without variables
            return False

    def _note_marks(self) -> None:
        """By what the standard descriptors are known: one that lost its mark for good by its file."""
        marked = [(fd, mark) for fd, _, _, mark in self._streams if mark and _mark_of(fd) == mark]
        self._marked, self._marks = tuple(fd for fd, _ in marked), tuple(mark for _, mark in marked)
        self._unmarked = [(fd, identity) for fd, _, identity, _ in self._streams if fd not in self._marked]

    def _has_other_streams(self) -> bool:
        return any(_identity(fd) != identity for fd, identity in self._unmarked)

    def _is_filling(self, now: float) -> bool:
        """True if most descriptors are in use; asked when a step had time to open that number of them."""
        self._counted = now
        return _lowest_free() >= self._many_open

    def _differs(self, now: float) -> bool:
        """Compare what only system calls tell: made when it can have changed, as it takes as long as all else."""
        self._looked = now
        return not (
            _cwd() == self._cwd
            and _set_umask(self._umask) == self._umask
            and tuple(map(_timer_of, _TIMERS)) == _OFF
            and _blocked() == self._blocked
            and tuple(map(_limit_of, _LIMITS)) == self._limits
        )

    def restore(self) -> None:
        """Undo what the steps before did, except to signals and timers. Any thread, when no step runs."""
        if sys.getrecursionlimit() != self._recursion:
            sys.setrecursionlimit(self._recursion)
        if tuple(map(_limit_of, _LIMITS)) != self._limits:
            self._restore_limits()
        _set_umask(self._umask)
        if self._cwd is not None and _cwd() != self._cwd:
            with contextlib.suppress(OSError):
                os.chdir(self._cwd)
        os.environ, os.environb = self._environ, self._environb  # a step may have put a plain dict in their place
        if _variables() != self._variables:
            self._restore_variables()
        for fd, copy, identity, mark in self._streams:
            if _mark_of(fd) != mark if mark else _identity(fd) != identity:
                with contextlib.suppress(OSError):  # a step that closes everything closes the copy as well
                    os.dup2(copy, fd)
                    if mark:  # a step may have changed that alone
                        _fcntl(fd, _F_SETSIG, mark)
        self._note_marks()
        if _lowest_free() >= self._many_open:
            self.worn = "its steps left most of the descriptors open that a process may have"

    @contextlib.contextmanager
    def keep_changes(self) -> Iterator[None]:
        """Keep the changes inside, unless that raises; but for streams, timers and the worker's own signals."""
        limits = tuple(map(_limit_of, _LIMITS))  # that of processes may be the step's
        yield
        self._limits = tuple(
            now if now != before else kept
            for now, before, kept in zip(map(_limit_of, _LIMITS), limits, self._limits, strict=True)
        )
        self._cwd = _cwd()
        self._umask = _set_umask(0o077)
        _set_umask(self._umask)
        self._variables = dict(_variables())
        self._many_open, self._filling_takes = _many_open()
        self._recursion = sys.getrecursionlimit()
        self._blocked = _blocked() if threading.current_thread() is threading.main_thread() else self._blocked
        self._handlers = tuple(
            before if number in _OURS else _handler_of(number)
            for number, before in zip(_SIGNALS, self._handlers, strict=True)
        )

    def _restore_limits(self) -> None:
        for limit, before in zip(_LIMITS, self._limits, strict=True):
            if _limit_of(limit) == before:
                continue
            try:
                resource.setrlimit(limit, before)
            except (OSError, ValueError):  # a hard limit is raised by the privileged only
                self.worn = "a step lowered a hard limit of its resources"

    def _restore_signals(self) -> None:
        for timer in _TIMERS:
            if _timer_of(timer) != (0.0, 0.0):
                _set_timer(timer, 0)
        faulthandler.cancel_dump_traceback_later()
        if not self._has_wakeup:
            _set_wakeup_fd(-1)  # of an event loop left open: the number may be another file's by now
        if _blocked() != self._blocked:
            self._restore_mask()
        if tuple(map(_handler_of, _SIGNALS)) == self._handlers:
            return
        handlers = list(self._handlers)
        for place, (number, handler) in enumerate(zip(_SIGNALS, self._handlers, strict=True)):
            if _handler_of(number) != handler:
                signal.signal(number, handler if handler is not None else signal.SIG_DFL)
                if handler is None:  # one that native code had installed before us is gone for good
                    handlers[place] = int(signal.SIG_DFL)
                if number == signal.SIGUSR1:
                    self._arm_stacks()
        self._handlers = tuple(handlers)

    def _restore_mask(self) -> None:
        for number in signal.sigpending() - _OURS:  # what a step held back must not hit the next one
            handler = _handler_of(number)
            signal.signal(number, signal.SIG_IGN)
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        _held_back(_SETMASK, tuple(self._blocked))

    def _restore_variables(self) -> None:
        for name in [name for name in os.environb if name not in self._variables]:
            del os.environb[name]
        for name, value in self._variables.items():
            if os.environb.get(name) != value:
                os.environb[name] = value


def _lowest_free() -> int:
    """The number that the next descriptor would get; all below it are in use. -1 when that cannot be told."""
    try:
        number = os.dup(2)
    except OSError as error:
        return sys.maxsize if error.errno == errno.EMFILE else -1
    os.close(number)
    return number


def _many_open() -> tuple[float, float]:
    """From which lowest free number on the worker should go: three quarters of those that are free now.

    And the seconds that it takes at least to open the other quarter.
    """
    most = _limit_of(resource.RLIMIT_NOFILE)[0]
    now = max(_lowest_free(), 0)
    if most == resource.RLIM_INFINITY or now >= most:
        return math.inf, math.inf
    return now + (most - now) * 3 // 4, (most - now) / 4 * _TO_OPEN


def _blocked() -> set[int]:
    """The signals that the calling thread holds back."""
    return _held_back(_BLOCK, ())


def _variables() -> dict[bytes, bytes]:
    """Contents of `os.environ`, without decoding it all for a comparison."""
    found: dict[bytes, bytes] = os.environ._data  # type: ignore[attr-defined]
    return found


def _cwd() -> str | None:
    try:
        return _getcwd()  # noqa: PTH109 - asked often: a Path costs more than the question
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

    It is the signal that asynchronous I/O would send, which is never switched on: to read it takes a third of an fstat.
    """
    if sys.platform != "linux":
        return 0
    mark = signal.SIGRTMIN + fd
    try:
        if _mark_of(fd):
            return 0  # it is in use, or stdout and stderr are one
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
