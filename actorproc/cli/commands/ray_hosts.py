"""``ray-hosts``: hosts of a store in a Ray cluster."""

from __future__ import annotations

import argparse
from typing import Any

from actorproc.cli.output.outcomes import outcome
from actorproc.cli.output.output import Output
from actorproc.cli.select.common import OK, directory, globals_for, whole_number
from actorproc.cli.select.filters import seconds
from actorproc.cli.select.offers import add_offer
from actorproc.errors import UsageError
from actorproc.ui.text import counted, plain_line

__all__ = ["add_ray_hosts"]


def add_ray_hosts(commands: Any) -> None:
    """Add ``ray-hosts``."""
    parser = commands.add_parser(
        "ray-hosts",
        help="run hosts of a store in a Ray cluster",
        description=(
            "Has Ray run so many hosts, spread over its nodes, and returns when all have joined the leader. Called "
            "again it starts what is missing. Ray starts a host again when its node dies. No step passes through Ray."
        ),
    )
    globals_for(parser)
    parser.add_argument("target", metavar="MODULE", nargs="?", help="module whose procedures run, as for run")
    parser.add_argument("--hosts", type=whole_number(1), metavar="N", default=1, help="number of hosts (default: 1)")
    parser.add_argument(
        "--cpus",
        type=whole_number(1),
        metavar="N",
        default=1,
        help="processors that each asks of Ray, and its workers (default: 1)",
    )
    add_offer(parser)
    parser.add_argument("--ray", metavar="HOST:PORT", help="address of the Ray cluster (default: $RAY_ADDRESS)")
    parser.add_argument(
        "--keep-threads", action="store_true", help="leave OMP_NUM_THREADS as Ray sets it, for the steps"
    )
    parser.add_argument("--stop", action="store_true", help="drain all of them, and end their actors")
    parser.add_argument(
        "--timeout", type=seconds, default=120.0, metavar="TIME", help="how long to wait: 90s, 5m (default: 2m)"
    )
    parser.set_defaults(run=_ray_hosts)


def _ray_hosts(options: argparse.Namespace) -> int:
    from actorproc.api.launch import ray as launcher

    output = Output(options)
    path = directory(options)
    if options.stop:
        names = launcher.stop_hosts(path, address=options.ray, timeout=options.timeout)
        says = f"{counted(len(names), 'host')} drained and ended"
    else:
        if options.target is None:
            raise UsageError("give the MODULE whose procedures run, or --stop")
        found = launcher.start_hosts(
            options.target,
            path,
            hosts=options.hosts,
            cpus=options.cpus,
            address=options.ray,
            labels=tuple(options.label),
            resources=dict(options.resource),
            timeout=options.timeout,
            keep_threads=options.keep_threads,
        )
        where = ", ".join(f"{host.host} ({host.address})" for host in found)
        says = f"{counted(len(found), 'host')} joined: {where}"
    output.one(
        "outcome", outcome(None, "ray-hosts", says, applied="leader"), lambda: [plain_line(says)], name="ray-hosts"
    )
    return OK
