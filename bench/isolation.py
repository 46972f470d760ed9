"""How late does the event loop of an asyncio host run while heavy procedures are at work?

    python bench/isolation.py [--seconds 5] [--procedures 4] [--workers 2]

A task asks to be woken every millisecond and notes how much later it was: first with an idle engine, then while
procedures that only burn CPU run in the workers, then, for comparison, with the same loop in a thread of the host.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
import time
from dataclasses import dataclass

from common import fresh_directory, report, spread

from actorproc import Procedure, ProcedureManager, Status

TICK = 0.001


@dataclass
class Burn(Procedure):
    """Pure Python arithmetic for some seconds, in one step."""

    seconds: float

    def execute(self, ctx):
        return Status.done(burn(self.seconds))


def burn(seconds: float) -> int:
    total, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        total += sum(number * number for number in range(1000))
    return total


async def delays(stop: asyncio.Event) -> list[float]:
    """Milliseconds that each wake-up was late."""
    late = []
    while not stop.is_set():
        due = time.perf_counter() + TICK
        await asyncio.sleep(TICK)
        late.append((time.perf_counter() - due) * 1000)
    return late


async def measured(work) -> dict[str, float]:
    stop = asyncio.Event()
    watching = asyncio.create_task(delays(stop))
    await work()
    stop.set()
    return spread(await watching)


async def run(seconds: float, procedures: int, workers: int) -> dict[str, dict[str, float]]:
    with fresh_directory() as path:
        async with ProcedureManager(path, procedures=[Burn], workers=workers) as manager:
            await manager.submit(Burn(0.01))

            async def idle() -> None:
                await asyncio.sleep(seconds)

            async def loaded() -> None:
                each = seconds * workers / procedures
                await asyncio.gather(*manager.submit_many([Burn(each) for _ in range(procedures)]))

            async def in_a_thread() -> None:
                thread = threading.Thread(target=burn, args=(seconds,))
                thread.start()
                await asyncio.to_thread(thread.join)

            return {
                "idle": await measured(idle),
                "loaded": await measured(loaded),
                "thread": await measured(in_a_thread),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--procedures", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    found = asyncio.run(run(options.seconds, options.procedures, options.workers))
    named = {
        "idle": "idle engine",
        "loaded": f"{options.procedures} procedures on {options.workers} workers",
        "thread": "the same work in a thread of the host",
    }
    report(
        "isolation",
        {"loop_delay_ms": found, "procedures": options.procedures, "workers": options.workers},
        [
            f"{named[case]:42}loop late by p50 {late['p50']:7.2f}  p99 {late['p99']:7.2f}  max {late['max']:7.2f} ms"
            for case, late in found.items()
        ],
    )


if __name__ == "__main__":
    main()
