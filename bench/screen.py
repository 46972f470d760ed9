"""Processor time of `actorproc top` and of the manager that it looks at, with many unfinished procedures.

The screen runs in a terminal of its own, 80 x 24, and looks once a second; another round has no screen.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import psutil
from common import fresh_directory
from jobs import Sleeper

from actorproc import ProcedureManager


def screen(unfinished: int, seconds: float) -> dict[str, float]:
    """Percent of a core that the screen takes, pane by pane, and that it adds to the manager's; bytes it writes."""
    found: dict[str, float] = {}
    with fresh_directory() as path, ProcedureManager(path, procedures=[Sleeper], workers=1) as manager:
        for _ in manager.submit_many([Sleeper(number) for number in range(unfinished)]):
            pass
        while len(manager.list(phase="sleeping", limit=unfinished)) < unfinished:
            time.sleep(0.2)
        idle = _percent(os.getpid(), seconds, -1)[0]
        for pane, keys in (("now", b"1"), ("procedures", b"2"), ("one procedure", b"2\r")):
            end, theirs = pty.openpty()
            fcntl.ioctl(end, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
            command = [sys.executable, "-m", "actorproc", "--path", path, "top"]
            environment = os.environ | {"TERM": "xterm-256color"}
            top = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
            os.close(theirs)
            _drained(end, 3.0)
            for key in keys:
                os.write(end, bytes([key]))
                _drained(end, 1.0)
            mine = psutil.Process(os.getpid()).cpu_times()
            found[pane], written = _percent(top.pid, seconds, end)
            now = psutil.Process(os.getpid()).cpu_times()
            used = now.user + now.system - mine.user - mine.system
            found[f"manager, {pane}"] = max(0.0, used / seconds * 100 - idle)
            found[f"bytes/s, {pane}"] = written / seconds
            os.write(end, b"q")
            _drained(end, 1.0)
            top.wait(30)
            os.close(end)
    return {name: round(value, 2) for name, value in found.items()}


def _percent(pid: int, seconds: float, end: int) -> tuple[float, int]:
    process = psutil.Process(pid)
    before = process.cpu_times()
    written = _drained(end, seconds)
    after = process.cpu_times()
    return (after.user + after.system - before.user - before.system) / seconds * 100, written


def _drained(end: int, seconds: float) -> int:
    """Bytes that a terminal got in this time."""
    until, count = time.monotonic() + seconds, 0
    while (left := until - time.monotonic()) > 0:
        if end < 0:
            time.sleep(left)
        elif select.select([end], [], [], left)[0]:
            try:
                count += len(os.read(end, 65536))
            except OSError:  # it has ended
                break
    return count
