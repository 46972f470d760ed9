"""Near misses: the command, the option or the id that was meant."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from actorproc.api.reader import StoreReader
    from actorproc.store.reading import ReadingStore

__all__ = ["nearest", "nearest_ids", "unknown_command"]

_MOST = 3
_LOOKED_AT = 2000
"""Ids that are compared: of a large store those that begin as the wrong one does."""
_VALUED = ("--path", "-o", "--output", "--color")


def nearest(text: str, known: Iterable[str]) -> list[str]:
    """At most three of these that are most like a text; none when nothing is."""
    import difflib

    names = list(dict.fromkeys(known))
    found = difflib.get_close_matches(text, names, _MOST, 0.6)
    if not found:
        found = [name for name in names if len(text) > 2 and (text in name or name in text)][:_MOST]
    return found


def unknown_command(arguments: Sequence[str], known: Iterable[str], aliases: Iterable[str]) -> str:
    """The refusal of a command that there is none of; "": there is no command in these arguments, or it is known."""
    skip = False
    for argument in arguments:
        if skip:
            skip = False
        elif argument in _VALUED:
            skip = True
        elif argument in ("-h", "--help", "--version") or argument.startswith("--print-completion"):
            return ""
        elif not argument.startswith("-"):
            if argument in known or argument in aliases:
                return ""
            found = nearest(argument, known)[:2]
            meant = f", did you mean {' or '.join(map(repr, found))}?" if found else "; all of them: actorproc --help"
            return f"actorproc: unknown command {argument!r}{meant}"
    return ""


def nearest_ids(source: StoreReader | ReadingStore, text: str) -> list[str]:
    """Ids that are most like a text, from those that begin as it does."""
    for length in range(len(text) - 1, -1, -1):
        begin = text[:length]
        found = source.ids(begin)
        if length and len(found) < _MOST and length > 1:
            near = nearest(text, found)
            if near and len(near) == len(found):
                return near
            continue
        if found and (near := nearest(text, found[:_LOOKED_AT])):
            return near
    return []
