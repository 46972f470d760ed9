"""Entry point of the command ``actorproc``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

__all__ = ["COMMANDS", "GROUPS", "build_parser", "main"]

COMMANDS: dict[str, tuple[str, str]] = {
    "status": ("inspect.summary", "add_status"),
    "list": ("inspect.lists", "add_list"),
    "show": ("inspect.detail", "add_show"),
    "tree": ("inspect.detail", "add_tree"),
    "steps": ("inspect.detail", "add_steps"),
    "state": ("inspect.states", "add_state"),
    "states": ("inspect.states", "add_states"),
    "diff": ("inspect.states", "add_diff"),
    "replay": ("commands.replay", "add_replay"),
    "why": ("inspect.detail", "add_why"),
    "locks": ("inspect.lists", "add_locks"),
    "poisons": ("inspect.lists", "add_poisons"),
    "signals": ("commands.signals", "add_signals"),
    "schedules": ("commands.schedules", "add_schedules"),
    "enqueued": ("commands.enqueued", "add_enqueued"),
    "audit": ("inspect.lists", "add_audit"),
    "workers": ("inspect.live", "add_workers"),
    "stack": ("inspect.live", "add_stack"),
    "logs": ("inspect.live", "add_logs"),
    "watch": ("inspect.live", "add_watch"),
    "top": ("inspect.top", "add_top"),
    "web": ("service.web", "add_web"),
    "metrics": ("inspect.live", "add_metrics"),
    "submit": ("commands.submit", "add_submit"),
    "kill": ("commands.operator", "add_kill"),
    "abort": ("commands.operator", "add_abort"),
    "retry": ("commands.operator", "add_retry"),
    "restart": ("commands.operator", "add_restart"),
    "fork": ("commands.operator", "add_fork"),
    "rollback": ("commands.operator", "add_rollback"),
    "bypass": ("commands.operator", "add_bypass"),
    "pause": ("commands.operator", "add_pause"),
    "resume": ("commands.operator", "add_resume"),
    "signal": ("commands.signals", "add_signal"),
    "ask": ("commands.submit", "add_ask"),
    "publish": ("commands.signals", "add_publish"),
    "withdraw": ("commands.signals", "add_withdraw"),
    "clear-poison": ("commands.signals", "add_clear_poison"),
    "ack": ("commands.operator", "add_ack"),
    "delete": ("commands.operator", "add_delete"),
    "gc": ("commands.operator", "add_gc"),
    "backup": ("commands.maintenance", "add_backup"),
    "compact": ("commands.maintenance", "add_compact"),
    "move": ("commands.databases", "add_move"),
    "reload": ("commands.maintenance", "add_reload"),
    "hosts": ("commands.hosts", "add_hosts"),
    "ray-hosts": ("commands.ray_hosts", "add_ray_hosts"),
    "leader": ("commands.databases", "add_leader"),
    "grants": ("commands.databases", "add_grants"),
    "rotate-key": ("commands.maintenance", "add_rotate_key"),
    "export": ("commands.exporting", "add_export"),
    "import": ("commands.exporting", "add_import"),
    "doctor": ("doctor.command", "add_doctor"),
    "check": ("commands.check", "add_check"),
    "run": ("service.run", "add_command"),
    "worker": ("service.worker", "add_command"),
    "demo": ("commands.demo", "add_command"),
    "torture": ("commands.torture", "add_command"),
    "schema": ("commands.maintenance", "add_schema"),
    "completion": ("completion", "add_completion"),
}
"""Each command with its module and the function that adds it, in the order of the help."""

GROUPS: dict[str, tuple[str, ...]] = {
    "Look": (
        *("status", "list", "show", "why", "tree", "steps", "state", "states", "diff", "logs", "stack"),
        *("locks", "poisons", "signals", "schedules", "enqueued", "audit", "workers", "watch", "top", "web", "metrics"),
    ),
    "Act": (
        "submit",
        "kill",
        "abort",
        "pause",
        "resume",
        "signal",
        "ask",
        "publish",
        "withdraw",
        "ack",
        "delete",
        "gc",
    ),
    "Repair": ("retry", "restart", "fork", "rollback", "bypass", "clear-poison", "replay", "doctor", "check"),
    "Store": ("backup", "compact", "move", "export", "import", "leader", "hosts", "grants", "rotate-key", "reload"),
    "Run": ("run", "worker", "ray-hosts", "demo", "torture", "schema", "completion"),
}
"""The commands as the help shows them."""

_ALIASES = {"ls": "list"}
_EXAMPLES = """
  actorproc run MODULE            run the procedures of a module
  actorproc submit MODULE:NAME    hand one in
  actorproc list                  the newest ones, those in trouble first
  actorproc why ID                what one waits for, and how to repair it
  actorproc show ID               all about one
  actorproc --help                every command
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.

    The codes:

    - 0: all is well.
    - 1: a procedure failed, or the command says no.
    - 2: it was called wrongly.
    - 3: nothing has this id.
    - 4: no manager answers.
    - 5: the manager refuses.
    - 124: the time was up.
    - 130: interrupted.
    - 141: its output is not read any more.
    """
    from actorproc.cli.output.standard_streams import replace_closed_streams
    from actorproc.cli.select.common import after_command

    replace_closed_streams()
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with after_command:
            return _done(given)
    except BrokenPipeError:
        # The reader has seen enough (`| head`); the interpreter's own flush at exit must not complain either: of what
        # a stream still holds unread it would make the exit code 120.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BrokenPipeError:
                os.dup2(nowhere, stream.fileno())
        return 141


def _done(given: list[str]) -> int:
    """Run a command; returns its exit code. Raises `BrokenPipeError` when its output is not read."""
    from actorproc.cli.output.nearest import unknown_command
    from actorproc.cli.output.output import complain
    from actorproc.cli.select.common import USAGE

    named = _named(given)
    parser = build_parser(named)
    options = argparse.Namespace()
    try:
        if named is None and (said := unknown_command(given, COMMANDS, _ALIASES)):
            complain(said)
            return USAGE
        options = parser.parse_args(given, options)
        if options.command is None:
            return _bare(options)
        code: int = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - what is not for people is raised again
        return _told(error, named, options)
    return code


def _bare(options: argparse.Namespace) -> int:
    """The call without a command: how the store does, if there is one, and what to type next."""
    from actorproc.cli.inspect.summary import show_status
    from actorproc.cli.select.common import home

    if home(options).exists():
        show_status(options)
    print(_EXAMPLES.strip("\n"))
    return 0


def _told(error: Exception, command: str | None, options: argparse.Namespace) -> int:
    """Tell an error in one line; returns its exit code. An unforeseen error keeps its traceback."""
    from actorproc.cli.output.extras import MissingExtra
    from actorproc.cli.output.output import complain
    from actorproc.cli.select.common import USAGE, code_of
    from actorproc.errors import ActorprocError, StoreDamaged
    from actorproc.ui.command_words import in_command_words

    if isinstance(error, MissingExtra):
        complain(error)
        return USAGE
    if command in ("run", "demo", "torture"):  # what the user's module raises is for its author to see
        raise error
    if not isinstance(error, ActorprocError | TimeoutError | OSError | ValueError | TypeError):
        raise error
    if isinstance(error, ValueError | TypeError) and not isinstance(error, ActorprocError) and not _is_ours(error):
        raise error
    says = in_command_words(str(error), getattr(options, "path", None))
    complain(f"actorproc: {says}")
    if isinstance(error, StoreDamaged) and "doctor" not in str(error):
        complain("what else is damaged, and what can be saved: actorproc doctor")
    return code_of(error)


def _is_ours(error: Exception) -> bool:
    """It was raised by a check of this package, with a message for the caller."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    return last is not None and str(last.tb_frame.f_globals.get("__name__", "")).startswith("actorproc.")


def _named(arguments: Sequence[str]) -> str | None:
    """The command in these arguments, when it can be told without parsing them."""
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in ("--path", "-o", "--output", "--color"):
            skip = True
        elif not argument.startswith("-"):
            name = _ALIASES.get(argument, argument)
            return name if name in COMMANDS or name in _verbs_besides(name) else None
        elif argument in ("-h", "--help"):
            return None
    return None


def _verbs_besides(name: str | None) -> list[str]:
    """Verbs of the table without a module of their own; looked up only for a name that no command has, and for all."""
    if name in COMMANDS:
        return []
    from actorproc.core.operator.verbs import VERBS

    return [verb.name for verb in VERBS if verb.help and verb.name not in COMMANDS]


def build_parser(only: str | None = None) -> argparse.ArgumentParser:
    """The parser of all commands, or for a quick start of one."""
    from actorproc.cli.output.colour import CHOICES
    from actorproc.cli.output.help import CommandParser
    from actorproc.cli.output.output import FORMATS

    parser = CommandParser(
        prog="actorproc",
        groups=GROUPS,
        description="Procedures whose every step may be killed, and only that step is retried.",
        epilog=(
            "exit codes: 0 well; 1 a procedure failed; 2 called wrongly; 3 not found; 4 no manager answers; "
            "5 refused; 124 time was up"
        ),
    )
    parser.add_argument("--version", action=_Version, help="show the version and leave")
    parser.add_argument(
        "--path",
        metavar="DIR",
        default=None,
        help="directory of the store, or URL of one in a database (default: $ACTORPROC_PATH, else ./state)",
    )
    parser.add_argument(
        "-o",
        "--output",
        choices=FORMATS,
        metavar="FORMAT",
        default=None,
        help="table, wide, json, jsonl or name (default: $ACTORPROC_OUTPUT, else table)",
    )
    parser.add_argument(
        "--color", choices=CHOICES, help="auto (on a terminal, unless NO_COLOR is set), always or never"
    )
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        help="print the completion script of a shell (needs the extra 'cli') and leave",
    )
    parser.set_defaults(build_parser=build_parser)  # for `completion`, which reads the parser of all commands
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", parser_class=CommandParser)
    for name, (module, function) in COMMANDS.items():
        if only is None or name == only:
            getattr(importlib.import_module(f"actorproc.cli.{module}"), function)(commands)
    for verb in _verbs_besides(only):
        if only is None or verb == only:
            from actorproc.cli.commands.operator import add_verb

            add_verb(commands, verb)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when asked: reading package metadata costs more than parsing."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib import metadata

        print(f"actorproc {metadata.version('actorproc')}")
        parser.exit()


class _PrintCompletion(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, _namespace: object, values: object, _option: object = None
    ) -> None:
        from actorproc.cli.completion import script_for

        print(script_for(str(values), build_parser()))
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
