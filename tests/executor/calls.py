"""What the calls of the tests call: a module that is quickly imported, for each worker does."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import sys
import time
from pathlib import Path


class OurError(Exception):
    """An exception of the host's own module."""


class TwoNames(Exception):
    """Its `__init__` wants more than its `args` hold, so it cannot be unpickled."""

    def __init__(self, first, second):
        super().__init__(first)
        self.second = second


class OwnCause(Exception):
    """It lets nobody set its `__cause__`."""

    @property
    def __cause__(self):
        return None


class Never:
    """An argument that cannot be pickled."""

    def __reduce__(self):
        raise pickle.PicklingError("not this one")


class Explodes:
    """An argument, or a result, that cannot be unpickled."""

    def __reduce__(self):
        return _explode, ()


def _explode():
    raise ValueError("unpickled")


def add(left, right=0):
    return left + right


def fail(kind, *args):
    raise kind(*args)


def mark_and_wait(marker, release):
    with Path(marker).open("a") as file:
        file.write(f"{os.getpid()}\n")
    while not Path(release).exists():
        time.sleep(0.002)
    return os.getpid()


def die_once(marker):
    if not Path(marker).exists():
        Path(marker).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return "survived"


def die(_=None):
    os.kill(os.getpid(), signal.SIGKILL)


def sleep_after_mark(marker, seconds):
    _mark(marker)
    time.sleep(seconds)


def fail_until(marker, attempt, kind):
    """Raise before this attempt; its number."""
    if (number := _mark(marker)) < attempt:
        raise kind(number)
    return number


def _mark(marker):
    with Path(marker).open("a") as file:
        file.write("mark\n")
    return len(Path(marker).read_text().splitlines())


def set_up(directory, fails=False):
    """Change all that an initializer may change of its process."""
    resource.setrlimit(resource.RLIMIT_DATA, (3 << 30, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    os.environ["ACTORPROC_TEST_SETUP"] = "set"
    os.environ.pop("ACTORPROC_TEST_PLAIN", None)
    os.chdir(directory)
    os.umask(0o027)
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    sys.setrecursionlimit(1234)
    if fails:
        raise OurError("no")


def process_traits(spoils=False):
    """What `set_up` may have changed; then spoil it, if asked."""
    umask = os.umask(0)
    os.umask(umask)
    found = {
        "data": resource.getrlimit(resource.RLIMIT_DATA)[0],
        "files": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "set": os.environ.get("ACTORPROC_TEST_SETUP"),
        "plain": os.environ.get("ACTORPROC_TEST_PLAIN"),
        "directory": str(Path.cwd()),
        "umask": umask,
        "handler": signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN,
        "recursion": sys.getrecursionlimit(),
    }
    if spoils:
        resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, resource.RLIM_INFINITY))
        os.environ["ACTORPROC_TEST_SETUP"] = "spoiled"
        os.environ["ACTORPROC_TEST_PLAIN"] = "spoiled"
        os.chdir("/")
        os.umask(0)
        signal.signal(signal.SIGUSR2, signal.SIG_DFL)
        sys.setrecursionlimit(4321)
    return found


READY = []


def get_ready(value):
    READY.append(value)


def readiness():
    return list(READY)
