"""``completion``: a script for the shell that completes commands, options, and ids by asking the store."""

from __future__ import annotations

import argparse
from typing import Any

from actorproc.cli.common import OK
from actorproc.cli.extras import need

__all__ = ["add_completion"]

_Commands = Any

_TAKE_IDS = (
    "show", "tree", "steps", "why", "audit", "stack", "logs", "watch", "signal", "abort", "retry", "rollback", "bypass",
    "pause", "resume", "ack", "delete", "export",
)  # fmt: skip

# `list -o name --limit` costs the start of Python once; a store that cannot be read completes nothing.
_BASH_IDS = """
_actorproc_ids() {
    actorproc list -o name --prefix "$1" --limit 50 2>/dev/null
}
_actorproc_with_ids() {
    local word command=""
    for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
        case "$word" in -*) ;; *) command="$word"; break ;; esac
    done
    local current="${COMP_WORDS[COMP_CWORD]}"
    case "$command" in
        %(commands)s)
            if [[ "$current" != -* ]]; then
                mapfile -t COMPREPLY < <(_actorproc_ids "$current")
                return
            fi ;;
    esac
    _shtab_actorproc "$@"
}
complete -o filenames -F _actorproc_with_ids actorproc
"""


def add_completion(commands: _Commands) -> None:
    """Add ``completion``."""
    parser = commands.add_parser(
        "completion",
        help="print the completion script of a shell (needs the extra 'cli')",
        description="bash: actorproc completion bash > ~/.local/share/bash-completion/completions/actorproc",
    )
    parser.add_argument("shell", choices=("bash", "zsh", "tcsh", "fish"))
    parser.set_defaults(run=_completion)


def _completion(options: argparse.Namespace) -> int:
    from actorproc.cli.main import COMMANDS, build_parser

    if options.shell == "fish":
        print(_fish(build_parser(), list(COMMANDS)))
        return OK
    shtab = need("shtab", extra="cli", purpose="shell completion")
    print(shtab.complete(build_parser(), options.shell))
    if options.shell == "bash":
        print(_BASH_IDS % {"commands": "|".join(_TAKE_IDS)})
    return OK


def _fish(parser: argparse.ArgumentParser, names: list[str]) -> str:
    """shtab knows no fish, which wants one line for each word."""
    lines = [
        "complete -c actorproc -f",
        "complete -c actorproc -l path -r -a '(__fish_complete_directories)' -d 'directory of the store'",
    ]
    actions = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    helps = {choice.dest: choice.help or "" for action in actions for choice in action._choices_actions}
    for name in names:
        said = helps.get(name, "").replace("'", "")
        lines.append(f"complete -c actorproc -n __fish_use_subcommand -a {name} -d '{said}'")
        for option in actions[0].choices[name]._actions:
            for text in option.option_strings:
                flag = f"-l {text[2:]}" if text.startswith("--") else f"-s {text[1:]}"
                lines.append(f"complete -c actorproc -n '__fish_seen_subcommand_from {name}' {flag}")
    ids = "(actorproc list -o name --limit 50 --prefix (commandline -ct) 2>/dev/null)"
    lines.append(f"complete -c actorproc -n '__fish_seen_subcommand_from {' '.join(_TAKE_IDS)}' -a '{ids}'")
    return "\n".join(lines)
