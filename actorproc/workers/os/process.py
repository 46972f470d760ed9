"""One worker process and the host's ends of all it shares with it.

The child is a fresh interpreter, never a fork: the host has threads and an open store. It gets one end of a private
socket pair, the read end of a *lifeline* pipe, and a memory file for faulthandler. The lifeline is never written to:
its end of file means that the host is gone. Nothing imports the user's ``__main__``; no `preexec_fn` (it forbids vfork
and is unsafe with threads); no multiprocessing.

Methods are called under the pool's lock, except `write`, which any thread may call.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import resource
import signal
import socket
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Callable

import psutil

from actorproc.errors import WorkerBootFailed
from actorproc.workers import fork_guard
from actorproc.workers.os.interpreter import start_interpreter
from actorproc.workers.os.thread_signal import signal_thread
from actorproc.workers.os.usage import has_ended
from actorproc.workers.output.pipe import OutputPipe
from actorproc.workers.protocol.crash_marks import PAGE, task_died_in
from actorproc.workers.protocol.host_program import StartPlace

__all__ = ["Reaped", "WorkerProcess"]

_RECEIVE = 64 * 1024
_STACK_BYTES = 16 * 1024
_NO_SIGPIPE = getattr(socket, "MSG_NOSIGNAL", 0)
Reaped = tuple[int | None, int | None, float | None]
"""Wait status (None: collected by other code), peak resident bytes and CPU seconds (None: not known)."""


class WorkerProcess:
    """A running worker. Raises `WorkerBootFailed` when the process cannot be started at all."""

    def __init__(self, *, executable: str, label: str, place: StartPlace, use_pidfd: bool = True) -> None:
        self.closed = False
        self.warming: tuple[str, ...] = ()
        """The classes it was told to load and has not loaded yet."""
        self._lock = threading.Lock()
        self._outbox: deque[memoryview] = deque()
        self._reaped: Reaped | None = None
        self._stack_taken = PAGE
        self.reader = 0
        """The system's number of the thread that reads its channel; 0: not known yet."""
        self._inherited_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with fork_guard.starting:
            self._start(executable, label, place, use_pidfd)
            fork_guard.guarded(self)

    def _start(self, executable: str, label: str, place: StartPlace, use_pidfd: bool) -> None:
        with contextlib.ExitStack() as mine, contextlib.ExitStack() as childs:
            try:
                self.fault_fd = _closed_by(mine, _memory_file())
                self.channel, far_end = socket.socketpair()
                mine.enter_context(self.channel)
                childs.enter_context(far_end)
                lifeline, self._lifeline_fd = _pipe(childs, mine)
                out, err = _pipe(mine, childs), _pipe(mine, childs)
                passed = far_end.fileno(), lifeline, self.fault_fd
                self._popen = start_interpreter(executable, passed, out[1], err[1], place=place)
                self._identify(use_pidfd)
            except (OSError, ValueError) as error:
                msg = f"cannot start a worker process with {executable!r} (Config.executable names another): {error}"
                raise WorkerBootFailed(msg) from error
            mine.pop_all()
        self.channel.setblocking(False)
        self.stdout = OutputPipe(out[0], label=f"{label} stdout:", level=logging.INFO, name="stdout")
        self.stderr = OutputPipe(err[0], label=f"{label} stderr:", level=logging.WARNING, name="stderr")

    def _identify(self, use_pidfd: bool) -> None:
        """Take hold of the process just started. Raises `OSError` when nothing could signal it, or see it end."""
        self.pid = self._popen.pid
        self.pidfd = _open_pidfd(self.pid) if use_pidfd else None
        # A number and the time when its process began: where there is no pidfd, that tells it from a later one.
        self._known = _process(self.pid) if self.pidfd is None else None
        if self.pidfd is None and self._known is None and _exists(self.pid):
            # Other threads of the host took the last descriptor. A worker that cannot be ended is not kept.
            self._popen.kill()
            self._popen.wait()
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    # ------------------------------------------------------------------ the channel
    def write(self, *pieces: bytes) -> bool:
        """Send without blocking; True when bytes are left for `flush`. A dead worker's bytes vanish."""
        with self._lock:
            if self.closed:
                return False
            for piece in pieces:
                view = memoryview(piece)
                if not self._outbox:
                    view = view[self._send(view) :]
                if view:
                    self._outbox.append(view)
            return bool(self._outbox)

    def flush(self) -> bool:
        """Send what waits; True when the socket is full again."""
        with self._lock:
            while self._outbox and not self.closed:
                view = self._outbox[0]
                sent = self._send(view)
                if sent < len(view):
                    self._outbox[0] = view[sent:]
                    return True
                self._outbox.popleft()
            return False

    def _send(self, view: memoryview) -> int:
        try:
            return self.channel.send(view, _NO_SIGPIPE)
        except BlockingIOError:
            return 0
        except OSError:
            return len(view)  # the reader is gone; its death is reported by the kernel, not from here

    def receive(self) -> bytes | None:
        """Bytes from the worker; b"" at the end of the stream, None when there are none now."""
        try:
            return self.channel.recv(_RECEIVE)
        except BlockingIOError:
            return None
        except OSError:
            return b""

    # ------------------------------------------------------------------ signals and death
    def signal(self, number: int) -> None:
        """Signal the process itself, and no process that got its number after it."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            if self.pidfd is not None and not self.closed:
                signal.pidfd_send_signal(self.pidfd, number)
            elif self._owns_number():
                os.kill(self.pid, number)

    def ask_for_stacks(self) -> None:
        """Have faulthandler write the stacks. It needs no GIL, so this works inside C code.

        A signal to the process would reach its main thread, and a call of C code that it interrupts there may return as
        if it were done. So it goes to the thread that reads the channel, where that is known and can be named.
        """
        if self.reader and self._owns_number() and signal_thread(self.pid, self.reader, signal.SIGUSR1):
            return
        self.signal(signal.SIGUSR1)

    def is_over(self) -> bool:
        """It has exited, as far as the kernel says so now; always False where it cannot be asked without reaping."""
        return self.pidfd is not None and has_ended(self.pidfd)

    def kill_group(self) -> None:
        """SIGKILL to all in the worker's session that did not leave its process group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            # A number is given to no other process while a group has it: where the worker itself is gone and no process
            # has its number, the group is the worker's, or there is none.
            if self._owns_number() or not _exists(self.pid):
                os.killpg(self.pid, signal.SIGKILL)

    def _owns_number(self) -> bool:
        """True while the number is this process's: it lives, or its exit status was not collected.

        A host that ignores SIGCHLD has the kernel collect it at once, one that waits for any child collects it as well.
        """
        if self._reaped is not None or self.closed:
            return False
        if self.pidfd is None:
            return self._known is not None and self._known.is_running()
        try:
            os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return False
        except OSError:  # Linux 5.3, which has pidfds and cannot wait for them
            return True
        return True

    def reap(self) -> Reaped | None:
        """Collect the exit status of this process alone; None while it still runs."""
        if self._reaped is None:
            if not self._owns_number():
                self._set_reaped(None, None)
                return self._reaped
            try:
                pid, status, usage = os.wait4(self.pid, os.WNOHANG)
            except ChildProcessError:
                self._set_reaped(None, None)
            else:
                if pid:
                    self._set_reaped(status, usage)
        return self._reaped

    def watch_in_thread(self, dead: Callable[[], None]) -> None:
        """Call `dead` on another thread once the process is dead; for systems without pidfds.

        It is left to be reaped by `reap`, where the system can wait without that: until then its number is its own.
        """

        def wait() -> None:
            if hasattr(os, "waitid"):
                with contextlib.suppress(ChildProcessError):
                    os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
                dead()
                return
            try:
                _, status, usage = os.wait4(self.pid, 0)
            except ChildProcessError:
                self._set_reaped(None, None)
            else:
                self._set_reaped(status, usage)
            dead()

        threading.Thread(target=wait, name=f"actorproc-wait-{self.pid}", daemon=True).start()

    def _set_reaped(self, status: int | None, usage: resource.struct_rusage | None) -> None:
        # Popen must not wait for a pid that may soon be another process's.
        self._popen.returncode = 0 if status is None else os.waitstatus_to_exitcode(status)
        if usage is None:
            self._reaped = status, None, None
        else:
            self._reaped = status, self._own_peak(usage.ru_maxrss), usage.ru_utime + usage.ru_stime

    def _own_peak(self, maxrss: int) -> int | None:
        # After vfork and exec Linux counts the parent's peak as the child's: at or below it nothing is known.
        if sys.platform == "linux" and maxrss <= self._inherited_peak:
            return None
        return maxrss if sys.platform == "darwin" else maxrss * 1024

    def stack(self) -> str:
        """Text of faulthandler that `take_stack` did not take: the stack of a crash, or of the moment of a kill."""
        try:
            start = max(self._stack_taken, self.stack_size() - _STACK_BYTES)
            return os.pread(self.fault_fd, _STACK_BYTES, start).decode("utf-8", "replace")
        except OSError:
            return ""

    def task_died_in(self, stack: str) -> int | None:
        """As `crash_marks.task_died_in`, for what faulthandler wrote."""
        try:
            return task_died_in(os.pread(self.fault_fd, PAGE, 0), stack)
        except OSError:
            return None

    def stack_size(self) -> int:
        """Bytes of the file that faulthandler has written to so far."""
        return os.fstat(self.fault_fd).st_size

    def take_stack(self) -> str:
        """As `stack`, for a caller that asked for it: the report of a later death does not repeat it."""
        text = self.stack()
        with contextlib.suppress(OSError):
            self._stack_taken = self.stack_size()
        return text

    # ------------------------------------------------------------------ the end
    def close(self) -> None:
        """Give up every descriptor. Idempotent."""
        with self._lock, fork_guard.starting:  # a copy of the host that begins meanwhile would not know what it has
            self._close()

    def forget(self) -> None:
        """Close the descriptors in a forked copy of the host, where locks may be held by threads that do not exist."""
        self._close()

    def _close(self) -> None:
        if self.closed:
            return
        fds = self.descriptors()
        self.closed = True
        self._outbox.clear()
        for fd in fds:
            with contextlib.suppress(OSError):
                os.close(fd)
        self.channel.detach()

    def descriptors(self) -> list[int]:
        """All descriptors of the host's side that are open."""
        return [] if self.closed else [*self.watched(), self.fault_fd, self._lifeline_fd]

    def watched(self) -> list[int]:
        """The descriptors a selector watches."""
        fds = [self.channel.fileno(), self.stdout.fd, self.stderr.fd]
        return fds if self.pidfd is None else [*fds, self.pidfd]


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except (psutil.Error, OSError):
        return None


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _closed_by(stack: contextlib.ExitStack, fd: int) -> int:
    stack.callback(os.close, fd)
    return fd


def _pipe(reader: contextlib.ExitStack, writer: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe's read and write end, each closed by the stack of the side that owns it."""
    read_end, write_end = os.pipe()
    return _closed_by(reader, read_end), _closed_by(writer, write_end)


def _memory_file() -> int:
    """A file for the marks of a worker with an event loop; what faulthandler writes comes behind them."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("actorproc-fault")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.ftruncate(fd, PAGE)
    os.lseek(fd, PAGE, os.SEEK_SET)
    return fd


def _open_pidfd(pid: int) -> int | None:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None
