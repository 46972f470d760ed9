"""The machines of the demo with several: a database server, and hosts as plain processes or in a Ray cluster.

All are processes of this machine, on ports and in directories of their own. They carry a mark in their environment, by
which those are found at the end that have lost their parents to a kill.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from actorproc.api.client import ProcedureClient
from actorproc.cli.demo_app.controller import DemoError, DemoOptions, PlannedKill, close_input, plan_kills
from actorproc.errors import ActorprocError
from actorproc.procedure.values.type_names import command_of_module
from actorproc.testing.database_server import DatabaseServer

__all__ = ["DemoCluster"]

_MARK = "ACTORPROC_DEMO"
_RAY_STARTS_WITHIN = 150.0
_ENDS_WITHIN = 20.0
_GONE_WITHIN = 10.0
_LOOK = 0.05
_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_KILLS = {"worker": 4, "agent": 2, "leader": 2}
_LAST_KILL = 0.6
"""Share of the work before which all kills are due."""
_LONGEST = 25
"""Characters of a directory in which Ray can make its sockets."""
_SHORT = "/tmp"  # noqa: S108 - a new directory is made in it


class DemoCluster:
    """The database and the hosts. `close` removes all that it made, also when `start` fails.

    Args:
        options: Of the demo.
        directory: A directory for state and logs.
        say: Called with lines for the reader.
    """

    def __init__(self, options: DemoOptions, directory: Path, say: Callable[[str], None]) -> None:
        self._options = options
        self.hosts = options.hosts
        """Number of hosts besides those of the managers."""
        self.workers = options.workers
        """Number of workers of a host."""
        self._directory = directory
        self._say = say
        self._server: DatabaseServer | None = None
        self._agents: list[subprocess.Popen[bytes]] = []
        self._ray: subprocess.Popen[bytes] | None = None
        self._ray_directory: Path | None = None
        self._nodes: list[int] = []
        self._environment: dict[str, str] = {}
        self.popen_options: dict[str, Any] = {"env": self._environment, "start_new_session": True}
        """Options for all processes: Ctrl-C is for this one, which ends them."""
        self.url = ""
        self.candidates: list[subprocess.Popen[bytes]] = []
        """The managers of the table that is being made."""

    # ------------------------------------------------------------ life
    def start(self) -> None:
        """Start the database, and the hosts or Ray."""
        began = time.monotonic()
        self._server = DatabaseServer(fsync=True)
        mark = {_MARK: str(self._directory), "XDG_STATE_HOME": str(self._directory / "state-home")}
        self._environment |= {**{name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}, **mark}
        os.environ.update(mark)  # the server's processes have it too, and what this one notes is removed as well
        self._server.start()
        self.url = self._server.url("demo")
        self._say(f"PostgreSQL on port {self._server.port}, in {time.monotonic() - began:.1f} s")
        if self._options.on_ray:
            self._start_ray()
        else:
            for _ in range(self._options.hosts):
                self._agents.append(self._start_agent())

    def _start_agent(self) -> subprocess.Popen[bytes]:
        command = ["--agent", "--store", self.url, "--workers", str(self._options.workers)]
        command += ["--directory", str(self._directory)]
        return self._popen("agents.log", "actorproc.cli.demo_app.service", *command)

    def _start_ray(self) -> None:
        place = tempfile.gettempdir()
        place = place if len(place) <= _LONGEST else _SHORT
        # Not Ray's usual one, which is that of other clusters.
        self._ray_directory = Path(tempfile.mkdtemp(prefix="ap-", dir=place))
        self._environment |= {"RAY_TMPDIR": str(self._ray_directory), "RAY_USAGE_STATS_ENABLED": "0"}
        command = ["--store", self.url, "--hosts", str(self._options.hosts), "--workers", str(self._options.workers)]
        self._ray = self._popen("ray.log", "actorproc.cli.demo_app.ray_nodes", *command, stdout=subprocess.PIPE)

    def _popen(self, log: str, module: str, *arguments: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
        with (self._directory / log).open("ab") as file:
            return subprocess.Popen(
                command_of_module(module, *arguments),
                stdin=subprocess.PIPE,
                stdout=file if stdout is None else stdout,
                stderr=file,
                **self.popen_options,
            )

    # ------------------------------------------------------------ what the controller asks
    def kills(self, chance: random.Random) -> list[PlannedKill]:
        """The kills of the first table; early enough for hosts to come back and work on."""
        planned = plan_kills(chance, _KILLS, until=_LAST_KILL)
        return [PlannedKill(0.0, "node"), *planned] if self._options.on_ray else planned

    def wait_for_ray(self) -> None:
        """Wait until Ray runs all hosts, which needs a leader. Raises `DemoError` when it does not."""
        ray = self._ray
        if ray is None or self._nodes:
            return
        began = time.monotonic()
        assert ray.stdout is not None
        while not select.select([ray.stdout], [], [], _LOOK)[0]:
            if time.monotonic() - began > _RAY_STARTS_WITHIN:
                raise DemoError(f"Ray did not start in time; the end of its log:\n{self._end_of('ray.log')}")
        line = ray.stdout.readline()
        if not line:
            raise DemoError(f"Ray did not start; the end of its log:\n{self._end_of('ray.log')}")
        self._nodes = json.loads(line)["nodes"]
        self._say(f"a Ray cluster of three nodes runs {self._options.hosts} hosts")

    def _end_of(self, log: str) -> str:
        with contextlib.suppress(OSError):
            return (self._directory / log).read_text(encoding="utf-8", errors="replace").strip()[-3000:]
        return ""

    def expected_hosts(self) -> int:
        """Number of hosts that will join: none, when what runs them has ended."""
        return 0 if self._ray is not None and self._ray.poll() is not None else self.hosts

    def agents(self) -> list[int]:
        """Processes that are agents of hosts."""
        if self._ray is None:
            return [agent.pid for agent in self._agents if agent.poll() is None]
        with contextlib.suppress(ActorprocError), ProcedureClient(self.url, patience=1.0) as client:
            return [host.pid for host in client.hosts() if any(label.startswith("ray=") for label in host.labels)]
        return []

    def nodes(self) -> list[int]:
        """Processes that are nodes of Ray and live."""
        return [pid for pid in self._nodes if psutil.pid_exists(pid)]

    def replace_agents(self) -> None:
        """Start a host again whose agent was killed, as a service manager does. Ray does it by itself."""
        for place, agent in enumerate(self._agents):
            if agent.poll() is not None:
                close_input(agent)
                self._agents[place] = self._start_agent()

    # ------------------------------------------------------------ the end
    def close(self) -> None:
        """End and remove everything. Signals that ask for an end are ignored meanwhile."""
        before = {number: signal.signal(number, signal.SIG_IGN) for number in _ENDING}
        try:
            self._close()
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _close(self) -> None:
        ray = self._ray
        for process in (*self.candidates, *self._agents):
            process.kill()
        for process in (*self.candidates, *self._agents, *([ray] if ray is not None else [])):
            close_input(process)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_ENDS_WITHIN)
        if ray is not None:
            ray.kill()
            ray.wait()
            if ray.stdout is not None:
                ray.stdout.close()
        self._end_marked()
        if self._server is not None:
            self._server.close()
        if self._ray_directory is not None:
            shutil.rmtree(self._ray_directory, ignore_errors=True)
        shutil.rmtree(self._directory / "state-home", ignore_errors=True)
        for name in (_MARK, "XDG_STATE_HOME"):
            os.environ.pop(name, None)

    def _end_marked(self) -> None:
        """Kill what is left of the cluster, but the database, and wait until it is gone."""
        until = time.monotonic() + _GONE_WITHIN
        while (left := self._marked()) and time.monotonic() < until:
            for process in left:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            time.sleep(_LOOK)

    def _marked(self) -> list[psutil.Process]:
        """Processes with the mark, and those below them, as those of Ray have overwritten theirs."""
        database = self._server.pid if self._server is not None else 0
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                is_ours = process.environ().get(_MARK) == str(self._directory) and process.pid != os.getpid()
                is_database = database > 0 and database in (process.pid, process.ppid())
                if is_ours and not is_database and process.status() != psutil.STATUS_ZOMBIE:
                    found |= {one.pid: one for one in (process, *process.children(recursive=True))}
        return list(found.values())
