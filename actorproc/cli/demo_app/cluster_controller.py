"""The controller of the demo with several machines: two managers on one database, one of which leads.

A manager that is killed is started again, and so is the agent of a host. Kills of leaders wait for the other manager to
be there, so that it takes over.
"""

from __future__ import annotations

import contextlib
import re
import subprocess
import time
from typing import Any

import psutil

from actorproc.cli.demo_app.cluster import DemoCluster
from actorproc.cli.demo_app.controller import POLL_SECONDS, Controller, DemoError, Kill, PlannedKill, close_input
from actorproc.errors import ActorprocError
from actorproc.store.home import home_of

__all__ = ["ClusterController"]

_MANAGERS = 2
_LAST_WITHIN = 60.0
"""Seconds for the second manager to see the end as well."""
_LOOK = 0.1


class ClusterController(Controller):
    """Runs one request to its end on a cluster.

    Args:
        arguments: Of `Controller`.
        cluster: The machines.
        options: Of `Controller`.
    """

    def __init__(self, *arguments: Any, cluster: DemoCluster, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cluster = cluster
        self._home = home_of(cluster.url)
        self._leaders = 0
        """Highest epoch of a leader that was killed."""
        self._killed_at: float | None = None
        """Time of the death of a leader that has no successor yet."""

    def run(self) -> dict[str, Any]:
        """Work until the outcome is written; return it. Raises `DemoError` when the managers give up."""
        cluster = self._cluster
        parallel = cluster.hosts * cluster.workers + _MANAGERS
        self._arguments = ["--store", cluster.url, "--parallel", str(parallel)]
        waiting = [*self._arguments, "--wait-for-hosts", str(cluster.expected_hosts() + 1)]
        managers = cluster.candidates
        for _ in range(_MANAGERS):
            managers.append(self._start(*waiting, **cluster.popen_options))
        try:
            cluster.wait_for_ray()
            code = self._worked(managers)
            self._wait_for_others(managers)
        finally:
            for manager in managers:
                if manager.poll() is None:
                    manager.kill()
                manager.wait()
                close_input(manager)
            managers.clear()
        self._follow()
        for planned in self._planned:
            self._say(f"not killed: {planned.kind}; there was none with a step before the work was done")
        return self._outcome(code)

    def _worked(self, managers: list[subprocess.Popen[bytes]]) -> int:
        """Work and kill until the first manager ends by itself; its exit code."""
        while True:
            for place, manager in enumerate(managers):
                code = manager.poll()
                if code is not None and code >= 0:
                    return code
                if code is not None:
                    self._say(f"process {manager.pid}, a manager, was killed by signal {-code}; it is started again")
                    close_input(manager)
                    managers[place] = self._start(*self._arguments, **self._cluster.popen_options)
            self._follow()
            self._look_for_leader()
            self._cluster.replace_agents()
            if self._is_due() and (done := next((one for one in self._due() if self._strike(one.kind)), None)):
                self._planned.remove(done)
            time.sleep(POLL_SECONDS)

    def _due(self) -> list[PlannedKill]:
        """Kills whose time has come. One that is not possible now, as a host is about to join, lets others go first."""
        done = self.journal.files_done / self._total_files
        return [one for one in self._planned if one.fraction <= done]

    def _wait_for_others(self, managers: list[subprocess.Popen[bytes]]) -> None:
        until = time.monotonic() + _LAST_WITHIN
        for manager in managers:
            try:
                manager.wait(max(0.0, until - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise DemoError("one manager was done, and the other one did not see it") from None

    # ------------------------------------------------------------ kills
    def _strike(self, kind: str) -> bool:
        """Kill a process of this kind; False when none is in the middle of something at this moment."""
        match kind:
            case "leader":
                return self._kill_leader()
            case "agent":
                return self._kill_machine(kind, self._cluster.agents())
            case "node":
                return self._kill_machine(kind, self._cluster.nodes())
        victims = self._busy_workers([*self._manager_pids(), *self._cluster.agents()])
        return bool(victims) and self._kill_worker(victims)

    def _manager_pids(self) -> list[int]:
        return [manager.pid for manager in self._cluster.candidates]

    def _kill_leader(self) -> bool:
        leader = self._leader()
        managers = self._cluster.candidates
        victim = next((one for one in managers if leader is not None and one.pid == leader[0]), None)
        if victim is None or leader is None or not self._busy_workers([*self._manager_pids(), *self._cluster.agents()]):
            return False
        cut_off = list(self._busy_workers([victim.pid]).values())
        victim.kill()
        at = time.time()
        victim.wait()
        close_input(victim)
        self._leaders, self._killed_at = leader[1], at
        self._note(Kill(at, victim.pid, "leader", cut_off))
        managers[managers.index(victim)] = self._start(*self._arguments, **self._cluster.popen_options)
        return True

    def _kill_machine(self, kind: str, pids: list[int]) -> bool:
        """Kill one of these processes that has a worker with a step below it."""
        busy = {pid: victims for pid in pids if (victims := self._busy_workers([pid]))}
        if not busy or self._killed_at is not None:
            return False
        pid = self._chance.choice(sorted(busy))
        try:
            psutil.Process(pid).kill()
        except psutil.NoSuchProcess:
            return False
        self._note(Kill(time.time(), pid, kind, list(busy[pid].values())))
        return True

    # ------------------------------------------------------------ the leader
    def _leader(self) -> tuple[int, int] | None:
        """Process and epoch of the manager that leads; None: none does at this moment."""
        with contextlib.suppress(ActorprocError):
            found = self._home.leader()
            if found is not None and found.leads and (process := re.search(r"process (\d+)", found.owner)):
                return int(process[1]), found.epoch
        return None

    def _look_for_leader(self) -> None:
        if self._killed_at is None:
            return
        leader = self._leader()
        if leader is not None and leader[1] > self._leaders:
            self._say(f"process {leader[0]} leads, {1000 * (time.time() - self._killed_at):.0f} ms after the kill")
            self._killed_at = None
        else:
            time.sleep(_LOOK)
