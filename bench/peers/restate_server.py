"""Restate: its server with its Python SDK, invocations of tiny steps. Run by `bench/peers.py`; prints one JSON object.

One node with the defaults of the server: the replicated log on one node, RocksDB's log synced. The service runs under
hypercorn (HTTP/2), as its documentation says, with as many processes as the engine has workers.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent


def free_ports(number: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def ask(connection: http.client.HTTPConnection, path: str, body: object) -> object:
    connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    if answer.status >= 300:
        raise SystemExit(f"restate: {path}: {answer.status} {text[:500]!r}")
    return json.loads(text)


def wait_for(port: int, path: str, what: str) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
            connection.request("GET", path)
            if connection.getresponse().status == 200:
                return
        time.sleep(0.1)
    raise SystemExit(f"restate: {what} did not answer within 60 s")


@contextlib.contextmanager
def running(binary: str, folder: str, workers: int) -> Iterator[int]:
    """Server and service; gives the port that takes invocations."""
    ingress, admin, node, service = free_ports(4)
    environment = os.environ | {
        "RESTATE_BASE_DIR": folder,
        "RESTATE_LISTEN_MODE": "tcp",
        "RESTATE_BIND_ADDRESS": f"127.0.0.1:{node}",
        "RESTATE_ADVERTISED_ADDRESS": f"http://127.0.0.1:{node}",
        "RESTATE_INGRESS__BIND_ADDRESS": f"127.0.0.1:{ingress}",
        "RESTATE_ADMIN__BIND_ADDRESS": f"127.0.0.1:{admin}",
        "RESTATE_LOG_FILTER": "error",
        "DO_NOT_TRACK": "1",
        "PYTHONPATH": str(HERE),
    }
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    bound = f"127.0.0.1:{service}"
    serving = [sys.executable, "-m", "hypercorn", "-b", bound, "-w", str(workers), "restate_app:app"]
    processes = [
        subprocess.Popen([binary, "--no-logo"], env=environment, **silent),
        subprocess.Popen(serving, env=environment, cwd=HERE, **silent),
    ]
    try:
        wait_for(admin, "/health", "the server")
        wait_for(ingress, "/restate/health", "the server's ingress")
        connection = http.client.HTTPConnection("127.0.0.1", admin, timeout=60)
        deadline = time.monotonic() + 60
        while True:  # until hypercorn listens
            try:
                ask(connection, "/deployments", {"uri": f"http://{bound}"})
                break
            except SystemExit:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.5)
        yield ingress
    finally:
        for process in reversed(processes):
            process.terminate()
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def steps_per_second(port: int, in_flight: int, steps: int) -> float:
    connections = [http.client.HTTPConnection("127.0.0.1", port, timeout=300) for _ in range(in_flight)]
    with ThreadPoolExecutor(in_flight) as callers:
        start = time.perf_counter()
        ended = list(callers.map(lambda connection: ask(connection, "/counter/run", steps), connections))
        seconds = time.perf_counter() - start
    assert ended == [steps] * in_flight
    return in_flight * steps / seconds


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--binary", required=True)
    parser.add_argument("--in-flight", type=int, nargs="+", required=True)
    parser.add_argument("--total", type=int, required=True, help="steps in all, at each number in flight")
    parser.add_argument("--workers", type=int, required=True)
    given = parser.parse_args()
    server = subprocess.run([given.binary, "--version"], capture_output=True, text=True, check=True).stdout.strip()
    found = {"version": f"{server}, SDK {metadata.version('restate_sdk')}", "steps_per_s": {}}
    with tempfile.TemporaryDirectory(prefix="actorproc-bench-") as folder:
        with running(given.binary, folder, given.workers) as port:
            steps_per_second(port, 4, 10)
            for number in given.in_flight:
                found["steps_per_s"][number] = steps_per_second(port, number, max(1, given.total // number))
        settings = subprocess.run([given.binary, "--dump-config"], capture_output=True, text=True, check=True).stdout
    found["unsynced_logs"] = settings.count("rocksdb-disable-wal-fsync = true")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
