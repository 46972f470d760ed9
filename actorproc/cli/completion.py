"""``completion``: a script for the shell that completes commands, options, and ids and keys by asking the store."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any

from actorproc.cli.output.extras import need
from actorproc.cli.select.common import OK

__all__ = ["SHELLS", "add_completion", "script_for"]

_Commands = Any
SHELLS = ("bash", "zsh", "tcsh", "fish")

# Asking costs a start of Python, so only so many rows are fetched; a store that cannot be read completes nothing.
# The store is the one that the line being typed says, which `--path` may do before or behind the command.
_BASH = r"""
_actorproc_ask() {
    local at path=()
    for ((at = 1; at + 1 < COMP_CWORD; at++)); do
        if [[ "${COMP_WORDS[at]}" == --path ]]; then
            path=(--path "${COMP_WORDS[at + 1]/#\~/$HOME}")
            [[ "${COMP_WORDS[at + 1]}" == "=" ]] && path=(--path "${COMP_WORDS[at + 2]/#\~/$HOME}")
        fi
    done
    actorproc "${path[@]}" "$@" 2>/dev/null
}
_actorproc_ids() { _actorproc_ask list -o name --limit 50 --prefix "$1"; }
_actorproc_keys() {
    local key
    while IFS= read -r key; do
        [[ "$key" == "$1"* ]] && printf '%q\n' "$key"
    done < <(_actorproc_ask locks -o name; _actorproc_ask poisons -o name)
}
"""
_ZSH = r"""
_actorproc_ask() {
  local -a typed where
  typed=(${(z)BUFFER})
  local at=${typed[(I)--path]}
  (( at )) && where=(--path "${${(Q)typed[at + 1]}/#\~/$HOME}")
  at=${typed[(I)--path=*]}
  (( at )) && where=(--path "${${(Q)typed[at]#--path=}/#\~/$HOME}")
  actorproc $where "$@" 2>/dev/null
}
_actorproc_ids() {
  local -a found
  found=(${(f)"$(_actorproc_ask list -o name --limit 50 --prefix "$PREFIX")"})
  compadd -a found
}
_actorproc_keys() {
  local -a found
  found=(${(f)"$(_actorproc_ask locks -o name; _actorproc_ask poisons -o name)"})
  compadd -a found
}
"""
_FISH = r"""
function __actorproc_ask
    set -l typed (commandline -opc)
    set -l place
    for at in (seq 1 (count $typed))
        if test $typed[$at] = --path; and test $at -lt (count $typed)
            set place --path $typed[(math $at + 1)]
        else if string match -q -- '--path=*' $typed[$at]
            set place --path (string replace -- --path= '' $typed[$at])
        end
    end
    actorproc $place $argv 2>/dev/null
end
function __actorproc_command
    set -l typed (commandline -opc)
    set -l is_value no
    for word in $typed[2..-1]
        switch "$is_value $word"
            case 'yes *'
                set is_value no
            case 'no --path' 'no -o' 'no --output'
                set is_value yes
            case 'no -*'
            case '*'
                echo $word
                return
        end
    end
end
function __actorproc_has_no_command
    test -z (__actorproc_command | string collect --allow-empty)
end
function __actorproc_is
    test "$argv[1]" = (__actorproc_command | string collect --allow-empty)
end
function __actorproc_ids
    __actorproc_ask list -o name --limit 50 --prefix (commandline -ct | string collect --allow-empty)
end
function __actorproc_keys
    __actorproc_ask locks -o name
    __actorproc_ask poisons -o name
end
"""
_ASKED = {"ID": "ids", "TARGET": "ids", "KEY": "keys"}
"""Arguments that are completed by asking the store, by their names in the help."""


def add_completion(commands: _Commands) -> None:
    """Add ``completion``."""
    parser = commands.add_parser(
        "completion",
        help="print the completion script of a shell (bash, zsh, tcsh need the extra 'cli')",
        description=(
            "bash: actorproc completion bash > ~/.local/share/bash-completion/completions/actorproc; "
            "zsh: actorproc completion zsh > DIR/_actorproc, with DIR in $fpath; "
            "fish: actorproc completion fish > ~/.config/fish/completions/actorproc.fish"
        ),
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(run=_completion)


def _completion(options: argparse.Namespace) -> int:
    print(script_for(options.shell, options.build_parser()))
    return OK


def script_for(shell: str, parser: argparse.ArgumentParser) -> str:
    """The completion script of one of `SHELLS` for the parser of all commands. Raises `MissingExtra`."""
    if shell == "fish":
        return "\n".join([_FISH, *_fish_lines(parser)])
    shtab = need("shtab", extra="cli", purpose="shell completion")
    for action in _actions_of(parser):
        asked = _ASKED.get(_metavar_of(action))
        if asked is not None:
            action.complete = {"bash": f"_actorproc_{asked}", "zsh": f"_actorproc_{asked}"}  # type: ignore[attr-defined]
        elif _metavar_of(action) in ("DIR", "FILE"):
            action.complete = shtab.DIRECTORY if _metavar_of(action) == "DIR" else shtab.FILE  # type: ignore[attr-defined]
    return str(shtab.complete(parser, shell, preamble={"bash": _BASH, "zsh": _ZSH}))


def _metavar_of(action: argparse.Action) -> str:
    return action.metavar if isinstance(action.metavar, str) else ""


def _actions_of(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for inner in dict.fromkeys(action.choices.values()):
                yield from _actions_of(inner)


def _fish_lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    """shtab knows no fish, which wants one line for each word."""
    yield "complete -c actorproc -f"
    yield "complete -c actorproc -l path -r -a '(__fish_complete_directories)' -d 'directory of the store'"
    commands = next(action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    helps = {choice.dest: choice.help or "" for choice in commands._choices_actions}
    for name, inner in commands.choices.items():
        if name in helps:
            yield f"complete -c actorproc -n __actorproc_has_no_command -a {name} -d '{_said(helps[name])}'"
        seen = f"complete -c actorproc -n '__actorproc_is {name}'"
        for action in inner._actions:
            asked = _ASKED.get(_metavar_of(action))
            values = f" -a '(__actorproc_{asked})'" if asked is not None else ""
            if not action.option_strings and values:
                yield seen + values
            for text in action.option_strings if action.help != argparse.SUPPRESS else ():
                flag = f" -l {text[2:]}" if text.startswith("--") else f" -s {text[1:]}"
                takes = " -r" if action.nargs != 0 else ""
                yield f"{seen}{flag}{takes}{values if takes else ''} -d '{_said(action.help or '')}'"


def _said(text: str) -> str:
    return text.replace("'", "").replace("\\", "").replace("%%", "%")
