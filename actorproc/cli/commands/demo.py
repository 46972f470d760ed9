"""``actorproc demo``: its arguments. The demo itself is loaded when it runs."""

from __future__ import annotations

import argparse
import random
from pathlib import Path

from actorproc.cli.select.common import whole_number

__all__ = ["add_command"]

MAX_REGIONS = 256


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "demo",
        help="create a partitioned table from Python sources while processes are killed, and prove it right",
        description=(
            "Indexes a tree of Python sources into a partitioned table with one procedure per region, kills workers "
            "and the manager meanwhile, and compares the result with a direct computation. Then lets a second table "
            "fail half-way and shows that nothing of it is left."
        ),
    )
    parser.add_argument(
        "path", nargs="?", type=Path, metavar="PATH", help="tree of Python sources (default: the standard library)"
    )
    parser.add_argument(
        "--regions", type=whole_number(1, MAX_REGIONS), default=16, help="partitions of the table (default: 16)"
    )
    parser.add_argument(
        "--workers",
        type=whole_number(1, 64),
        default=None,
        help="worker processes (default: one per processor it may use, 2 to 8)",
    )
    parser.add_argument(
        "--chaos",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="kill workers and the manager at random while they work (default: yes)",
    )
    parser.add_argument(
        "--seed", type=int, default=None, help="repeat the kills of an earlier run (default: a new seed)"
    )
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="several machines on this one: a PostgreSQL server of its own, two managers of which one leads, and two "
        "hosts in a Ray cluster of three nodes; workers, hosts, a node and the leader are killed",
    )
    parser.add_argument(
        "--hosts",
        type=whole_number(1, 16),
        default=None,
        metavar="N",
        help="the same with so many hosts that are plain processes, without Ray",
    )
    parser.add_argument(
        "--directory", type=Path, default=None, help="new directory to work in and to keep (default: a temporary one)"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from actorproc.cli.demo_app.controller import DemoOptions
    from actorproc.cli.demo_app.display import choose_display
    from actorproc.cli.demo_app.main import run_demo
    from actorproc.cli.demo_app.source import standard_library
    from actorproc.workers.os.processors import usable_processors

    is_cluster = options.cluster or options.hosts is not None
    on_ray = options.cluster and options.hosts is None
    display = choose_display()
    if is_cluster:
        from actorproc.cli.output.requirements import missing_parts

        if missing := missing_parts("this demo", on_ray=on_ray):
            for line in missing:
                display.say(line)
            return 2
    chosen = DemoOptions(
        source=(options.path or standard_library()).absolute(),
        regions=options.regions,
        workers=options.workers or (2 if is_cluster else min(8, max(2, usable_processors()))),
        chaos=options.chaos,
        seed=random.randrange(10_000) if options.seed is None else options.seed,
        directory=options.directory,
        hosts=(options.hosts or 2) if is_cluster else 0,
        on_ray=on_ray,
    )
    return run_demo(chosen, display)
