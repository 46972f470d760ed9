"""Which limits hold for the next step of a procedure: those of its submit, else those of its class."""

from __future__ import annotations

from actorproc.core.book import Book
from actorproc.model.policies import StepLimits
from actorproc.model.records import ProcedureRecord

__all__ = ["limits_of"]


def limits_of(book: Book, record: ProcedureRecord) -> StepLimits:
    """The limits of a procedure whose class is registered."""
    if record.limits is not None:
        return record.limits
    meta = book.types[record.type_name]
    known = book.limits.get(record.type_name)
    if known is None or known[0] is not meta:
        known = book.limits[record.type_name] = (meta, meta.limits)
    return known[1]
