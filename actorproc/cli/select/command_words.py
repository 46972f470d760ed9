"""Refusals of the engine in the words of the command line: they advise calls, and a shell has commands and options."""

from __future__ import annotations

import argparse
import re

from actorproc.cli.select.common import typed

__all__ = ["in_command_words"]

_CALL = re.compile(
    r"(?:manager\.)?\b(?:abort|bypass|clear_poison|delete|kill|publish|resume|retry|rollback)"
    r"""\((?:[^()'"]|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")*\)"""
)
_OPTION = re.compile(r"\b(force|children|ancestors)=True\b|\bon_existing='([a-z-]+)'")


def in_command_words(text: str, options: argparse.Namespace) -> str:
    """The same text with each call as the command that does it, and each argument as the option.

    Args:
        text: a message of the engine.
        options: of the command; ``--path`` is said again.
    """
    return _OPTION.sub(_option, _CALL.sub(lambda found: _command(found[0], options), text))


def _command(text: str, options: argparse.Namespace) -> str:
    import ast

    try:
        call = ast.parse(text, mode="eval").body
        assert isinstance(call, ast.Call)
        values = [str(ast.literal_eval(value)) for value in call.args]
    except (SyntaxError, ValueError):
        return text
    name = text.partition("(")[0].removeprefix("manager.").replace("_", "-")
    flags = "".join(f" --{flag.arg}" for flag in call.keywords)
    return typed(options, name, *values) + flags


def _option(found: re.Match[str]) -> str:
    return f"--{found[1]}" if found[1] else f"--on-existing {found[2]}"
