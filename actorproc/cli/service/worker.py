"""``actorproc worker``: the workers of this machine, for the manager that leads a store in a database."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import TYPE_CHECKING

from actorproc.cli.select.common import directory
from actorproc.cli.select.filters import seconds
from actorproc.cli.select.offers import add_machine
from actorproc.cli.service.log_output import add_log_format, begin_log
from actorproc.errors import ActorprocError, UsageError

if TYPE_CHECKING:
    from actorproc.api.home.host_side import HostSide

__all__ = ["add_command"]


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "worker",
        help="run steps for the manager that leads a store in a database, from this machine",
        description=(
            "Runs worker processes for whichever manager leads, until SIGTERM, SIGINT or SIGHUP: then running steps "
            "end, and no further ones begin; a second signal ends it at once. It waits for a leader as long as it "
            "takes, and follows a change of leaders. It submits and decides nothing."
        ),
        epilog=(
            "exit codes: 0 drained; 1 no leader lets this host in, and none will; 2 the module cannot be run; "
            "129, 130, 143 ended by a second signal (SIGHUP, SIGINT, SIGTERM)"
        ),
    )
    parser.add_argument(
        "target",
        metavar="MODULE[:ATTRIBUTE]",
        help="module with the procedures, as `actorproc run` has it; the current directory is searched as well",
    )
    parser.add_argument(
        "--path",
        metavar="URL",
        default=argparse.SUPPRESS,
        help="URL of the store (default: $ACTORPROC_PATH)",
    )
    add_machine(parser)
    add_log_format(parser)
    parser.add_argument(
        "--code",
        metavar="REVISION",
        default="",
        help="revision of the code; under a leader with another one this host waits (default: files are compared)",
    )
    parser.add_argument(
        "--stop-timeout",
        type=seconds,
        metavar="TIME",
        help="how long running steps may go on after a signal: 90s, 5m (default: that of the settings, 30s)",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from actorproc.api.launch.targets import CannotRun
    from actorproc.cli.service.notify import Notifier
    from actorproc.cli.service.service import EXIT_FAILED, serve_host

    notifier = Notifier.from_environment(os.environ)
    try:
        host, stop_timeout = _host(options)
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 2
    except (UsageError, ValueError) as error:
        print(f"this host cannot start: {error}", file=sys.stderr)
        return 2
    except ActorprocError as error:
        print(f"this host cannot start: {error}", file=sys.stderr)
        notifier.stopping(f"cannot start: {error}")
        return EXIT_FAILED
    begin_log(options.log_format, logging.INFO)
    return serve_host(host, notifier=notifier, stop_timeout=stop_timeout)


def _host(options: argparse.Namespace) -> tuple[HostSide, float]:
    """The host, not started, and the seconds that its stop waits. Raises `CannotRun`."""
    from actorproc.api.launch.targets import CannotRun, procedures_in
    from actorproc.api.manager import ProcedureManager
    from actorproc.config import Config

    path = directory(options)
    if "://" not in path:
        msg = f"a host serves a store in a database, not {path!r}: give --path postgresql://…"
        raise CannotRun(msg)
    given = {"code": options.code or None, "stop_timeout": options.stop_timeout}
    try:
        config = Config.from_env(**{name: value for name, value in given.items() if value is not None})
    except OSError as error:
        raise CannotRun(str(error)) from None
    manager = ProcedureManager(
        path,
        procedures=procedures_in(options.target),
        workers=options.workers,
        config=config,
        labels=options.label,
        resources=dict(options.resource),
        around_step=options.around_step,
        lead=False,
    )
    return manager._make_host(), config.stop_timeout
