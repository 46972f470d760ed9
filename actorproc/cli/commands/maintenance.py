"""``backup``, ``compact``, ``reload``, ``rotate-key``, ``schema``."""

from __future__ import annotations

import argparse
import json
from typing import Any

from actorproc.cli.output.outcomes import outcome
from actorproc.cli.output.output import Output, complain
from actorproc.cli.select.common import OK, globals_for, home, open_client, open_reader, shown
from actorproc.cli.select.filters import seconds
from actorproc.cli.select.steering import Steered
from actorproc.ui.text import counted, duration, plain_line, size_of

__all__ = ["add_backup", "add_compact", "add_reload", "add_rotate_key", "add_schema"]

_Commands = Any


def add_backup(commands: _Commands) -> None:
    """Add ``backup``."""
    parser = commands.add_parser("backup", help="copy the store into a new directory, while everything runs")
    globals_for(parser).add_argument("destination", metavar="DIR", help="must not exist")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.set_defaults(run=_backup)


def _backup(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_reader(options) as reader:
        is_owned = reader.owner() is not None
        size = reader.stats().file_bytes
        if options.dry_run:
            says = f"would copy {shown(options)} ({size_of(size)}) to {options.destination}"
            found = outcome(None, "backup", says)
            output.one("outcome", found, lambda: [plain_line(says)], name=options.destination)
            return OK
        if not is_owned:
            report = reader.backup(options.destination)
    if is_owned:
        with open_client(options) as client:
            report = client.backup(options.destination)
    output.one(
        "backup",
        report.to_dict(),
        lambda: [f"{plain_line(report.path)}  {size_of(report.size)} in {duration(report.seconds)}"],
        name=report.path,
    )
    return OK


def add_compact(commands: _Commands) -> None:
    """Add ``compact``."""
    parser = commands.add_parser(
        "compact", help="give the space of removed procedures back, also while everything runs"
    )
    globals_for(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say how much is used")
    parser.set_defaults(run=_compact)


def _compact(options: argparse.Namespace) -> int:
    output = Output(options)
    if options.dry_run:
        with open_reader(options) as reader:
            stats = reader.stats()
        says = f"{size_of(stats.used_bytes)} of {size_of(stats.file_bytes)} are used"
        found = outcome(None, "compact", says)
        output.one("outcome", found, lambda: [says], name=stats.path)
        return OK
    with Steered(options) as engine:
        report = engine.compact()
    output.one(
        "compaction",
        report.to_dict(),
        lambda: [f"{size_of(report.before)} → {size_of(report.after)}; commits waited {duration(report.seconds)}"],
        name=str(report.freed),
    )
    return OK


def add_reload(commands: _Commands) -> None:
    """Add ``reload``."""
    parser = commands.add_parser(
        "reload",
        help="replace the workers one by one, so that they run the code that is on disk now",
        description=(
            "Each worker ends the step it is in first. Refused where the manager itself would have to be restarted: a "
            "fact it decides on changed (version, retries, limits, locks), or its own program has loaded what changed."
        ),
    )
    globals_for(parser)
    parser.add_argument("--timeout", type=seconds, default=300.0, metavar="TIME", help="for all of it (default: 5m)")
    parser.set_defaults(run=_reload)


def _reload(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_client(options) as client:
        busy = [worker.procedure for worker in client.workers() if worker.procedure is not None]
        if busy:
            named = " ".join(busy[:5]) + (f" and {len(busy) - 5} more" if len(busy) > 5 else "")
            complain(f"waits for running steps to end, {duration(options.timeout)} at most: {named}")
        count = client.reload(options.timeout)
    says = f"{counted(count, 'worker')} replaced"
    output.one("outcome", outcome(None, "reload", says, applied="manager"), lambda: [says], name=says)
    return OK


def add_rotate_key(commands: _Commands) -> None:
    """Add ``rotate-key``."""
    parser = commands.add_parser(
        "rotate-key",
        help="have pickles signed with a new key from now on; on a stopped store",
        description=(
            "A new key signs; what the older ones signed is still accepted. With --forget it is not: procedures whose "
            "pickled state was signed before are parked, and ended calls of an executor lose their results. Programs "
            "that hold a ProcedureClient read the keys when they make it: start them anew as well."
        ),
    )
    globals_for(parser)
    parser.add_argument("--forget", action="store_true", help="no longer accept what older keys signed")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.set_defaults(run=_rotate_key)


def _rotate_key(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_reader(options):
        pass  # there must be a store already
    place = home(options)
    old = len(place.keys())
    kept = "forgotten" if options.forget else "kept to verify what they signed"
    says = f"a new key signs; older keys {kept}: {old}"
    applied = None
    if options.dry_run:
        says = f"would be done (dry run): {says}"
    else:
        store = place.store(role="command")
        try:
            store.own()
            place.rotate_keys(forget=options.forget)
        finally:
            store.close()
        applied = "stopped store"
    found = outcome(None, "rotate-key", says, applied=applied)
    output.one("outcome", found, lambda: [says], name="rotate-key")
    return OK


def add_schema(commands: _Commands) -> None:
    """Add ``schema``."""
    parser = commands.add_parser("schema", help="the JSON Schema of everything that -o json and jsonl print")
    parser.add_argument("name", nargs="?", metavar="KIND", help="only this kind, with what it refers to")
    parser.set_defaults(run=_schema)


def _schema(options: argparse.Namespace) -> int:
    from actorproc.errors import UsageError
    from actorproc.report.schema.document import KINDS, document

    if options.name is not None and options.name not in KINDS:
        raise UsageError(f"there is no kind {options.name!r}; kinds are {', '.join(KINDS)}")
    print(json.dumps(document(options.name), indent=2))
    return OK
