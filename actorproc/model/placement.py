"""Placement: labels and resources that hosts offer and steps ask for."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["Amounts", "checked_labels", "checked_resources", "offer_in_words"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/=-]{0,62}")
_NAME_IN_WORDS = "letters, digits and . _ / = -, at most 63 of them, the first a letter or a digit"
_MOST = 1e9
_LEAST = 0.001


class Amounts(dict[str, float]):
    """Amounts by resource. It can be hashed, and is not to be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))


def checked_labels(labels: Any, what: str) -> tuple[str, ...]:
    """The labels, sorted and each once.

    Args:
        labels: Any iterable of texts but a text.
        what: The parameter, for the message of an error.

    Returns:
        The labels.

    Raises:
        ValueError: One of them is no label, or ``labels`` is no iterable of texts.
    """
    if isinstance(labels, str) or not isinstance(labels, Iterable):
        example = f'; write ("{labels}",)' if isinstance(labels, str) else ""
        msg = f"{what} is a tuple of labels such as ('gpu',), not {labels!r:.80}{example}"
        raise ValueError(msg)  # noqa: TRY004 - one kind of error for all that is wrong with it
    found = tuple(labels)
    for label in found:
        if not isinstance(label, str) or not _NAME.fullmatch(label):
            msg = f"{what} has the label {label!r:.80}; a label has {_NAME_IN_WORDS}"
            raise ValueError(msg)
    return tuple(sorted({str(label) for label in found}))


def checked_resources(resources: Any, what: str) -> Amounts:
    """The amounts of resources, sorted by name.

    Args:
        resources: A mapping of names to numbers above zero, of which three decimals count.
        what: The parameter, for the message of an error.

    Returns:
        The amounts.

    Raises:
        ValueError: A name or a number makes no sense, or ``resources`` is no mapping.
    """
    if not isinstance(resources, Mapping):
        msg = f"{what} is a mapping such as {{'gpu': 1}}, not {resources!r:.80}"
        raise ValueError(msg)  # noqa: TRY004
    for name, amount in resources.items():
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            msg = f"{what} names the resource {name!r:.80}; a name has {_NAME_IN_WORDS}"
            raise ValueError(msg)
        is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not is_number or not math.isfinite(amount) or not _LEAST <= amount <= _MOST:
            msg = f"{what} has {amount!r:.40} of {name!r}; it must be a number from {_LEAST:g} to {_MOST:g}"
            raise ValueError(msg)
    return Amounts((str(name), round(resources[name], 3)) for name in sorted(resources))


def offer_in_words(labels: Iterable[str], resources: Mapping[str, float]) -> str:
    """Labels and resources as people read them: ``ssd and 2 gpu``; empty when there are none."""
    return " and ".join([*labels, *(f"{amount:g} {name}" for name, amount in resources.items())])
