"""Fixtures for folders whose tests start engines; a conftest that imports them gives them to all tests below it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import psutil
import pytest

from tests.kit.waiting import wait_until

OURS = ("actorproc", "manageractor", "supervisoractor", "engineactor")
"""How the names of the engine's threads begin, in lower case; Pykka names a thread after its actor's class."""


@pytest.fixture
def until() -> Callable[..., Any]:
    return wait_until


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """No thread of the engine and no child process outlives a test."""
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    threads = set(threading.enumerate())
    yield

    def left() -> list[str]:
        new = set(threading.enumerate()) - threads
        found = [thread.name for thread in new if thread.name.lower().startswith(OURS)]
        for child in me.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.pid in before or child.name().startswith("postgres"):
                    continue  # the server of this process of pytest, which the next tests use as well
                if child.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"process {child.pid}: {child.cmdline()}")
        return found

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not left(), 15)
    assert not (rest := left()), f"left behind: {rest}"
