"""A service that replaces another one on the same directory: the new one waits for the old one to drain."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from actorproc import ManagerStopped, ProcedureManager, StoreInUse
from tests.cli.test_service import CLIENT, said_by
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes


def successor(place, wait="100s"):
    log = (place.directory / "service.log").open("ab")
    with log:
        return subprocess.Popen(
            [sys.executable, "-m", "actorproc", "run", "jobs", "--workers", "2", "--path", "state", "--wait", wait],
            cwd=place.directory,
            stdout=log,
            stderr=log,
        )


def test_services_hand_over_without_a_failed_call(quiet):
    def delivered():
        return sum(row[0] == "delivered" for name in ("a", "b") for row in said_by(quiet, name))

    quiet.serve()
    clients = [
        subprocess.Popen([sys.executable, "-c", CLIENT, name], cwd=quiet.directory, stderr=subprocess.PIPE)
        for name in ("a", "b")
    ]
    services = []
    for _ in range(2):
        before = delivered()
        quiet.until(lambda before=before: delivered() >= before + 10)
        services.append(successor(quiet))
        before = delivered()
        quiet.until(lambda before=before: delivered() >= before + 5)  # the old one serves on while the new one waits
        assert services[-1].poll() is None
        quiet.end(signal.SIGTERM)
        quiet._service = services[-1]
        before = delivered()
        quiet.until(lambda before=before: delivered() >= before + 10)
    (quiet.directory / "stop").touch()
    assert [client.communicate(timeout=120)[1] for client in clients] == [b"", b""]
    assert [client.returncode for client in clients] == [0, 0]

    for name in ("a", "b"):
        rows = said_by(quiet, name)
        results = [(row[1], int(row[2])) for row in rows if row[0] == "delivered"]
        assert results == [(f"{name}-{n}", n + 1) for n in range(len(results))]
    assert quiet("doctor")[0] == 0


def test_a_signal_ends_the_waiting(quiet):
    quiet.serve()
    waiting = successor(quiet)
    # It has its handlers once it says that it waits, and that is told to no log: a signal before that kills it.
    quiet.until(lambda: waiting.poll() is not None or _is_waiting(waiting.pid))
    waiting.send_signal(signal.SIGTERM)

    assert waiting.wait(60) == 0


def _is_waiting(pid):
    """Whether the process handles SIGTERM: bit 14 of the mask of caught signals."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line for line in lines if line.startswith("SigCgt"))
    return bool(int(caught.split()[1], 16) >> (signal.SIGTERM - 1) & 1)


def test_a_manager_waits_for_the_one_before_it(tmp_path):
    first = ProcedureManager(tmp_path / "s", workers=1).start()
    second = ProcedureManager(tmp_path / "s", workers=1)
    begun = threading.Event()
    threading.Thread(target=lambda: (begun.wait(), first.stop()), daemon=True).start()
    try:
        begun.set()
        second.start(wait=60)
        assert second.health().ok
    finally:
        second.stop()


@pytest.mark.parametrize("wait", [0, 0.2])
def test_an_owner_that_stays_refuses_it_in_the_end(tmp_path, wait):
    with (
        ProcedureManager(tmp_path / "s", workers=1),
        pytest.raises(StoreInUse, match="another manager of this process"),
    ):
        ProcedureManager(tmp_path / "s", workers=1).start(wait=wait)


def test_a_stop_ends_the_waiting(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=1):
        second = ProcedureManager(tmp_path / "s", workers=1)
        raised = []

        def start():
            try:
                second.start(wait=100)
            except ManagerStopped as error:
                raised.append(error)

        thread = threading.Thread(target=start)
        thread.start()
        wait_until(lambda: second._starter is not None)
        begun = time.monotonic()
        second.stop()
        thread.join(60)

        assert raised
        assert time.monotonic() - begun < 90


@pytest.mark.parametrize("wait", [-1, "5s", float("nan"), None])
def test_what_can_be_no_time_is_refused(tmp_path, wait):
    with pytest.raises((TypeError, ValueError), match="wait"):
        ProcedureManager(tmp_path / "s", workers=1).start(wait=wait)
