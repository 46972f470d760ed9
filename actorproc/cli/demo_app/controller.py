"""Starts the service, kills it and its workers while they work, and starts it again until it is done.

When to kill follows the progress of the work and not the clock, so a slow machine sees the same kills as a
fast one. Only a worker in the middle of a step is killed: killing an idle one proves nothing.
"""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from actorproc.cli.demo_app.journal import DemoJournal, Entry, JournalReader
from actorproc.cli.demo_app.tables import Layout
from actorproc.procedure.values.type_names import command_of_module

__all__ = ["Controller", "DemoError", "DemoOptions", "DemoRequest", "Kill", "PlannedKill", "close_input", "plan_kills"]

POLL_SECONDS = 0.01
_NAMES = {"manager": "the manager", "leader": "the leader", "agent": "the agent of a host", "node": "a node of Ray"}


class DemoError(Exception):
    """The demo could not go on; the message says why."""


@dataclass(frozen=True)
class DemoOptions:
    """Options of the command line. `directory` None means a temporary one that is removed.

    `hosts` are agents on a store in a database; with `on_ray` a Ray cluster runs them. 0: one machine, one directory.
    """

    source: Path
    regions: int
    workers: int
    chaos: bool
    seed: int
    directory: Path | None = None
    hosts: int = 0
    on_ray: bool = False


@dataclass(frozen=True)
class DemoRequest:
    """Request for the service to create something."""

    source: Path
    table: str
    regions: int
    workers: int
    failing_region: int | None = None


@dataclass(frozen=True)
class PlannedKill:
    """Kill a process of this kind (worker, manager; with a cluster agent, leader, node) when the work is so far."""

    fraction: float
    """Share of the files that are indexed."""
    kind: str


@dataclass
class Kill:
    """A kill that happened: whom, when (epoch seconds), and the steps it cut off."""

    at: float
    pid: int
    kind: str
    cut_off: list[Entry] = field(default_factory=list)


def plan_kills(chance: random.Random, counts: Mapping[str, int], *, until: float = 0.95) -> list[PlannedKill]:
    """Spread kills, so many of each kind, over the work: each at a random place of its share, in random order."""
    kinds = [kind for kind, count in counts.items() for _ in range(count)]
    chance.shuffle(kinds)
    span = until / max(len(kinds), 1)
    return [PlannedKill((index + chance.random()) * span, kind) for index, kind in enumerate(kinds)]


class Controller:
    """Runs one request to its end. `watch` is called about every 10 ms with the journal so far."""

    def __init__(
        self,
        layout: Layout,
        request: DemoRequest,
        *,
        total_files: int,
        kills: list[PlannedKill],
        chance: random.Random,
        watch: Callable[[DemoJournal], None],
        say: Callable[[str], None],
    ) -> None:
        self.journal = DemoJournal(request.table)
        self.kills: list[Kill] = []
        self._layout = layout
        self._request = request
        self._total_files = max(total_files, 1)
        self._planned = list(kills)
        self._chance = chance
        self._watch = watch
        self._say = say
        self._reader = JournalReader(layout.journal)

    def run(self) -> dict[str, Any]:
        """Work until the outcome is written; return it. Raises `DemoError` when the service gives up."""
        service = self._start()
        try:
            while service.poll() is None:
                self._follow()
                if self._is_due() and self._kill(service, self._planned[0]):
                    was = self._planned.pop(0)
                    service = self._start() if was.kind == "manager" else service
                time.sleep(POLL_SECONDS)
        finally:
            if service.poll() is None:
                service.kill()
            service.wait()
            close_input(service)
        self._follow()
        return self._outcome(service.returncode)

    def _start(self, *more: str, **options: Any) -> subprocess.Popen[bytes]:
        """Start the service, with further arguments, and options of `Popen`."""
        request = self._request
        command = command_of_module("actorproc.cli.demo_app.service")
        command += ["--directory", str(self._layout.directory), "--source", str(request.source)]
        command += ["--table", request.table, "--regions", str(request.regions), "--workers", str(request.workers)]
        if request.failing_region is not None:
            command += ["--failing-region", str(request.failing_region)]
        with self._layout.service_log.open("ab") as log:
            return subprocess.Popen([*command, *more], stdin=subprocess.PIPE, stdout=log, stderr=log, **options)

    def _follow(self) -> None:
        self.journal.add(self._reader.fresh())
        self._watch(self.journal)

    def _is_due(self) -> bool:
        return bool(self._planned) and self.journal.files_done / self._total_files >= self._planned[0].fraction

    def _kill(self, service: subprocess.Popen[bytes], planned: PlannedKill) -> bool:
        """Kill as planned; False when no worker is in the middle of a step at this moment."""
        victims = self._busy_workers([service.pid])
        if not victims:
            return False
        if planned.kind == "manager":
            service.kill()
            service.wait()
            close_input(service)
            self._note(Kill(time.time(), service.pid, "manager", list(victims.values())))
            return True
        return self._kill_worker(victims)

    def _kill_worker(self, victims: dict[int, Entry]) -> bool:
        """Kill one of these workers; False when it is gone already."""
        pid = self._chance.choice(sorted(victims))
        try:
            psutil.Process(pid).kill()
        except psutil.NoSuchProcess:
            return False
        self._note(Kill(time.time(), pid, "worker", [victims[pid]]))
        return True

    def _busy_workers(self, parents: Iterable[int]) -> dict[int, Entry]:
        """Steps that run now in workers below these processes, by worker."""
        # The journal says who works on what; the process table says who of them is alive and ours.
        family: set[int] = set()
        for parent in parents:
            with contextlib.suppress(psutil.NoSuchProcess):
                family |= {process.pid for process in psutil.Process(parent).children(recursive=True)}
        self.journal.add(self._reader.fresh())
        return {pid: entry for pid, entry in self.journal.running.items() if pid in family}

    def _note(self, kill: Kill) -> None:
        self.kills.append(kill)
        cut_off = ", ".join(entry.what for entry in kill.cut_off) or "steps elsewhere"
        self._say(f"kill -9 {kill.pid} ({_NAMES.get(kill.kind, kill.kind)}) during {cut_off}")

    def _outcome(self, code: int) -> dict[str, Any]:
        path = self._layout.outcome(self._request.table)
        if code == 0 and path.exists():
            outcome: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return outcome
        log = self._layout.service_log.read_text(encoding="utf-8", errors="replace").strip()
        raise DemoError(
            f"the service ended with exit code {code} before it was done; the end of its log:\n{log[-3000:]}"
        )


def close_input(service: subprocess.Popen[bytes]) -> None:
    """Tell a process that ends with its controller that this one is done."""
    if service.stdin is not None:
        with contextlib.suppress(OSError):
            service.stdin.close()
