"""Every way a step can take its worker along: it costs that step one attempt, in words, and no other step notices."""

from __future__ import annotations

import asyncio
import ctypes
import faulthandler
import io
import mmap
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Config, Limits, Procedure, RetryPolicy, Status
from actorproc.errors import ProcedureFailed, StepTimeout, WorkerCrashed
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def config() -> Config:
    return Config(spares=1)


@dataclass
class Nasty(Procedure):
    """Does it at the first attempt of its second step, and is well again at the next."""

    what: str
    folder: str
    begun: bool = False
    limits = Limits(wall_time=20.0)

    def execute(self, ctx):
        if not self.begun:
            self.begun = True
            return Status.executing()
        if not ctx.replayed:
            getattr(self, self.what)(ctx)
        return Status.done(ctx.attempt)

    def segfault(self, ctx):
        ctypes.string_at(0)

    def abort_process(self, ctx):
        os.abort()

    def bus_error(self, ctx):
        with Path(self.folder, "mapped").open("wb+") as file:
            file.truncate(8192)
            mapped = mmap.mmap(file.fileno(), 8192)
            file.truncate(0)
            bytes(mapped[4096:4097])

    def leave_with_zero(self, ctx):
        os._exit(0)

    def kill_nine(self, ctx):
        os.kill(os.getpid(), signal.SIGKILL)

    def terminate(self, ctx):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30)

    def garbage(self, ctx):
        os.write(_channel(), b"this is no frame at all")
        time.sleep(30)

    def hang_up(self, ctx):
        socket.socket(fileno=os.dup(_channel())).shutdown(socket.SHUT_WR)
        time.sleep(30)

    def close_everything(self, ctx):
        os.closerange(0, 65536)

    def forked_children(self, ctx):
        for _ in range(2):
            if os.fork() == 0:
                time.sleep(300)
                os._exit(0)
        os.abort()


def _channel() -> int:
    for fd in range(3, 1024):
        try:
            if str(Path(f"/proc/self/fd/{fd}").readlink()).startswith("socket:"):
                return fd
        except OSError:
            continue
    raise AssertionError("no channel")


@dataclass
class Bystander(Procedure):
    """Works in the same and in other workers while all this happens."""

    steps: int = 30
    done: int = 0

    def execute(self, ctx):
        self.done += 1
        time.sleep(0.01)
        return Status.executing() if self.done < self.steps else Status.done((self.done, ctx.attempt))


DEATHS = {
    "segfault": ("signal", "killed by signal 11 (SIGSEGV)"),
    "abort_process": ("signal", "killed by signal 6 (SIGABRT)"),
    "bus_error": ("signal", "killed by signal 7 (SIGBUS)"),
    "leave_with_zero": ("exit", "exited with code 0, and it had not been told to"),
    "kill_nine": ("signal", "killed by signal 9 (SIGKILL)"),
    "terminate": ("signal", "was ended by SIGTERM in the middle of a step"),
    "garbage": ("protocol", "a frame announces"),
    "hang_up": ("protocol", "it closed its channel to the host"),
    "close_everything": ("protocol", "the code of a step had closed its channel to the host"),
    "forked_children": ("signal", "killed by signal 6 (SIGABRT)"),
}
"""What a step does; the kind and the words of its report."""


@pytest.mark.skipif(sys.platform != "linux", reason="the numbers of signals and /proc are Linux's")
@pytest.mark.parametrize("what", DEATHS)
def test_each_kind_of_death_costs_one_attempt_of_one_step(open_manager, tmp_path, what):
    kind, words = DEATHS[what]
    manager = open_manager(workers=2)
    bystanders = manager.submit_many(Bystander() for _ in range(3))

    handle = manager.submit(Nasty(what, str(tmp_path)))

    assert handle.result(30) == 2
    closing = manager.steps(handle.id)[-1]
    assert closing.attempts == 2
    assert closing.crash is not None
    report = closing.crash.crash
    assert report.kind == kind
    assert words in report.message
    assert words in closing.crash.message
    assert report.duration is not None
    assert report.cpu_time is not None
    for bystander in bystanders:
        assert bystander.result(30) == (30, 1)
        assert manager.info(bystander.id).crashes == 0
        assert all(step.attempts <= 1 for step in manager.steps(bystander.id))
    assert manager.health().status == "running"


# ---------------------------------------------------------------------- what a step does to its process
@dataclass
class Messy(Procedure):
    """Leaves its process in a state of its own, and ends well."""

    what: str
    folder: str

    def execute(self, ctx):
        getattr(self, self.what)()
        return Status.done(os.getpid())

    def directory(self):
        os.chdir(self.folder)
        os.umask(0)

    def handlers(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)

    def environment(self):
        os.environ["LEFT_BEHIND"] = "yes"
        os.environ.pop("PATH", None)

    def replaced_environment(self):
        os.environ = {"LEFT_BEHIND": "yes"}  # noqa: B003 - what a careless step does

    def streams(self):
        sys.stdout = sys.stderr = None

    def deleted_streams(self):
        del sys.stdout, sys.stderr

    def replaced_functions(self):
        os.umask = None

    def closed_streams(self):
        sys.stdout.close()
        sys.stderr.detach()

    def closed_stand_in(self):
        sys.stdout = sys.stderr = io.StringIO()
        sys.stdout.close()

    def input(self):
        os.close(0)

    def blocked_signals(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM])
        signal.raise_signal(signal.SIGALRM)

    def timer(self):
        signal.setitimer(signal.ITIMER_VIRTUAL, 30)

    def timer_of_a_dump(self):
        faulthandler.dump_traceback_later(0.3, exit=True)

    def event_loop(self):
        loop = asyncio.new_event_loop()
        loop.add_signal_handler(signal.SIGUSR2, print)
        del loop  # never closed: the descriptor that signals are written to goes with it

    def flood(self):
        for _ in range(20_000):
            os.write(1, b"x" * 1023 + b"\n")

    def small_descriptors(self):
        os.closerange(0, 100)

    def file_objects(self):
        for fd in (0, 1, 2):
            os.fdopen(fd, "rb" if fd == 0 else "wb").close()

    def files_of_a_library(self):
        for fd in (1, 2):
            ctypes.CDLL(None).close(fd)

    def child_left_running(self):
        subprocess.Popen(["sleep", "300"])

    def recursion(self):
        def deeper():
            deeper()

        try:
            deeper()
        except RecursionError:
            return

    def recursion_limit(self):
        sys.setrecursionlimit(300)

    def soft_limits(self):
        for limit, most in (
            *((resource.RLIMIT_AS, 1 << 28), (resource.RLIMIT_NOFILE, 20), (resource.RLIMIT_FSIZE, 0)),
            *((resource.RLIMIT_NPROC, 1), (resource.RLIMIT_STACK, 1 << 16)),
        ):
            resource.setrlimit(limit, (most, resource.getrlimit(limit)[1]))

    def hard_limits(self):
        resource.setrlimit(resource.RLIMIT_AS, (1 << 28, 1 << 28))


@dataclass
class Plain(Procedure):
    """What the next step finds, and whether a limit is still enforced there."""

    hang: bool = False
    retry = RetryPolicy(max_attempts=1)

    def execute(self, ctx):
        umask = os.umask(0o022)
        os.umask(umask)
        found = (str(Path.cwd()), umask, os.environ.get("LEFT_BEHIND"), "PATH" in os.environ)
        if self.hang:
            time.sleep(30)
        for stream in (sys.stdout, sys.stderr):
            stream.write("still heard\n")
        os.fstat(0)
        blocked = sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
        limited = (resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC, resource.RLIMIT_STACK)
        limits = [resource.getrlimit(limit) for limit in limited]
        mmap.mmap(-1, 1 << 29).close()  # as much as no limit that is left behind would allow
        return Status.done(
            (
                *found,
                blocked,
                signal.set_wakeup_fd(-1),
                signal.getitimer(signal.ITIMER_VIRTUAL)[0],
                limits,
                sys.getrecursionlimit(),
            )
        )


MESSES = [
    "directory",
    "handlers",
    "environment",
    "replaced_environment",
    "streams",
    "deleted_streams",
    "replaced_functions",
    "closed_streams",
    "closed_stand_in",
    "input",
    "blocked_signals",
    "timer",
    "timer_of_a_dump",
    "event_loop",
    "flood",
    "small_descriptors",
    "file_objects",
    "files_of_a_library",
    "child_left_running",
    "recursion",
    "recursion_limit",
    "soft_limits",
    "hard_limits",
]


@pytest.mark.parametrize("what", MESSES)
def test_what_a_step_leaves_in_its_process_is_gone_for_the_next(open_manager, tmp_path, what, caplog):
    manager = open_manager(workers=1)
    fresh = manager.run(Plain())

    manager.run(Messy(what, str(tmp_path)))

    after = manager.submit(Plain())
    assert after.result(30) == fresh
    wait_until(lambda: [line.text for line in manager.logs(after.id)] == ["still heard"] * 2)
    hanging = manager.submit(Plain(hang=True), limits=Limits(wall_time=0.2, grace=0.1))
    assert isinstance(hanging.exception(30).cause, StepTimeout)
    assert hanging.info().crashes == 0
    assert manager.health().status == "running"
    assert "it had not been told to" not in caplog.text


# ---------------------------------------------------------------------- stopped, exhausted
@dataclass
class Freeze(Procedure):
    limits = Limits(wall_time=0.3, grace=0.1)
    retry = RetryPolicy(max_attempts=1)

    def execute(self, ctx):
        os.kill(os.getpid(), signal.SIGSTOP)
        return Status.done()


def test_a_stopped_process_is_killed_at_its_wall_time(open_manager):
    manager = open_manager(workers=1)

    with pytest.raises(ProcedureFailed) as failure:
        manager.submit(Freeze()).result(30)

    cause = failure.value.cause
    assert isinstance(cause, StepTimeout)
    assert cause.kind == "timeout"
    assert "ran longer than its wall time of 0.3 s" in str(cause)
    assert manager.run(Bystander(steps=2)) == (2, 1)


@dataclass
class Exit(Procedure):
    def execute(self, ctx):
        sys.exit(3)


def test_sys_exit_fails_the_step_and_costs_no_worker(open_manager):
    manager = open_manager(workers=1)

    with pytest.raises(ProcedureFailed, match="SystemExit"):
        manager.submit(Exit()).result(30)

    assert manager.workers()[0].restarts == 0


@dataclass
class Segfault(Procedure):
    limits = Limits(crashes=2)

    def execute(self, ctx):
        print("about to fall", file=sys.stderr)  # noqa: T201
        ctypes.string_at(0)


def test_the_callers_exception_carries_the_whole_report(open_manager):
    manager = open_manager(workers=1)
    handle = manager.submit(Segfault())

    with pytest.raises(ProcedureFailed) as failure:
        handle.result(30)

    cause = failure.value.cause
    assert isinstance(cause, WorkerCrashed)
    assert (cause.kind, cause.signal, cause.code) == ("signal", "SIGSEGV", None)
    assert "about to fall" in cause.stderr
    assert "in execute" in cause.stack
    assert cause.duration is not None
    assert cause.cpu_time is not None
    assert "for the 2nd time in step 1" in str(cause)
    stored = manager.info(handle.id).error
    assert stored is not None
    assert stored.crash is not None
    assert stored.crash.signal == "SIGSEGV"


MEMORY_GROUPS = Path("/sys/fs/cgroup/memory")


@dataclass
class Bloat(Procedure):
    group: str
    limits = Limits(crashes=1)

    def execute(self, ctx):
        Path(self.group, "cgroup.procs").write_text(str(os.getpid()))
        kept = []
        while True:
            kept.append(b"x" * (8 * 1024 * 1024))


def test_a_kill_of_the_kernel_for_memory_is_named_so(open_manager):
    group = MEMORY_GROUPS / f"actorproc-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / "memory.limit_in_bytes").write_text(str(150 * 1024 * 1024))
    except OSError:
        pytest.skip("no memory cgroup to write to")
    try:
        manager = open_manager(workers=1)

        with pytest.raises(ProcedureFailed) as failure:
            manager.submit(Bloat(str(group))).result(60)

        cause = failure.value.cause
        assert isinstance(cause, WorkerCrashed)
        assert cause.kind == "out-of-memory"
        assert "the kernel ran out of memory and chose this process" in str(cause)
    finally:
        group.rmdir()
