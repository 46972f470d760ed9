"""A second process that shares this one's memory, and so has it after this one's death (Linux).

When a process dies, the kernel takes its memory apart before it reports the death: milliseconds for a small one, some
sixty for each GiB. Memory that another process shares is left to that one. So a worker has a *keeper*: a process with
the same memory, no descriptors and nothing to do. The death of the worker is seen at once, its step starts again
elsewhere, and the memory is taken apart behind that, when the host lets go of the keeper
(`actorproc.workers.os.memory_keepers`).

It is made by `clone(2)` with CLONE_VM, as a child of a process that is gone a moment later: no list of children
names it, and no step waits for it. All it ever does is one call of `pause(3)`, with all signals blocked.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from actorproc.workers.child.process_state.guard import is_over, tie
from actorproc.workers.protocol.frames import KEEPER_NAME

__all__ = ["start_keeper"]

_CLONE_VM, _CLONE_VFORK = 0x100, 0x4000
_PR_SET_NAME, _PR_GET_NAME = 15, 16
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_STACK = 16 * 1024
_STACK_OF_PYTHON = 1024 * 1024
_LATEST_PYTHON = (3, 13)
"""From 3.14 on the interpreter ends a process that runs Python code on a stack it does not know."""
_stacks: list[mmap.mmap] = []
"""Stacks of keepers, for as long as they live."""


def start_keeper(lifeline: int) -> int:
    """Start the keeper of this process; its number, or 0 where there is none. Before there is another thread.

    The kernel kills it when the other end of `lifeline` is closed.
    """
    if sys.platform != "linux" or sys.version_info[:2] > _LATEST_PYTHON:
        return 0
    loaded = set(sys.modules)
    held_back = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        # Opened once more, as who is signalled belongs to each time it is open; not to wait for a host that is gone.
        own = os.open(f"/proc/self/fd/{lifeline}", os.O_RDONLY | os.O_NONBLOCK)
        try:
            return _start(own)
        finally:
            os.close(own)
    except Exception:  # noqa: BLE001 - no /proc, no ctypes, no memory that may be executed: it is done without
        return 0
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, held_back)
        for name in {"ctypes", "ctypes._endian", "_ctypes"} - loaded:
            sys.modules.pop(name, None)  # it is loaded anew by who wants it, which can be seen (`change_hooks`)


def _start(own: int) -> int:
    system = _System()
    found: list[int] = []

    def in_between() -> int:
        """Body of the process in between, in the memory of this one, which stands still meanwhile."""
        with contextlib.suppress(OSError):
            for fd in map(int, os.listdir("/proc/self/fd")):  # noqa: PTH208 - numbers are all that is wanted
                if fd != own:
                    with contextlib.suppress(OSError):
                        os.close(fd)  # in a table of its own, of which the keeper gets a copy
            _stacks.append(mmap.mmap(-1, _STACK, _PRIVATE))
            pid = system.clone(system.pause, _stacks[0], _CLONE_VM)
            if pid > 0:
                _tie(pid, own)
                found.append(pid)
        return 0

    with system.named(KEEPER_NAME), mmap.mmap(-1, _STACK_OF_PYTHON, _PRIVATE) as stack:
        pid = system.clone(system.callable(in_between), stack, _CLONE_VM | _CLONE_VFORK | signal.SIGCHLD)
        if pid > 0:
            with contextlib.suppress(ChildProcessError):  # the host ignores SIGCHLD, and so does this one still
                os.waitpid(pid, 0)
    return found[0] if found else 0


def _tie(keeper: int, lifeline: int) -> None:
    """Have the kernel kill the keeper with the host's end of the pipe, and not together with the worker's group."""
    tie(lifeline, keeper)
    os.setpgid(keeper, keeper)  # not before it is tied: until here the group's end is its own
    if is_over(lifeline):
        os.kill(keeper, signal.SIGKILL)


class _System:
    """Functions of the C library. Called without giving the interpreter lock away: there is no other thread."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - for this alone

        self._ctypes = ctypes
        self._libc = ctypes.PyDLL(None)
        self.pause: Any = self._libc.pause

    def callable(self, function: Callable[[], int]) -> Any:
        return self._ctypes.CFUNCTYPE(self._ctypes.c_int)(function)

    def clone(self, function: Any, stack: mmap.mmap, flags: int) -> int:
        """Start a process that calls this function on this stack; its number, or -1."""
        types = self._ctypes
        end = types.addressof(types.c_char.from_buffer(stack)) + len(stack)
        address = types.cast(function, types.c_void_p)
        return int(self._libc.clone(address, types.c_void_p(end), int(flags), None))

    @contextlib.contextmanager
    def named(self, name: bytes) -> Any:
        """Processes that begin meanwhile have this name."""
        before = self._ctypes.create_string_buffer(16)
        self._libc.prctl(_PR_GET_NAME, before)
        self._libc.prctl(_PR_SET_NAME, name)
        try:
            yield
        finally:
            self._libc.prctl(_PR_SET_NAME, before)
