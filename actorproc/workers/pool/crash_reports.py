"""Report on a dead worker, in words.

The classification follows loky and supervisord. An exit status alone is ambiguous, so the pool's own actions (a stop,
a kill) and the worker's last message count before it.
"""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path

import msgspec

from actorproc.model.messages.events import CrashReport
from actorproc.workers.protocol.exit_codes import EXIT_CHANNEL, EXIT_PROTOCOL, EXIT_TERMINATED, in_words
from actorproc.workers.protocol.frames import BootFailed

__all__ = ["Remains", "crash_report", "oom_kills", "signal_in_words"]

_OOM_KILLS = re.compile(rb"^oom_kill (\d+)$", re.MULTILINE)
_VMSTAT = Path("/proc/vmstat")


class Remains(msgspec.Struct, frozen=True, kw_only=True):
    """Everything the pool knows of a worker that is reaped."""

    status: int | None
    """Wait status; None: another part of the host program collected it."""
    booted: bool
    stop_asked: bool = False
    killed_as: str = ""
    """Kind of the report when the pool killed it: "timeout", "heartbeat-limit", "memory-limit", "stopped" …"""
    kill_reason: str = ""
    boot_failed: BootFailed | None = None
    out_of_memory: bool = False
    """The kernel's counter of out-of-memory kills moved while it lived."""
    group_killed: bool = False
    """The kernel killed in the worker's own control group, for its memory limit."""
    stderr: str = ""
    stack: str = ""
    peak_rss: int | None = None
    cpu_time: float | None = None


def crash_report(remains: Remains) -> CrashReport:
    """Report on a worker's end, as the supervisor, the step log and the caller's exception show it."""
    code, signal_name, ending = _ending(remains.status)
    kind, message = _judge(remains, code, signal_name, ending)
    boot_failed = remains.boot_failed
    return CrashReport(
        kind=kind,
        message=message,
        code=code,
        signal=signal_name,
        stderr=remains.stderr,
        stack=boot_failed.traceback if boot_failed is not None else remains.stack,
        peak_rss=remains.peak_rss,
        cpu_time=remains.cpu_time,
    )


def _judge(remains: Remains, code: int | None, signal_name: str | None, ending: str) -> tuple[str, str]:
    if remains.killed_as:
        reason = remains.kill_reason or "the worker pool ended it"
        return remains.killed_as, f"{reason} ({ending})"
    if remains.stop_asked and code == 0:
        return "stopped", "stopped as asked"
    if remains.boot_failed is not None:
        return "boot", remains.boot_failed.reason
    if not remains.booted:
        last = _last_line(remains.stderr)
        return "boot", f"{ending} before it was ready" + (f": {last}" if last else "")
    if remains.group_killed:
        return "memory-limit", f"{ending} by the kernel, for more memory than the memory_hard of its step"
    if signal_name == "SIGKILL" and remains.out_of_memory:
        return "out-of-memory", f"{ending}; the kernel ran out of memory and chose this process"
    if signal_name is not None:
        return "signal", ending
    if code == EXIT_TERMINATED:
        return "signal", ending
    if code in {EXIT_CHANNEL, EXIT_PROTOCOL}:
        return "protocol", ending
    if code is None:
        return "exit", ending
    return "exit", f"{ending}, and it had not been told to"


def _ending(status: int | None) -> tuple[int | None, str | None, str]:
    if status is None:
        return None, None, "vanished: another part of the host program collected its exit status"
    code = os.waitstatus_to_exitcode(status)
    if code >= 0:
        return code, None, in_words(code)
    return None, name_of_signal(-code), signal_in_words(-code) + (" (core dumped)" if os.WCOREDUMP(status) else "")


def name_of_signal(number: int) -> str:
    """``SIGSEGV`` for 11; real-time signals have numbers only."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def signal_in_words(number: int) -> str:
    """The sentence half of a death by signal: "killed by signal 11 (SIGSEGV)"."""
    return f"killed by signal {number} ({name_of_signal(number)})"


def oom_kills() -> int | None:
    """Number of processes the kernel killed for lack of memory since boot; None where it does not say (not Linux)."""
    try:
        found = _OOM_KILLS.search(_VMSTAT.read_bytes())
    except OSError:
        return None
    return None if found is None else int(found[1])


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""
