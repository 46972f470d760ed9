"""A crowd of hosts: what each costs the leader and the database, over a restart of that and a change of leaders."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, Limits, ProcedureClient, ProcedureManager
from tests.kit.procedures import Add
from tests.kit.waiting import BOUND, wait_until
from tests.leaders.test_crowd import sessions, two_managers

HOSTS = min(int(os.environ.get("ACTORPROC_CROWD", "12")), 200)
"""Hosts; nightly 200."""
CONNECTIONS = 30 if HOSTS >= 100 else 15
"""Connections of the database, of which three are kept for administrators."""
pytestmark = [pytest.mark.processes, pytest.mark.timeout(60 + 2 * HOSTS)]
WITHIN = BOUND + HOSTS / 4
"""Seconds for all hosts to join."""


def config() -> Config:
    return Config(
        lease=2.0, host_patience=10.0, spares=0, allow_any_filesystem=True, commit_backoff=0.05, commit_backoff_cap=0.2
    )


def links() -> int:
    """Threads of links with hosts in this process: of a leader's end, and of that of a manager that follows."""
    return sum(thread.name.startswith("actorproc-link-h") for thread in threading.enumerate())


def descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def names(manager: ProcedureManager) -> set[str]:
    """Hosts of the crowd that have joined."""
    return {row.name for row in manager._tree.hosts() if row.state == "joined" and row.labels}


def one_step_on_each(url: str, round_: int) -> None:
    """Asked for by a client, which waits while the database or the leader is away."""
    with ProcedureClient(url, patience=WITHIN) as client:
        handles = [
            client.submit(Add(number, round_), id=f"r{round_}-{number}", limits=Limits(on=(f"n{number}",)))
            for number in range(HOSTS)
        ]
        assert [handle.result(WITHIN) for handle in handles] == [number + round_ for number in range(HOSTS)]


@contextlib.contextmanager
def crowd_of_hosts(url: str):
    program = subprocess.Popen(
        [sys.executable, "-m", "tests.leaders.many_hosts", url, str(HOSTS)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
    )
    try:
        yield program
    finally:
        program.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(BOUND)
        program.kill()
        program.wait()


def test_a_crowd_of_hosts_takes_no_sessions_and_two_threads_and_a_socket_each():
    with contextlib.ExitStack() as stack:
        server, url, managers = stack.enter_context(two_managers(CONNECTIONS, config()))
        leader, candidate = managers
        wait_until(leader._tree.hosts)  # the machine of the candidate
        before = descriptors()
        stack.enter_context(crowd_of_hosts(url))
        wait_until(lambda: len(names(leader)) == HOSTS, WITHIN)
        one_step_on_each(url, 0)
        wait_until(lambda: links() == 2 * HOSTS + 4)  # both ends of the candidate's link are here
        # One socket for each host, and what was opened meanwhile.
        wait_until(lambda: descriptors() <= before + HOSTS + 8)
        wait_until(lambda: sessions(url) <= 2 * 3)  # hosts that have joined have none

        server.restart()
        one_step_on_each(url, 1)
        leader = wait_until(lambda: next((manager for manager in managers if manager._tree.leads), None))
        wait_until(lambda: len(names(leader)) == HOSTS, WITHIN)

        managers.remove(leader)
        (candidate,) = managers
        leader.stop(drain=False, timeout=5.0)  # all look for the next one at once, on few connections
        wait_until(lambda: candidate._tree.leads, WITHIN)
        one_step_on_each(url, 2)
        wait_until(lambda: len(names(candidate)) == HOSTS and links() == 2 * HOSTS, WITHIN)
        wait_until(lambda: sessions(url) <= 3)
