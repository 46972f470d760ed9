"""The long tests as one command: what each tier runs, for how long, and one verdict at the end.

    python -m tests.simulator.tiers nightly --seed 7

A tier is a row of groups; the parts of a group run side by side. `--scale` stretches or shortens all of it.
A part that cannot be run on this machine says why, and counts as skipped.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import msgspec

from tests.simulator.disk.power_cuts import SKIPPED
from tests.simulator.generators.hosts import FIRST_SEED

__all__ = ["TIERS", "Part", "main"]


class Part(msgspec.Struct, frozen=True):
    """One command of a group."""

    name: str
    arguments: tuple[str, ...]
    """After ``python -m``."""


Group = Callable[[int, float], tuple[Part, ...]]
"""Made of the seed and of the scale."""


def _torture(minutes: float) -> Group:
    def parts(seed: int, scale: float) -> tuple[Part, ...]:
        length = f"{minutes * scale:.3f}"
        arguments = ("actorproc", "torture", "--minutes", length, "--seed", str(seed), "--jobs", "2")
        return (Part("torture of real processes", arguments),)

    return parts


def _simulation(minutes: float) -> Group:
    def parts(seed: int, scale: float) -> tuple[Part, ...]:
        # Far apart, so that the two series of histories never meet, nor those of the next seeds.
        # Only the second is sure to have all that is drawn from a certain seed on.
        firsts = (seed * 100_000_000, FIRST_SEED + seed * 100_000_000 + 50_000_000)
        seconds = f"{60 * minutes * scale:.1f}"
        return tuple(
            Part(
                "simulated histories",
                ("tests.simulator.core_sim.simulation", "--seconds", seconds, "--seed", str(first)),
            )
            for first in firsts
        )

    return parts


def _torn_writes(states: int) -> Group:
    def parts(seed: int, scale: float) -> tuple[Part, ...]:
        each = str(max(100, int(states * scale / 2)))
        return tuple(
            Part(
                "torn writes", ("tests.simulator.disk.torn_writes", "--states", each, "--seed", str(2 * seed + number))
            )
            for number in range(2)
        )

    return parts


def _damage(mutations: int) -> Group:
    def parts(seed: int, scale: float) -> tuple[Part, ...]:
        each = str(max(100, int(mutations * scale / 2)))
        logs = Part("damaged logs", ("tests.simulator.disk.damaged_logs", "--mutations", each, "--seed", str(seed)))
        return (
            *(
                Part(
                    "damaged stores",
                    ("tests.simulator.disk.damage", "--mutations", each, "--seed", str(2 * seed + number)),
                )
                for number in range(2)
            ),
            logs,
        )

    return parts


def _power_cuts(cuts: int) -> Group:
    def parts(seed: int, scale: float) -> tuple[Part, ...]:
        each = str(max(10, int(cuts * scale)))
        return (Part("power cuts", ("tests.simulator.disk.power_cuts", "--cuts", each, "--seed", str(seed))),)

    return parts


def _core_lines(passages: int) -> Group:
    def parts(seed: int, scale: float) -> tuple[Part, ...]:
        each = str(max(1, int(passages * scale)))
        arguments = ("tests.simulator.scenarios.core_lines", "--passages", each, "--seed", str(seed))
        return (Part("deaths at lines of the core", arguments),)

    return parts


def _actor_simulation(minutes: float) -> Group:
    def parts(seed: int, scale: float) -> tuple[Part, ...]:
        first, seconds = str(seed * 100_000_000), f"{60 * minutes * scale:.1f}"
        arguments = ("tests.simulator.actor_sim", "--seconds", seconds, "--seed", first)
        return (Part("histories of the real actors", arguments),)

    return parts


def _engine_on_database(seed: int, scale: float) -> tuple[Part, ...]:
    del scale
    return (Part("the engine on PostgreSQL", ("tests.simulator.engine_on_database", "--seed", str(seed))),)


def _engine_on_hosts(seed: int, scale: float) -> tuple[Part, ...]:
    del scale
    return (Part("the engine with workers on hosts", ("tests.simulator.engine_on_hosts", "--seed", str(seed))),)


def _nightly_tests(seed: int, scale: float) -> tuple[Part, ...]:
    del scale
    return (Part("tests that take long", ("tests.simulator.nightly_tests", "--seed", str(seed))),)


def _leaders(failures: int) -> Group:
    def parts(seed: int, scale: float) -> tuple[Part, ...]:
        each = str(max(3, int(failures * scale)))
        arguments = ("tests.simulator.engine_on_database", "--leaders", each, "--seed", str(seed))
        return (Part("failures of leaders", arguments),)

    return parts


def _cluster(minutes: float) -> Group:
    """Torture of several processes on a database, and bugs that are put in."""

    def parts(seed: int, scale: float) -> tuple[Part, ...]:
        arguments = ("tests.simulator.cluster_torture", "--minutes", f"{minutes * scale:.3f}", "--seed", str(seed))
        return (Part("torture of leaders and hosts", arguments),)

    return parts


def _together(*groups: Group) -> Group:
    def parts(seed: int, scale: float) -> tuple[Part, ...]:
        return tuple(part for group in groups for part in group(seed, scale))

    return parts


TIERS: dict[str, tuple[Group, ...]] = {
    "nightly": (
        _torture(44),
        _simulation(29),
        _together(_power_cuts(1000), _torn_writes(200_000), _damage(20_000), _core_lines(1), _actor_simulation(3)),
        _engine_on_database,
        _engine_on_hosts,
        _nightly_tests,
        _leaders(100),
        _cluster(20),
    ),
    "soak": (
        _torture(480),
        _simulation(150),
        _together(
            _power_cuts(10_000), _torn_writes(2_000_000), _damage(200_000), _core_lines(20), _actor_simulation(30)
        ),
        _engine_on_database,
        _engine_on_hosts,
        _nightly_tests,
        _leaders(500),
        _cluster(120),
    ),
}
"""Two hours and about thirteen hours on two cores. The tier below them, ``push``, is the test suite itself.

Power cuts wait for the disk, so they stand beside what waits for the processor.
"""
_VERDICTS = {0: "ok", SKIPPED: "skipped"}


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line; exit code 1 when any part found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.tiers", description="Run a tier of long tests.")
    parser.add_argument("tier", choices=TIERS, help="which tier")
    parser.add_argument("--seed", type=int, default=1, help="another one tries other things (default 1)")
    parser.add_argument("--scale", type=float, default=1.0, help="times the usual length (default 1)")
    chosen = parser.parse_args(arguments)
    verdicts: list[str] = []
    failed = False
    for group in TIERS[chosen.tier]:
        parts = group(chosen.seed, chosen.scale)
        began = time.monotonic()
        codes = _run(parts)
        minutes = (time.monotonic() - began) / 60
        failed = failed or any(code not in _VERDICTS for code in codes)
        for part, code in zip(parts, codes, strict=True):
            verdict = _VERDICTS.get(code, "FAILED")
            verdicts.append(
                f"{part.name}: {verdict} after {minutes:.1f} minutes (python -m {' '.join(part.arguments)})"
            )
    sys.stdout.write("\n".join(["", f"{chosen.tier}, seed {chosen.seed}:", *verdicts, ""]))
    return 1 if failed else 0


def _run(parts: tuple[Part, ...]) -> list[int]:
    """Run parts side by side and pass on what each says, line by line; their exit codes.

    A night that is cut short has told what it had found by then.
    """
    running = []
    for number, part in enumerate(parts, start=1):
        sys.stdout.write(f"== {number}, {part.name}: python -m {' '.join(part.arguments)}\n")
        command = [sys.executable, "-u", "-m", *part.arguments]
        running.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT))
    listeners = [
        threading.Thread(target=_pass_on, args=(f"{number}| " if len(parts) > 1 else "", process))
        for number, process in enumerate(running, start=1)
    ]
    for listener in listeners:
        listener.start()
    for listener in listeners:
        listener.join()
    return [process.wait() for process in running]


def _pass_on(prefix: str, process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    with process.stdout as said:
        for line in said:
            sys.stdout.write(f"{prefix}{line.decode(errors='replace')}")
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
