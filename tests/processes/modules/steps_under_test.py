"""Procedures the worker processes of these tests import."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import logging
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from actorproc.errors import NotAllowed
from actorproc.procedure.authoring.context import Context
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.authoring.status import Status

_LEAK: list[bytes] = []


class Count(Procedure):
    """Counts to `upto`, one step each."""

    def __init__(self, upto: int = 3, quiet: bool = False) -> None:
        self.upto = upto
        self.quiet = quiet
        self.n = 0

    def execute(self, ctx: Context) -> Status:
        self.n += 1
        return Status.done(self.n) if self.n >= self.upto else Status.executing(persist=not self.quiet)


class SlowToLoad(Procedure):
    """One step, whose state takes a tenth of a second to load."""

    @classmethod
    def load(cls, data: object) -> SlowToLoad:
        time.sleep(0.1)
        return super().load(data)

    def execute(self, ctx: Context) -> Status:
        return Status.done()


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


class WithChild(Procedure):
    """Suspends for a child with a state of this size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def execute(self, ctx: Context) -> Status:
        return Status.suspended([Do("nothing", "x" * self.size)])


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


def do_break_machinery(_ctx: Context, _argument: str) -> None:
    from actorproc.workers.child.runtime import actor

    def once(*_: object) -> None:
        actor._set = force
        raise LookupError("a fault of ours")

    force, actor._set = actor._set, once


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


def do_ask_in_fork(ctx: Context, _argument: str) -> int:
    """A forked copy asks what only the worker can ask; its exit code says how that went."""
    child = os.fork()
    if child == 0:
        try:
            ctx.remember("key", int)
        except NotAllowed:
            os._exit(3)
        os._exit(4)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def do_forked_child(ctx: Context, _argument: str) -> None:
    """A forked copy that goes on in Python, while the step is deaf in C code."""
    child = os.fork()
    if child == 0:
        while True:
            time.sleep(1)
    ctx.heartbeat(0.0, str(child))
    sum(range(10**12))


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


def do_redirect(_ctx: Context, path: str) -> None:
    """Puts another file, or the other stream, behind stdout; both are open and look well."""
    source = os.open(path, os.O_WRONLY | os.O_CREAT) if path else os.dup(2)
    os.dup2(source, 1)
    os.close(source)


def do_where_streams_go(_ctx: Context, _argument: str) -> list[list[int]]:
    return [[status.st_dev, status.st_ino] for status in (os.fstat(1), os.fstat(2))]


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


def do_raise_when_something_is_urgent(_ctx: Context, _argument: str) -> None:
    def handler(*_: object) -> None:
        raise LookupError("urgent")

    signal.signal(signal.SIGURG, handler)


def do_urgent(_ctx: Context, _argument: str) -> str:
    return signal.getsignal(signal.SIGURG).__name__


def do_thread_that_nudges(_ctx: Context, _argument: str) -> int:
    def nudge_again_and_again() -> None:
        while True:
            time.sleep(0.02)
            signal.pthread_kill(threading.main_thread().ident, signal.SIGURG)

    thread = threading.Thread(target=nudge_again_and_again, daemon=True)
    thread.start()
    return thread.native_id


def do_allocate(_ctx: Context, megabytes: str) -> int:
    return len(bytearray(int(megabytes) * 1024 * 1024))


def do_big_output(_ctx: Context, megabytes: str) -> bytes:
    return bytes(int(megabytes) * 1024 * 1024)


def do_env(ctx: Context, _argument: str) -> object:
    return ctx.env


def do_hoard(_ctx: Context, megabytes: str) -> int:
    """Small objects until memory is refused, kept until then."""
    kept = [bytearray(1024 * 1024) for _ in range(int(megabytes))]
    return len(kept)


def do_hoard_and_ask(ctx: Context, megabytes: str) -> object:
    """Use up what the limit allows, then talk to the host."""
    kept = []
    try:
        kept.extend(bytearray(1024) for _ in range(int(megabytes) * 1024))
    except MemoryError:
        del kept[-64:]
    answer = ctx.remember("key", lambda: "made")
    return [answer, len(kept) > 1024]


def do_hold(_ctx: Context, megabytes: str) -> None:
    """A leak: kept for the life of the process, in a step that takes longer than passes between two looks at it."""
    time.sleep(0.15)
    _LEAK.append(b"x" * (int(megabytes) * 1024 * 1024))


def do_place(_ctx: Context, _argument: str) -> list[object]:
    return [os.getpriority(os.PRIO_PROCESS, 0), sorted(os.sched_getaffinity(0))]


def do_bloat(ctx: Context, megabytes: str) -> None:
    """Grow, page by page, and stay so."""
    ctx.heartbeat(0.0, "growing")
    kept = []
    for _ in range(int(megabytes) // 8):
        kept.append(b"x" * (8 * 1024 * 1024))
        time.sleep(0.01)
    time.sleep(60)


def do_speak(ctx: Context, text: str) -> None:
    """On every way out there is."""
    print(f"{text} printed")  # noqa: T201
    print(f"{text} complained", file=sys.stderr)  # noqa: T201
    ctx.log.warning("%s logged", text)
    sys.stdout.flush()
    subprocess.run(["echo", f"{text} by a child"], check=True)


def do_whisper(_ctx: Context, text: str) -> None:
    """Only through the descriptor, as C code does."""
    os.write(1, f"{text} raw\n".encode())
    time.sleep(0.2)


def do_meet(ctx: Context, argument: str) -> int:
    """Wait until so many steps are in here at once."""
    folder, _, count = argument.rpartition(":")
    Path(folder, ctx.id).touch()
    while len(list(Path(folder).iterdir())) < int(count):
        time.sleep(0.005)
    return threading.get_ident()


def do_segfault_when_all_are_in(ctx: Context, argument: str) -> None:
    do_meet(ctx, argument)
    ctypes.string_at(0)


def do_close_everything(_ctx: Context, _argument: str) -> None:
    os.closerange(0, 65536)
    time.sleep(60)


def do_bus_error(_ctx: Context, path: str) -> int:
    """Touch a page of a mapped file that is not there any more."""
    with Path(path).open("wb+") as file:
        file.truncate(8192)
        mapped = mmap.mmap(file.fileno(), 8192)
        file.truncate(0)
        return mapped[4096]


def do_stop_self(ctx: Context, _argument: str) -> None:
    ctx.heartbeat(0.0, "stopping")
    os.kill(os.getpid(), signal.SIGSTOP)


def do_ignore_everything(_ctx: Context, _argument: str) -> None:
    """Handlers and environment changed, then on with the work."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    os.environ["LEFT_BEHIND"] = "yes"
    sys.stdout = sys.stderr = None  # type: ignore[assignment]


def do_leave_children(ctx: Context, _argument: str) -> None:
    """Forked children that stay in the group, and a clean end of the step."""
    pids = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            time.sleep(300)
            os._exit(0)
        pids.append(child)
    ctx.heartbeat(0.0, " ".join(map(str, pids)))
    os.kill(os.getpid(), signal.SIGKILL)


def do_usr1_still_dumps(_ctx: Context, _argument: str) -> bool:
    return signal.getsignal(signal.SIGUSR1) is None or signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL


def do_family_bloat(ctx: Context, megabytes: str) -> None:
    """A child process grows, not the worker."""
    code = f"import time; kept = b'x' * ({megabytes} * 1024 * 1024); time.sleep(60)"
    subprocess.Popen([sys.executable, "-c", code])
    ctx.heartbeat(0.0, "growing")
    time.sleep(60)


def do_leave_files_open(_ctx: Context, number: str) -> None:
    """As a library that leaks does."""
    with contextlib.suppress(OSError):  # as many as there are
        for _ in range(int(number)):
            os.open(os.devnull, os.O_RDONLY)


def do_refuse_threads(_ctx: Context, _argument: str) -> None:
    """No address space for the stack of another thread, for good; less of a hard limit has the worker replaced."""
    resource.setrlimit(resource.RLIMIT_AS, (1 << 20, 1 << 20))


def do_map_a_locked_file(ctx: Context, path: str) -> None:
    """A file that is locked and mapped, beside memory that takes the kernel a while to take apart."""
    ballast = b"x" * (128 * 1024 * 1024)
    with Path(path).open("r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        mapped = mmap.mmap(file.fileno(), 0)
        ctx.heartbeat(0.0, "locked")
        time.sleep(60)
        mapped.close()
    del ballast
