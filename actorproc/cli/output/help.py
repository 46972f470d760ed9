"""The help in groups, and parsers that know what was meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from actorproc.cli.output.nearest import nearest

__all__ = ["CommandParser"]

_UNKNOWN = re.compile(r"unrecognized arguments: (--[\w-]+)")


class CommandParser(argparse.ArgumentParser):
    """A parser whose help shows its commands in groups, and that names the option which a wrong one is like."""

    def __init__(self, *arguments: Any, groups: Mapping[str, Sequence[str]] | None = None, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self._groups = groups or {}

    def format_help(self) -> str:
        """The help; the list of commands stands in its groups."""
        text = super().format_help()
        listed = self._listed()
        start, end = text.find("\npositional arguments:"), text.find("\noptions:")
        if not self._groups or len(listed) < len(COMMON) or start < 0 or end < start:
            return text
        lines = []
        for heading, names in self._groups.items():
            lines += ["", f"{heading}:", *(_line(name, listed[name]) for name in names if name in listed)]
        return text[:start] + "\n".join(lines) + "\n" + text[end:]

    def error(self, message: str) -> NoReturn:
        """Refuse a call; an unknown option is told with the one that is meant."""
        match = _UNKNOWN.match(message)
        if match is not None:
            known = [name for parser in (self, *self._children()) for name in parser._option_string_actions]
            if found := nearest(match[1], known):
                message += f"; did you mean {' or '.join(found)}?"
        super().error(message)

    def _listed(self) -> dict[str, str]:
        return {
            choice.dest: choice.help or ""
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for choice in action._choices_actions
        }

    def _children(self) -> list[argparse.ArgumentParser]:
        return [
            parser
            for action in self._actions
            if isinstance(action, argparse._SubParsersAction)
            for parser in action.choices.values()
        ]


COMMON = ("status", "list")
"""Commands that a parser of all of them has."""


def _line(name: str, says: str) -> str:
    import textwrap

    return textwrap.fill(says, 79, initial_indent=f"  {name:<13} ", subsequent_indent=" " * 16)
