"""Programs that steps start: signals reach them as they expect, and what they leave behind is removed."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import pickle
import select
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path

import psutil
import pytest

from actorproc import Config, Limits, ProcedureExecutor, ProcedureFailed, ProcedureManager, procedure
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.processes, pytest.mark.skipif(sys.platform != "linux", reason="what /proc shows")]
ROOT = Path(__file__).parents[2]
kept: list = []
READY = "echo ready; "


# ---------------------------------------------------------------- signals
def of_subprocess(text, **options):
    process = subprocess.Popen(["bash", "-c", text], stdout=subprocess.PIPE, **options)
    kept.append(process)
    return process.pid, process.stdout.readline


def of_posix_spawn(text):
    read_end, write_end = os.pipe()
    actions = [(os.POSIX_SPAWN_DUP2, write_end, 1)]
    pid = os.posix_spawn("/bin/bash", ["bash", "-c", text], os.environ, file_actions=actions)
    os.close(write_end)
    kept.append(os.fdopen(read_end, "rb"))
    return pid, kept[-1].readline


def of_asyncio(text):
    import asyncio

    async def run():
        process = await asyncio.create_subprocess_exec("bash", "-c", text, stdout=subprocess.PIPE)
        return process.pid, await process.stdout.readline()

    pid, line = asyncio.run(run())
    return pid, lambda: line


def of_multiprocessing(method, text):
    read_end, write_end = multiprocessing.get_context(method).Pipe(duplex=False)
    process = multiprocessing.get_context(method).Process(target=sleep_in_python, args=(write_end,))
    process.start()
    kept.append(process)
    write_end.close()
    return process.pid, read_end.recv


def sleep_in_python(pipe):
    import time

    pipe.send(b"ready\n")
    for _ in range(600):  # a signal that comes just before a sleep does not shorten it
        time.sleep(0.1)


WAYS = {
    "subprocess": of_subprocess,
    "without vfork": lambda text: of_subprocess(text, preexec_fn=lambda: None),
    "own session": lambda text: of_subprocess(text, start_new_session=True),
    "posix_spawn": of_posix_spawn,
    "asyncio": of_asyncio,
    "fork": lambda text: of_multiprocessing("fork", text),
    "spawn": lambda text: of_multiprocessing("spawn", text),
}
WAITS = """
import time
try:
    print("ready", flush=True)
    for _ in range(600):  # a signal that comes just before a sleep does not shorten it
        time.sleep(0.1)
except KeyboardInterrupt:
    exit(7)
"""
TEXTS = {
    "a plain program": (f"{READY} exec sleep 60", -1),
    "a script with a trap": (f"trap 'exit 7' INT TERM; {READY} sleep 60 & wait", 7),
    "a Python program": (f"exec {sys.executable} -c {shlex.quote(WAITS)}", 7),
}


def ended(start, text, number):
    """The state that a child begins with, and how it ended by a signal."""
    pid, ready = start(text)
    try:
        assert ready() == b"ready\n"
        process = psutil.Process(pid)
        for _ in range(200):  # a shell holds signals back while it starts a program
            begun = state_of(pid)
            if not begun["holds back"]:
                break
            threading.Event().wait(0.01)
        os.kill(pid, number)
        try:
            code = process.wait(10)
            return begun, "ended" if code is None else int(code)  # asyncio has collected it
        except psutil.TimeoutExpired:
            return begun, "does not end"
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def state_of(pid):
    status = dict(line.split(":\t") for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)
    return {
        "ignores": [int(name) for name in (signal.SIGINT, signal.SIGTERM) if has(status["SigIgn"], name)],
        "holds back": [int(name) for name in (signal.SIGINT, signal.SIGTERM) if has(status["SigBlk"], name)],
        "oom_score_adj": int(Path(f"/proc/{pid}/oom_score_adj").read_text()),
        "worker's": int(Path("/proc/self/oom_score_adj").read_text()),
    }


def has(mask, number):
    return bool(int(mask, 16) >> (number - 1) & 1)


@procedure
def child(ctx, way: str, text: str, number: int):
    return ended(WAYS[way], text, number)


@procedure(limits=Limits(threads=4))
def child_of_thread(ctx, way: str, text: str, number: int):
    return ended(WAYS[way], text, number)


@pytest.fixture(scope="module")
def manager(tmp_path_factory):
    with ProcedureManager(tmp_path_factory.mktemp("children") / "store", workers=1) as manager:
        yield manager


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("threads", [False, True], ids=["main thread", "threads"])
@pytest.mark.parametrize("way", WAYS)
def test_a_child_gets_signals_as_its_program_expects(manager, way, threads, number):
    score = int(Path("/proc/self/oom_score_adj").read_text())
    texts = TEXTS if way == "subprocess" else {"a plain program": TEXTS["a plain program"]}
    for name, (text, code) in texts.items():
        kind = child_of_thread if threads else child
        begun, code_found = manager.run(kind(way, text, int(number)), timeout=60)

        assert begun == {"ignores": [], "holds back": [], "oom_score_adj": score, "worker's": max(score, 500)}, name
        if way == "asyncio":
            assert code_found in ("ended", -number)
        elif way in ("fork", "spawn"):
            assert code_found in ({-2, 1} if number == signal.SIGINT else {-15})
        elif name == "a Python program" and number == signal.SIGTERM:
            assert code_found == -signal.SIGTERM
        else:
            assert code_found == (-number if code == -1 else code), name


def system_in_a_call():
    with tempfile.NamedTemporaryFile("r", encoding="utf-8") as file:
        code = os.system(f"cat /proc/self/oom_score_adj >{file.name}; exit 3")
        score = file.read().strip()
    return score, os.waitstatus_to_exitcode(code), pickle.loads(pickle.dumps(os.system))


@procedure
def system(ctx):
    score, code, function = system_in_a_call()
    return score, code, function is os.system, os.system("kill -INT $$")


def test_os_system_runs_with_the_programs_score_and_gives_the_wait_status(manager):
    score = Path("/proc/self/oom_score_adj").read_text().strip()

    assert manager.run(system(), timeout=60) == (score, 3, True, signal.SIGINT)


@procedure
def interrupted(ctx):
    os.kill(os.getpid(), signal.SIGINT)
    signal.raise_signal(signal.SIGINT)
    return "went on"


def test_a_worker_itself_does_not_heed_sigint(manager):
    assert manager.run(interrupted(), timeout=60) == "went on"


@procedure
def forked(ctx):
    """Exit codes of forked copies that get a signal, with the step's own handler and without."""
    codes = []
    for handler in (None, lambda *_: os._exit(9)):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGALRM, signal.SIGXCPU):
            before = signal.signal(number, handler) if handler is not None else None
            pid = os.fork()
            if pid == 0:
                try:
                    os.kill(os.getpid(), number)
                    threading.Event().wait(10)
                except KeyboardInterrupt:
                    os._exit(7)
                os._exit(0)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            if before is not None:
                signal.signal(number, before)
    return codes


def test_a_forked_copy_has_the_handlers_of_a_python_program_or_the_steps_own(manager):
    assert manager.run(forked(), timeout=60) == [
        *(7, -signal.SIGTERM, -signal.SIGUSR1, -signal.SIGALRM, -signal.SIGXCPU),
        *(9, 9, 9, 9, 9),
    ]


@procedure(limits=Limits(crashes=1))
def crashed_in_a_copy(ctx):
    """A copy that crashes in native code, then the worker, killed."""
    if (pid := os.fork()) == 0:
        ctypes.string_at(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGSEGV
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_crash_of_a_forked_copy_is_not_in_the_report_of_its_worker(manager):
    with pytest.raises(ProcedureFailed) as failed:
        manager.run(crashed_in_a_copy(), timeout=60)

    assert failed.value.cause.signal == "SIGKILL"
    assert failed.value.cause.stack == ""


@procedure
def forked_and_ended(ctx, in_thread):
    """How many copies, of those that get SIGTERM while they begin, live on, and the worker's mask after that."""
    alive = []

    def fork():
        for _ in range(100):
            pid = os.fork()
            if pid == 0:
                with contextlib.suppress(BaseException):
                    threading.Event().wait(60)
                os._exit(0)
            os.kill(pid, signal.SIGTERM)
            ended = select.select([handle := os.pidfd_open(pid)], [], [], 5)[0]
            os.close(handle)
            os.kill(pid, signal.SIGKILL)
            if os.waitpid(pid, 0)[1] != signal.SIGTERM:
                alive.append(pid)
            if not ended:
                break

    if in_thread:
        thread = threading.Thread(target=fork)
        thread.start()
        thread.join()
    else:
        fork()
    return alive, signal.SIGTERM in signal.pthread_sigmask(signal.SIG_BLOCK, [])


@pytest.mark.parametrize("in_thread", [False, True], ids=["the step's thread", "a thread of it"])
def test_a_sigterm_that_comes_while_a_forked_copy_begins_is_not_lost(manager, in_thread):
    assert manager.run(forked_and_ended(in_thread), timeout=120) == ([], False)


@procedure
def forked_again(ctx):
    """Exit code of a copy of a copy that gets SIGTERM at once, and of a program started by a fork of that time."""
    pid = os.fork()
    if pid == 0:
        inner = os.fork()
        if inner == 0:
            threading.Event().wait(60)
            os._exit(0)
        os.kill(inner, signal.SIGTERM)
        os._exit(-os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1]))
    program = subprocess.Popen(["sleep", "60"], preexec_fn=lambda: None)  # noqa: PLW1509 - the fork that it makes is what is tried
    program.terminate()
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), program.wait(30)


def test_a_copy_of_a_copy_and_a_program_end_by_a_signal_that_comes_at_once(manager):
    assert manager.run(forked_again(), timeout=60) == (signal.SIGTERM, -signal.SIGTERM)


def square(number):
    return number * number


@procedure
def pools(ctx, rounds):
    """Pools of forked processes, each shut down at once."""
    context = multiprocessing.get_context("fork")
    total = 0
    for _ in range(rounds):
        with context.Pool(3) as pool:
            total += sum(pool.map(square, range(3)))
    return total


def test_pools_of_forked_processes_shut_down(manager):
    assert manager.run(pools(25), timeout=120) == 125


# ---------------------------------------------------------------- what resource trackers hold
def shared_memory():
    block = SharedMemory(create=True, size=100_000)
    block.buf[:4] = b"data"
    block.close()
    return f"/dev/shm/{block.name}"


def semaphore():
    lock = multiprocessing.get_context("spawn").Lock()
    kept.append(lock)
    return f"/dev/shm/sem.{lock._semlock.name[1:]}"


def folder():
    from joblib.externals.loky.backend import resource_tracker

    path = tempfile.mkdtemp()
    resource_tracker.register(path, "folder")
    return path


def memory_of_a_child():
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(shared_memory)


LEFT = {
    "shared memory": shared_memory,
    "a semaphore": semaphore,
    "a folder of loky": folder,
    "shared memory of a child": memory_of_a_child,
}


@procedure(retry=None)
def leaves(ctx, what: str, place: str, end: str):
    path = LEFT[what]()
    assert Path(path).exists()
    # The second attempt comes at once, and leaves something of its own. A reader sees the whole name or no file.
    target = Path(f"{place}-again" if ctx.replayed else place)
    target.with_suffix(".part").write_text(path)
    target.with_suffix(".part").rename(target)
    if end == "crash" and not ctx.replayed:
        os.kill(os.getpid(), signal.SIGKILL)
    return os.getpid()


@procedure
def leaves_and_hangs(ctx, what: str, place: str):
    if ctx.replayed:
        return
    path = LEFT[what]()
    assert Path(path).exists()
    Path(place).write_text(path)
    Path(f"{place}-and-hangs").touch()
    threading.Event().wait()


ENDS = ["orderly", "recycled", "killed", "kill of the step", "crash"]


@pytest.mark.parametrize("what", LEFT)
@pytest.mark.parametrize("end", ENDS)
def test_what_a_step_left_to_a_tracker_is_removed_when_its_worker_ends(tmp_path, what, end):
    place = tmp_path / "left"
    config = Config(recycle_steps=1) if end == "recycled" else None
    with ProcedureManager(tmp_path / "store", workers=1, config=config) as manager:
        if end == "kill of the step":
            handle = manager.submit(leaves_and_hangs(what, str(place)))
            wait_until(Path(f"{place}-and-hangs").exists)
            assert manager.kill(handle.id)
            handle.result(60)
        else:
            first = None
            if end == "crash":
                handle = manager.submit(leaves(what, str(place), end))
                wait_until(place.exists)
                first = place.read_text()
                handle.result(60)
                place = tmp_path / "left-again"
            else:
                pid = manager.run(leaves(what, str(place), end), timeout=60)
            if end == "killed":
                os.kill(pid, signal.SIGKILL)
            if first is not None:
                wait_until(lambda: not Path(first).exists())
        path = Path(place.read_text())
        if end in ("recycled", "killed", "kill of the step"):
            wait_until(lambda: not path.exists())
    wait_until(lambda: not path.exists())


HOST = """
import os, sys
from tests.processes.test_children_of_steps import LEFT, leaves
from actorproc import ProcedureManager
manager = ProcedureManager(sys.argv[1], workers=1)
manager.start()
manager.run(leaves(sys.argv[2], sys.argv[3], ""), timeout=60)
print("made", flush=True)
{end}
"""


@pytest.mark.parametrize("what", LEFT)
@pytest.mark.parametrize("end", ["os.kill(os.getpid(), 9)", "os._exit(0)", ""], ids=["killed", "_exit", "no stop"])
def test_what_a_step_left_to_a_tracker_is_removed_when_the_program_ends(tmp_path, what, end):
    place = tmp_path / "left"
    command = [sys.executable, "-c", HOST.format(end=end), str(tmp_path / "store"), what, str(place)]
    run = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=60, env=os.environ | {"PYTHONPATH": str(ROOT)}
    )

    assert run.stdout == "made\n", run.stderr
    path = Path(place.read_text())
    wait_until(lambda: not path.exists())


def test_a_call_of_an_executor_leaves_no_shared_memory(tmp_path):
    with ProcedureExecutor(tmp_path / "calls", max_workers=1) as executor:
        path = Path(executor.submit(shared_memory).result(60))
        assert path.exists(), "it is there as long as the worker"
    wait_until(lambda: not path.exists())
