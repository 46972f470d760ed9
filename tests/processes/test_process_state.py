"""What a worker looks at after each step, and what only when something can have changed it."""

import subprocess
import sys
import tempfile

import pytest

PROGRAM = """
import _signal, os, resource, signal
from actorproc.workers.child.process_state import process_state as state_module
from actorproc.workers.child.process_state.process_state import ProcessState
from actorproc.workers.child.process_state.change_hooks import changes

silent = {{"umask": os.umask, "chdir": os.chdir, "setitimer": signal.setitimer, "setrlimit": resource.setrlimit}}
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

def is_changed():
    umask = silent["umask"](0o077)
    silent["umask"](umask)
    return (
        umask != 0o022
        or not os.path.samefile(".", home)
        or resource.getrlimit(resource.RLIMIT_NOFILE) != before
        or any(signal.getitimer(timer) != (0.0, 0.0) for timer in range(3))
        or bool(held_back(signal.SIG_BLOCK, ()))
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
change()
assert is_changed()
while is_changed():  # a millisecond at most
    places.tidy()
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
    run(change, "from os import umask as mask\nfrom resource import setrlimit as set_limit\n" + AT_ONCE)


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


def test_descriptors_are_counted_as_often_as_a_step_can_have_opened_most_of_them():
    run(
        "    pass",
        """
least = (before[0] - 20) / 4 * 1e-7
assert 0 < places._filling_takes <= least * 2
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
assert places._is_as_before()
{change}
assert not places._is_as_before()
places.tidy()
assert places._is_as_before()
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
