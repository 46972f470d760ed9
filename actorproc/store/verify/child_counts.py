"""Check of the numbers of children by state that heads keep, against the states of the children.

They are for people alone: no decision is made from them. Wrong ones show in lists, and a doctor tells and mends them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import msgspec

from actorproc.model.rows.records import CHILD_STATES, ProcedureRecord
from actorproc.model.states import ProcedureState

__all__ = ["ChildCount", "miscounted"]

_PLACE: dict[ProcedureState, int] = {state: place for place, state in enumerate(CHILD_STATES)}


class ChildCount(msgspec.Struct, frozen=True):
    """A head whose numbers are wrong, and the right ones."""

    head: ProcedureRecord
    right: tuple[int, ...]

    def in_words(self) -> str:
        """One sentence about it."""
        said = _words(self.head.child_states or ())
        return f"{self.head.id} counts its children as {said}, and they are {_words(self.right)}"


def miscounted(heads: Callable[[], Iterable[ProcedureRecord]]) -> list[ChildCount]:
    """Heads that count their children wrongly. `heads` gives all heads that there are, twice the same."""
    counting = {head.id: (head, [0] * len(CHILD_STATES)) for head in heads() if _counts(head)}
    for child in heads():
        found = counting.get(child.parent) if child.parent is not None else None
        if found is not None and child.seq >= found[0].renewed:  # else it belongs to an earlier generation
            found[1][_PLACE[child.state]] += 1
    wrong = []
    for head, right in counting.values():
        if tuple(right) != (head.child_states or (0,) * len(CHILD_STATES)):
            wrong.append(ChildCount(head, tuple(right) if any(right) else ()))
    return wrong


def _counts(head: ProcedureRecord) -> bool:
    """True if it keeps numbers; a head of an earlier version has none, and its links are counted."""
    return head.child_states is not None and (head.children > 0 or any(head.child_states))


def _words(numbers: tuple[int, ...]) -> str:
    named = [f"{number} {state}" for state, number in zip(CHILD_STATES, numbers, strict=False) if number]
    return ", ".join(named) or "none"
