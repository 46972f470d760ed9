"""A service that lives long: `actorproc run`, two client processes and the command line on it, and kill -9 in between."""

from __future__ import annotations

import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

pytestmark = pytest.mark.processes

CLIENT = """
import itertools, pathlib, sys
import jobs
from actorproc.api.client import ProcedureClient
name = sys.argv[1]
with ProcedureClient("state", patience=120) as client, open(f"{name}.said", "w", buffering=1) as said:
    for number in itertools.count():
        if pathlib.Path("stop").exists():
            break
        handle = client.submit(jobs.add(number, 1), id=f"{name}-{number}", tags=[name])
        print("acknowledged", handle.id, file=said)
        print("delivered", handle.id, handle.result(120), file=said)
"""
WATCHER = """
import sys
from actorproc.api.client import ProcedureClient
with ProcedureClient("state", patience=120) as client, open("watcher.said", "w", buffering=1) as said, client.watch() as watch:
    print("ready", file=said)
    for change in watch:
        if getattr(change, "ended", False) and change.kind != "present":
            print("ended", change.id, file=said)
"""


def said_by(place, name):
    path = place.directory / f"{name}.said"
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def test_clients_and_commands_outlive_the_services_they_talk_to(quiet):
    """Nothing that was acknowledged is lost, and no result is delivered twice."""

    def start(script: str, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen([sys.executable, "-c", script, *arguments], cwd=quiet.directory)

    def delivered() -> int:
        return sum(row[0] == "delivered" for name in ("a", "b") for row in said_by(quiet, name))

    quiet.serve()
    watcher = start(WATCHER)
    quiet.until(lambda: said_by(quiet, "watcher"))
    clients = [start(CLIENT, name) for name in ("a", "b")]
    commands = []
    with ThreadPoolExecutor(1) as pool:
        for round_ in range(3):
            before = delivered()
            quiet.until(lambda before=before: delivered() >= before + 10)
            # A command that is on its way when the service dies, or comes when none runs.
            commands.append(
                pool.submit(quiet.run, "submit", "jobs:add", "a=1", f"b={round_}", "--id", f"typed-{round_}")
            )
            quiet.end(signal.SIGKILL)
            quiet.serve()
        before = delivered()
        quiet.until(lambda: delivered() >= before + 10)
        (quiet.directory / "stop").touch()
        assert [client.wait(120) for client in clients] == [0, 0]
        typed = {f"typed-{n}" for n, future in enumerate(commands) if future.result().returncode == 0}

    for name in ("a", "b"):
        rows = said_by(quiet, name)
        acknowledged = [row[1] for row in rows if row[0] == "acknowledged"]
        results = [(row[1], row[2]) for row in rows if row[0] == "delivered"]
        assert [one for one, _ in results] == acknowledged == [f"{name}-{n}" for n in range(len(acknowledged))]
        assert all(int(result) == int(one.partition("-")[2]) + 1 for one, result in results)
        stored = [row["id"] for row in quiet.rows("list", "--tag", name)]
        assert sorted(stored) == sorted(acknowledged)
    for name in typed:
        assert quiet("watch", name, "--timeout", "50s")[0] == 0
    quiet.until(lambda: quiet.rows("list", "--state", "RUNNABLE") == [])
    watcher.kill()
    watcher.wait(60)
    ended = [row[1] for row in said_by(quiet, "watcher") if row[0] == "ended"]
    assert len(ended) == len(set(ended))
    assert quiet("doctor")[0] == 0
