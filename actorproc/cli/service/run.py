"""``actorproc run``: finds the manager of a module, and serves it."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from actorproc.cli.select.common import whole_number
from actorproc.cli.select.filters import seconds
from actorproc.cli.select.offers import add_offer
from actorproc.errors import ActorprocError, EngineError

if TYPE_CHECKING:
    from actorproc.api.manager import ProcedureManager

__all__ = ["CannotRun", "add_command", "find_manager", "found_in", "procedures_in"]


class CannotRun(ActorprocError):
    """The module has nothing that can be run; the message is one line that says what is missing."""


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
    parser.add_argument(
        "--workers",
        type=whole_number(1),
        metavar="N",
        default=None,
        help="worker processes (default: one per processor it may use)",
    )
    add_offer(parser)
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
        )
    except CannotRun as error:
        print(error, file=sys.stderr)
        return 2
    except EngineError as error:  # of a manager that the module starts
        print(f"the engine cannot start: {error}", file=sys.stderr)
        notifier.stopping(f"cannot start: {error}")
        return EXIT_FAILED
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    page = None
    if options.web is not None:
        from actorproc.cli.service.companion import WebCompanion

        page = WebCompanion(manager, options.web)
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
) -> ProcedureManager:
    """The manager of ``module:attribute``, not started unless the module did. Raises `CannotRun`.

    Exceptions of the module pass.
    """
    from actorproc.api.manager import ProcedureManager
    from actorproc.cli.select.common import refuse_password
    from actorproc.errors import UsageError
    from actorproc.store.home import home_of

    found, name = found_in(target)
    if callable(found) and not isinstance(found, type) and not _procedure_classes([found]):
        found = found()
    if isinstance(found, ProcedureManager):
        if path is not None or workers is not None or labels or resources:
            msg = (
                f"{name} is a manager with a directory and workers of its own; leave --path, --workers, --label and "
                "--resource out"
            )
            raise CannotRun(msg)
        return found
    classes = _only_procedures(found, name)
    directory = path or os.environ.get("ACTORPROC_PATH") or "state"
    try:
        refuse_password(path)
        home_of(directory)
        return ProcedureManager(directory, procedures=classes, workers=workers, labels=labels, resources=resources)
    except UsageError as error:
        raise CannotRun(str(error)) from None


def procedures_in(target: str) -> list[type]:
    """Procedure classes of ``module:attribute``. Raises `CannotRun`. Exceptions of the module pass.

    A manager that the module makes would have workers of its own: it is refused.
    """
    from actorproc.api.manager import ProcedureManager

    found, name = found_in(target)
    if isinstance(found, ProcedureManager):
        msg = f"{name} is a manager; name the procedures of the module as MODULE:NAME, such as a list of them"
        raise CannotRun(msg)
    return _only_procedures(found, name)


def _only_procedures(found: Any, name: str) -> list[type]:
    listed = list(found) if isinstance(found, list | tuple | set | frozenset) else [found]
    classes = _procedure_classes(listed)
    if not classes or len(classes) < len(listed):
        msg = f"{name} is neither a ProcedureManager, nor a function that makes one, nor procedures: {found!r:.80}"
        raise CannotRun(msg)
    return classes


def found_in(target: str) -> tuple[Any, str]:
    """Object that ``module:attribute`` names, or that a module offers, and its name. Raises `CannotRun`."""
    module_name, _, attribute = target.partition(":")
    if os.getcwd() not in sys.path and "" not in sys.path:  # noqa: PTH109 - entries of sys.path are strings
        sys.path.insert(0, os.getcwd())  # noqa: PTH109
    try:
        module = importlib.import_module(module_name)
    except (ModuleNotFoundError, ValueError, TypeError) as error:
        is_name = module_name != "" and not module_name.startswith(".") and "\0" not in module_name
        if not isinstance(error, ModuleNotFoundError) and is_name:
            raise  # the module itself did; a name such as ./shop.py is never looked for
        missing = getattr(error, "name", None)
        if missing is not None and missing != module_name and not module_name.startswith(f"{missing}."):
            raise  # the module is there, but something that it imports is not: its traceback says what
        help_ = _meant(module_name) or f"give a module that can be imported from {os.getcwd()}"  # noqa: PTH109
        msg = f"there is no module {module_name!r} here; {help_}"
        raise CannotRun(msg) from None
    if attribute:
        found: Any = module
        for part in attribute.split("."):
            found = getattr(found, part, None)
        if found is None:
            msg = f"{module_name} has no {attribute!r}"
            raise CannotRun(msg)
        return found, target
    if hasattr(module, "manager"):
        return module.manager, f"{module_name}:manager"
    managers = _started(module)
    if len(managers) > 1:
        msg = f"{module_name} starts several managers: {', '.join(managers)}; name one as {module_name}:{managers[0]}"
        raise CannotRun(msg)
    if managers:
        return getattr(module, managers[0]), f"{module_name}:{managers[0]}"
    defined = [value for value in vars(module).values() if getattr(value, "__module__", None) == module_name]
    classes = _procedure_classes(defined)
    if not classes:
        msg = f"{module_name} has neither a 'manager' nor a procedure of its own; name one as {module_name}:NAME"
        raise CannotRun(msg)
    return classes, module_name


def _started(module: ModuleType) -> list[str]:
    """Names of the managers that a module has started at its top, or would have, each manager once."""
    from actorproc.api.manager import ProcedureManager

    named = reversed(vars(module).items())
    found = {
        id(value): name
        for name, value in named
        if isinstance(value, ProcedureManager) and (value._tree is not None or value._asked is not None)
    }
    return sorted(found.values())


def _meant(module_name: str) -> str:
    """Likely meaning of a name that is no module: a file, or something in a module."""
    owner, _, name = module_name.rpartition(".")
    module = sys.modules.get(owner)
    if module is None:
        return ""
    if hasattr(module, name):
        return f"for what is in {owner} write {owner}:{name}"
    return f"leave .py out: {owner}" if name == "py" else ""


def _procedure_classes(values: list[Any]) -> list[type]:
    """The procedure classes among these, those of `@procedure` functions included."""
    from actorproc.procedure.authoring.function import class_behind
    from actorproc.procedure.authoring.procedure import Procedure

    classes: dict[type, None] = {}
    for value in values:
        cls = class_behind(value)
        if isinstance(cls, type) and issubclass(cls, Procedure):
            classes[cls] = None
    return list(classes)
