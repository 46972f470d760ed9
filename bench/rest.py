"""When an engine has come to rest after its start: its spare workers boot beside the first steps."""

from __future__ import annotations

import time

import psutil


def wait_for_spares(*busy: int) -> None:
    """Wait until all child processes, some beside these, have prepared themselves: they sleep, and go on sleeping."""
    deadline = time.monotonic() + 30
    quiet = 0
    while quiet < 100:  # a spare loads the procedure's class a moment after it has booted
        if time.monotonic() > deadline:
            raise SystemExit("no spare worker was ready within 30 s")
        children = psutil.Process().children()
        others = [child.pid for child in children if child.pid not in busy and child.name() != "postgres"]
        quiet = quiet + 1 if others and all(map(is_asleep, others)) else 0
        time.sleep(0.004)


def is_asleep(pid: int) -> bool:
    """The main thread and the reader of a worker wait for messages."""
    try:
        process = psutil.Process(pid)
        return process.num_threads() >= 2 and process.status() == psutil.STATUS_SLEEPING
    except psutil.NoSuchProcess:
        return False
