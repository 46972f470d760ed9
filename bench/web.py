"""Costs of the dashboard's server: an answer of the API, and live events for many browsers.

    python bench/web.py [--quick] [--finished 100000] [--unfinished 10000] [--children 10001] [--requests 200]
        [--clients 20] [--rate 1000] [--seconds 16] [--procedures 20000]

Milliseconds of processor time that the page's process takes for one answer, beside a bare application of the same
server that sends bytes of the same length: the raw limit. Then a manager whose procedures change at a rate, watched by
browsers: the delay of events, bytes for each, what the page's process takes, and what the manager takes per procedure
with no browser and with all of them. The raw limit of the delay is a bare application that sends a moment as often.
"""

from __future__ import annotations

import http.client
import json
import os
import selectors
import socket
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psutil
from common import fresh_directory, options, report
from looking import _fill, _head  # noqa: F401 - the same store as that of the looks

from actorproc import Procedure, ProcedureManager, Status

BARE = """
import asyncio, json, sys, time
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

async def length(request):
    return Response(b"x" * int(request.path_params["length"]))

async def events(request):
    async def told():
        while True:
            yield f"data: {json.dumps({'at': time.time(), 'x': 'x' * 1000})}\\n\\n".encode()
            await asyncio.sleep(0.1)
    return StreamingResponse(told(), media_type="text/event-stream")

app = Starlette(routes=[Route("/{length:int}", length), Route("/events", events)])
config = uvicorn.Config(app, port=0, log_config=None, access_log=False, lifespan="off", timeout_graceful_shutdown=1)
server = uvicorn.Server(config)
async def main():
    serving = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print(f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}/", flush=True)
    await serving
asyncio.run(main())
"""


@dataclass
class Brief(Procedure):
    """One step."""

    type_name = "bench.Brief"
    number: int

    def execute(self, ctx):
        return Status.done()


@contextmanager
def page(path: Path | None):
    """The page of a store, or a bare application: address, token and process."""
    words = ["-c", BARE] if path is None else ["-m", "actorproc", "--path", str(path), "web"]
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        address = process.stdout.readline().strip()
        token = "" if path is None else json.loads((path / "web.json").read_text())["token"]
        yield address, token, psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def _used(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


def _own(process: psutil.Process) -> float:
    """Megabytes that are not those of files, as the mapped store is."""
    lines = Path(f"/proc/{process.pid}/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Anonymous:")) / 1000


def _answers(address: str, token: str, process: psutil.Process, path: str, count: int) -> dict[str, float]:
    """Milliseconds of the server's processor for an answer, and of the clock."""
    parts = urlsplit(address)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    length = 0
    walls = []
    for number in range(count + 5):
        if number == 5:  # the first ones open the store and import
            began = _used(process)
        start = time.perf_counter()
        connection.request("GET", f"/{path}", headers={"Authorization": f"Bearer {token}"})
        answer = connection.getresponse()
        length = len(answer.read())
        assert answer.status == 200, path
        walls.append(time.perf_counter() - start)
    used = (_used(process) - began) / count
    connection.close()
    return {"cpu": used * 1000, "wall": statistics.median(walls[5:]) * 1000, "bytes": length}


def api(children: int, finished: int, count: int) -> dict[str, dict[str, float]]:
    """Each answer beside the raw limit."""
    asked = {
        "list of 50": "api/v1/procedures?limit=50",
        "list of 50 failed or running": "api/v1/procedures?limit=50&state=RUNNABLE",
        "children, from the start": "api/v1/procedures/parent/children?limit=50",
        "children, from the middle": f"api/v1/procedures/parent/children?limit=50&offset={children // 2}",
        "why of the parent": "api/v1/procedures/parent/why",
        "all about the parent": "api/v1/procedures/parent",
        "status": "api/v1/status",
        "locks": "api/v1/locks",
        "the shell of a page": "procedures",
    }
    with fresh_directory() as folder:
        path = Path(folder) / "state"
        _fill(path, children, finished)
        with page(path) as (address, token, process), page(None) as (bare, _, other):
            found = {}
            for name, part in asked.items():
                one = _answers(address, token, process, part, count)
                raw = _answers(bare, "", other, str(int(one["bytes"])), count)
                found[name] = one | {"raw": raw["cpu"], "ratio": one["cpu"] / max(raw["cpu"], 1e-6)}
            found["resident"] = {"MB": process.memory_info().rss / 1e6, "own MB": _own(process)}
    return found


def listen(address: str, token: str, path: str, clients: int, seconds: float) -> dict[str, float]:
    """Browsers that take events: milliseconds between the moment in an event and its arrival, and bytes a second."""
    from datetime import datetime

    parts = urlsplit(address)
    chosen = selectors.DefaultSelector()
    for _ in range(clients):
        sock = socket.create_connection((parts.hostname, parts.port))
        head = f"GET /{path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
        sock.sendall(head.encode())
        chosen.register(sock, selectors.EVENT_READ, bytearray())
    print("listening", flush=True)
    delays: list[float] = []
    total, rows, began = 0, 0, time.time()
    while time.time() - began < seconds:
        for key, _ in chosen.select(0.2):
            data = key.fileobj.recv(1 << 20)  # type: ignore[union-attr]
            at = time.time()
            total += len(data)
            key.data.extend(data)
            *lines, rest = bytes(key.data).split(b"\n")
            key.data[:] = rest
            for line in lines:
                if line.startswith(b"data: ") and b'"at":' in line.replace(b" ", b""):
                    told = json.loads(line[6:])
                    if "manager" in told:
                        continue
                    moment = told["at"]
                    if isinstance(moment, str):
                        moment = datetime.fromisoformat(moment).timestamp()
                        rows += len(told["rows"])
                    delays.append(at - moment)
    delays.sort()
    return {
        "p50": delays[len(delays) // 2] * 1000 if delays else 0.0,
        "p99": delays[int(len(delays) * 0.99)] * 1000 if delays else 0.0,
        "KB/s": total / clients / seconds / 1000,
        "events/s": len(delays) / clients / seconds,
        "rows/s": rows / clients / seconds,
    }


@contextmanager
def _listener(address: str, token: str, path: str, clients: int, seconds: float):
    words = [__file__, "--listen", address, token or "-", path, str(clients), str(seconds)]
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "listening\n"
    yield process
    process.wait()


def _load(manager: ProcedureManager, rate: float, seconds: float, start: int) -> tuple[float, float]:
    """Submit so that procedures change at a rate; microseconds of this process for each, and changes a second."""
    each = 3.0
    """Changes of a procedure: it is new, it runs, it is done."""
    began, used = time.perf_counter(), time.process_time()
    done = 0
    while (passed := time.perf_counter() - began) < seconds:
        due = int(passed * rate / each) - done
        if due > 0:
            manager.submit_many([Brief(start + done + number) for number in range(due)])
            done += due
        time.sleep(0.02)
    while manager.metrics().procedures["bench.Brief"].succeeded < start + done:
        time.sleep(0.01)
    took = time.perf_counter() - began
    return (time.process_time() - used) / max(done, 1) * 1e6, done * each / took


def _full(manager: ProcedureManager, address: str, token: str, clients: int, procedures: int) -> tuple[float, float]:
    """Microseconds of this process for a procedure at full load, with no browser and with all, in turn."""
    costs: tuple[list[float], list[float]] = ([], [])
    for turn in range(8 if procedures > 1000 else 2):
        listener = None
        if turn % 2:
            words = [__file__, "--listen", address, token, "events?topics=procedures,status", str(clients), "60"]
            listener = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, text=True)
            assert listener.stdout is not None
            listener.stdout.readline()
            time.sleep(1.0)  # the watch is open, and the first looks are over
        began = time.process_time()
        for handle in manager.submit_many([Brief(number) for number in range(procedures)]):
            handle.result(300)
        costs[turn % 2].append((time.process_time() - began) / procedures * 1e6)
        if listener is not None:
            listener.kill()
            listener.wait()
            while manager.metrics().watchers:
                time.sleep(0.01)
    return statistics.median(costs[0]), statistics.median(costs[1])


def events(clients: int, rate: float, seconds: float, procedures: int) -> dict[str, float]:
    """Live events for many browsers."""
    with fresh_directory() as folder:
        path = Path(folder) / "state"
        with ProcedureManager(path, procedures=[Brief], workers=1) as manager:
            manager.submit(Brief(-1)).result(60)
            manager.submit_many([Brief(number) for number in range(50)])
            count = 51
            while manager.metrics().procedures["bench.Brief"].succeeded < count:
                time.sleep(0.01)
            alone, watched_, shares = [], [], []
            heard: dict[str, float] = {}
            with page(path) as (address, token, process):
                for _ in range(2):  # in turn, so that what else the machine does falls on both
                    cost, changes = _load(manager, rate, seconds / 2, count)
                    count = manager.metrics().procedures["bench.Brief"].succeeded
                    alone.append(cost)
                    with _listener(address, token, "events?topics=procedures,status", clients, seconds / 2) as other:
                        before, at = _used(process), time.perf_counter()
                        cost, changes = _load(manager, rate, seconds / 2, count)
                        shares.append((_used(process) - before) / (time.perf_counter() - at) * 100)
                        count = manager.metrics().procedures["bench.Brief"].succeeded
                        watched_.append(cost)
                        assert other.stdout is not None
                        heard = json.loads(other.stdout.readline())
                resident = _own(process)
                full = _full(manager, address, token, clients, procedures)
        with (
            page(None) as (bare, _, _),
            _listener(bare, "", "events", clients, min(3.0, seconds / 2)) as other,
        ):
            assert other.stdout is not None
            raw = json.loads(other.stdout.readline())
    return {
        "changes/s": changes,
        **heard,
        "raw p50": raw["p50"],
        "raw p99": raw["p99"],
        "page % of a core": statistics.median(shares),
        "page MB": resident,
        "manager us at this rate, no browser": statistics.median(alone),
        "manager us at this rate, all": statistics.median(watched_),
        "manager us at full load, no browser": full[0],
        "manager us at full load, all": full[1],
        "manager ratio at full load": full[1] / full[0],
    }


def main() -> None:
    if sys.argv[1:2] == ["--listen"]:
        address, token, path, clients, seconds = sys.argv[2:]
        print(json.dumps(listen(address, token, path, int(clients), float(seconds))))
        return
    asked = options(
        __doc__,
        finished=(100_000, 200),
        children=(10_001, 300),
        requests=(200, 5),
        clients=(20, 3),
        rate=(1000.0, 50.0),
        seconds=(16.0, 2.0),
        procedures=(20_000, 40),
    )
    os.environ.pop("ACTORPROC_WEB", None)
    answers = api(asked.children, asked.finished, asked.requests)
    live = events(asked.clients, asked.rate, asked.seconds, asked.procedures)
    lines = [
        f"{name:<34} {one['cpu']:7.2f} ms, raw limit {one['raw']:5.2f} ms; {one['wall']:7.2f} ms of the clock, "
        f"{one['bytes']:>7.0f} B"
        for name, one in answers.items()
        if "cpu" in one
    ]
    memory = answers["resident"]
    lines += [f"resident {memory['MB']:.0f} MB with the mapped store, {memory['own MB']:.0f} MB of its own"]
    lines += [f"{name:<34} {value:9.2f}" for name, value in live.items()]
    report("web", {"answers": answers, "live": live}, lines)


if __name__ == "__main__":
    main()
