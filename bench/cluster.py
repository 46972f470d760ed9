"""Cost of hosts: steps on this machine and on a host over a link, side by side in one run.

    python bench/cluster.py [--only core,link,steps,kills,agents,states,adoption,stores,leaders,dbos] [--path URL]

Each part compares with a peer in the same run, whose rounds alternate with its own. All parts but `core` and `link`
have a store in the given database, or on a private server that waits for its disk. The host is a process on this
machine.

- core: processor seconds of the core alone for a one-step procedure, submit and end, with hosts of 8 workers each.
  Half of the workers are busy, or all, and a fifth more procedures wait. Steps ask for nothing, or for a label
  and a resource.
- link: processor seconds of one end of a link for a message of 1 KiB, for its frames and for TLS.
- steps: steps per second, processor seconds of leader and agent, bytes and commits per step, lone and with many in
  flight.
- kills: a worker is killed; from then until its step begins again.
- agents: steps of 20 ms on 1, 2 and 4 agents of 4 workers, to the limit that the workers set.
- states: a state of 16 MiB that each step changes.
- adoption: the leader is killed while steps run on a host; from then until the next leader has all of them.
- stores, leaders, dbos: `bench/stores.py`, `bench/leaders.py`, and `bench/peers.py` on PostgreSQL, by themselves.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from cluster_core import decide
from cluster_hosts import CONFIG, PROCEDURES, far_hosts, leader_program, wait_for
from common import report, spread, store_in
from jobs import Hang, Nap
from large_states import Carry
from recovery import wait_for_starts
from steps import Count, steps_of

from actorproc import Limits, Procedure, ProcedureManager
from actorproc.testing.database_server import DatabaseServer
from actorproc.workers.link.certificates import made_credentials
from actorproc.workers.link.resume import LinkEnd

_HERE, _FAR = (Limits(on=(label,), crashes=1_000_000) for label in ("here", "far"))
_SIDES = {"local": _HERE, "hosted": _FAR}
_BESIDE = {
    "stores": ("stores.py",),
    "leaders": ("leaders.py",),
    "dbos": ("peers.py", "--only", "PostgreSQL", "--in-flight", "64"),
}

Found = tuple[dict[str, Any], list[str]]


# ---------------------------------------------------------------- without processes
def core(options: argparse.Namespace) -> Found:
    rows, lines = [], []
    for hosts in options.hosts:
        count = 20_000 if hosts < 100 else 3_000
        half = decide(hosts, 0.5, is_placed=False, count=count)
        placed = decide(hosts, 0.5, is_placed=True, count=count)
        full = decide(hosts, 1.2, is_placed=False, count=count)
        rows.append({"hosts": hosts, "half": half, "placed": placed, "full": full})
        lines.append(
            f"{hosts} hosts of 8 workers: {half:.0f} us of the core a procedure, {placed:.0f} us with a demand, "
            f"{full:.0f} us when all are busy"
        )
    return {"core_microseconds": rows}, lines


def link(options: argparse.Namespace) -> Found:
    """One end sends a message and gets one of the same size: frames alone, and TLS alone, without a socket."""
    count = 2_000 if options.quick else 20_000
    message = os.urandom(1024)
    one, two = LinkEnd(), LinkEnd()
    begun = time.process_time()
    for _ in range(count):
        one.put(1, message)
        two.feed(one.take())
        two.put(1, message)
        one.feed(two.take())
    frames = (time.process_time() - begun) / count / 2 * 1e6
    client, server = _tls_pair()
    begun = time.process_time()
    for _ in range(count):
        client.write(message)
        server.read(2048)
        server.write(message)
        client.read(2048)
    tls = (time.process_time() - begun) / count / 2 * 1e6
    lines = [f"one end, 1 KiB out and in: {frames:.1f} us for frames, {tls:.1f} us for TLS"]
    return {"link_microseconds": {"frames": frames, "tls": tls}}, lines


def _tls_pair() -> tuple[Any, Any]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(down, up, server_side=False)
    server = made_credentials("bench").context.wrap_bio(up, down, server_side=True)
    for _ in range(3):
        for end in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return client, server


# ---------------------------------------------------------------- with a leader here and hosts as processes
class Bench:
    """A leader in this process, on a store in a database."""

    def __init__(self, url: str, options: argparse.Namespace) -> None:
        self.url = url
        self.options = options
        self.rounds = 1 if options.quick else options.rounds

    @contextlib.contextmanager
    def manager(self, workers: int = 2) -> Iterator[ProcedureManager]:
        with (
            store_in(self.url) as self.place,
            ProcedureManager(
                self.place, procedures=PROCEDURES, workers=workers, labels=("here",), config=CONFIG
            ) as manager,
        ):
            yield manager

    def alternate(self, measure: Callable[[str, Limits], dict[str, float]]) -> dict[str, list[dict[str, float]]]:
        """Rounds of both sides in turn, the first side another one each time."""
        found: dict[str, list[dict[str, float]]] = {side: [] for side in _SIDES}
        for count in range(self.rounds):
            for side in sorted(_SIDES, reverse=bool(count % 2)):
                found[side].append(measure(side, _SIDES[side]))
        return found


def _done(manager: ProcedureManager, procedures: list[Procedure], limits: Limits) -> None:
    for handle in [manager.submit(one, limits=limits) for one in procedures]:
        handle.result(timeout=300)


def _medians(rounds: list[dict[str, float]]) -> dict[str, float]:
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def steps(bench: Bench) -> Found:
    """Steps on this machine and on the host, with the processor time of the leader and of the agent."""
    figures: dict[str, Any] = {}
    lines: list[str] = []
    total = 500 if bench.options.quick else bench.options.steps
    with bench.manager() as manager, far_hosts(bench.place, 1, 2, manager) as [host]:
        pool = manager._tree._local.pool
        for in_flight in (1, 64, 256):
            each = total // 10 if in_flight == 1 else steps_of(in_flight, total)

            def measure(side: str, limits: Limits, in_flight: int = in_flight, each: int = each) -> dict[str, float]:
                del side
                _done(manager, [Count(3) for _ in range(min(in_flight, 16))], limits)
                (session,) = [one.session for one in pool.hosts if "far" in one.hello.labels]
                before = session.sent_bytes + session.received_bytes
                commits, agent = manager.health().commits, host.processor()
                handles = manager.submit_many([Count(each) for _ in range(in_flight)], limits=limits)
                begun, processor = time.perf_counter(), time.process_time()
                for handle in handles:
                    handle.result(timeout=300)
                count = in_flight * each
                return {
                    "seconds": (time.perf_counter() - begun) / count,
                    "leader_us": (time.process_time() - processor) / count * 1e6,
                    "agent_us": (host.processor() - agent) / count * 1e6,
                    "bytes": (session.sent_bytes + session.received_bytes - before) / count,
                    "steps_a_commit": count / max(1, manager.health().commits - commits),
                }

            rounds = bench.alternate(measure)
            local, hosted = (_medians(rounds[side]) for side in ("local", "hosted"))
            slower = statistics.median(
                far["seconds"] / near["seconds"] for near, far in zip(rounds["local"], rounds["hosted"], strict=True)
            )
            figures[str(in_flight)] = {"local": local, "hosted": hosted, "slower": slower, "rounds": rounds}
            lines.append(
                f"{in_flight:3} in flight: "
                f"local {1 / local['seconds']:,.0f} steps/s, leader {local['leader_us']:.0f} us; "
                f"hosted {1 / hosted['seconds']:,.0f} = {1 / slower:.2f} x, leader {hosted['leader_us']:4.0f} us, "
                f"agent {hosted['agent_us']:4.0f} us, {hosted['bytes']:,.0f} bytes a step, "
                f"{hosted['steps_a_commit']:.0f} steps a commit"
            )
    return {"steps": figures}, lines


def kills(bench: Bench) -> Found:
    """From the kill of a worker to the next start of its step, on this machine and on the host in turn."""
    count = 2 if bench.options.quick else bench.options.kills
    found: dict[str, list[float]] = {side: [] for side in _SIDES}
    with (
        bench.manager(1) as manager,
        far_hosts(bench.place, 1, 1, manager),
        tempfile.TemporaryDirectory() as folder,
    ):
        journals = {side: Path(folder) / side for side in _SIDES}
        handles = [manager.submit(Hang(str(journals[side])), limits=limits) for side, limits in _SIDES.items()]
        for number in range(count):
            for side, journal in journals.items():
                pid, _ = wait_for_starts(journal, number + 1)[-1]
                time.sleep(1.0)  # the next spare prepares itself, here or there
                killed_at = time.monotonic_ns()
                os.kill(pid, signal.SIGKILL)
                _, started_at = wait_for_starts(journal, number + 2)[-1]
                found[side].append((started_at - killed_at) / 1e9)
        for journal in journals.values():
            Path(f"{journal}.stop").touch()
        for handle in handles:
            handle.result(timeout=60)
    figures = {side: spread(times) for side, times in found.items()}
    near, far = (figures[side]["p50"] * 1e3 for side in ("local", "hosted"))
    return {"kills_s": figures}, [
        f"worker killed, its step again, p50 of {count}: local {near:.1f} ms, hosted {far:.1f} ms"
    ]


def agents(bench: Bench) -> Found:
    """Steps of 20 ms on more and more agents, beside what their workers could do at most."""
    seconds, workers = 0.02, 4
    each = 3 if bench.options.quick else 50
    rates: dict[int, list[float]] = {1: [], 2: [], 4: []}
    with bench.manager(1) as manager:
        for _ in range(bench.rounds):
            for count, found in rates.items():
                with far_hosts(bench.place, count, workers, manager):
                    _done(manager, [Nap(1, 0.0) for _ in range(4 * count)], _FAR)
                    begun = time.perf_counter()
                    _done(manager, [Nap(each, seconds) for _ in range(2 * workers * count)], _FAR)
                    found.append(2 * workers * count * each / (time.perf_counter() - begun))
    middle = {count: statistics.median(found) for count, found in rates.items()}
    parts = [
        f"{count}: {rate:,.0f}/s = {rate * seconds / workers / count:.2f} of the limit"
        for count, rate in middle.items()
    ]
    return {"agents_steps_per_s": middle}, [f"steps of 20 ms on agents of {workers} workers: {', '.join(parts)}"]


def states(bench: Bench) -> Found:
    """A state of 16 MiB to and from a worker here and on the host."""
    size = (1 if bench.options.quick else 16) << 20
    with bench.manager(1) as manager, far_hosts(bench.place, 1, 1, manager):

        def measure(side: str, limits: Limits) -> dict[str, float]:
            del side
            manager.run(Carry(1, b"warm"), limits=limits)
            begun, processor = time.perf_counter(), time.process_time()
            manager.run(Carry(4, os.urandom(size)), limits=limits)
            return {"seconds": (time.perf_counter() - begun) / 4, "leader": (time.process_time() - processor) / 4}

        rounds = bench.alternate(measure)
    local, hosted = (_medians(rounds[side]) for side in ("local", "hosted"))
    line = (
        f"state of {size >> 20} MiB, a step: local {local['seconds']:.2f} s, leader {local['leader'] * 1e3:.0f} ms; "
        f"hosted {hosted['seconds']:.2f} s, leader {hosted['leader'] * 1e3:.0f} ms"
    )
    return {"states": {"local": local, "hosted": hosted, "bytes": size}}, [line]


def adoption(bench: Bench) -> Found:
    """The leader is killed; until the next one leads, and until it has the running steps of the host."""
    busy = 8
    runs = [_adopted(bench.url, busy) for _ in range(1 if bench.options.quick else bench.options.adoptions)]
    leads, adopts = (spread([run[place] for run in runs]) for place in (0, 1))
    repeated = int(sum(run[2] for run in runs))
    line = (
        f"leader killed, the next one leads: p50 {leads['p50']:.2f} s; has {busy} running steps of a host: p50 "
        f"{adopts['p50']:.2f} s; steps repeated: {repeated} of {busy * len(runs)}"
    )
    return {"adoption_s": {"leads": leads, "adopts": adopts, "repeated": repeated}}, [line]


def _adopted(url: str, busy: int) -> tuple[float, float, int]:
    """Seconds from the kill until another one leads, and has the steps; number of attempts beyond the first."""
    with store_in(url) as place, contextlib.ExitStack() as stack:
        journal = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "journal"
        leader = leader_program(place)
        stack.callback(leader.end)
        manager = ProcedureManager(place, procedures=PROCEDURES, workers=1, labels=("here",), config=CONFIG)
        stack.enter_context(manager)
        stack.enter_context(far_hosts(place, 1, busy, None))
        handles = [manager.submit(Hang(str(journal)), limits=_FAR) for _ in range(busy)]
        wait_for(lambda: journal.exists() and len(journal.read_text().splitlines()) == busy, "steps on the host")
        time.sleep(1.0)
        begun = time.perf_counter()
        os.kill(leader.pid, signal.SIGKILL)
        wait_for(lambda: manager._tree.leads, "the next leader")
        leads = time.perf_counter() - begun

        def has_all() -> bool:
            return any("far" in host.labels and host.busy == busy for host in manager.hosts())

        wait_for(has_all, "the steps of the host")
        adopts = time.perf_counter() - begun
        Path(f"{journal}.stop").touch()
        for handle in handles:
            handle.result(timeout=60)
        return leads, adopts, len(journal.read_text().splitlines()) - busy


_ALONE: dict[str, Callable[[argparse.Namespace], Found]] = {"core": core, "link": link}
_HOSTED: dict[str, Callable[[Bench], Found]] = {
    "steps": steps,
    "kills": kills,
    "agents": agents,
    "states": states,
    "adoption": adoption,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    usual = ",".join((*_ALONE, *_HOSTED))
    parser.add_argument("--only", default=usual, help="parts, by commas; default all but stores, leaders and dbos")
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works, not to measure")
    parser.add_argument("--hosts", type=int, nargs="+", default=[1, 10, 100, 1000], help="numbers of hosts for core")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=10_000, help="steps of a round")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--adoptions", type=int, default=5)
    parser.add_argument("--path", metavar="URL", help="stores in this database, in place of a private server")
    options = parser.parse_args()
    parts = options.only.split(",")
    if unknown := set(parts) - {*_ALONE, *_HOSTED, *_BESIDE}:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    figures: dict[str, object] = {}
    lines: list[str] = []

    def take(found: Found) -> None:
        figures.update(found[0])
        lines.extend(found[1])

    for part in parts:
        if part in _ALONE:
            take(_ALONE[part](options))
    if any(part in _HOSTED for part in parts):
        with contextlib.ExitStack() as stack:
            url = options.path or stack.enter_context(DatabaseServer(fsync=True)).url()
            bench = Bench(url, options)
            for part in parts:
                if part in _HOSTED:
                    take(_HOSTED[part](bench))
    for part in parts:
        if part in _BESIDE:
            script, *arguments = _BESIDE[part]
            more = ["--path", options.path] if options.path and part != "dbos" else []
            subprocess.run([sys.executable, str(Path(__file__).with_name(script)), *arguments, *more], check=True)
    lines.append(f"load {os.getloadavg()[0]:.1f}")
    report("cluster", {**figures, "load": os.getloadavg()[0]}, lines)


if __name__ == "__main__":
    main()
