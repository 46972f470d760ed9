"""Procedures the worker processes of these tests import."""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from actorproc.procedure.context import Context
from actorproc.procedure.procedure import Procedure
from actorproc.procedure.status import Status


class Count(Procedure):
    """Counts to `upto`, one step each."""

    def __init__(self, upto: int = 3, quiet: bool = False) -> None:
        self.upto = upto
        self.quiet = quiet
        self.n = 0

    def execute(self, ctx: Context) -> Status:
        self.n += 1
        return Status.done(self.n) if self.n >= self.upto else Status.executing(persist=not self.quiet)


class Do(Procedure):
    """Does one of the things below."""

    def __init__(self, what: str, argument: str = "") -> None:
        self.what = what
        self.argument = argument

    def execute(self, ctx: Context) -> Status:
        result = globals()[f"do_{self.what}"](ctx, self.argument)
        return result if isinstance(result, Status) else Status.done(result)


class Parent(Procedure):
    """Suspends for two children."""

    def __init__(self) -> None:
        self.n = 0

    def execute(self, ctx: Context) -> Status:
        return Status.suspended([Count(), Count()])


def do_nothing(_ctx: Context, _argument: str) -> None:
    pass


def do_kill(_ctx: Context, number: str) -> None:
    os.kill(os.getpid(), int(number))
    time.sleep(60)


def do_segfault(_ctx: Context, _argument: str) -> None:
    ctypes.string_at(0)


def do_abort(_ctx: Context, _argument: str) -> None:
    os.abort()


def do_leave(_ctx: Context, code: str) -> None:
    os._exit(int(code))


def do_sys_exit(_ctx: Context, _argument: str) -> None:
    sys.exit(3)


def do_wait_for(ctx: Context, path: str) -> str:
    ctx.heartbeat(0.5, "waiting")
    while not Path(path).exists():
        time.sleep(0.005)
    return "seen"


def do_wait_for_abort(ctx: Context, _argument: str) -> str:
    ctx.heartbeat(0.0, "waiting")
    while not ctx.aborting:
        time.sleep(0.005)
    return "aborting"


def do_finally(ctx: Context, path: str) -> None:
    try:
        ctx.heartbeat(0.0, "inside")
        time.sleep(60)
    finally:
        Path(path).write_text("cleaned up")


def do_swallow(ctx: Context, _argument: str) -> None:
    while True:
        try:
            ctx.heartbeat(0.0, "inside")
            time.sleep(60)
        except BaseException:  # noqa: BLE001 - the point of the test
            pass


def do_print(_ctx: Context, megabytes: str) -> None:
    for _ in range(int(megabytes) * 1024):
        sys.stdout.write("x" * 1023 + "\n")


def do_complain(_ctx: Context, text: str) -> None:
    sys.stderr.write(text + "\n")
    os._exit(7)


def do_close_files(_ctx: Context, _argument: str) -> str:
    os.closerange(3, 50)
    return "closed"


def do_garbage(_ctx: Context, text: str) -> None:
    os.write(_protocol_fd(), text.encode("latin-1"))
    time.sleep(60)


def do_hang_up(_ctx: Context, _argument: str) -> None:
    socket.socket(fileno=_protocol_fd()).shutdown(socket.SHUT_WR)
    time.sleep(60)


def _protocol_fd() -> int:
    """The private descriptor of the channel: the only socket."""
    return next(fd for fd in range(3, 1024) if _is_socket(fd))


def _is_socket(fd: int) -> bool:
    try:
        return str(Path(f"/proc/self/fd/{fd}").readlink()).startswith("socket:")
    except OSError:
        return False


def do_grandchild(ctx: Context, how: str) -> None:
    child = subprocess.Popen(["sleep", "300"], start_new_session=how == "session")
    ctx.heartbeat(0.0, str(child.pid))
    if how == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def do_fork(ctx: Context, _argument: str) -> str:
    """A forked copy logs, sends and exits; the worker's channel must not notice."""
    child = os.fork()
    if child == 0:
        try:
            for _ in range(100):
                ctx.log.warning("from the fork")
                ctx.heartbeat(1.0, "from the fork")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    return "forked"


def do_busy_python(ctx: Context, _argument: str) -> None:
    ctx.heartbeat(0.0, "busy")
    while True:
        pass


def do_busy_c(ctx: Context, _argument: str) -> None:
    while True:
        try:
            ctx.heartbeat(0.0, "busy")
            sum(range(10**12))  # one call into C, for hours, with the GIL and deaf to signals
        except BaseException:  # noqa: BLE001 - a SIGTERM that came before the call
            pass


def do_mess_up(_ctx: Context, directory: str) -> None:
    os.chdir(directory)
    os.umask(0o000)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def do_look_around(_ctx: Context, _argument: str) -> list[object]:
    umask = os.umask(0)
    os.umask(umask)
    return [str(Path.cwd()), umask, signal.getsignal(signal.SIGTERM) is signal.SIG_IGN]


def do_modules(_ctx: Context, _argument: str) -> list[str]:
    return sorted(sys.modules)


def do_environment(_ctx: Context, _argument: str) -> list[str]:
    return sorted(os.environ)


def do_log(ctx: Context, text: str) -> None:
    ctx.log.info(text)
    logging.getLogger("somebody").warning("%s, said the root logger", text)
    logging.getLogger("somebody").debug("not this")


def do_remember(ctx: Context, key: str) -> object:
    return ctx.remember(key, lambda: "made")


def do_thread(_ctx: Context, _argument: str) -> None:
    threading.Thread(target=time.sleep, args=(600,)).start()


def do_allocate(_ctx: Context, megabytes: str) -> int:
    return len(bytearray(int(megabytes) * 1024 * 1024))


def do_big_output(_ctx: Context, megabytes: str) -> bytes:
    return bytes(int(megabytes) * 1024 * 1024)


def do_env(ctx: Context, _argument: str) -> object:
    return ctx.env
