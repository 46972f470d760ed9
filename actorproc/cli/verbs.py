"""``abort``, ``retry``, ``rollback``, ``bypass``, ``pause``, ``resume``, ``ack``, ``delete``, ``gc``.

They go to the running manager through its control socket: who decides is always the manager.
"""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from actorproc.cli.common import REFUSED, globals_for, open_client, open_reader
from actorproc.cli.filters import seconds
from actorproc.cli.output import Output
from actorproc.cli.selection import add_selection, apply, carry_out, confirmed
from actorproc.errors import UsageError

if TYPE_CHECKING:
    from actorproc.client import ProcedureClient

__all__ = [
    "add_abort",
    "add_ack",
    "add_bypass",
    "add_delete",
    "add_gc",
    "add_pause",
    "add_resume",
    "add_retry",
    "add_rollback",
]

_Commands = Any


def add_abort(commands: _Commands) -> None:
    """Add ``abort``."""
    parser = commands.add_parser("abort", help="ask procedures to abort and roll back")
    add_selection(parser)
    parser.add_argument("--force", action="store_true", help="ask nobody, and kill the running step")
    parser.set_defaults(run=_abort)


def _abort(options: argparse.Namespace) -> int:
    def act(client: ProcedureClient, name: str) -> str:
        asked = client.abort(name, force=options.force, reason=options.reason)
        return "asked to abort" if asked else "has ended already"

    return apply(options, "abort", act)


def add_retry(commands: _Commands) -> None:
    """Add ``retry``."""
    parser = commands.add_parser("retry", help="open a new run of roots that ended FAILED")
    add_selection(parser)
    parser.set_defaults(run=_retry)


def _retry(options: argparse.Namespace) -> int:
    def act(client: ProcedureClient, name: str) -> str:
        client.retry(name, reason=options.reason)
        return "runs again"

    return apply(options, "retry", act, roots=True)


def add_rollback(commands: _Commands) -> None:
    """Add ``rollback``."""
    parser = commands.add_parser("rollback", help="undo unfinished roots, as if they had failed")
    add_selection(parser)
    parser.set_defaults(run=_rollback)


def _rollback(options: argparse.Namespace) -> int:
    def act(client: ProcedureClient, name: str) -> str:
        return "is rolled back" if client.rollback(name, reason=options.reason) else "was undone already"

    return apply(options, "rollback", act, roots=True)


def add_bypass(commands: _Commands) -> None:
    """Add ``bypass``."""
    parser = commands.add_parser(
        "bypass",
        help="end procedures as if they had succeeded (the last resort)",
        description="What they left half done stays half done: somebody has to see to it.",
    )
    add_selection(parser)
    parser.add_argument("--children", action="store_true", help="all their descendants too")
    parser.add_argument("--ancestors", action="store_true", help="their ancestors too")
    parser.add_argument("--force", action="store_true", help="kill the running step")
    parser.set_defaults(run=_bypass)


def _bypass(options: argparse.Namespace) -> int:
    def act(client: ProcedureClient, name: str) -> str:
        done = client.bypass(
            name,
            children=options.children,
            ancestors=options.ancestors,
            force=options.force,
            reason=options.reason,
        )
        return "bypassed" if done else "has ended already"

    return apply(options, "bypass", act)


def add_pause(commands: _Commands) -> None:
    """Add ``pause``."""
    parser = commands.add_parser("pause", help="hand out no more steps of procedures, or of any (--manager)")
    add_selection(parser)
    parser.add_argument("--manager", action="store_true", help="the whole manager, in place of ids")
    parser.set_defaults(run=_pause)


def _pause(options: argparse.Namespace) -> int:
    if options.manager:
        return _whole(options, "pause")

    def act(client: ProcedureClient, name: str) -> str:
        return "paused" if client.pause(name, reason=options.reason) else "has ended already"

    return apply(options, "pause", act)


def add_resume(commands: _Commands) -> None:
    """Add ``resume``."""
    parser = commands.add_parser("resume", help="lift the pause of procedures, or of the whole manager (--manager)")
    add_selection(parser)
    parser.add_argument("--manager", action="store_true", help="the whole manager, in place of ids")
    parser.set_defaults(run=_resume)


def _resume(options: argparse.Namespace) -> int:
    if options.manager:
        return _whole(options, "resume")

    def act(client: ProcedureClient, name: str) -> str:
        return "goes on" if client.resume(name, reason=options.reason) else "was not paused itself"

    return apply(options, "resume", act)


def _whole(options: argparse.Namespace, verb: str) -> int:
    """Pause or resume everything."""
    if options.ids or options.all_matching:
        raise UsageError("--manager means everything: leave ids and filters out")
    result = "would be done (dry run)"
    with open_client(options) as client:
        if not options.dry_run:
            done = getattr(client, verb)(reason=options.reason)
            result = ("paused" if verb == "pause" else "goes on") if done else "was not paused"
    found = {"id": None, "verb": verb, "ok": True, "result": result, "error": None}
    Output(options).one("outcome", found, lambda: [f"manager  {verb}  {result}"], name="manager")
    return 0


def add_ack(commands: _Commands) -> None:
    """Add ``ack``."""
    parser = commands.add_parser("ack", help="say that the results of finished procedures were taken")
    add_selection(parser, reason=False)
    parser.set_defaults(run=_ack)


def _ack(options: argparse.Namespace) -> int:
    def act(client: ProcedureClient, name: str) -> str:
        return "acknowledged" if client.acknowledge(name) else "is not kept any more"

    return apply(options, "ack", act, roots=True)


def add_delete(commands: _Commands) -> None:
    """Add ``delete``."""
    parser = commands.add_parser("delete", help="remove finished roots and all that ran below them, now")
    add_selection(parser)
    parser.add_argument("--force", action="store_true", help="also those whose keys are poisoned; the keys stay so")
    parser.set_defaults(run=_delete)


def _delete(options: argparse.Namespace) -> int:
    return apply(options, "delete", _deleting(options), roots=True)


def _deleting(options: argparse.Namespace) -> Any:
    def act(client: ProcedureClient, name: str) -> str:
        gone = client.delete(name, options.reason, force=options.force)
        return "deleted" if gone else "is not kept any more"

    return act


def add_gc(commands: _Commands) -> None:
    """Add ``gc``."""
    parser = commands.add_parser(
        "gc",
        help="remove finished roots that ended a while ago",
        description="FAILED ones stay, unless --failed is given: what is wrong with them is only known from them.",
    )
    globals_for(parser)
    parser.add_argument("--older-than", type=seconds, required=True, metavar="TIME", help="ended longer ago: 12h, 7d")
    parser.add_argument("--failed", action="store_true", help="FAILED ones too")
    parser.add_argument("--reason", metavar="TEXT", default=None, help="why; it is recorded")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask")
    parser.set_defaults(run=_gc, force=False)


def _gc(options: argparse.Namespace) -> int:
    with open_reader(options) as reader:
        before = time.time() - options.older_than
        names = [name for name, state in reader.finished_roots(before) if state != "FAILED" or options.failed]
    if not options.dry_run and not confirmed(options, "delete", names):
        return REFUSED
    return carry_out(options, "delete", names, _deleting(options))
