"""Standstill of a store in a database when its leader, or the database, fails.

    python bench/leaders.py [--path URL] [--kills 20] [--freezes 5] [--crashes 10] [--lease 5.0]

Two managers in processes of their own have a store in that database, or else on a private server, which waits for its
disk. A database that was given is not crashed. Short steps run all the time. Each writes the monotonic time at its
start and the epoch of its leader to a file, so that what is measured is the first step of the next leader, and no
client.

- The leader is killed (SIGKILL): from the kill to the first step of the next one, which had come to
  rest before.
- The leader is frozen (SIGSTOP) at any moment, also inside a commit: from then to the first step of the next one. It is
  the lease that is waited for.
- The server crashes (SIGQUIT) and is started again: from the moment when it accepts connections to the first step.

Beside them the start of a bare interpreter.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from common import options, report, spread, store_in
from jobs import Beat

from actorproc import Config, ProcedureClient, ProcedureManager
from actorproc.store.home import home_of
from actorproc.testing.database_server import DatabaseServer

_PROCEDURES = 4
_WORKERS = 2
_PATIENCE = 60.0
_REST = 1.0
"""Seconds for which a service is left alone after its start, so that its candidate has looked a few times."""


def serve(url: str, lease: float) -> None:
    """A manager on the store; it prints when it is up."""
    with ProcedureManager(url, procedures=[Beat], workers=_WORKERS, config=Config(lease=lease)):
        print("up", flush=True)
        sys.stdin.read()


class Service:
    """A manager in a process of its own."""

    def __init__(self, url: str, lease: float) -> None:
        command = [sys.executable, __file__, "--serve", url, "--lease", str(lease)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait_up(self) -> None:
        if self.process.stdout.readline() != "up\n":
            raise SystemExit("a manager did not start")
        time.sleep(_REST)

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class Pair:
    """Two services on a store; and what their steps write."""

    def __init__(self, url: str, folder: Path, lease: float) -> None:
        self.url = url
        self.lease = lease
        self.journal = folder / "journal"
        self.services: list[Service] = []
        for _ in range(2):
            self.add()
        with ProcedureClient(url, procedures=[Beat]) as client:
            client.submit_many([Beat(str(self.journal)) for _ in range(_PROCEDURES)])

    def add(self) -> None:
        self.services.append(Service(self.url, self.lease))
        self.services[-1].wait_up()

    def leader(self) -> Service:
        leader = home_of(self.url).leader()
        pid = int(leader.owner.split()[1])
        return next(service for service in self.services if service.process.pid == pid)

    def remove(self, service: Service) -> None:
        service.end()
        self.services.remove(service)

    def steps(self) -> list[tuple[int, int]]:
        """Time and epoch of each step."""
        text = self.journal.read_text() if self.journal.exists() else ""
        lines = text[: text.rfind("\n") + 1].splitlines()
        return [(int(at), int(epoch)) for at, epoch in (line.split() for line in lines)]

    def busy(self) -> int:
        """Wait until steps run, for a moment of chance; the highest epoch so far. The journal begins anew."""
        self.journal.write_text("")
        self.first_step(lambda _at, _epoch: True)
        time.sleep(random.uniform(0.2, 0.4))
        return max(epoch for _, epoch in self.steps())

    def first_step(self, which: Callable[[int, int], bool]) -> int:
        """Time of the first step of which that is so; it is waited for."""
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until:
            found = [at for at, epoch in self.steps() if which(at, epoch)]
            if found:
                return min(found)
            time.sleep(0.01)  # the times are taken by the steps
        raise SystemExit(f"no step ran within {_PATIENCE:g} s")

    def close(self) -> None:
        for service in self.services:
            service.end()


def failed(pair: Pair, how: signal.Signals) -> float:
    """Seconds from the failure of the leader until the first step of the next one."""
    epoch = pair.busy()
    leader = pair.leader()
    begun = time.monotonic_ns()
    leader.process.send_signal(how)
    first = pair.first_step(lambda _, of: of > epoch)
    pair.remove(leader)
    pair.add()
    return (first - begun) / 1e9


def crashed(pair: Pair, server: DatabaseServer) -> float:
    """Seconds from the moment when the server accepts connections again to the first step."""
    pair.busy()
    server.restart(signal.SIGQUIT)
    begun = time.monotonic_ns()
    return (pair.first_step(lambda at, _: at > begun) - begun) / 1e9


def bare_interpreter() -> float:
    """Seconds of ``python -c pass``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - start


def main() -> None:
    if "--serve" in sys.argv:
        parser = argparse.ArgumentParser()
        parser.add_argument("--serve")
        parser.add_argument("--lease", type=float)
        given = parser.parse_args()
        serve(given.serve, given.lease)
        return
    given = options(__doc__, kills=(20, 2), freezes=(5, 1), crashes=(10, 1), lease=(5.0, 1.0))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="actorproc-bench-"))
        server = None if given.path else stack.enter_context(DatabaseServer(fsync=True))
        path = stack.enter_context(store_in(given.path)) if server is None else server.url("leaders")
        pair = stack.enter_context(contextlib.closing(Pair(path, Path(folder), given.lease)))
        kills = [failed(pair, signal.SIGKILL) for _ in range(given.kills)]
        freezes = [failed(pair, signal.SIGSTOP) for _ in range(given.freezes)]
        crashes = [crashed(pair, server) for _ in range(given.crashes)] if server is not None else []
    bare = sorted(bare_interpreter() for _ in range(5))[2]
    measured = {"killed_s": kills, "frozen_s": freezes, "crashed_s": crashes}
    found = {name: spread(times) for name, times in measured.items() if times}
    words = {
        "killed_s": "leader killed -> first step of the next",
        "frozen_s": f"leader frozen -> first step (lease {given.lease:g} s)",
        "crashed_s": "database accepts connections -> first step",
    }
    load = os.getloadavg()[0]
    report(
        "leaders",
        {**found, "lease_s": given.lease, "bare_s": bare, "load": load, "rounds": [kills, freezes, crashes]},
        [
            *(f"{words[name]:48} p50 {one['p50']:6.3f} s   p90 {one['p90']:6.3f} s" for name, one in found.items()),
            f"a bare interpreter: {bare:.3f} s; load {load:.1f}",
        ],
    )


if __name__ == "__main__":
    main()
