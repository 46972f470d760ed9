"""Options of a submit as they are stored, checked; wrong ones are a `TypeError` or `ValueError`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from actorproc.errors import UsageError
from actorproc.model.exact import exact_text
from actorproc.model.rows.tags import MAX_TAGS, key_of, tag_of

__all__ = [
    "MAX_TAGS",
    "Tags",
    "checked_limit_keys",
    "checked_priority",
    "checked_tag",
    "checked_tag_key",
    "checked_tags",
    "checked_text",
    "listed_keys",
]

MAX_LIMIT_KEYS = 16
"""Limit keys of one procedure."""
Tags = Mapping[str, str] | Iterable[str]
"""Tags as a caller gives them: keys with values, or a list of words and of texts ``key=value``."""


def checked_tags(tags: Tags | None) -> tuple[str, ...]:
    """Tags of a procedure as they are stored, each once."""
    if isinstance(tags, str):
        msg = f"tags={tags!r:.60} is one string; give a list of strings, or a dict of keys and values"
        raise TypeError(msg)
    given: Any = () if tags is None else tags
    if not isinstance(given, Iterable):
        msg = f"tags={tags!r:.60} is no list of strings, and no dict of keys and values"
        raise TypeError(msg)
    if isinstance(given, Mapping):
        labels = tuple(checked_tag(key, value) for key, value in given.items())
    else:
        labels = tuple(dict.fromkeys(map(_checked_label, given)))
    if len(labels) > MAX_TAGS:
        msg = f"{len(labels)} tags are given; a procedure may have {MAX_TAGS}. Keep the rest in its fields"
        raise ValueError(msg)
    values: dict[str, str] = {}
    for label in labels:
        first = values.setdefault(key_of(label), label)
        if first != label:
            msg = (
                f"the tags give the key {key_of(label)!r:.60} two values, {first!r:.60} and {label!r:.60}; give it one"
            )
            raise ValueError(msg)
    return labels


def checked_tag(key: Any, value: Any) -> str:
    """The tag of a key and its value."""
    name = checked_tag_key(key)
    if not isinstance(value, str):
        msg = f"the value of the tag {name!r:.60} is a string, not {value!r:.60}"
        raise TypeError(msg)
    return checked_text(tag_of(name, exact_text(value)), f"the tag {name!r:.60} with its value")


def checked_tag_key(key: Any) -> str:
    """The key of a tag."""
    name = checked_text(key, "the key of a tag")
    if "=" in name:
        msg = f"the key of a tag has no '=' in it, as {name!r:.60} has; a dict of tags is {{'key': 'value'}}"
        raise ValueError(msg)
    return name


def _checked_label(label: Any) -> str:
    text = checked_text(label, "a tag")
    if text[0] == "=":
        msg = f"the tag {text!r:.60} has no key before its '='; write a word, or key=value"
        raise ValueError(msg)
    return text


def checked_text(text: Any, what: str, limit: int = 256) -> str:
    """Text of the caller, as it is stored: a plain string that UTF-8 can hold, of a bounded length."""
    if not isinstance(text, str):
        msg = f"{what} is a string, not {text!r:.60}"
        raise TypeError(msg)
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        msg = f"{what} {text!a:.60} holds a lone surrogate, which cannot be stored"
        raise ValueError(msg) from None
    if not 0 < size <= limit:
        msg = f"{what} has {size} bytes in UTF-8; 1 to {limit} are allowed"
        raise ValueError(msg)
    return exact_text(text)


def checked_priority(priority: Any) -> int:
    """A priority the store can hold in order."""
    if not isinstance(priority, int) or isinstance(priority, bool) or abs(priority) > 1_000_000_000:
        msg = f"priority is an int between -1000000000 and 1000000000, not {priority!r:.60}"
        raise TypeError(msg)
    return int(priority)


def checked_limit_keys(keys: Any, source: str) -> tuple[str, ...]:
    """Limit keys as they are stored, each once; `source` says in an error where they came from."""
    listed = listed_keys(keys, source, "names such as 'smtp'")
    for key in listed:
        if not isinstance(key, str) or not 0 < len(key) <= 255 or not key.isprintable():
            msg = f"{source} gives names of 1 to 255 printable characters such as 'smtp', not {key!r:.60}"
            raise UsageError(msg)
    if len(listed) > MAX_LIMIT_KEYS:
        msg = f"{source} gives {len(listed)} keys; a procedure may have {MAX_LIMIT_KEYS}"
        raise UsageError(msg)
    return tuple(dict.fromkeys(map(exact_text, listed)))


def listed_keys(keys: Any, source: str, wanted: str) -> tuple[Any, ...]:
    """The keys one by one; a string is one of them, whatever else cannot be gone through is a mistake."""
    if isinstance(keys, str):
        return (keys,)
    if not isinstance(keys, Iterable):
        msg = f"{source} gives a list of {wanted}, not {keys!r:.80}"
        raise UsageError(msg)
    return tuple(keys)
