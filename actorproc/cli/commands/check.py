"""``check``: what the unfinished procedures of a store would make of the code that is here now."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from actorproc.cli.output.columns import Columns
from actorproc.cli.output.output import Output, complain
from actorproc.cli.select.common import FAILED, OK, globals_for
from actorproc.ui.text import counted, plain_line

if TYPE_CHECKING:
    from actorproc.report.deploy_report import DeployFinding, DeployReport

__all__ = ["add_check"]

_Commands = Any
_WORDS = {
    "goes-on": "goes on",
    "parks": "would park",
    "parks-when-undone": "would park when it is undone",
    "unknown": "cannot be told",
}


def add_check(commands: _Commands) -> None:
    """Add ``check``."""
    parser = commands.add_parser(
        "check",
        help="before a deploy: which unfinished procedures the code that is here could not go on with",
        description=(
            "Reads every unfinished procedure of the store with the classes of a module, and runs none of them. A "
            "manager with the old code may run meanwhile. For a way back, run it where the older code is."
        ),
        epilog="exit codes: 0 all would go on; 1 something would be parked; 2 the module cannot be used",
    )
    globals_for(parser)
    parser.add_argument(
        "target", metavar="MODULE[:ATTRIBUTE]", help="the same as for `actorproc run`; nothing of it is started"
    )
    parser.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    from actorproc.api.deploys.deploy_check import examined
    from actorproc.cli.service.importing import told_in_words
    from actorproc.cli.service.run import find_manager
    from actorproc.procedure.shipping.importing import imports_only
    from actorproc.store.home import home_of

    output = Output(options)
    with told_in_words(options.target), imports_only("actorproc check"):
        manager = find_manager(options.target)
    given = getattr(options, "path", None)
    place = given if given is not None else manager._path
    home = home_of(place)
    key = manager._config.signing_key or home.keys() or os.urandom(32)
    registry = manager._types.registry(key)
    with home.reader(allow_any_filesystem=manager._config.allow_any_filesystem) as store:
        report = examined(store, registry.get, registry.names())
    output.one("check", report, lambda: _lines(report), name=str(place))
    if not output.is_json:
        complain(_summary(report))
    return OK if report.ok else FAILED


def _summary(report: DeployReport) -> str:
    parked = sum(found.count for found in report.parks)
    words = counted(report.checked, "unfinished procedure")
    return f"{words}: {f'{parked} would be parked' if parked else 'none would be parked'}"


def _lines(report: DeployReport) -> Iterator[str]:
    if not report.findings:
        return
    table = Columns(["TYPE", "STEP", "COUNT", "RESULT", "IDS"])
    yield from table.lines(
        [found.type_name, found.step, str(found.count), _WORDS[found.verdict], _ids(found)] for found in report.findings
    )
    for reason in dict.fromkeys(found.reason for found in report.findings if found.reason):
        yield f"reason: {plain_line(reason)}"


def _ids(found: DeployFinding) -> str:
    more = found.count - len(found.ids)
    return plain_line(" ".join(found.ids) + (f" and {more} more" if more else ""))
