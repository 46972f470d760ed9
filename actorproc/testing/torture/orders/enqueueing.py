"""Enqueued procedures under torture: applications that enqueue in transactions of their own, and the judge.

Each transaction writes a row of the application beside what it enqueues. So the database itself says which of them were
committed, whatever the application knew of that when it was killed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random
from typing import TYPE_CHECKING, Any, get_args

from actorproc.testing.histories.evidence import StoreDump, Violation
from actorproc.testing.journal import JournalLine
from actorproc.testing.torture.orders.roots import Enqueueing, TransactionEnd

if TYPE_CHECKING:
    from actorproc.testing.torture.orders.roots import Root

__all__ = ["draw_enqueued", "judge_enqueued"]

_ENDS: tuple[TransactionEnd, ...] = get_args(TransactionEnd)
_WEIGHTS = (5, 2, 2, 2, 3, 2)


# ------------------------------------------------------------ plans
def draw_enqueued(chance: Random) -> tuple[dict[str, Any], Enqueueing]:
    """A procedure that is enqueued, and its transaction."""
    orders = [{"do": "work", "seconds": round(chance.uniform(0.0, 0.2), 3)} for _ in range(chance.randint(1, 3))]
    ends = chance.choices(_ENDS, _WEIGHTS)[0]
    seconds = chance.uniform(0.0, 0.004) if ends == "killed-during" else chance.choice((0.0, chance.uniform(0.0, 0.5)))
    terms = Enqueueing(ends, round(seconds, 4), notifies=chance.random() < 0.8)
    return {"type": "errand", "orders": orders, "keys": []}, terms


# ------------------------------------------------------------ judging
class _Seen:
    """One walk over the lines: what the database has seen of each root that was enqueued."""

    def __init__(self, enqueued: set[str]) -> None:
        self._enqueued = enqueued
        self.committed: set[str] = set()
        self.ran: set[str] = set()
        self.created: dict[str, list[int]] = {}
        """Times at which procedures came into the store."""
        self.waiting: dict[str, str] = {}
        """Ids of rows that wait, by their keys."""
        self.gone: dict[str, list[int]] = {}
        """Times at which rows left the store, by their ids."""
        self._known: set[str] = set()

    def read(self, line: JournalLine) -> None:
        id = line.procedure
        match line.kind:
            case "row-put":
                self.waiting[line.unit or ""] = id
            case "row-gone" if (row := self.waiting.pop(line.unit or "", None)) is not None:
                self.gone.setdefault(row, []).append(line.at)
        if id not in self._enqueued:
            return
        match line.kind:
            case "submitted":
                self.committed.add(id)
            case "durable" if id not in self._known:
                self._known.add(id)
                self.created.setdefault(id, []).append(line.at)
            case "removed":
                self._known.discard(id)
            case "enter":
                self.ran.add(id)


def judge_enqueued(roots: Iterable[Root], lines: Iterable[JournalLine], dump: StoreDump) -> Iterator[Violation]:
    """Broken promises of the number 34: what is committed is created once, with the end of its row, and nothing else.

    Args:
        roots: Those of the plan.
        lines: Lines of the journal and of the witness: ``submitted`` for each row of an application, ``row-put`` and
            ``row-gone`` for each one that it enqueued.
        dump: The store at the end.

    Yields:
        The violations.
    """
    enqueued = {root.id for root in roots if root.enqueue is not None}
    seen = _Seen(enqueued)
    for line in lines:
        seen.read(line)
    for id in sorted(enqueued):
        times, gone = seen.created.get(id, []), seen.gone.get(id, [])
        if id in seen.committed and id not in dump.heads:
            yield Violation(34, f"{id} was enqueued in a transaction that is committed, and is no procedure")
        if id not in seen.committed and (id in dump.heads or id in seen.ran or times):
            yield Violation(34, f"{id} is a procedure, and the transaction that enqueued it was not committed")
        if len(times) > 1:
            yield Violation(34, f"{id} was enqueued once, and created {len(times)} times")
        elif gone != times:
            yield Violation(34, f"{id} was created in the commit of {times}, and its row went in that of {gone}")
    for key, id in seen.waiting.items():
        yield Violation(34, f"the row {key} of {id} is left at the end")
