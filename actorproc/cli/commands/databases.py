"""``move``, ``leader`` and ``grants``: the way of a store into a database, its leader there, and its roles."""

from __future__ import annotations

import argparse
import shlex
import time
from typing import Any

from actorproc.cli.output.outcomes import outcome
from actorproc.cli.output.output import Output
from actorproc.cli.select.common import FAILED, OK, directory, globals_for, home, open_client, refuse_password
from actorproc.errors import UsageError
from actorproc.ui.text import ago, counted, duration, plain_line

__all__ = ["add_grants", "add_leader", "add_move"]

_Commands = Any
_ROLES = (
    ("owner", "managers"),
    ("host", "hosts"),
    ("looker", "those who only look"),
    ("enqueuer", "applications that enqueue"),
)


def add_move(commands: _Commands) -> None:
    """Add ``move``."""
    parser = commands.add_parser(
        "move",
        help="move a store that no manager runs on from a directory into a database, or back",
        description=(
            "Copies all rows and the signing keys, compares both, and closes the old store to managers. Nothing is "
            "converted: procedures go on at the new place as after a restart."
        ),
    )
    globals_for(parser)
    parser.add_argument("source", metavar="FROM", help="directory or URL of the store")
    parser.add_argument("target", metavar="TO", nargs="?", help="a new directory, or a URL where there is no store yet")
    parser.add_argument("--undo", action="store_true", help="let managers start again on FROM, which was moved")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.set_defaults(run=_move)


def _move(options: argparse.Namespace) -> int:
    from actorproc.store.home import home_of
    from actorproc.store.tools.moving import move, take_mark_off

    if options.undo is (options.target is not None):
        raise UsageError("give FROM and TO, or --undo and FROM")
    output = Output(options)
    for place in (options.source, options.target):
        refuse_password(place)
    source = home_of(options.source)
    if options.undo:
        says = f"managers may start on {source.words} again"
        if not options.dry_run:
            take_mark_off(source)
    else:
        target = home_of(options.target)
        says = f"would move {source.words} to {target.words}"
        if not options.dry_run:
            report = move(source, target)
            moved = f"{counted(report.procedures, 'procedure')} ({counted(report.rows, 'row')}) moved"
            start = f"start managers with --path {shlex.quote(report.target)}"
            says = f"{moved} to {report.target} in {duration(report.seconds)}; {start}"
    applied = None if options.dry_run else "stopped store"
    output.one("outcome", outcome(None, "move", says, applied=applied), lambda: [plain_line(says)], name="move")
    return OK


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


def add_grants(commands: _Commands) -> None:
    """Add ``grants``."""
    parser = commands.add_parser(
        "grants",
        help="the SQL of the roles of a store in a database: managers, hosts, those who only look or only enqueue",
        description=(
            "Prints SQL for an administrator, and changes nothing. Managers log in as the owner of the tables. A host "
            "may read who leads. A looker may read all but the signing keys and the secret of the leader, so that "
            "commands that look work with its URL, and all others are refused. An enqueuer may add to what is "
            "enqueued (actorproc.postgres), and nothing else."
        ),
    )
    globals_for(parser)
    for name, whose in _ROLES:
        parser.add_argument(f"--{name}", metavar="ROLE", help=f"role of {whose} (default: NAME_{name})")
    parser.set_defaults(run=_grants)


def _grants(options: argparse.Namespace) -> int:
    from actorproc.store.postgres.place import is_database_url, place_of
    from actorproc.store.postgres.schema.grants import grants

    text = directory(options)
    if not is_database_url(text):
        raise UsageError(f"{text} is a directory: its files belong to one user. Roles are of a database (--path URL)")
    place = place_of(text)
    roles = {name: getattr(options, name) or f"{place.store}_{name}" for name, _ in _ROLES}
    sql = grants(place, **roles)
    Output(options).one("grants", {**roles, "sql": "\n".join(sql)}, lambda: sql, name=place.store)
    return OK
