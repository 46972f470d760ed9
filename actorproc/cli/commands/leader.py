"""``leader``: the manager that leads a store in a database, the candidates, and its step down."""

from __future__ import annotations

import argparse
import time
from typing import Any

from actorproc.cli.output.outcomes import outcome
from actorproc.cli.output.output import Output
from actorproc.cli.select.common import FAILED, OK, globals_for, home, open_client
from actorproc.ui.text import ago, duration, plain_line

__all__ = ["add_leader"]

_Commands = Any


def add_leader(commands: _Commands) -> None:
    """Add ``leader``."""
    parser = commands.add_parser(
        "leader",
        help="the manager that leads a store in a database, and how many wait for the lead",
        description=(
            "Of several managers on one database one leads; the others follow it, and one of them takes over when it "
            "ends. With --step-down the leader gives the lead to another manager: its running steps are repeated there."
        ),
    )
    globals_for(parser)
    parser.add_argument("--step-down", action="store_true", help="have the leader give the lead to another manager")
    parser.set_defaults(run=_leader)


def _leader(options: argparse.Namespace) -> int:
    from actorproc.errors import UsageError

    output = Output(options)
    place = home(options)
    if place.is_near:
        raise UsageError(
            f"{place.words} is a directory, which has one manager at a time: see `actorproc status`. Managers on "
            "several machines share a store in a database (--path postgresql://…)"
        )
    if options.step_down:
        with open_client(options) as client:
            client._engine.step_down()
        says = "the leader steps down; a candidate takes over, or the same manager leads again"
        output.one("outcome", outcome(None, "step-down", says, applied="manager"), lambda: [says], name=says)
        return OK
    leader = place.leader()
    candidates = place.candidates()
    leads = leader is not None and leader.leads
    facts = {
        "leads": leads,
        "owner": leader.owner if leader is not None else None,
        "epoch": leader.epoch if leader is not None else None,
        "address": leader.address.partition("@")[0] or None if leader is not None else None,
        "since": leader.since if leader is not None else None,
        "lease": leader.lease if leader is not None else None,
        "candidates": list(candidates),
    }

    def lines() -> list[str]:
        if leader is None or not leads:
            shown = ["no manager leads"]
        else:
            door = facts["address"] or "lets no process in"
            left = duration(max(0.0, leader.lease))
            since = ago(leader.since, time.time())
            shown = [f"{leader.owner} leads since {since}, epoch {leader.epoch}, at {door}; lease {left}"]
        return [plain_line(line) for line in (*shown, *(f"candidate: {one}" for one in candidates))]

    output.one("leader", facts, lines, name=leader.owner if leader is not None else "")
    return OK if leads else FAILED
