"""Tags of a procedure: plain words, and keys with values, stored as the texts ``word`` and ``key=value``.

A key has one value. A word is a key without one.
"""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["MAX_TAGS", "TagChange", "changed_tags", "key_of", "tag_of", "values_of"]

MAX_TAGS = 100
"""Tags of one procedure; they are in its head, which is written with every step."""

TagChange = tuple[str, str | None]
"""A key and its new value; None: the key goes, with its value or as a word."""


def tag_of(key: str, value: str) -> str:
    """The text of a key and its value."""
    return f"{key}={value}"


def key_of(tag: str) -> str:
    """The key in a tag; of a word, the word."""
    return tag.partition("=")[0]


def values_of(tags: Iterable[str]) -> dict[str, str]:
    """Keys and their values; words are left out."""
    return {key: value for key, equals, value in (tag.partition("=") for tag in tags) if equals}


def changed_tags(tags: tuple[str, ...], changes: Iterable[TagChange]) -> tuple[str, ...]:
    """The tags after these changes. A key that has its new value already keeps its place."""
    wanted = dict(changes)
    kept = [tag for tag in tags if (key := key_of(tag)) not in wanted or tag == _text(key, wanted[key])]
    known = frozenset(kept)
    added = (tag_of(key, value) for key, value in wanted.items() if value is not None)
    return (*kept, *(tag for tag in added if tag not in known))


def _text(key: str, value: str | None) -> str | None:
    return None if value is None else tag_of(key, value)
