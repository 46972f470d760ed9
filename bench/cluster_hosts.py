"""Hosts and leaders of a bench as processes: `python bench/cluster_hosts.py host|lead URL WORKERS LABEL`."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
from jobs import Hang, Nap
from large_states import Carry
from steps import Count

from actorproc import Config, ProcedureManager

__all__ = ["CONFIG", "PROCEDURES", "far_hosts", "leader_program", "wait_for"]

PROCEDURES = [Carry, Count, Hang, Nap]
CONFIG = Config(max_state=17 << 20, lease=2.0)
_PATIENCE = 60.0


def wait_for(condition: Callable[[], Any], what: str) -> Any:
    """The first true value; the bench ends when there is none for a minute."""
    until = time.monotonic() + _PATIENCE
    while not (value := condition()):
        if time.monotonic() > until:
            raise SystemExit(f"waited for {_PATIENCE:g} s in vain: {what}")
        time.sleep(0.002)
    return value


class Program:
    """A process of this module. Its processor time is that of the process alone, without its workers."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, str(Path(__file__)), *arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        if self.process.stdout.readline() != "up\n":
            raise SystemExit(f"{' '.join(arguments)} did not start")

    def processor(self) -> float:
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system

    def end(self) -> None:
        """Have it leave in order, if it can."""
        self.process.stdin.close()
        try:
            self.process.wait(10.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def leader_program(url: str) -> Program:
    """A manager that leads, with one worker of its own."""
    return Program("lead", url, "1", "lead")


@contextlib.contextmanager
def far_hosts(url: str, count: int, workers: int, manager: ProcedureManager | None) -> Iterator[list[Program]]:
    """So many hosts with the label far, which have joined the manager, if one is given."""
    programs: list[Program] = []
    try:
        programs += [Program("host", url, str(workers), "far") for _ in range(count)]
        if manager is not None:

            def have_joined() -> bool:
                far = [host for host in manager.hosts() if "far" in host.labels]
                return len(far) == count and all(host.workers == workers for host in far)

            wait_for(have_joined, f"{count} hosts")
        yield programs
    finally:
        for program in programs:
            program.end()
        if manager is not None:
            wait_for(lambda: not any("far" in host.labels for host in manager.hosts()), "the loss of the hosts")


def _main(what: str, url: str, workers: str, label: str) -> None:
    manager = ProcedureManager(
        url, procedures=PROCEDURES, workers=int(workers), labels=(label,), lead=what == "lead", config=CONFIG
    )
    if what == "lead":
        manager.start()
    else:
        host = manager._make_host()
        host.start()
    print("up", flush=True)
    sys.stdin.read()
    if what == "lead":
        manager.stop(drain=False, timeout=5.0)
    else:
        host.stop(drain=True)


if __name__ == "__main__":
    _main(*sys.argv[1:])
