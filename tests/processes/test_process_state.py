"""What a worker looks at after each step, and what only when something can have changed it."""

import subprocess
import sys
import tempfile

import pytest

PROGRAM = """
import _signal, os, resource, signal, sys
from actorproc.workers.child.process_state import process_state as state_module
from actorproc.workers.child.process_state.process_state import ProcessState
from actorproc.workers.child.process_state.change_hooks import changes

silent = {{name: getattr(os, name) for name in ("umask", "chdir", "dup2")}}
silent |= {{name: getattr(_signal, name) for name in ("setitimer", "signal", "set_wakeup_fd")}}
silent["setrlimit"] = resource.setrlimit
held_back = _signal.pthread_sigmask  # the looks of this program must tell nothing
changes.watch()
before = resource.getrlimit(resource.RLIMIT_NOFILE)
lower = before[0] - 1, before[1]
os.umask(0o022)
home = os.getcwd()
places = ProcessState(lambda: None)
places.tidy()

def change():
{change}

handlers = {{number: signal.getsignal(number) for number in signal.valid_signals()}}
variables = dict(os.environ._data)
environ = os.environ
files = [os.fstat(fd) for fd in (0, 1, 2)]
depth = sys.getrecursionlimit()

def is_changed():
    try:
        if [os.fstat(fd) for fd in (0, 1, 2)] != files:
            return True
    except OSError:
        return True
    wakeup = silent["set_wakeup_fd"](-1)
    if wakeup != -1:
        silent["set_wakeup_fd"](wakeup)
        return True
    umask = silent["umask"](0o077)
    silent["umask"](umask)
    return (
        umask != 0o022
        or not os.path.samefile(".", home)
        or resource.getrlimit(resource.RLIMIT_NOFILE) != before
        or any(signal.getitimer(timer) != (0.0, 0.0) for timer in range(3))
        or bool(held_back(signal.SIG_BLOCK, ()))
        or any(signal.getsignal(number) != handler for number, handler in handlers.items())
        or os.environ is not environ
        or os.environ._data != variables
        or sys.getrecursionlimit() != depth
    )

{steps}
"""
AT_ONCE = """
for _ in range(50):  # whenever the last look was
    change()
    assert is_changed()
    places.tidy()
    assert not is_changed()
"""
IN_TIME = """
kept = []
change()
assert is_changed()
while is_changed():  # a millisecond at most
    places.tidy()
"""
IMPORTED = """
from os import close as close_fd, umask as mask
from resource import setrlimit as set_limit
from signal import signal as set_handler
"""
TOLD = {
    "chdir": "    os.chdir('/')",
    "fchdir": "    fd = os.open('/', os.O_RDONLY)\n    os.fchdir(fd)\n    os.close(fd)",
    "chdir of posix": "    import posix\n    posix.chdir('/')",
    "umask": "    os.umask(0)",
    "posix": "    import posix\n    posix.umask(0)",
    "imported before": "    mask(0)",
    "setitimer": "    signal.setitimer(signal.ITIMER_REAL, 30, 5)",
    "alarm": "    signal.alarm(30)",
    "mask": "    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2])",
    "patched": "    os.umask = silent['umask']\n    os.umask(0)",
    "deleted": "    del os.umask\n    silent['umask'](0)",
    "limit": "    resource.setrlimit(resource.RLIMIT_NOFILE, lower)",
    "limit by another call": "    resource.prlimit(os.getpid(), resource.RLIMIT_NOFILE, lower)",
    "limit, imported before": "    set_limit(resource.RLIMIT_NOFILE, lower)",
    "resource loaded anew": """
    import sys
    del sys.modules['resource']
    import resource as another
    assert another is not resource
    another.setrlimit(resource.RLIMIT_NOFILE, lower)
""",
    "variable": "    os.environ['LEFT'] = 'yes'",
    "variable taken away": "    del os.environ['PATH']",
    "variable of bytes": "    os.environb[b'LEFT'] = b'yes'",
    "variables": "    os.environ.update(LEFT='yes', LANG='C')",
    "other variables": "    os.environ = dict(os.environ)",
    "handler": "    signal.signal(signal.SIGUSR2, print)",
    "handler of _signal": "    _signal.signal(signal.SIGUSR2, _signal.SIG_IGN)",
    "handler, imported before": "    set_handler(signal.SIGPIPE, signal.SIG_DFL)",
    "wakeup": "    signal.set_wakeup_fd(os.open('/dev/ptmx', os.O_RDWR | os.O_NONBLOCK))",
    "recursion": "    sys.setrecursionlimit(depth + 100)",
    "close": "    os.close(1)",
    "close of posix": "    import posix\n    posix.close(2)",
    "close, imported before": "    close_fd(0)",
    "close in a thread": """
    import threading
    thread = threading.Thread(target=os.close, args=(1,))
    thread.start()
    thread.join()
""",
    "closerange": "    os.closerange(0, 3)",
    "dup2": "    os.dup2(2, 1)",
    "dup2 over it": "    fd = os.open('/', os.O_RDONLY)\n    os.dup2(fd, 0)\n    os.close(fd)",
    "closed and opened": "    os.close(0)\n    assert os.open('/', os.O_RDONLY) == 0",
    "file object": "    open(1, 'wb').close()",
    "file object of os": "    os.fdopen(2, 'wb').close()",
    "file object that is dropped": "    import warnings\n    warnings.simplefilter('ignore')\n    open(1, 'wb')",
    "raw file object": "    import io\n    io.FileIO(0).close()",
    "epoll": "    import select\n    select.epoll.fromfd(0).close()",
    "socket": "    import socket\n    socket.close(0)",
    "multiprocessing": "    import multiprocessing.connection as m\n    m.Connection(1, readable=False).close()",
    "pipe of a subprocess": """
    import subprocess
    child = subprocess.Popen(["true"], stdin=subprocess.PIPE)
    os.dup2(child.stdin.fileno(), 1)
    child.communicate()
""",
    "close of ctypes": "    import ctypes\n    assert ctypes.CDLL(None).close(1) == 0",
    "dup2 of ctypes": "    import ctypes\n    assert ctypes.CDLL(None).dup2(2, 1) == 1",
    "ctypes": """
    import ctypes
    two = (ctypes.c_ulong * 2)(*lower)
    assert ctypes.CDLL(None).setrlimit(int(resource.RLIMIT_NOFILE), two) == 0
""",
}
UNTOLD = {
    "limit": "    silent['setrlimit'](resource.RLIMIT_NOFILE, lower)",
    "umask": "    silent['umask'](0)",
    "timer": "    silent['setitimer'](signal.ITIMER_PROF, 30)",
    "directory": "    silent['chdir']('/')",
    "directory made anew": "    os.rmdir(home)\n    os.mkdir(home)",
    "another file": "    silent['dup2'](2, 1)",
    "another file, by file objects": "    open(0, 'rb').close()\n    kept.append(open('/dev/zero'))",
    "variable": "    os.environ._data[b'LEFT'] = b'yes'",
    "handler": "    silent['signal'](signal.SIGUSR2, print)",
    "wakeup": "    silent['set_wakeup_fd'](os.open('/dev/ptmx', os.O_RDWR | os.O_NONBLOCK))",
}
"""As C code does it by itself, or what nobody can tell."""


def run(change, steps):
    program = PROGRAM.format(change=change, steps=steps)

    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("change", TOLD.values(), ids=TOLD.keys())
def test_what_python_code_changed_is_put_back_at_once(change):
    run(change, IMPORTED + AT_ONCE)


@pytest.mark.parametrize("change", UNTOLD.values(), ids=UNTOLD.keys())
def test_what_nobody_tells_is_put_back_within_a_millisecond(change):
    run(change, IN_TIME)


def test_what_takes_long_to_ask_for_is_not_asked_when_nothing_can_have_changed_it():
    run(
        "    pass",
        """
looks = []
differs = places._differs
places._differs = lambda now: looks.append(1) or differs(now)
def tidy_after(seconds):
    state_module._now = lambda: places._looked + seconds
    places.tidy()
    return len(looks)
tidy_after(0.0015)
looks.clear()
assert tidy_after(0.0005) == 0
assert tidy_after(0.0015) == 1
assert tidy_after(0.0005) == 1
assert tidy_after(-5) == 2  # a step that plays with the clock
""",
    )


def test_descriptors_are_counted_as_often_as_steps_can_have_opened_most_of_them():
    run(
        "    pass",
        """
lowest = os.dup(2)
os.close(lowest)
assert 0 < places._filling_takes <= (places._many_open - lowest) * 1e-7 * 1.01
held = [os.open("/", os.O_RDONLY) for _ in range(10)]
places._many_open = held[-1]
clock = places._counted
state_module._now = lambda: clock + places._filling_takes * 0.9
places.tidy()
assert places.worn == ""
state_module._now = lambda: clock + places._filling_takes * 1.1
places.tidy()
assert "descriptors" in places.worn
""",
    )


def test_the_more_descriptors_are_open_the_more_often_they_are_counted():
    run(
        "    pass",
        """
held, takes, clock = [], [], places._counted
for _ in range(5):
    held += [os.dup(2) for _ in range((before[0] - 20) // 8)]
    clock += places._filling_takes * 1.1
    state_module._now = lambda: clock
    places.tidy()
    takes.append(places._filling_takes)
assert takes == sorted(takes, reverse=True) and 0 < takes[-1] < takes[0] / 3
assert places.worn == ""
""",
    )


OPENED = {
    "dup": "os.dup(2)",
    "dup of fcntl": "fcntl.fcntl(2, fcntl.F_DUPFD, 0)",
    "fromfd of socket": "socket.fromfd(pair[0].fileno(), socket.AF_UNIX, socket.SOCK_STREAM)",
    "pipe": "os.pipe()",
    "file": "open('/dev/null')",
    "dup2": "os.dup2(2, os.dup(2) + 1)",
    "mapped": "mmap.mmap(file.fileno(), 4096)",
    "pipes of a subprocess": "subprocess.Popen(['true'], stdin=subprocess.PIPE, stdout=subprocess.PIPE)",
    "open of ctypes": "ctypes.CDLL(None).open(b'/dev/null', 0)",
    "library": "sqlite3.connect('held.db').execute('create table if not exists t (x)')",
    "thread": "threads.submit(os.open, '/', os.O_RDONLY).result()",
    "received": "(socket.send_fds(pair[0], [b'x'], [0, 1, 2]), socket.recv_fds(pair[1], 1, 3))",
    "epoll": "select.epoll()",
}


@pytest.mark.parametrize("opened", OPENED.values(), ids=OPENED.keys())
def test_a_worker_whose_descriptors_are_used_up_is_found_however_they_were_opened(opened):
    run(
        "    pass",
        f"""
import concurrent.futures, fcntl, mmap, select, socket, subprocess, tempfile
if "ctypes" in {opened!r}:
    import ctypes
if "sqlite3" in {opened!r}:
    import sqlite3
pair, threads = socket.socketpair(), concurrent.futures.ThreadPoolExecutor(1)
threads.submit(len, ()).result()
file = tempfile.TemporaryFile()
file.truncate(4096)
silent["setrlimit"](resource.RLIMIT_NOFILE, (60, before[1]))
places = ProcessState(lambda: None)
held = []
for _ in range(5):
    places.tidy()
    assert places.worn == ""
while os.dup(2) < 50:  # and closes none
    held.append({opened})
places.tidy()
assert "descriptors" in places.worn
""",
    )


def test_descriptors_that_a_process_began_with_are_not_those_of_its_steps():
    run(
        "    pass",
        """
silent["setrlimit"](resource.RLIMIT_NOFILE, (60, before[1]))
inherited = [os.dup(2) for _ in range(47)]
places = ProcessState(lambda: None)
for _ in range(5):
    places.tidy()
assert places.worn == ""
while os.dup(2) < 57:
    pass
places.tidy()
assert "descriptors" in places.worn
""",
    )


def test_functions_that_tell_are_what_they_were_to_everybody_else():
    run(
        "    pass",
        """
import inspect, pickle
assert pickle.loads(pickle.dumps(os.umask)) is os.umask
assert os.chdir in os.supports_fd and os.umask not in os.supports_fd
assert os.umask.__doc__ == silent["umask"].__doc__ and inspect.signature(os.umask)
class Holder:
    umask = os.umask
assert Holder().umask(0o022) == 0o022
assert signal.alarm(30) == 0 and signal.alarm(0) > 0
assert signal.setitimer(signal.ITIMER_REAL, 0) == (0.0, 0.0)
assert pickle.loads(pickle.dumps(resource.setrlimit)) is resource.setrlimit
assert resource.prlimit(0, resource.RLIMIT_NOFILE) == before
assert signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]) == set()
assert signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2]) == {signal.Signals.SIGUSR2}
""",
    )


def test_what_a_step_patched_stays_and_is_looked_behind():
    run(
        "    silent['umask'](0)",
        """
os.umask = patch = lambda mask: 0o111
for _ in range(50):
    change()
    places.tidy()
    assert not is_changed()
assert os.umask is patch
""",
    )


SAME_FOR_GOOD = {
    "another file of the same kind": "os.dup2(os.open('/dev/null', os.O_RDONLY), 0)",
    "the mark alone": "fcntl.fcntl(0, 10, 0)",
    "a handler that was none of Python's": "places._handlers = (*places._handlers[:-1], None)",
}


@pytest.mark.parametrize("change", SAME_FOR_GOOD.values(), ids=SAME_FOR_GOOD.keys())
def test_once_it_was_put_back_nothing_is_put_back_again(change):
    program = f"""
import fcntl
def is_as_before():  # when all is compared
    changes.were_told = True
    return places._is_as_before()
assert is_as_before()
{change}
assert not is_as_before()
changes.were_told = True
places.tidy()
assert is_as_before()
"""
    run("    pass", program)


def test_a_forked_copy_keeps_nothing_of_what_it_sends():
    run(
        "    pass",
        """
import socket
from actorproc.workers.child.runtime.channel import WorkerChannel
from actorproc.workers.child.process_state.guard import Guard
from actorproc.workers.protocol.frames import Prepared
ours, theirs = socket.socketpair()
channel = WorkerChannel(ours.detach(), Guard(lambda: None))
channel.leave_to_parent()
for _ in range(10):
    channel.send([Prepared()])
assert not channel._late
assert theirs.recv(1) == b""
""",
    )
