"""``hosts``: the machines that run steps for the manager that leads."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from actorproc.cli.output.outcomes import outcome
from actorproc.cli.output.output import Output
from actorproc.cli.select.common import FAILED, OK, globals_for, open_client
from actorproc.model.placement import offer_in_words
from actorproc.report.hosts import HostInfo
from actorproc.ui.text import duration, plain_line, size_of

__all__ = ["add_hosts"]

_MUCH = 1 << 20
"""Bytes on their way to a host from which on they are worth a word."""


def add_hosts(commands: Any) -> None:
    """Add ``hosts``."""
    parser = commands.add_parser(
        "hosts",
        help="the machines that run steps for the manager that leads a store in a database",
        description=(
            "Shows the worker hosts that have joined the leader: where they are, what they offer, how busy they are. "
            "With --drain a host gets no further step, ends those that run, and leaves."
        ),
    )
    globals_for(parser)
    parser.add_argument("--drain", metavar="HOST", help="have this host leave: its name here, or that of its machine")
    parser.set_defaults(run=_hosts)


def _hosts(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_client(options) as client:
        if options.drain is not None:
            found = client._engine.drain_host(options.drain)
            says = f"{options.drain} gets no further step, and leaves when those that run have ended"
            if not found:
                says = f"no host {options.drain!r} has joined; `actorproc hosts` names those that have"
            applied = "manager" if found else None
            facts = outcome(None, "drain", says, applied=applied)
            output.one("outcome", facts, lambda: [plain_line(says)], name="drain")
            return OK if found else FAILED
        hosts = client.hosts()
    lines = [plain_line(line) for line in (*map(_line, hosts), *_counts(hosts))] or ["no host has joined"]
    output.one("hosts", {"hosts": [msgspec.to_builtins(host) for host in hosts]}, lambda: lines, name="hosts")
    return OK


def _counts(hosts: Sequence[HostInfo]) -> Iterator[str]:
    """For each type that not all may run: the number of hosts that may."""
    for name in sorted({name for host in hosts for name in host.other_code}):
        may = sum(name not in host.other_code for host in hosts)
        yield f"{name}: {may} of {len(hosts)} hosts have the manager's code"


def _line(host: HostInfo) -> str:
    offer = offer_in_words(host.labels, host.resources)
    trip = "" if host.round_trip is None else f", round trip {duration(host.round_trip)}"
    waiting = f", {size_of(host.outstanding)} not acknowledged" if host.outstanding > _MUCH else ""
    state = host.state if host.state != "silent" else f"silent for {duration(host.silent_for)}"
    facts = [
        f"{host.name}  {host.machine} at {host.address}  {state}  {host.busy} of {host.workers} workers busy",
        f"offers {offer}" if offer else "",
        f"code {host.code}" if host.code else "",
        f"other code of {', '.join(host.other_code)}" if host.other_code else "",
        *(f"{name}={value}" for name, value in sorted(host.variables.items())),
    ]
    return ", ".join(filter(None, facts)) + trip + waiting
