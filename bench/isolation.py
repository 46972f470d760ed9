"""Do heavy procedures get the machine, and does the host's event loop stay on time meanwhile?

    python bench/isolation.py [--seconds 5] [--repeat 3] [--procedures 0] [--nice 10]

As many CPU-bound procedures as there are cores, niced, each with a fixed amount of pure Python arithmetic. The share
of the machine is how long bare processes, niced as much, take for the same work, by how long the procedures take. A
task in an asyncio host asks to be woken every millisecond and notes how much later it was: with an idle engine, with
the bare processes, with the procedures, and with the same work in threads of the host.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

from common import cores, fresh_directory, options, report, spread

from actorproc import Limits, Procedure, ProcedureManager, Status

TICK = 0.001


@dataclass
class Burn(Procedure):
    """So many rounds of arithmetic, in one step."""

    rounds: int

    def execute(self, ctx):
        return Status.done(burn(self.rounds))


def burn(rounds: int) -> int:
    return sum(sum(number * number for number in range(1000)) for _ in range(rounds))


_BARE = """
import os, sys
os.nice(int(sys.argv[2]))
print(flush=True)
sys.stdin.readline()
print(sum(sum(number * number for number in range(1000)) for _ in range(int(sys.argv[1]))), flush=True)
"""


class BareProcesses:
    """Processes that wait to begin the same work."""

    def __init__(self, number: int, rounds: int, nice: int) -> None:
        command = [sys.executable, "-c", _BARE, str(rounds), str(nice)]
        # In sessions of their own, as workers are: Linux may share the processors out by session first.
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self._processes = [subprocess.Popen(command, bufsize=0, start_new_session=True, **pipes) for _ in range(number)]
        for process in self._processes:
            process.stdout.readline()

    def run(self) -> None:
        """Let them work, and wait until all have ended it."""
        for process in self._processes:
            process.stdin.write(b"\n")
        for process in self._processes:
            process.stdout.readline()
        for process in self._processes:
            process.communicate()


async def delays(stop: asyncio.Event) -> list[float]:
    """Milliseconds that each wake-up was late."""
    late = []
    while not stop.is_set():
        due = time.perf_counter() + TICK
        await asyncio.sleep(TICK)
        late.append((time.perf_counter() - due) * 1000)
    return late


async def measured(work) -> tuple[float, dict[str, float]]:
    """Seconds that something took, and how late the loop was meanwhile."""
    stop = asyncio.Event()
    watching = asyncio.create_task(delays(stop))
    await asyncio.sleep(0)
    start = time.perf_counter()
    await work()
    seconds = time.perf_counter() - start
    stop.set()
    return seconds, spread(await watching)


async def one_round(given, number: int, rounds: int) -> dict[str, tuple[float, dict[str, float]]]:
    with fresh_directory() as path:
        async with ProcedureManager(path, procedures=[Burn], workers=number) as manager:
            limits = Limits(nice=given.nice)
            # A niced step may leave its worker to be replaced; the new ones are waited for here.
            await asyncio.gather(*manager.submit_many([Burn(1) for _ in range(number)], limits=limits))
            await asyncio.sleep(0.5)

            async def idle() -> None:
                await asyncio.sleep(given.seconds)

            async def procedures() -> None:
                await asyncio.gather(*manager.submit_many([Burn(rounds) for _ in range(number)], limits=limits))

            async def threads() -> None:
                working = [threading.Thread(target=burn, args=(rounds // number,)) for _ in range(number)]
                for thread in working:
                    thread.start()
                for thread in working:
                    await asyncio.to_thread(thread.join)

            async def bare() -> None:
                await asyncio.to_thread(waiting.run)

            found = {"idle": await measured(idle)}
            waiting = BareProcesses(number, rounds, given.nice)
            found["bare"] = await measured(bare)
            found["procedures"] = await measured(procedures)
            found["threads"] = await measured(threads)
            return found


def rounds_for(seconds: float) -> int:
    """How many rounds of arithmetic take so long on a core of this machine."""
    start, rounds = time.process_time(), 0
    while time.process_time() - start < 0.3:
        burn(100)
        rounds += 100
    return int(seconds * rounds / (time.process_time() - start))


def main() -> None:
    given = options(__doc__, seconds=(5.0, 1.0), repeat=(3, 1), procedures=(0, 0), nice=(10, 10))
    number = given.procedures or cores()
    rounds = rounds_for(given.seconds)
    found = [asyncio.run(one_round(given, number, rounds)) for _ in range(given.repeat)]
    shares = [one["bare"][0] / one["procedures"][0] for one in found]
    share = sorted(shares)[len(shares) // 2]
    late = {
        case: {level: sorted(one[case][1][level] for one in found)[len(found) // 2] for level in ("p50", "p99", "max")}
        for case in ("idle", "bare", "procedures", "threads")
    }
    named = {
        "idle": "idle engine",
        "bare": f"{number} bare processes, nice {given.nice}",
        "procedures": f"{number} procedures, nice {given.nice}",
        "threads": f"the same work in {number} threads of the host",
    }
    allowed = 2 * late["idle"]["p99"] + 5
    report(
        "isolation",
        {
            "share_of_machine": share,
            "shares": shares,
            "seconds": {case: [one[case][0] for one in found] for case in late},
            "loop_delay_ms": late,
            "p99_to_allowed": late["procedures"]["p99"] / allowed,
            "procedures": number,
            "load_before": os.getloadavg()[0],
        },
        [f"share of the machine that {number} niced procedures reach: {share:.3f} of what bare processes do"]
        + [
            f"{named[case]:42}loop late by p50 {one['p50']:7.2f}  p99 {one['p99']:7.2f}  max {one['max']:7.2f} ms"
            for case, one in late.items()
        ],
    )


if __name__ == "__main__":
    main()
