"""Sub-procedures of a suspended step: checked before the step is recorded, created with it in one decision."""

from __future__ import annotations

from collections import OrderedDict

from actorproc.core.book import Book
from actorproc.core.lifecycle import Trigger, move
from actorproc.core.queueing import wake
from actorproc.core.submitting import MAX_DEPTH, admit, refusal
from actorproc.model.outcomes import Answered, Outcome, Suspended
from actorproc.model.records import ChildRecord, ProcedureRecord
from actorproc.model.writes import PutChild

__all__ = ["make_children", "problem_with", "suspend"]


def problem_with(book: Book, record: ProcedureRecord, outcome: Outcome) -> str | None:
    """Why the engine cannot do what a step asked for; None when it can. Then the step counts as failed."""
    if isinstance(outcome, Answered):
        return "an answer to abort() came where a step's outcome was due"
    if not isinstance(outcome, Suspended):
        return None
    if outcome.wait != "all" or outcome.on_parent_end != "abort":
        asked = f"suspended(wait={outcome.wait!r}, on_parent_end={outcome.on_parent_end!r})"
        return f"{asked} is not supported: a parent waits for all its children"
    if outcome.children and record.depth + 1 > MAX_DEPTH:
        return f"sub-procedures are nested deeper than {MAX_DEPTH}"
    seen = set()
    for new in outcome.children:
        if new.id in seen or new.id in book.procs:
            return f"child id {new.id} is in use already; every child needs an id of its own"
        seen.add(new.id)
        error = refusal(book, new, record.root)
        if error is not None:
            return f"child {new.id}: {error}"
    return None


def suspend(book: Book, record: ProcedureRecord, outcome: Suspended) -> None:
    """Create the children and wait for them; none resumes the parent at once."""
    children = make_children(book, record, outcome)
    record.awaiting = record.step - 1
    record.wait, record.max_parallel, record.on_parent_end = outcome.wait, outcome.max_parallel, outcome.on_parent_end
    record.pending = record.width = len(children)
    if not children:
        wake(book, record)
        return
    move(record, Trigger.SUSPENDED)
    limit = outcome.max_parallel or len(children)
    record.started = min(limit, len(children))
    if len(children) > limit:
        book.tree_of(record).held[record.id] = OrderedDict.fromkeys(child.id for child in children[limit:])
    for child in children[:limit]:
        wake(book, child)


def make_children(book: Book, record: ProcedureRecord, outcome: Suspended) -> list[ProcedureRecord]:
    """Create the children of the step just recorded. Those of a failing parent are recorded and never start."""
    children = []
    for index, new in enumerate(outcome.children):
        child = admit(book, new, record)
        book.write(PutChild(ChildRecord(record.id, record.step - 1, index, child.id)))
        child.rolling = record.rolling
        children.append(child)
    record.children += len(children)
    return children
