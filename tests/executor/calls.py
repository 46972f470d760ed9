"""What the calls of the tests call: a module that is quickly imported, for each worker does."""

from __future__ import annotations

import os
import pickle
import signal
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


READY = []


def get_ready(value):
    READY.append(value)


def readiness():
    return list(READY)
