"""Protection of a worker process: from outliving its host, from losing its stack, and from remains of steps."""

from __future__ import annotations

import contextlib
import faulthandler
import fcntl
import os
import select
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from types import FrameType
from typing import Any, NoReturn

from actorproc.procedure.authoring.context import StopStep
from actorproc.workers.child.process_state.process_state import PRIVATE_FROM, ProcessState
from actorproc.workers.protocol.exit_codes import EXIT_ORPHAN

__all__ = [
    "Guard",
    "arm_lifeline",
    "die_with_group",
    "exit_with_traceback",
    "out_of_the_way",
    "write_no_more_to",
    "write_stacks_to",
]

_F_SETSIG = getattr(fcntl, "F_SETSIG", 10) if sys.platform == "linux" else None
_set_mask: Callable[[int, Any], Any] = sys.modules["_signal"].pthread_sigmask
"""Not that of `signal`, which is watched for changes that a step makes."""
_NUDGE = signal.SIGURG
"""Ignored by processes without a handler for it."""


def out_of_the_way(fd: int) -> int:
    """The descriptor moved to a high number, closed on exec."""
    try:
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, PRIVATE_FROM)
    except OSError:  # the limit of descriptors is lower than that
        moved = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(fd)
    return moved


def arm_lifeline(fd: int) -> None:
    """Have the kernel kill this process group when the host is gone, even inside C code that holds the GIL.

    The pipe's other end is open in the host alone. On Linux its closing raises a signal of our choice for the owner of
    this end, and the owner may be a whole process group. Elsewhere the channel's end of file must do.
    """
    if _F_SETSIG is None:
        return
    with contextlib.suppress(OSError):
        fcntl.fcntl(fd, fcntl.F_SETOWN, -os.getpgrp() if os.getpgrp() == os.getpid() else os.getpid())
        fcntl.fcntl(fd, _F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    if select.select([fd], [], [], 0)[0]:  # the host died before this
        die_with_group()


def die_with_group() -> None:
    """The host is gone: end this process and what a step started in its group, at once."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(EXIT_ORPHAN)


def exit_with_traceback(code: int) -> NoReturn:
    """End this process at once, with the traceback of the exception at hand if there is memory for that."""
    try:
        traceback.print_exc()
    finally:
        os._exit(code)


def write_stacks_to(fd: int) -> None:
    """Native crashes, and SIGUSR1 before a kill, write the stacks of all threads there. May be called again."""
    faulthandler.enable(fd, all_threads=True)
    faulthandler.unregister(signal.SIGUSR1)
    faulthandler.register(signal.SIGUSR1, fd, all_threads=True)


def write_no_more_to(fd: int) -> None:
    """In a forked copy: a native crash of the copy is not one of the worker, whose report would show its stacks."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, fd, inheritable=False)
    os.close(null)


def _look_up(_number: int, _frame: FrameType | None) -> None:
    """Nothing: that a handler ran is enough."""


class Guard:
    """Signals of a worker, and the process-wide settings a step may have changed.

    SIGTERM raises `StopStep` in the main thread while it runs user code or waits for work, and otherwise waits until
    one of both begins. So it never tears an answer in two. SIGINT does nothing: Ctrl-C is for the host.
    """

    def __init__(self, arm_stacks: Callable[[], None]) -> None:
        """`arm_stacks` has SIGUSR1 write the stacks."""
        self._arm_stacks = arm_stacks
        self._process_state: ProcessState | None = None
        self.terminating = False
        """SIGTERM came."""
        self._may_raise = False
        self.is_copy = False
        """This is a forked copy of the worker."""
        self._main = threading.get_ident()
        self._masks = threading.local()
        self._handler: Callable[[int, FrameType | None], Any] = self._on_sigterm
        signal.pthread_sigmask(signal.SIG_SETMASK, [])
        self._install()

    def _install(self) -> None:
        signal.signal(signal.SIGTERM, self._handler)
        # A handler, because programs inherit what is ignored: those that steps start are interrupted as anywhere.
        signal.signal(signal.SIGINT, _look_up)
        # What a host ignores is ignored in its children too; without this line, steps would get no exit codes.
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def _on_sigterm(self, _number: int, _frame: FrameType | None) -> None:
        self.terminating = True
        if self._may_raise:
            self._may_raise = False
            raise StopStep

    def nudge_main(self) -> None:
        """Have the main thread look up from whatever it waits for, and act on a signal that came before."""
        with contextlib.suppress(Exception):  # whatever a step's audit hook raises
            signal.pthread_kill(self._main, _NUDGE)

    def allow_interrupt(self) -> None:
        """From here SIGTERM raises `StopStep`; at once, when it came before. On other threads it does nothing."""
        if threading.get_ident() != self._main:
            return
        self._may_raise = True
        if self.terminating:
            self._may_raise = False
            raise StopStep

    def forbid_interrupt(self) -> None:
        """From here SIGTERM waits."""
        if threading.get_ident() == self._main:
            self._may_raise = False

    def uninterrupted(self, call: Callable[[bytes], None], frame: bytes) -> None:
        """Do this as a whole, on whichever thread; a SIGTERM that came meanwhile raises after it."""
        if not self._may_raise or threading.get_ident() != self._main:
            call(frame)
            return
        self._may_raise = False
        try:
            call(frame)
        finally:
            self.allow_interrupt()

    def restore(self) -> str:
        """Undo what a step did to the process, for the steps after it; what could not be undone, "" for nothing."""
        process_state = self._process_state
        if process_state is None:
            return ""
        if threading.get_ident() == self._main:
            process_state.tidy()
        else:
            process_state.restore()
        return process_state.worn

    def remember_process_state(self) -> None:
        """From now on `restore` makes the process as it is at this moment. Main thread, before the first step."""
        signal.signal(_NUDGE, _look_up)  # not before: a module that is imported first may have a handler of its own
        self._process_state = ProcessState(self._arm_stacks)

    def keep_changes(self) -> contextlib.AbstractContextManager[None]:
        """Inside, what a step changes of the process stays, unless that raises. On the thread of the step."""
        return contextlib.nullcontext() if self._process_state is None else self._process_state.keep_changes()

    def watch_forks(self, in_copy: Callable[[], None]) -> None:
        """Call ``in_copy`` in each forked copy of the worker, where the worker's signal handlers end.

        SIGTERM waits from before the fork until then. Otherwise one that comes at once would meet the handler of the
        worker, or be dropped with what the interpreter had pending, and `multiprocessing.Pool` sends only one.
        """

        def in_child() -> None:
            try:
                if not self.is_copy:  # else it is a copy of a copy
                    self._give_up_in_fork()
                    in_copy()
            finally:
                self._let_through()

        os.register_at_fork(before=self._hold_back, after_in_parent=self._let_through, after_in_child=in_child)

    def _hold_back(self) -> None:
        self._masks.before = _set_mask(signal.SIG_BLOCK, (signal.SIGTERM,))

    def _let_through(self) -> None:
        _set_mask(signal.SIG_SETMASK, self._masks.before)

    def _give_up_in_fork(self) -> None:
        """Have signals do what they do in any Python program. Handlers that the step has set before stay."""
        for number, ours, usual in (
            (signal.SIGTERM, self._handler, signal.SIG_DFL),
            (signal.SIGINT, _look_up, signal.default_int_handler),
            (_NUDGE, _look_up, signal.SIG_DFL),
        ):
            if signal.getsignal(number) == ours:
                signal.signal(number, usual)
        if signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL:  # as Python sees it, whatever faulthandler has set
            faulthandler.unregister(signal.SIGUSR1)
        self.is_copy = True

    def leave_if_forked(self, error: str | None) -> None:
        """End a forked copy whose step is over: it gets no other, and its parent may wait for its end.

        ``error`` is the traceback of what it raised; then its exit code is 1, as with any Python program.
        """
        if not self.is_copy:
            return
        with contextlib.suppress(Exception):  # streams a step has closed or replaced
            if error:
                sys.stderr.write(error)
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(1 if error is not None else 0)
