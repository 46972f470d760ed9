"""The filters of ``list``, which the verbs take too."""

from __future__ import annotations

import argparse
import re
import time
from datetime import datetime
from typing import TYPE_CHECKING, Any

from actorproc.cli.output.nearest import nearest
from actorproc.cli.select.common import full_id, whole_number
from actorproc.errors import UsageError
from actorproc.support.durations import EARLIEST, moment_near
from actorproc.support.search_texts import values_in

if TYPE_CHECKING:
    from actorproc.api.reader import StoreReader
    from actorproc.report.listing import ListFilter
    from actorproc.store.reading import ReadingStore

__all__ = ["add_filters", "filter_of", "has_filter", "list_arguments", "moment", "no_match", "seconds", "type_of"]

_SPAN = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)?")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0, None: 1.0}
_STATES = ("RUNNABLE", "WAITING", "WAITING_TIMEOUT", "SUCCESS", "FAILED", "ROLLEDBACK")
_PHASES = (
    "queued",
    "locked-out",
    "running",
    "retrying",
    "stuck",
    "suspended",
    "sleeping",
    "waiting",
    "rolling-back",
    "paused",
    "parked",
    "done",
)
_FILTERS = (
    "state",
    "phase",
    "retrying",
    "stuck",
    "troubled",
    "type",
    "tag",
    "where",
    "owner",
    "root",
    "parent",
    "prefix",
    "roots",
    "since",
    "until",
    "changed_since",
    "changed_until",
)


def add_filters(parser: argparse.ArgumentParser, *, paging: bool = True) -> None:
    """Add the filters to a command."""
    group = parser.add_argument_group("filters (all that are given must match)")
    group.add_argument(
        "--state",
        action="append",
        type=str.upper,
        choices=_STATES,
        metavar="STATE",
        help="one of " + ", ".join(_STATES) + "; may be repeated",
    )
    group.add_argument(
        "--phase",
        action="append",
        type=str.lower,
        choices=_PHASES,
        metavar="PHASE",
        help="one of " + ", ".join(_PHASES) + "; may be repeated",
    )
    group.add_argument("--retrying", action="store_true", help="those that failed and are tried again")
    group.add_argument("--stuck", action="store_true", help="those that cannot go on without help")
    group.add_argument("--troubled", action="store_true", help="those whose present step failed or crashed before")
    group.add_argument("--type", metavar="NAME", help="type name, or the end of one: Order for shop.Order")
    group.add_argument("--tag", action="append", metavar="TAG", help="a word, or KEY=VALUE; may be repeated")
    group.add_argument(
        "--where",
        action="append",
        metavar="FIELD=VALUE",
        help="a field that its class declares searchable has this value; FIELD alone: it has none; may be repeated",
    )
    group.add_argument("--owner", metavar="TEXT", help="submitted with this owner")
    group.add_argument("--root", metavar="ID", help="all of this tree")
    group.add_argument("--parent", metavar="ID", help="children of this one")
    group.add_argument("--prefix", metavar="TEXT", help="ids that begin so")
    group.add_argument("--roots", action="store_true", help="no children")
    group.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="created at this time or later: 10m, 2h, 3d (ago), or 2026-11-21T12:00 (local time)",
    )
    group.add_argument("--until", type=moment, metavar="TIME", help="created before")
    group.add_argument("--changed-since", type=moment, metavar="TIME", help="changed at this time or later")
    group.add_argument("--changed-until", type=moment, metavar="TIME", help="not changed since")
    if paging:
        parser.add_argument("--limit", type=whole_number(0), metavar="N", help="at most so many")
        parser.add_argument("--after", metavar="ID", help="the next page: what comes after this one")
        parser.add_argument("--oldest", action="store_true", help="oldest first (default: newest first)")


def has_filter(options: argparse.Namespace) -> bool:
    """Any filter was given."""
    return any(getattr(options, name, None) for name in _FILTERS)


def no_match(options: argparse.Namespace) -> str:
    """Text for people when nothing matches their filters."""
    given = [f"--{name.replace('_', '-')}" for name in _FILTERS if getattr(options, name, None)]
    if "--where" in given:
        return (
            "no procedure matches; --where finds fields that a class declares searchable, by the whole value; what was "
            "stored before the class did so is found from its next step on"
        )
    if len(given) < 2:
        return "no procedure matches"
    return f"no procedure matches; try without one of {', '.join(given)}"


def type_of(name: str | None, source: StoreReader | ReadingStore) -> str | None:
    """The whole name of a type, of which the end was given. Raises `UsageError` when several end so, or none does."""
    if name is None:
        return None
    known = source.types()
    if name in known:
        return name
    found = [known_name for known_name in known if known_name.endswith("." + name)]
    if len(found) > 1:
        msg = f"several types end in {name!r}: {', '.join(sorted(found)[:10])}"
        raise UsageError(msg)
    if found:
        return found[0]
    near = nearest(name, [*known, *(known_name.rpartition(".")[2] for known_name in known)])
    if near:
        msg = f"no procedure has the type {name!r}; did you mean {' or '.join(near)}?"
        raise UsageError(msg)
    return name


def list_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """The arguments of `list` that the options say; types and ids as they were given."""
    phases = [*(options.phase or ())]
    phases += ["retrying"] if options.retrying else []
    phases += ["stuck"] if options.stuck else []
    given = {
        "state": options.state,
        "phase": phases,
        "type_name": options.type,
        "root": options.root,
        "parent": options.parent,
        "tag": options.tag,
        "where": options.where and values_in(options.where),
        "owner": options.owner,
        "id_prefix": options.prefix,
        "roots_only": options.roots,
        "troubled": options.troubled,
        "created_since": options.since,
        "created_until": options.until,
        "updated_since": options.changed_since,
        "updated_until": options.changed_until,
    }
    return {name: value for name, value in given.items() if value is not None and value is not False and value != []}


def filter_of(options: argparse.Namespace, source: StoreReader | ReadingStore) -> ListFilter:
    """The filter that the options say; ids in it may be beginnings. Raises `UsageError`s and `ValueError`s."""
    from actorproc.report.listing import ListFilter

    given = list_arguments(options) | {"type_name": type_of(options.type, source)}
    given |= {"after": getattr(options, "after", None)}
    for name in ("root", "parent", "after"):
        given[name] = None if given.get(name) is None else full_id(source, given[name])
    return ListFilter.of(
        newest_first=not getattr(options, "oldest", True), limit=getattr(options, "limit", None), **given
    )


def seconds(text: str) -> float:
    """A span of time: "90", "90s", "5m", "2h", "3d", "1w"."""
    match = _SPAN.fullmatch(text.strip())
    if match is None:
        msg = f"{text!r} is no span of time; write 90s, 5m, 2h or 3d"
        raise argparse.ArgumentTypeError(msg)
    return float(match[1]) * _SECONDS[match[2]]


def moment(text: str) -> float:
    """Epoch seconds of a moment: a span (that long ago), epoch seconds, or an ISO 8601 time.

    Without a zone it is local time, as people mean it who read a clock and as the commands show times.
    """
    match = _SPAN.fullmatch(text.strip())
    if match is not None and (match[2] is not None or float(match[1]) < EARLIEST):
        return moment_near(time.time() - seconds(text))
    try:
        return float(text) if match is not None else moment_near(datetime.fromisoformat(text).timestamp())
    except (ValueError, OverflowError, OSError):
        msg = f"{text!r} is no time; write 2h (two hours ago), 2026-11-21T12:00 (local time) or …T12:00Z"
        raise argparse.ArgumentTypeError(msg) from None
