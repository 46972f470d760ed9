"""``actorproc run``: finds the manager of a module, and serves it."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from typing import TYPE_CHECKING

from actorproc.cli.select.common import whole_number
from actorproc.cli.select.filters import seconds
from actorproc.cli.select.offers import add_machine
from actorproc.cli.service.log_output import add_log_format, begin_log
from actorproc.errors import EngineError

if TYPE_CHECKING:
    from actorproc.api.manager import ProcedureManager

__all__ = ["add_command", "find_manager"]


def add_command(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the command to the parser."""
    parser = commands.add_parser(
        "run",
        help="run the procedures of a module as a service",
        description=(
            "Runs a manager until SIGTERM, SIGINT or SIGHUP, then waits for the running steps; a second signal ends it "
            "at once. Tells systemd when it is ready, how it does and when it stops (sd_notify), and feeds its "
            "watchdog while the manager answers."
        ),
        epilog=(
            "exit codes: 0 stopped by a signal; 1 the engine could not start, or failed; 2 the module cannot be run; "
            "129, 130, 143 ended by a second signal (SIGHUP, SIGINT, SIGTERM)"
        ),
    )
    parser.add_argument(
        "target",
        metavar="MODULE[:ATTRIBUTE]",
        help=(
            "module to import, the current directory included. ATTRIBUTE is a ProcedureManager, a function that makes "
            "one, a procedure class or a list of them; default: 'manager', or the one that the module starts, else all "
            "procedures the module defines"
        ),
    )
    parser.add_argument(
        "--path",
        metavar="DIR",
        default=argparse.SUPPRESS,
        help="directory or URL of the store, for procedures (default: $ACTORPROC_PATH, else ./state)",
    )
    add_machine(parser, least=0)
    add_log_format(parser)
    parser.add_argument(
        "--otel",
        action="store_true",
        help="record spans of OpenTelemetry (extra otel), by the provider that the module sets, or else as the OTEL_… "
        "variables of the environment say",
    )
    parser.add_argument(
        "--wait",
        type=seconds,
        default=0.0,
        metavar="TIME",
        help="how long to wait for another owner of the directory to stop, such as the service this one replaces: "
        "90s, 5m (default: not at all)",
    )
    parser.add_argument(
        "--stop-timeout",
        type=seconds,
        default=None,
        metavar="TIME",
        help="how long a stop waits for running steps: 90s, 5m (default: that of the manager's Config, 30s)",
    )
    parser.add_argument(
        "--web",
        type=whole_number(0, 65535),
        nargs="?",
        const=0,
        metavar="PORT",
        help="serve the dashboard too, in a process of its own (actorproc web) that outlives a manager which is killed",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    from actorproc.api.launch.targets import CannotRun
    from actorproc.cli.service.notify import Notifier
    from actorproc.cli.service.service import EXIT_FAILED, serve

    # A service of its own has a log, unless the module arranges that itself.
    notifier = Notifier.from_environment(os.environ)
    try:
        manager = find_manager(
            options.target,
            path=options.path,
            workers=options.workers,
            labels=tuple(options.label),
            resources=dict(options.resource),
            around_step=options.around_step,
            otel=options.otel,
        )
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 2
    except EngineError as error:  # of a manager that the module starts
        print(f"the engine cannot start: {error}", file=sys.stderr)
        notifier.stopping(f"cannot start: {error}")
        return EXIT_FAILED
    begin_log(options.log_format, logging.INFO)
    page = None
    if options.web is not None:
        from actorproc.cli.service.companion import WebCompanion

        page = WebCompanion(manager, options.web, options.log_format)
    patience = options.stop_timeout if options.stop_timeout is not None else manager._config.stop_timeout
    try:
        return serve(
            manager,
            notifier=notifier,
            stop_timeout=patience,
            wait=options.wait,
            begun=None if page is None else page.start,
        )
    finally:
        if page is not None:
            page.stop()


def find_manager(
    target: str,
    *,
    path: str | None = None,
    workers: int | None = None,
    labels: tuple[str, ...] = (),
    resources: dict[str, float] | None = None,
    around_step: str | None = None,
    otel: bool = False,
) -> ProcedureManager:
    """The manager of ``module:attribute``, not started unless the module did. Raises `CannotRun`.

    Exceptions of the module pass.
    """
    from actorproc.api.launch.targets import (
        CannotRun,
        found_in,
        only_procedures,
        procedure_classes,
        tracing_of_service,
    )
    from actorproc.api.manager import ProcedureManager
    from actorproc.cli.select.common import refuse_password
    from actorproc.config import Config
    from actorproc.errors import UsageError
    from actorproc.store.home import home_of

    found, name = found_in(target)
    if callable(found) and not isinstance(found, type) and not procedure_classes([found]):
        found = found()
    if isinstance(found, ProcedureManager):
        if path is not None or workers is not None or labels or resources or around_step is not None or otel:
            msg = (
                f"{name} is a manager with a directory and workers of its own; leave --path, --workers, --otel, "
                "--label, --resource and --around-step out"
            )
            raise CannotRun(msg)
        return found
    classes = only_procedures(found, name)
    directory = path or os.environ.get("ACTORPROC_PATH") or "state"
    try:
        refuse_password(path)
        home_of(directory)
        return ProcedureManager(
            directory,
            procedures=classes,
            workers=workers,
            config=Config.from_env(),
            labels=labels,
            resources=resources,
            around_step=around_step,
            tracing=tracing_of_service() if otel else None,
        )
    except (UsageError, ValueError, OSError) as error:
        raise CannotRun(str(error)) from None
