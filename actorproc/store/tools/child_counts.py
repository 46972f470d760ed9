"""Repair of numbers that heads keep for people: what a stopped store counts wrongly is counted anew."""

from __future__ import annotations

from functools import partial
from itertools import islice

from msgspec.structs import replace

from actorproc.model.rows.writes import PutProcedure, Was
from actorproc.store.base import ProcedureStore
from actorproc.store.verify.child_counts import ChildCount, miscounted

__all__ = ["recount_children"]

_AT_ONCE = 1000
"""Heads in one commit."""


def recount_children(store: ProcedureStore) -> list[ChildCount]:
    """Own the store, set right the numbers of children in its heads, and give it back; what was wrong.

    Raises `StoreInUse` when a manager runs, and other `EngineError`s.
    """
    epoch = store.own()
    try:
        wrong = miscounted(partial(store.scan, skip_damaged=True))
        left = iter(wrong)
        while some := list(islice(left, _AT_ONCE)):
            store.commit([_mended(one) for one in some], epoch)
    finally:
        store.close()
    return wrong


def _mended(one: ChildCount) -> PutProcedure:
    head = one.head
    return PutProcedure(replace(head, child_states=one.right), Was.of(head))
