"""Refusals of the engine in the words of the command line: they advise calls, and a shell has commands and options."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from actorproc.ui.text import plain_line

__all__ = ["command_line", "in_command_words", "path_option", "whole_type"]

_CALL = re.compile(
    r"(?:manager\.)?\b(?:abort|bypass|clear_poison|delete|kill|publish|restart|resume|retry|rollback)"
    r"""\((?:[^()'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*\)"""
)
_OPTION = re.compile(r"\b(force|children|ancestors)=True\b|\bon_existing='([a-z-]+)'")


def path_option(path: str, shown: str) -> str | None:
    """The store as ``--path`` has it in a command to type; None: it is the usual one.

    Args:
        path: of the store, as it was opened.
        shown: the same in messages: a URL has no password there.
    """
    return None if path == "state" else shown if "://" in path else path


def command_line(path: str | None, words: str, *values: str) -> str:
    """A command to type.

    Args:
        path: of the store, as ``--path`` has it; None: it is the usual one.
        words: verb and options.
        values: arguments, which are quoted.
    """
    start = "actorproc" if path is None else f"actorproc --path {shlex.quote(path)}"
    return plain_line(" ".join((start, words, *map(shlex.quote, values))))


def in_command_words(text: str, path: str | None) -> str:
    """The same text with each call as the command that does it, and each argument as the option.

    Args:
        text: a message of the engine.
        path: of the store, as ``--path`` has it; None: it is the usual one.
    """
    return _OPTION.sub(_option, _CALL.sub(lambda found: _command(found[0], path), text))


def _command(text: str, path: str | None) -> str:
    import ast  # noqa: PLC0415 - a refusal is rare

    try:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        values = [str(ast.literal_eval(value)) for value in call.args]
    except (SyntaxError, ValueError):
        return text
    name = text.partition("(")[0].removeprefix("manager.").replace("_", "-")
    flags = "".join(f" --{flag.arg}" for flag in call.keywords)
    return command_line(path, name, *values) + flags


def _option(found: re.Match[str]) -> str:
    return f"--{found[1]}" if found[1] else f"--on-existing {found[2]}"


def whole_type(name: str, known: Sequence[str]) -> str:
    """The name of the one type that ends so; the name itself when none or several do.

    Args:
        name: as it was typed, perhaps without the module.
        known: whole names.
    """
    found = [whole for whole in known if whole == name or whole.endswith(f".{name}")]
    return found[0] if len(found) == 1 else name
